//! Values that have the name of a secret: `DB_PASSWORD=…`, `"api_key": "…"`, `client_secret: …`.

use std::ops::Range;

use memchr::memchr3;
use regex::Regex;

use super::guard;
use super::shapes::of_ascii;

/// The longest name that is looked at, in bytes.
const LONGEST_NAME: usize = 96;
/// Only the beginning of a value decides whether it is one.
const DECIDES: usize = 256;

/// The largest number of backslashes before a quotation mark: that of JSON in JSON, five times. Two marks of which neither closes the
/// other have different numbers, so this is also how often a text is read.
const MOST_BACKSLASHES: usize = 31;

/// What a name says of its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// A person may have chosen it, so it need not look random.
    Password,
    Secret,
    Token,
    Key,
    Cookie,
}

impl Class {
    fn label(self) -> &'static str {
        match self {
            Self::Password => "password",
            Self::Secret => "secret",
            Self::Token => "token",
            Self::Key => "key",
            Self::Cookie => "cookie",
        }
    }
}

/// The way in which a value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    /// `NAME=value`, as in an environment: the rest of the word is the value, whatever is in it.
    Environment,
    /// In quotation marks.
    Quoted,
    /// Anything else, which may be code.
    Bare,
}

/// Words before `key` that make it a secret.
const SECRET_KEYS: [&str; 26] = [
    "access",
    "account",
    "admin",
    "api",
    "app",
    "application",
    "auth",
    "client",
    "consumer",
    "decryption",
    "deploy",
    "encryption",
    "functions",
    "integration",
    "license",
    "master",
    "private",
    "project",
    "root",
    "secret",
    "service",
    "shared",
    "sign",
    "signing",
    "storage",
    "webhook",
];
/// Words before `key` or `token` that make it none.
const PUBLIC: [&str; 30] = [
    "cache",
    "composite",
    "continuation",
    "cursor",
    "eos",
    "foreign",
    "group",
    "host",
    "idempotency",
    "index",
    "lookup",
    "map",
    "natural",
    "next",
    "object",
    "page",
    "partition",
    "primary",
    "pub",
    "public",
    "row",
    "s3",
    "session_name",
    "sort",
    "sync",
    "syntax",
    "tool",
    "translation",
    "unique",
    "unk",
];

/// Finds values by their names.
pub(super) struct NamedValues {
    regex: Regex,
}

impl NamedValues {
    pub(super) fn new() -> Result<Self, regex::Error> {
        // The end of a name, what closes its quotation or index, and the sign after it: also that of `{"name": "NAME", "value": …}`.
        let pattern = r#"(?i:pass(?:word|wd|phrase|wort)?|pwd|pw|secret|token|key|credentials?|cookie|auth|dsn)(?P<rest>[A-Za-z0-9_-]{0,24})(?:\\*["'`]\]?|\])?[ \t]{0,4}(?P<sign>=>|:=|:[ \t]{0,2}[A-Za-z0-9&'_<>.]{2,48}[ \t]{1,2}=|[=:]|,?(?:[ \t\r\n]|\\+[nr]){0,32}(?:\\*["'])?value(?:\\*["'])?[ \t]{0,4}:)[ \t]{0,4}(?:[|>][+-]?[ \t]*(?:\n|\\+n)[ \t]+)?"#;
        Ok(Self { regex: Regex::new(&of_ascii(pattern))? })
    }

    pub(super) fn find(&self, text: &str, mut take: impl FnMut(Range<usize>, &'static str)) {
        let mut at = 0;
        let mut words = Words::default();
        while let Some(found) = self.regex.find_at(text, at) {
            at = found.end();
            let Some((name, sign)) = name_and_sign(text, found.range()) else { continue };
            let Some(class) = class_of(name.text) else { continue };
            let Some((value, style)) = value_after(text, found.end(), &name, sign, class, &mut words) else {
                continue;
            };
            let Some(content) = text.get(value.clone()) else { continue };
            if is_secret(class, style, content) {
                at = value.end;
                take(value, class.label());
            }
        }
    }
}

/// Returns the label for the value of a field, if it is a secret.
pub(super) fn label_of_field(class: Class, value: &str) -> Option<&'static str> {
    is_secret(class, Style::Quoted, value).then(|| class.label())
}

