//! Spans of time as users write them: `250us`, `1ms`, `1.5s`, `10m`, `2h`; a bare number is seconds.

use std::time::Duration;

/// A duration of at most a year, or what is wrong with the text.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" | "" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("unit `{unit}` is not one of us, ms, s, m, h")),
    };
    let number: f64 = number.parse().map_err(|_| format!("`{number}` is not a number"))?;
    Duration::try_from_secs_f64(number * seconds)
        .ok()
        .filter(|span| span.as_secs() <= 366 * 86_400)
        .ok_or_else(|| format!("`{text}` is longer than a year"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_a_number_and_a_unit() {
        for (text, micros) in
            [("250us", 250), ("1ms", 1_000), ("1.5s", 1_500_000), ("3", 3_000_000), ("10m", 600_000_000), ("0s", 0)]
        {
            assert_eq!(parse(text), Ok(Duration::from_micros(micros)), "{text}");
        }
        assert_eq!(parse("5 min"), Err("unit ` min` is not one of us, ms, s, m, h".into()));
        assert_eq!(parse("ms"), Err("`` is not a number".into()));
        assert_eq!(parse("1e9h").unwrap_err(), "unit `e9h` is not one of us, ms, s, m, h");
        assert_eq!(parse("9000000h").unwrap_err(), "`9000000h` is longer than a year");
    }
}
