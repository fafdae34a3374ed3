//! Git's configuration files, read without running git.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Reads at most this much of a configuration file.
const LIMIT: u64 = 1024 * 1024;

/// A line of a configuration file that sets something.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    /// The header of its section, such as `core` or `remote "origin"`.
    pub(crate) section: &'a str,
    pub(crate) name: &'a str,
    pub(crate) value: String,
}

/// Returns the beginning of a configuration file, or an empty text if there is no such file.
pub(crate) fn read(file: &Path) -> String {
    read_start(file, LIMIT).unwrap_or_default()
}

/// Reads the beginning of a plain file. `None` if it is none or is not UTF-8.
pub(crate) fn read_start(file: &Path, limit: u64) -> Option<String> {
    // A pipe would wait for a writer.
    if !std::fs::metadata(file).ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    File::open(file).ok()?.take(limit).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Parses the entries of a configuration file. Includes are not followed.
pub(crate) fn entries(text: &str) -> impl Iterator<Item = Entry<'_>> {
    let mut section = "";
    text.lines().filter_map(move |line| {
        let mut line = line.trim();
        if let Some((header, rest)) = line.strip_prefix('[').and_then(|line| line.split_once(']')) {
            section = header.trim();
            line = rest.trim();
        }
        let (name, value) = match line.split_once('=') {
            Some((name, value)) => (name.trim(), unquoted(value.trim())),
            // A name without a value is true.
            None => (line.split(['#', ';']).next().unwrap_or("").trim(), "true".to_owned()),
        };
        (!name.is_empty()).then_some(Entry { section, name, value })
    })
}

/// Removes quotes, escapes and comments from a value.
fn unquoted(text: &str) -> String {
    let (mut value, mut is_quoted) = (String::new(), false);
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => is_quoted = !is_quoted,
            '\\' => value.extend(chars.next().map(|c| match c {
                'n' => '\n',
                't' => '\t',
                c => c,
            })),
            '#' | ';' if !is_quoted => return value.trim_end().to_owned(),
            c => value.push(c),
        }
    }
    value
}