/// Says whether the value of an environment variable is secret.
pub(super) fn is_secret_variable(name: &str) -> bool {
    let is_last = |word: &String| matches!(word.as_str(), "auth" | "pat" | "webhook");
    class_of(name).is_some() || words_of(name).last().is_some_and(is_last)
}

struct Name<'t> {
    text: &'t str,
    /// The character before it.
    before: Option<char>,
}

/// Reads the whole name, of which the match has the end, and the sign after it.
fn name_and_sign(text: &str, found: Range<usize>) -> Option<(Name<'_>, &str)> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let matched = text.get(found.clone())?;
    let length = matched.find(|c: char| !is_part(c)).unwrap_or(matched.len());
    let before = text.get(..found.start)?;
    let mut start = before
        .char_indices()
        .rev()
        .take(LONGEST_NAME)
        .take_while(|(_, c)| is_part(*c))
        .last()
        .map_or(found.start, |(at, _)| at);
    // In JSON, `\nDB_PASSWORD` begins after the letter of the escape sequence.
    let escaped = text.get(..start)?.ends_with('\\') && text.get(start..)?.starts_with(['n', 'r', 't']);
    start += usize::from(escaped && start < found.start);
    let name =
        Name { text: text.get(start..found.start + length)?, before: text.get(..start)?.chars().next_back() };
    let sign = matched.get(length..)?;
    Some((name, sign))
}

/// The characters that end a value without quotation marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Cookies have several words.
    Cookie,
    Environment,
    Url,
    Line,
}

impl End {
    fn is_at(self, c: char) -> bool {
        let always = c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '\\');
        let in_line = matches!(c, ',' | ';' | '&' | ')' | '}' | ']' | '>' | '<' | '|');
        match self {
            Self::Cookie => matches!(c, '\n' | '\r' | '"' | '\'' | '`' | '\\'),
            Self::Environment => always,
            Self::Url => always || in_line || c == '#',
            Self::Line => always || in_line,
        }
    }
}

/// The word that was read last, for each way in which it can end. A value can have further names in it, as in `pw=pw=pw=`: their values end
/// where it ends, and are not read again.
#[derive(Default)]
struct Words([Range<usize>; 4]);

impl Words {
    /// Returns the end of the word that begins here.
    fn end_of(&mut self, text: &str, start: usize, end: End) -> Option<usize> {
        let known = self.0.get_mut(end as usize)?;
        if !known.contains(&start) {
            let rest = text.get(start..)?;
            *known = start..start + rest.find(|c| end.is_at(c)).unwrap_or(rest.len());
        }
        Some(known.end)
    }
}

/// Finds the value that begins here, and how it is written.
fn value_after(
    text: &str,
    start: usize,
    name: &Name<'_>,
    sign: &str,
    class: Class,
    words: &mut Words,
) -> Option<(Range<usize>, Style)> {
    let rest = text.get(start..)?;
    // A comparison, or a path of a language.
    if rest.starts_with(['=', ':', '~']) {
        return None;
    }
    // A prefix of a string, as in `b"…"`.
    let prefix = rest.strip_prefix(['b', 'r', 'f', 'u', '@']).filter(|rest| rest.starts_with(['"', '\'']));
    let quoted = prefix.unwrap_or(rest);
    let backslashes = quoted.len() - quoted.trim_start_matches('\\').len();
    let opened = quoted.get(backslashes..)?;
    if let Some(quote) = opened.chars().next().filter(|c| matches!(c, '"' | '\'' | '`')) {
        let from = text.len() - opened.len() + 1;
        if let Some(length) = length_of_quoted(text.get(from..)?, quote, backslashes) {
            return Some((from..from + length, Style::Quoted));
        }
        // Cut off: as far as the word goes.
        let rest = text.get(from..)?;
        let length = rest
            .find(|c: char| c.is_whitespace() || matches!(c, '\\' | '"' | '\'' | '`'))
            .unwrap_or(rest.len());
        return Some((from..from + length, Style::Quoted));
    }
    let has_capitals =
        name.text.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_');
    let is_in_url = matches!(name.before, Some('?' | '&'));
    let style = if has_capitals && sign == "=" && !is_in_url { Style::Environment } else { Style::Bare };
    let ends = match (class, style) {
        (Class::Cookie, _) => End::Cookie,
        (_, Style::Environment) => End::Environment,
        _ if is_in_url => End::Url,
        _ => End::Line,
    };
    let end = words.end_of(text, start, ends)?;
    // What stands before an argument or an index is code.
    let is_code = style == Style::Bare
        && (rest.chars().take((end - start).min(DECIDES)).any(|c| matches!(c, '(' | '[' | '{'))
            || text.get(end..).is_some_and(|rest| rest.starts_with(['<', '('])));
    (end > start && !is_code).then_some((start..end, style))
}

