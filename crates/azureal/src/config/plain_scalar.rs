//! The meaning of a plain scalar in YAML 1.1, by the rules of the parser that cllm uses.

use super::node::Value;

/// Returns the value of a scalar that is written without quotes and tag.
pub(super) fn resolve(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Nothing,
        "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Value::Switch(true),
        "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => Value::Switch(false),
        ".nan" | ".NaN" | ".NAN" => fraction(f64::NAN),
        _ => integer(text).or_else(|| fraction_of(text)).unwrap_or_else(|| Value::Text(text.to_owned())),
    }
}

/// Returns the value of a number with a fraction.
pub(super) fn fraction(number: f64) -> Value {
    if number.is_finite() { Value::Fraction(number) } else { Value::Other("a number without end") }
}

/// Splits the sign off.
fn signed(text: &str) -> (bool, &str) {
    match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    }
}

fn consists_of(text: &str, is_allowed: impl Fn(u8) -> bool) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte == b'_' || is_allowed(byte))
}

/// Returns whether a text is digits, the first of them not a `_`.
fn is_digits(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit()) && consists_of(text, |byte| byte.is_ascii_digit())
}

fn integer(text: &str) -> Option<Value> {
    let (is_negative, digits) = signed(text);
    let number = |digits: &str, radix| {
        let digits = digits.replace('_', "");
        let number = i128::from_str_radix(&digits, radix).ok()?;
        let number = if is_negative { -number } else { number };
        // A larger number is its digits: nobody can count with it, but it is printed as it is.
        Some(i64::try_from(number).map_or_else(|_| Value::Text(number.to_string()), Value::Integer))
    };
    if let Some(digits) = digits.strip_prefix("0b") {
        return consists_of(digits, |byte| matches!(byte, b'0' | b'1')).then(|| number(digits, 2))?;
    }
    if let Some(digits) = digits.strip_prefix("0x") {
        return consists_of(digits, |byte| byte.is_ascii_hexdigit()).then(|| number(digits, 16))?;
    }
    if digits == "0" {
        return Some(Value::Integer(0));
    }
    if digits.starts_with('0') {
        return consists_of(digits, |byte| matches!(byte, b'0'..=b'7')).then(|| number(digits, 8))?;
    }
    if is_digits(digits) {
        return number(digits, 10);
    }
    // `12:30` is a number of base 60.
    let (first, rest) = digits.split_once(':')?;
    is_digits(first).then(|| sexagesimal(first, rest, is_negative))?
}

fn sexagesimal(first: &str, rest: &str, is_negative: bool) -> Option<Value> {
    let mut sum: i64 = first.replace('_', "").parse().ok()?;
    for part in rest.split(':') {
        sum = sum.checked_mul(60)?.checked_add(sixtieth(part)?)?;
    }
    Some(Value::Integer(if is_negative { -sum } else { sum }))
}

/// Reads a part of a number of base 60: up to two digits, below 60.
fn sixtieth(part: &str) -> Option<i64> {
    let is_part = matches!(part.len(), 1 | 2) && part.bytes().all(|byte| byte.is_ascii_digit());
    part.parse().ok().filter(|part| is_part && *part < 60)
}

fn fraction_of(text: &str) -> Option<Value> {
    let (is_negative, digits) = signed(text);
    let sign = if is_negative { -1.0 } else { 1.0 };
    if matches!(digits, ".inf" | ".Inf" | ".INF") {
        return Some(fraction(f64::INFINITY));
    }
    let (whole, rest) = digits.split_once('.')?;
    let (part, exponent) = match rest.find(['e', 'E']) {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    let is_part = part.is_empty() || consists_of(part, |byte| byte.is_ascii_digit());
    if let Some((first, more)) = whole.split_once(':') {
        if !is_digits(first) || !is_part || !exponent.is_empty() {
            return None;
        }
        let Value::Integer(whole) = sexagesimal(first, more, false)? else { return None };
        let part: f64 = format!("0.{}0", part.replace('_', "")).parse().ok()?;
        return Some(fraction(sign * (whole as f64 + part)));
    }
    // A fraction without a digit before the point has no sign, and begins with a digit.
    let is_number =
        if whole.is_empty() { digits.len() == text.len() && is_digits(part) } else { is_digits(whole) };
    // An exponent has its sign.
    let is_exponent = exponent.is_empty()
        || exponent.get(1..).is_some_and(|exponent| {
            exponent.starts_with(['+', '-'])
                && exponent.len() > 1
                && exponent.bytes().skip(1).all(|byte| byte.is_ascii_digit())
        });
    if !(is_number && is_part && is_exponent) {
        return None;
    }
    let plain = format!("{whole}.{part}0{exponent}").replace('_', "");
    plain.parse().ok().map(|number: f64| fraction(sign * number))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The results are those of PyYAML's safe loader.
    #[test]
    fn plain_scalars_are_those_of_the_other_parser() {
        let text = |text: &str| Value::Text(text.to_owned());
        for (written, number) in [
            ("0644", 420),
            ("007", 7),
            ("00", 0),
            ("-010", -8),
            ("0x1F", 31),
            ("-0x1f", -31),
            ("0b101", 5),
            ("1_000", 1000),
            ("12:30", 750),
            ("12:30:45", 45045),
            ("+12", 12),
            ("-0", 0),
            ("0_7", 7),
            ("1__0", 10),
            ("0644_", 420),
            ("0_", 0),
        ] {
            assert_eq!(resolve(written), Value::Integer(number), "{written}");
        }
        for (written, number) in [
            ("6.02e+23", 6.02e23),
            (".5", 0.5),
            ("1_000.5", 1000.5),
            ("1:30.5", 90.5),
            ("1.", 1.0),
            ("0.", 0.0),
            ("1.5e+3", 1500.0),
            ("685230.15", 685_230.15),
            ("190:20:30.15", 685_230.15),
            ("08.5", 8.5),
            ("-1.5", -1.5),
            ("1.e+3", 1000.0),
        ] {
            assert_eq!(resolve(written), Value::Fraction(number), "{written}");
        }
        for word in ["yes", "on", "true", "True", "TRUE"] {
            assert_eq!(resolve(word), Value::Switch(true), "{word}");
        }
        for word in ["No", "OFF", "false"] {
            assert_eq!(resolve(word), Value::Switch(false), "{word}");
        }
        for word in ["~", "null", "Null", "NULL", ""] {
            assert_eq!(resolve(word), Value::Nothing, "{word}");
        }
        for word in [
            "08",
            "y",
            "n",
            "Y",
            "N",
            "tRue",
            "1e3",
            "6.02e23",
            "-.5",
            "+.5",
            "0o17",
            "nuLL",
            "1.5e3",
            "09",
            "0x",
            "_1",
            "0b",
            ".",
            "+",
            "1e+3",
            "0x_",
            "018446744073709551615",
            "100000000000000000000",
            "2001-12-14",
            "12:60",
        ] {
            assert_eq!(resolve(word), text(word), "{word}");
        }
        for word in [".inf", "-.Inf", ".nan"] {
            assert_eq!(resolve(word), Value::Other("a number without end"), "{word}");
        }
    }
}
