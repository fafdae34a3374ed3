//! The difference between a secret and a word that stands where a secret could.

/// Only the beginning of a value decides, so that a long one costs no more.
const LOOKED_AT: usize = 256;

/// Words that stand for a value in examples.
const PLACEHOLDERS: [&str; 44] = [
    "abc",
    "admin",
    "any",
    "auto",
    "bool",
    "bytes",
    "changeit",
    "changeme",
    "data",
    "default",
    "disabled",
    "dummy",
    "empty",
    "enabled",
    "example",
    "false",
    "foo",
    "hidden",
    "int",
    "key",
    "masked",
    "nil",
    "no",
    "none",
    "null",
    "number",
    "object",
    "off",
    "on",
    "optional",
    "pass",
    "passwd",
    "password",
    "placeholder",
    "pw",
    "redacted",
    "required",
    "secret",
    "str",
    "string",
    "test",
    "token",
    "true",
    "undefined",
];

/// Says whether a value stands for another one: `<token>`, `${TOKEN}`, `{{ token }}`, `%s`, `xxxx`, `your-key-here`.
pub(super) fn is_placeholder(value: &str) -> bool {
    let value = beginning(value);
    let Some(first) = value.bytes().next() else { return true };
    let is_word = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let is_reference = match first {
        b'<' => value.ends_with('>'),
        b'{' => true,
        b'$' => is_word(value.trim_start_matches('$')),
        b'%' => value.len() <= 4 || value.ends_with('%'),
        _ => false,
    };
    if is_reference {
        return true;
    }
    if ["${", "$(", "{{", "{}", "<%", "[redacted", "[REDACTED", "...", "…"]
        .iter()
        .any(|open| value.contains(open))
    {
        return true;
    }
    let first_char = value.chars().next();
    if value.chars().all(|c| Some(c) == first_char || matches!(c, '-' | '_' | '.' | 'x' | 'X' | '*')) {
        return true;
    }
    let lower = value.to_ascii_lowercase();
    let word = lower.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    PLACEHOLDERS.binary_search(&word).is_ok()
        || ["your", "example", "placeholder", "changeme", "replace", "insert", "xxxx", "dummy", "fake-"]
            .iter()
            .any(|word| lower.starts_with(word) || (word.len() > 7 && lower.contains(word)))
}

/// Says whether a value has been drawn by chance, as far as its characters tell.
pub(super) fn is_random(value: &str, shortest: usize) -> bool {
    let value = beginning(value);
    if value.len() < shortest || !value.bytes().all(|byte| byte.is_ascii_graphic()) || is_made_of_words(value)
    {
        return false;
    }
    let enough = if value.len() >= 16 { 3.0 } else { 2.5 };
    if entropy(value) < enough {
        return false;
    }
    let has = |is: fn(&u8) -> bool| value.bytes().any(|byte| is(&byte));
    let has_digit = has(u8::is_ascii_digit);
    has_digit && has(u8::is_ascii_alphabetic) || !has_digit && is_case_mixed(value)
}

/// Says whether a value has letters and other characters, or letters of both cases.
pub(super) fn is_mixed(value: &str) -> bool {
    let value = beginning(value);
    let has = |is: fn(&u8) -> bool| value.bytes().any(|byte| is(&byte));
    let other = |byte: &u8| byte.is_ascii_digit() || byte.is_ascii_punctuation();
    let cases = has(u8::is_ascii_lowercase) && has(u8::is_ascii_uppercase);
    cases || has(u8::is_ascii_alphabetic) && value.bytes().skip(1).any(|byte| other(&byte))
}

/// Says whether a value is an expression of a programming language: a call, a path, a type, a reference.
pub(super) fn is_expression(value: &str) -> bool {
    let value = beginning(value).trim_end_matches('=');
    value.contains(['(', ')', '<', '>', '{', '}', '[', ']', '|', '?'])
        || ["::", "->", "=>", "==", "&&", "||"].iter().any(|sign| value.contains(sign))
        || value.starts_with(['&', '*', '!', '~', '.', '$', '@', '='])
        || is_made_of_words(value) && value.contains('.')
}

/// Says whether a value is a number as programs write it: `42`, `0x1f`, `3i32`, `1_000`.
pub(super) fn is_number(value: &str) -> bool {
    let digits = value.trim_start_matches('-');
    let hex = digits
        .strip_prefix("0x")
        .map(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'_'));
    let number = digits.trim_end_matches(|c: char| {
        c.is_ascii_digit() || matches!(c, 'i' | 'u' | 'f' | 'L' | 'U' | '.' | '_')
    });
    hex.unwrap_or(number.is_empty()) && digits.starts_with(|c: char| c.is_ascii_digit())
}

