use super::*;

const SMALLEST: &str = "dir = \"journal\"\nlisten = \"127.0.0.1:7001\"\n";

#[test]
fn what_is_given_beside_a_file_need_not_stand_in_it_and_wins() {
    let with = |text, dir: Option<&str>, listen: Option<&str>| {
        let listen = listen.map(|listen| listen.parse().unwrap());
        ApplianceConfig::parse_and(text, dir.map(Into::into), listen)
    };
    let config = with("", Some("there"), Some("127.0.0.1:9")).unwrap();
    assert_eq!((config.dir, config.listen.port()), ("there".into(), 9));
    let config = with(SMALLEST, Some("there"), None).unwrap();
    assert_eq!((config.dir, config.listen.port()), ("there".into(), 7001));
    assert!(with("", None, Some("127.0.0.1:9")).unwrap_err().contains("dir is missing"));
    assert!(with("dir = \"journal\"", None, None).unwrap_err().contains("listen is missing"));
}

#[test]
fn a_core_plan_is_written_as_lists_or_as_text() {
    let parse = |cores: &str| ApplianceConfig::parse(&format!("{SMALLEST}cores = {cores}\n")).unwrap().cores.unwrap();
    let lists = parse("[[\"sequencer\", \"executor\", \"egress\"], [\"journaler\", \"publisher\"]]");
    assert_eq!(parse("\"sequencer,executor,egress|journaler,publisher\""), lists);
    let plan = parse("\"sequencer,executor,egress@1:spin|journaler,publisher\"");
    assert_eq!((plan.slots()[0].core, plan.slots()[0].idle), (Some(1), Some(IdleStrategy::Spin)));
}

#[test]
fn a_full_file_is_read() {
    let text = format!(
        "{SMALLEST}tier = \"memory\"\nnic = \"udp\"\ncores = [[\"sequencer\", \"egress\"], [\"journaler\"], \
         [\"executor\", \"publisher\"]]\nidle = \"spin\"\nwindow = 100\n[ring]\nname = \"r\"\nbytes = 1048576\n[feed]\na = \
         \"239.1.1.1:7100\"\n"
    );
    let config = ApplianceConfig::parse(&text).unwrap();
    assert_eq!((config.tier, config.window, config.idle), (Tier::Memory, 100, IdleStrategy::Spin));
    assert_eq!(config.cores.as_ref().unwrap().slots().len(), 3);
    assert_eq!(config.ring.name.as_deref(), Some("r"));
    assert_eq!(config.feed.as_ref().unwrap().stream, "TAPE");
    assert_eq!(config.journal.strategy, StrategyChoice::Auto);
    let fixed = ApplianceConfig::parse(&format!("{SMALLEST}[journal]\nstrategy = \"flush\"")).unwrap();
    assert_eq!(fixed.journal.strategy, StrategyChoice::Fixed(ticktape_journal::Strategy::Flush));
    assert_eq!(config.validate(), Ok(()));
}

#[test]
fn the_file_in_the_readme_is_one() {
    let readme = include_str!("../../../README.md");
    let (_, rest) = readme.split_once("```toml\n").expect("the README shows a file");
    let (text, _) = rest.split_once("```").unwrap();
    let config = ApplianceConfig::parse(text).unwrap();
    assert_eq!(config.validate(), Ok(()));
    assert_eq!((config.service.as_deref(), config.journal.segment_bytes), (Some("orderbook"), 16 << 20));
}

