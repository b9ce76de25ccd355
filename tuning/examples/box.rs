//! Describes this box: `cargo run --release -p ticktape-tuning --example box`.

use ticktape_tuning::{hop, host, jitter, pin};

fn main() -> Result<(), pin::PinError> {
    let host = host::describe();
    println!("{host}");
    let cores = &host.usable_cores;
    if let [a, b, ..] = cores[..] {
        println!("{}", hop::probe(a, b)?);
    }
    println!("{}", hop::probe(cores[0], cores[0])?);
    for &core in cores {
        pin::pin_current_thread(core)?;
        let gaps = jitter::baseline(500);
        let at = |quantile| gaps.value_at_quantile(quantile);
        println!(
            "jitter on core {core}: p50 {} ns, p99 {} ns, p99.99 {} ns, max {} ns",
            at(0.5),
            at(0.99),
            at(0.9999),
            gaps.max()
        );
    }
    Ok(())
}