/// Returns the length of a text in quotation marks that had so many backslashes before the first mark.
fn length_of_quoted(text: &str, quote: char, backslashes: usize) -> Option<usize> {
    if backslashes > MOST_BACKSLASHES {
        return None;
    }
    let bytes = text.as_bytes();
    let mark = u8::try_from(quote).ok()?;
    let mut from = 0;
    loop {
        let at = from + memchr3(mark, b'"', b'\n', bytes.get(from..)?)?;
        // A line ends here or, in JSON, the string that all of this is in.
        if bytes.get(at) != Some(&mark) {
            return None;
        }
        let before = bytes.get(from..at)?.iter().rev();
        // More of them than there were before the first mark close nothing. Without any before it, their parity counts.
        let most = if backslashes == 0 { at - from } else { backslashes + 1 };
        let run = before.take(most).take_while(|byte| **byte == b'\\').count();
        if run <= backslashes || (backslashes == 0 && run % 2 == 0) {
            return Some(if backslashes == 0 { at } else { at - run });
        }
        from = at + 1;
    }
}

/// Reads from a name what its value is.
pub(super) fn class_of(name: &str) -> Option<Class> {
    let words = words_of(name);
    let last = words.last()?.as_str();
    let before = words.len().checked_sub(2).and_then(|index| words.get(index)).map_or("", String::as_str);
    let is_public = || PUBLIC.binary_search(&before).is_ok();
    let joined = words.join("_");
    let class = match last {
        _ if words.iter().any(|word| word == "public" || word == "pub") => return None,
        "password" | "passwd" | "passphrase" | "passwort" | "pwd" | "pw" | "pass" | "pgpassword" => {
            Class::Password
        }
        word if word.ends_with("password") || word.ends_with("passwd") => Class::Password,
        "cookie" => Class::Cookie,
        "token" | "authtoken" | "accesstoken" | "jwt" if !is_public() => Class::Token,
        "apikey" | "secretkey" | "accesskey" | "privatekey" | "accountkey" | "authkey" => Class::Key,
        "key" if !is_public() => {
            let has_capitals = words.len() > 1 && name.bytes().all(|byte| !byte.is_ascii_lowercase());
            if SECRET_KEYS.binary_search(&before).is_ok() || has_capitals { Class::Key } else { return None }
        }
        "credential" | "credentials" | "secret" | "secrets" | "dsn" => Class::Secret,
        "auth" if words.len() > 1 => Class::Secret,
        _ if words.iter().any(|word| word == "secret") && last != "name" && last != "id" && last != "ref" => {
            Class::Secret
        }
        _ if joined.contains("bearer_token")
            || joined.contains("access_token")
            || joined.contains("access_key")
            || joined.contains("api_key") =>
        {
            Class::Key
        }
        _ if joined.ends_with("token_value")
            || joined.ends_with("key_value")
            || joined.ends_with("key_base64") =>
        {
            Class::Key
        }
        _ => return None,
    };
    Some(class)
}

/// Splits a name into lower-case words: `clientSecret`, `CLIENT_SECRET` and `client-secret` are the same.
fn words_of(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut previous = '_';
    for c in name.chars() {
        let starts =
            !previous.is_ascii_alphanumeric() || (c.is_ascii_uppercase() && previous.is_ascii_lowercase());
        if c.is_ascii_alphanumeric() {
            if starts {
                words.push(String::new());
            }
            if let Some(word) = words.last_mut() {
                word.push(c.to_ascii_lowercase());
            }
        }
        previous = c;
    }
    words
}

