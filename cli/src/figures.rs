//! Figures as people read them.

/// Three decimals are more than any of these figures is good for.
pub(crate) fn rounded(figure: f64) -> f64 {
    (figure * 1000.0).round() / 1000.0
}

/// A time with three significant digits and its unit.
pub(crate) fn human_ns(ns: u64) -> String {
    let (value, unit) = match ns {
        0 => return "0".to_owned(),
        1..1_000_000 => (ns as f64 / 1e3, "µs"),
        1_000_000..1_000_000_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    let decimals = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    let number = format!("{value:.decimals$}");
    let number = match number.split_once('.') {
        Some(_) => number.trim_end_matches('0').trim_end_matches('.'),
        None => &number,
    };
    format!("{number} {unit}")
}

/// Digits in groups of three.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits_and_a_unit() {
        for (ns, text) in [
            (0, "0"),
            (40, "0.04 µs"),
            (999, "1 µs"),
            (1250, "1.25 µs"),
            (31_500, "31.5 µs"),
            (500_000, "500 µs"),
            (1_000_000, "1 ms"),
            (2_047_000, "2.05 ms"),
            (100_000_000, "100 ms"),
            (1_500_000_000, "1.5 s"),
        ] {
            assert_eq!(human_ns(ns), text);
        }
    }

    #[test]
    fn digits_are_grouped() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1000), "1,000");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }
}