/// Says whether a value is words and numbers, such as `next_token`, `users.password` or `claude-sonnet-4-5`.
pub(super) fn is_made_of_words(value: &str) -> bool {
    let mut parts =
        value.split(['-', '_', '.', '/', ':', ' ', ',', '#', '@']).filter(|part| !part.is_empty());
    parts.all(|part| {
        let digits = part.bytes().filter(u8::is_ascii_digit).count();
        let letters = part.bytes().filter(u8::is_ascii_alphabetic).count();
        let is_word = letters == part.len() && !is_case_mixed(part);
        // As in `utf8` and `v4`: a short word with a number at its end.
        let numbered = part.trim_end_matches(|c: char| c.is_ascii_digit());
        let is_numbered = letters + digits == part.len()
            && numbered.len() == letters
            && digits <= 3
            && !is_case_mixed(part);
        digits == part.len() || is_word || is_numbered
    })
}

/// Says whether a word changes between cases more often than `camelCase` does.
fn is_case_mixed(value: &str) -> bool {
    let mut ups = 0;
    let mut previous = b' ';
    for byte in value.bytes() {
        ups += usize::from(byte.is_ascii_uppercase() && previous.is_ascii_lowercase());
        previous = byte;
    }
    let has_lower = value.bytes().any(|byte| byte.is_ascii_lowercase());
    let runs = value.as_bytes().windows(2).filter(|pair| pair.iter().all(u8::is_ascii_uppercase)).count();
    value.len() >= 16 && has_lower && ups >= 2 && (ups + runs) * 4 >= value.len()
}

/// Says whether the value of an environment variable is one that only a secret has, and not a word that texts have.
pub(super) fn is_worth_looking_for(value: &str) -> bool {
    let is_plain_word = value.bytes().all(|byte| byte.is_ascii_alphabetic()) && !is_case_mixed(value);
    let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
    let is_path =
        value.starts_with(['/', '~', '.']) || value.starts_with("file:") || value.starts_with("unix:");
    let shortest = if is_number {
        10
    } else if is_plain_word {
        16
    } else {
        8
    };
    value.len() >= shortest && !is_path && !is_placeholder(value)
}

/// Returns the entropy of a text in bits per character.
fn entropy(value: &str) -> f64 {
    let mut counts = [0_u32; 128];
    let mut all = 0_u32;
    for byte in value.bytes() {
        if let Some(count) = counts.get_mut(usize::from(byte)) {
            *count += 1;
            all += 1;
        }
    }
    let all = f64::from(all.max(1));
    counts
        .iter()
        .filter(|count| **count > 0)
        .map(|count| f64::from(*count) / all)
        .map(|p| -p * p.log2())
        .sum()
}

fn beginning(value: &str) -> &str {
    let mut end = value.len().min(LOOKED_AT);
    while !value.is_char_boundary(end) {
        end -= 1;
    }
    value.get(..end).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_sorted() {
        assert!(PLACEHOLDERS.is_sorted());
    }

    #[test]
    fn a_placeholder_is_no_secret() {
        for value in [
            "",
            "<token>",
            "${TOKEN}",
            "$TOKEN",
            "{{ token }}",
            "%s",
            "xxxx-xxxx",
            "****",
            "your-api-key",
            "changeme",
            "None",
            "…",
        ] {
            assert!(is_placeholder(value), "{value}");
        }
        for value in ["hunter2", "$ecret1!", "a1b2c3d4"] {
            assert!(!is_placeholder(value), "{value}");
        }
    }

    #[test]
    fn words_are_not_random() {
        for value in [
            "next_token_of_the_parser",
            "claude-sonnet-4-20250514",
            "getUserAccessTokenFromHeader",
            "aaaaaaaaaaaaaaaa1",
            "SOME_LONG_CONSTANT_NAME",
        ] {
            assert!(!is_random(value, 8), "{value}");
        }
        for value in [
            "9f86d081884c7d659a2feaa0c55ad015",
            "k3J9xQ2mZ7pL",
            "dGhlIHF1aWNrIGJyb3duIGZveA==",
            "QwErTyUiOpAsDfGhJkLz",
        ] {
            assert!(is_random(value, 8), "{value}");
        }
    }
}
