//! What a file is.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::error::Category;

use super::Format;
use crate::failure::{Failure, quoted};
use azureal::error::shown;
use azureal_exchange::json::SESSION_FORMAT as FORMAT;

/// What every SQLite file begins with.
const SQLITE: &[u8] = b"SQLite format 3\0";

/// How large a JSON file may be: it is read into memory as a whole.
const LARGEST: u64 = 1 << 30;

/// The kind of error that says that a file is something else.
const NOT_RECOGNISED: &str = "not_recognised";

/// The content of a file, as far as it can be told without parsing it.
pub(super) enum Content {
    Database,
    Text(String),
}

impl Content {
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let failed = |error| Failure::file(path, &error);
        // A pipe or a device might never end.
        if !fs::metadata(path).map_err(failed)?.is_file() {
            return Err(Failure::new(NOT_RECOGNISED, format!("{} is not a plain file", path.display())));
        }
        let mut file = File::open(path).map_err(failed)?;
        // Before it is read, and again afterwards: it may grow meanwhile.
        let is_too_large = file.metadata().map_err(failed)?.len() > LARGEST;
        let mut bytes = Vec::new();
        let start = SQLITE.len() as u64;
        file.by_ref().take(start).read_to_end(&mut bytes).map_err(failed)?;
        if bytes == SQLITE {
            return Ok(Self::Database);
        }
        if is_too_large {
            return Err(too_large(path));
        }
        if bytes.is_empty() {
            return Err(Failure::new(NOT_RECOGNISED, format!("{} is empty", path.display())));
        }
        if !bytes.iter().any(|byte| matches!(byte, b'{' | b'[')) {
            return Err(unknown(path));
        }
        file.take(LARGEST).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > LARGEST {
            return Err(too_large(path));
        }
        let text = String::from_utf8(bytes).map_err(|_| unknown(path))?;
        Ok(Self::Text(match text.strip_prefix('\u{feff}') {
            Some(rest) => rest.to_owned(),
            None => text,
        }))
    }
}

fn too_large(path: &Path) -> Failure {
    Failure::new("too_large", format!("{} has more than {} MiB", quoted(shown(path)), LARGEST >> 20))
        .with_hint("`azureal copy` has no such limit, between two stores")
}

/// The answer when a file is none of ours.
pub(super) fn unknown(path: &Path) -> Failure {
    Failure::new(NOT_RECOGNISED, format!("{} is in none of the formats that import knows", path.display()))
        .with_hint("`azureal import --help` lists them")
}

/// What a text was recognised as.
pub(super) struct Recognised {
    pub(super) format: Format,
    /// When the session was made, where the text says so.
    created: String,
}

#[derive(Deserialize)]
struct Probe {
    format: Option<Value>,
    id: Option<IgnoredAny>,
    model: Option<IgnoredAny>,
    messages: Option<IgnoredAny>,
    created_at: Option<Value>,
    session: Option<Value>,
}

#[derive(Deserialize)]
struct MessageProbe {
    role: Option<IgnoredAny>,
}

/// Recognises a JSON text.
pub(super) fn of_text(path: &Path, text: &str) -> Result<Recognised, Failure> {
    let recognised = |format, created: Option<&Value>| Recognised {
        format,
        created: created.and_then(Value::as_str).unwrap_or("").to_owned(),
    };
    match text.trim_start().bytes().next() {
        Some(b'[') => {
            let messages: Vec<MessageProbe> = parse(path, text)?;
            match messages.first() {
                // Later ones may be broken, and are reported then.
                Some(first) if first.role.is_some() => Ok(recognised(Format::Axio, None)),
                Some(_) => Err(unknown(path)),
                None => Err(Failure::new(
                    NOT_RECOGNISED,
                    format!("{} is a list without any message", path.display()),
                )),
            }
        }
        Some(b'{') => {
            let probe: Probe = parse(path, text)?;
            let created = probe.created_at.as_ref();
            if probe.format.as_ref().and_then(Value::as_str) == Some(FORMAT) {
                let created = probe.session.as_ref().and_then(|session| session.get("created"));
                return Ok(recognised(Format::Json, created));
            }
            match (probe.messages, probe.id.and(probe.model)) {
                (Some(_), Some(_)) => Ok(recognised(Format::Cllm, created)),
                (Some(_), None) => Ok(recognised(Format::Axio, created)),
                // A conversation may be stored before anything is said.
                (None, Some(_)) if created.is_some() => Ok(recognised(Format::Cllm, created)),
                (None, _) => Err(unknown(path)),
            }
        }
        _ => Err(unknown(path)),
    }
}

/// Parses JSON, and tells what is broken from what is only something else.
pub(super) fn parse<'a, T: Deserialize<'a>>(path: &Path, text: &'a str) -> Result<T, Failure> {
    serde_json::from_str(text).map_err(|error| match error.classify() {
        Category::Data => unknown(path),
        Category::Eof => {
            Failure::new("broken", format!("{} ends in the middle of its JSON: {error}", path.display()))
                .with_hint("nothing of it was imported; get a whole copy of the file")
        }
        Category::Syntax | Category::Io => {
            Failure::new(NOT_RECOGNISED, format!("{} is not JSON: {error}", path.display()))
                .with_hint("`azureal import --help` lists the formats that it knows")
        }
    })
}

/// What a folder holds.
#[derive(Default)]
pub(crate) struct Folder {
    /// The files that can be imported, oldest session first.
    pub(crate) files: Vec<PathBuf>,
    /// Those that look as if they could and are broken, with what is wrong.
    pub(crate) broken: Vec<(PathBuf, Failure)>,
    /// How many are something else.
    pub(crate) others: u64,
}

/// Looks into a folder, not into those below it.
pub(crate) fn look_into(folder: &Path) -> Result<Folder, Failure> {
    let failed = |error| Failure::file(folder, &error);
    let (mut found, mut files) = (Folder::default(), Vec::new());
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            continue;
        }
        let created = match Content::read(&path) {
            Ok(Content::Database) => Ok(String::new()),
            Ok(Content::Text(text)) => of_text(&path, &text).map(|recognised| recognised.created),
            Err(failure) => Err(failure),
        };
        match created {
            Ok(created) => files.push((created, path)),
            Err(failure) if failure.kind() == NOT_RECOGNISED => found.others += 1,
            Err(failure) => found.broken.push((path, failure)),
        }
    }
    files.sort();
    found.files = files.into_iter().map(|(_, path)| path).collect();
    found.broken.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_told_by_their_content() {
        let of = |text: &str| of_text(Path::new("f"), text).map(|recognised| recognised.format).ok();
        for (text, expected) in [
            (r#"{"format":"azureal-session","version":1}"#, Some(Format::Json)),
            (r#"{"id":"a","model":"m","messages":[]}"#, Some(Format::Cllm)),
            (r#"{"id":"a","model":"","created_at":"x"}"#, Some(Format::Cllm)),
            (r#"{"messages":[]}"#, Some(Format::Axio)),
            (r#" [{"role":"user","content":[]}]"#, Some(Format::Axio)),
            ("[]", None),
            ("[1]", None),
            (r#"[{"name":"x"}]"#, None),
            (r#"{"name":"package","version":"1.0"}"#, None),
            ("{", None),
            ("", None),
            ("hello", None),
        ] {
            assert_eq!(of(text), expected, "{text}");
        }
    }
}
