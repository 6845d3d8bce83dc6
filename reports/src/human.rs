//! Numbers as a person reads them: three significant figures, SI steps, units attached.
//!
//! Every function is total: a value that is not finite reads "not available" instead of `NaN` or `inf`, so
//! nothing on a page can ever show those words.

pub use primitives::measure::count;

/// What stands where a number is missing.
pub const NOT_AVAILABLE: &str = "not available";

/// At least three significant figures: `0.0123`, `1.7`, `12.4`, `873`, `12345678`; with an exponent above 10¹⁵ and below 10⁻⁴.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return NOT_AVAILABLE.to_owned();
    }
    let size = value.abs();
    if size == 0.0 {
        return "0".to_owned();
    }
    if !(1e-4..1e15).contains(&size) {
        return format!("{value:.2e}");
    }
    // 9.995 must become 10.0, not 10.00: the magnitude is taken after rounding to three figures.
    let magnitude = (size * (1.0 + 5e-4)).log10().floor() as i32;
    let decimals = (2 - magnitude).clamp(0, 6) as usize;
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

fn scaled(value: f64, steps: &[(f64, &str)]) -> String {
    if !value.is_finite() {
        return NOT_AVAILABLE.to_owned();
    }
    let size = value.abs();
    // 999.6 k would round to "1000 k": step up half a figure early.
    let step = steps.iter().rev().find(|(unit, _)| size >= unit * 0.9995).or(steps.first());
    match step {
        Some((unit, name)) => format!("{}{name}", number(value / unit)),
        None => number(value),
    }
}

/// A rate per second: `12.4 M/s`, `873 k/s`, `40 /s`.
pub fn rate(per_second: f64) -> String {
    scaled(per_second, &[(1.0, "\u{a0}/s"), (1e3, "\u{a0}k/s"), (1e6, "\u{a0}M/s"), (1e9, "\u{a0}G/s")])
}

/// A rate without its unit, for places where the axis already names it: `12.4 M`.
pub fn short(value: f64) -> String {
    scaled(value, &[(1.0, ""), (1e3, "\u{a0}k"), (1e6, "\u{a0}M"), (1e9, "\u{a0}G")])
}

/// A duration given in nanoseconds: `850 ns`, `1.7 µs`, `3.2 ms`, `1.5 s`.
pub fn nanos(ns: f64) -> String {
    scaled(ns, &[(1.0, "\u{a0}ns"), (1e3, "\u{a0}µs"), (1e6, "\u{a0}ms"), (1e9, "\u{a0}s")])
}

/// A size given in bytes: `64 B`, `4 KiB`.
pub fn bytes(bytes: f64) -> String {
    scaled(
        bytes,
        &[(1.0, "\u{a0}B"), (1024.0, "\u{a0}KiB"), (1048576.0, "\u{a0}MiB"), (1073741824.0, "\u{a0}GiB")],
    )
}

/// How many times as much: `1.4×`, `16×`; near one with two decimals, `1.04×`.
pub fn times(ratio: f64) -> String {
    match ratio {
        r if !r.is_finite() => NOT_AVAILABLE.to_owned(),
        r if r.abs() >= 9.95 => format!("{}×", number(r.round())),
        r if (0.905..1.095).contains(&r) || r.abs() < 0.1 => {
            format!("{}×", number((r * 100.0).round() / 100.0))
        }
        r => format!("{}×", number((r * 10.0).round() / 10.0)),
    }
}

/// A count as it is, `1024`, unless it is long: `2 M`.
pub fn whole(count: f64) -> String {
    match count.fract() == 0.0 && count.abs() < 100_000.0 {
        true => format!("{count:.0}"),
        false => short(count),
    }
}

/// A signed share as a percentage: `+18 %`, `−2.5 %`.
pub fn signed_percent(share: f64) -> String {
    if !share.is_finite() {
        return NOT_AVAILABLE.to_owned();
    }
    let sign = match share {
        s if s >= 0.0005 => "+",
        s if s <= -0.0005 => "−",
        _ => "",
    };
    format!("{sign}{}", percent(share.abs()))
}

/// A share as a percentage: `18 %`, `2.5 %`, `0 %`; below a tenth of a percent `<0.1 %`.
pub fn percent(share: f64) -> String {
    if !share.is_finite() {
        return NOT_AVAILABLE.to_owned();
    }
    let value = share * 100.0;
    match value.abs() {
        0.0 => "0\u{a0}%".to_owned(),
        v if v < 0.05 => "<0.1\u{a0}%".to_owned(),
        v if v < 9.95 => format!("{}\u{a0}%", number((value * 10.0).round() / 10.0)),
        _ => format!("{}\u{a0}%", number(value.round())),
    }
}

/// At most `max` characters, the end replaced by an ellipsis.
pub fn ellipsize(text: &str, max: usize) -> String {
    match text.chars().count() > max {
        true => text.chars().take(max.saturating_sub(1)).collect::<String>().trim_end().to_owned() + "…",
        false => text.to_owned(),
    }
}

/// A UNIX time in seconds as a UTC date, `2026-11-20 19:04 UTC`.
pub fn date(unix_s: u64) -> String {
    // Days to civil date over 400-year eras that begin on 1 March, so the leap day comes last.
    let days = (unix_s / 86_400).min(1_000_000_000) + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let of_day = unix_s % 86_400;
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", of_day / 3600, of_day % 3600 / 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number never leaves its unit at the end of a line; tests need not see how.
    fn plain(text: String) -> String {
        text.replace('\u{a0}', " ")
    }

    #[test]
    fn rates_and_times_read_as_people_write_them() {
        assert_eq!(plain(rate(12_400_000.0)), "12.4 M/s");
        assert_eq!(plain(rate(873_000.0)), "873 k/s");
        assert_eq!(plain(rate(999_960.0)), "1 M/s");
        assert_eq!(plain(rate(0.0)), "0 /s");
        assert_eq!(plain(nanos(1_700.0)), "1.7 µs");
        assert_eq!(plain(nanos(850.0)), "850 ns");
        assert_eq!(plain(nanos(9_996.0)), "10 µs");
        assert_eq!(plain(bytes(64.0)), "64 B");
        assert_eq!(plain(bytes(4096.0)), "4 KiB");
        assert_eq!(number(12_345_678.4), "12345678");
        assert_eq!(number(0.000_012_34), "1.23e-5");
        assert_eq!(times(1.4), "1.4×");
        assert_eq!(times(1.04), "1.04×");
        assert_eq!(times(16.2), "16×");
        assert_eq!(whole(1024.0), "1024");
        assert_eq!(plain(signed_percent(0.18)), "+18 %");
        assert_eq!(plain(signed_percent(-0.025)), "−2.5 %");
        assert_eq!(plain(percent(0.00001)), "<0.1 %");
    }

    #[test]
    fn nothing_that_is_not_a_number_is_printed_as_one() {
        for f in [number, rate, short, nanos, bytes, times, signed_percent, percent] {
            for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                assert_eq!(f(bad), NOT_AVAILABLE);
            }
        }
        assert_eq!(plain(rate(1e300)), "1.00e291 G/s");
    }

    #[test]
    fn dates_survive_leap_years_and_the_far_future() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(date(1_795_201_440), "2026-11-20 19:04 UTC");
        assert!(date(u64::MAX).ends_with("UTC"));
    }
}