fn is_secret(class: Class, style: Style, value: &str) -> bool {
    let value = value.trim();
    let value = value.char_indices().nth(DECIDES).and_then(|(end, _)| value.get(..end)).unwrap_or(value);
    if guard::is_placeholder(value) || value.starts_with("http://") || value.starts_with("https://") {
        return false;
    }
    let has_space = value.contains(char::is_whitespace);
    let has_digit = value.bytes().any(|byte| byte.is_ascii_digit());
    match (class, style) {
        (_, Style::Bare) if guard::is_number(value) => false,
        (Class::Cookie, Style::Bare) if !value.contains('=') => false,
        (Class::Cookie, _) => value.split([';', '=', ' ']).any(|part| guard::is_random(part.trim(), 12)),
        (Class::Password, Style::Environment) => {
            let is_name = value.contains('_') && guard::is_made_of_words(value);
            value.len() >= 3 && !is_name && !names_a_secret(value) && !is_call(value) && !is_path(value)
        }
        (Class::Password, Style::Quoted) => {
            value.len() >= 4
                && !has_space
                && !names_a_secret(value)
                && !is_path(value)
                && !value.contains(['|', '{', '<'])
        }
        (Class::Password, Style::Bare) => {
            let is_mixed = value.bytes().any(|byte| byte.is_ascii_digit() || b"!@#$%^*+".contains(&byte));
            value.len() >= 6
                && is_mixed
                && guard::is_mixed(value)
                && !guard::is_expression(value)
                && !names_a_secret(value)
        }
        (Class::Secret, Style::Environment) => {
            value.len() >= 6 && !guard::is_made_of_words(value) && !is_call(value) && !is_path(value)
        }
        (_, Style::Environment) => guard::is_random(value, 8) && !is_call(value) && !is_path(value),
        (_, Style::Quoted) => {
            let shortest = if has_digit { 10 } else { 16 };
            !has_space
                && guard::is_random(value, shortest)
                && !is_path(value)
                && !value.contains(['{', '<', '$', '('])
        }
        (_, Style::Bare) => {
            guard::is_random(value, 12) && has_digit && !guard::is_expression(value) && !is_path(value)
        }
    }
}

/// Says whether a value is itself the name of a secret, as in `password=form.password`.
fn names_a_secret(value: &str) -> bool {
    let is_name =
        value.bytes().all(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'-' | b'.' | b':'));
    is_name
        && (class_of(value).is_some()
            || words_of(value).iter().any(|word| matches!(word.as_str(), "password" | "secret" | "token")))
}

fn is_call(value: &str) -> bool {
    value.contains("(") && value.contains(")")
}

fn is_path(value: &str) -> bool {
    let has_folder = value.starts_with(['/', '~', '.']) && value.matches('/').count() > 1;
    has_folder && !value.contains(['+', '='])
        || value.starts_with("./")
        || value.starts_with("../")
        || value.starts_with("file:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_sorted() {
        assert!(SECRET_KEYS.is_sorted() && PUBLIC.is_sorted());
    }

    #[test]
    fn a_name_says_whether_its_value_is_secret() {
        for (name, expected) in [
            ("DB_PASSWORD", Some(Class::Password)),
            ("PGPASSWORD", Some(Class::Password)),
            ("clientSecret", Some(Class::Secret)),
            ("SECRET_KEY_BASE", Some(Class::Secret)),
            ("x-api-key", Some(Class::Key)),
            ("STRIPE_KEY", Some(Class::Key)),
            ("private.key", Some(Class::Key)),
            ("_authToken", Some(Class::Token)),
            ("key", None),
            ("cache_key", None),
            ("public_key", None),
            ("PUBLIC_KEY", None),
            ("input_tokens", None),
            ("next_token", None),
            ("tokenizer", None),
            ("secretary", None),
            ("keyboard", None),
            ("compass", None),
            ("author", None),
        ] {
            assert_eq!(class_of(name), expected, "{name}");
        }
    }
}