#[test]
fn what_is_wrong_is_named_with_what_would_be_right() {
    let refused = |extra: &str| ApplianceConfig::parse(&format!("{SMALLEST}{extra}")).unwrap_err();
    assert!(refused("tier = \"disk\"").contains("one of memory, local"));
    assert!(refused("[journal]\nstrategy = \"hope\"").contains("hope"));
    assert!(refused("windw = 3").contains("line 3"));
    for (mac, what) in [
        ("00:00:00:00:00:00", "nobody's address"),
        ("ff:ff:ff:ff:ff:ff", "a group's address"),
        ("01:00:5e:00:00:01", "a group's address"),
        ("02:00", "no MAC address"),
    ] {
        let text = refused(&format!("[xdp]\ninterface = \"eth1\"\nnext_hop = \"{mac}\""));
        assert!(text.contains(&format!("next_hop = {mac:?} is {what}")) && text.starts_with("line 5"), "{text}");
    }
    assert!(refused("cores = [[\"sequencer\"]]").contains("missing"));
    for wrong in ["5", "[1, 2]", "[[\"sequencer\", 3]]", "{ sequencer = 1 }"] {
        let text = refused(&format!("cores = {wrong}"));
        assert!(text.starts_with("line 3: cores is a plan") && text.contains("sequencer,executor,egress@2|"), "{text}");
    }
    assert!(refused("idle = \"nap\"").contains("backoff"));
    let mut small = ApplianceConfig::parse(SMALLEST).unwrap();
    small.session_bytes = 65_536;
    assert_eq!(small.validate().unwrap_err().place, "session_bytes");
    small.window = 1024;
    assert_eq!(small.validate(), Ok(()));
    let none_kept = ApplianceConfig::parse(&format!("{SMALLEST}[snapshots]\nretained = 0")).unwrap();
    assert_eq!(none_kept.validate().unwrap_err().place, "snapshots.retained");
    let captured = |text: &str| {
        let config = ApplianceConfig::parse(&format!("{SMALLEST}[capture]\nfile = \"x.pcapng\"\n{text}")).unwrap();
        config.validate().map_err(|error| error.to_string())
    };
    assert_eq!(captured(""), Ok(()));
    assert!(captured("slots = 0").unwrap_err().starts_with("capture.slots: 0 is outside 1..="));
    assert!(captured("slots = 1000000").unwrap_err().contains("for 1472 bytes each"));
    assert!(captured("snap_bytes = 70000").unwrap_err().starts_with("capture.snap_bytes: 70000"));
    assert!(refused("[capture]\nslots = 5").contains("file"));
    let events = |text: &str| {
        let config = ApplianceConfig::parse(&format!("{SMALLEST}[events]\na = \"239.1.1.2:7200\"\n{text}")).unwrap();
        config.validate().map_err(|error| error.to_string())
    };
    assert_eq!(events("b = \"239.1.1.3:7200\"\nrepair = \"10.0.0.1:7201\""), Ok(()));
    assert!(events("stream = \"abcd\"").unwrap_err().starts_with("events.stream: \"abcd\" is not four"));
    let same = events("stream = \"TAPE\"\n[feed]\na = \"239.1.1.1:7100\"");
    assert!(same.unwrap_err().starts_with("events.stream: \"TAPE\" is that of [feed]"));
    assert!(events("recent_bytes = 100").unwrap_err().starts_with("events.recent_bytes: 100 is outside 1472..="));
    assert!(events("recent_bytes = 2000000000").unwrap_err().ends_with("is outside 1472..=1073741824"));
    assert_eq!(events("recent_bytes = 67108864"), Ok(()));
    let twice = events("[feed]\na = \"239.1.1.2:7200\"").unwrap_err();
    assert!(twice.starts_with("events.a: 239.1.1.2:7200 is feed.a, too"), "{twice}");
    assert!(events("b = \"239.1.1.2:7200\"").unwrap_err().starts_with("events.b: 239.1.1.2:7200 is events.a, too"));
    let ours = events("b = \"127.0.0.1:7001\"").unwrap_err();
    let expected = "events.b: 127.0.0.1:7001 is where this appliance itself is bound (listen = 127.0.0.1:7001)";
    assert!(ours.starts_with(expected), "{ours}");
    for (b, repair) in [("127.0.0.1:7201", "127.0.0.1:7201"), ("127.0.0.1:7201", "0.0.0.0:7201")] {
        let ours = events(&format!("b = \"{b}\"\nrepair = \"{repair}\"")).unwrap_err();
        assert!(ours.contains(&format!("(events.repair = {repair})")), "{ours}");
    }
    assert_eq!(events("b = \"10.0.0.9:7201\"\nrepair = \"0.0.0.0:7201\""), Ok(()), "another box's");
    assert!(events("b = \"239.1.1.2:0\"").unwrap_err().starts_with("events.b: 239.1.1.2:0 can't be sent to"));
    assert!(refused("[events]\nstream = \"EVNT\"").contains("missing field `a`"));
    let mut config = ApplianceConfig::parse(SMALLEST).unwrap();
    config.datagram_bytes_max = 10;
    assert_eq!(config.validate().unwrap_err().place, "datagram_bytes_max");
}
