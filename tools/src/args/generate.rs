//! `ticktape generate`.

use std::path::PathBuf;
use std::str::FromStr;

use orderbook::flow::{RESTING_MAX, WHOLE_PPM};

/// Decimals of a share in percent, so that it is a whole number in a million.
const DECIMALS_MAX: usize = 4;

#[derive(clap::Args)]
pub struct GenerateArgs {
    /// Where to: an orders file, as gzip where the name ends in .gz
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// How many messages
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub orders: u32,
    /// Seed: the same seed and options are the same file
    #[arg(long, value_name = "N", default_value_t = 23)]
    pub seed: u64,
    /// New orders, in percent of the messages; with --cancel and --modify it comes to 100
    #[arg(long, value_name = "PERCENT", default_value = "60")]
    pub new: Share,
    /// Cancels, in percent of the messages
    #[arg(long, value_name = "PERCENT", default_value = "31")]
    pub cancel: Share,
    /// Modifies, in percent of the messages
    #[arg(long, value_name = "PERCENT", default_value = "9")]
    pub modify: Share,
    /// Immediate-or-cancel orders, in percent of the new ones
    #[arg(long, value_name = "PERCENT", default_value = "15")]
    pub ioc: Share,
    /// Orders priced to trade at once, in percent of the new and modified ones
    #[arg(long, value_name = "PERCENT", default_value = "12")]
    pub crossing: Share,
    /// Cancels and modifies of orders that do not rest, in percent of them; the others hit
    #[arg(long, value_name = "PERCENT", default_value = "2")]
    pub miss: Share,
    /// The lowest and the highest price, in ticks
    #[arg(long, value_name = "LOW..HIGH", default_value = "33000..34800", allow_hyphen_values = true)]
    pub price_range: PriceRange,
    /// Sizes are 1 to this
    #[arg(long, value_name = "N", default_value_t = 99, value_parser = clap::value_parser!(u32).range(1..))]
    pub size_max: u32,
    /// Orders that rest at once, at most; cancels come instead of new orders then
    #[arg(long, value_name = "N", default_value_t = 1 << 20, value_parser = clap::value_parser!(u32).range(1..=i64::from(RESTING_MAX)))]
    pub resting_max: u32,
    /// One JSON object instead of lines
    #[arg(long)]
    pub json: bool,
}

/// A share, in a million.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share(pub u32);

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || format!("{text:?} is no share: 0 to 100 percent, with up to {DECIMALS_MAX} decimals");
        let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
        let are_digits = |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
        if !are_digits(whole) || !are_digits(decimals) || decimals.len() > DECIMALS_MAX {
            return Err(refused());
        }
        let number = format!("{whole}{decimals:0<DECIMALS_MAX$}").parse::<u32>().map_err(|_| refused())?;
        if number <= WHOLE_PPM { Ok(Share(number)) } else { Err(refused()) }
    }
}

/// The lowest and the highest price.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriceRange(pub i64, pub i64);

impl FromStr for PriceRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (low, high) = text.split_once("..").unwrap_or_default();
        match (low.trim().parse(), high.trim().parse()) {
            (Ok(low), Ok(high)) => Ok(PriceRange(low, high)),
            _ => Err(format!("{text:?} is no range of prices, as 33000..34800")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_whole_numbers_in_a_million() {
        for (text, ppm) in [("0", 0), ("100", 1_000_000), ("50.1", 501_000), ("0.0001", 1), ("8.60", 86_000)] {
            assert_eq!(text.parse(), Ok(Share(ppm)), "{text}");
        }
        for text in ["", ".5", "5.", "-1", "100.1", "1e1", "0.00001", "99999999999", "5%", "1.2.3"] {
            assert!(text.parse::<Share>().unwrap_err().contains("0 to 100 percent"), "{text}");
        }
    }

    #[test]
    fn prices_may_be_negative() {
        assert_eq!("-5..7".parse(), Ok(PriceRange(-5, 7)));
        for text in ["", "5", "5..", "..5", "5-7", "a..b", "1..2..3"] {
            assert!(text.parse::<PriceRange>().is_err(), "{text}");
        }
    }
}
