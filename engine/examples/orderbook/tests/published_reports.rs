//! Whole report streams against those published with the flow (MIT, see fixtures/LICENSE).

use std::io::Read;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use orderbook::{BookConfig, Command, Driver, OrderBook, ReportHasher, ReportStream, Side, flow};
use ticktape::{Invariants, Service};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn driver() -> Driver {
    Driver::new(OrderBook::genesis(&BookConfig::default()))
}

fn stream_of(driver: &mut Driver, commands: &[Command]) -> ReportStream {
    let mut stream = ReportStream::new();
    for command in commands {
        driver.apply(command, |report| stream.push(*report));
    }
    stream
}

fn agrees(name: &str, sha256: &str, best_bid: i64, best_ask: i64, resting: usize) {
    let commands = flow::load(fixture(&format!("{name}_first20000.bin.gz"))).unwrap();
    assert_eq!(commands.len(), 20_000);
    let mut published = Vec::new();
    let file = std::fs::File::open(fixture(&format!("{name}_first20000.reports.txt.gz"))).unwrap();
    MultiGzDecoder::new(file).read_to_end(&mut published).unwrap();

    let mut driver = driver();
    let mut stream = stream_of(&mut driver, &commands);
    let text = stream.text();
    let line = |text: &[u8], n: usize| text.split(|&byte| byte == b'\n').nth(n).map(<[u8]>::to_vec);
    if let Some(n) = (0..20_000).find(|&n| line(&text, n) != line(&published, n)).filter(|_| text != published) {
        let show = |line: Option<Vec<u8>>| line.map(|line| String::from_utf8_lossy(&line).into_owned());
        panic!("line {n} is {:?}, published {:?}", show(line(&text, n)), show(line(&published, n)));
    }
    assert!(text == published);
    assert_eq!(stream.finish().sha256, sha256);
    let book = driver.into_book();
    book.check().unwrap();
    let best = |side| book.best(side).map(|(price, _)| price);
    assert_eq!((best(Side::Buy), best(Side::Sell)), (Some(best_bid), Some(best_ask)));
    assert_eq!(book.orders_live(), resting);
}

#[test]
fn normal_flow() {
    agrees("normal", "4008343c211f7e3330f9c7b7e72de5ebf5ee73fdf09ce47a2cb01e1e34b6c393", 33528, 34188, 76);
}

#[test]
fn static_flow() {
    agrees("static", "de099e7bd336442f55069bfcfa7e87e90ac8c4ca018cf646beef4334560ae147", 33503, 33505, 452);
}

#[test]
fn the_whole_normal_scenario() {
    let Some(cases) = std::env::var_os("TICKTAPE_CASES") else {
        let _ = writeln!(std::io::stderr(), "skipped: TICKTAPE_CASES does not name the folder of cases made elsewhere");
        return;
    };
    let path = Path::new(&cases).join("orders/normal_seed23_count1000000.bin.gz");
    let commands = flow::load(path).unwrap();
    let (mut driver, mut hasher) = (driver(), ReportHasher::new());
    for command in &commands {
        driver.apply(command, |report| hasher.push(report).unwrap());
    }
    let digest = hasher.finish();
    assert_eq!((commands.len(), digest.reports), (1_996_097, 2_204_643));
    assert_eq!(digest.sha256, "e9b2e3926854410b01a035aeb25dd05f1e597c233be8263de9eb49b6713d367e");
    driver.book().check().unwrap();
}

#[test]
fn a_restored_book_goes_on_with_the_published_reports() {
    let commands = flow::load(fixture("static_first20000.bin.gz")).unwrap();
    let mut driver = driver();
    let mut stream = ReportStream::new();
    for part in commands.chunks(777) {
        for command in part {
            driver.apply(command, |report| stream.push(*report));
        }
        let snapshot = driver.into_book().snapshot();
        let book = OrderBook::restore(snapshot.clone(), &BookConfig::default());
        assert_eq!(book.snapshot(), snapshot);
        book.check().unwrap();
        driver = Driver::new(book);
    }
    assert_eq!(stream.finish().sha256, "de099e7bd336442f55069bfcfa7e87e90ac8c4ca018cf646beef4334560ae147");
}
