//! Recognition of the format of a file.

use std::error::Error;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::error::Category;

use super::{ImportError, ImportFormat};
use crate::json::SESSION_FORMAT;

/// The first bytes of every SQLite file.
const SQLITE: &[u8] = b"SQLite format 3\0";

/// The largest size of a JSON file in bytes: it is read into memory.
pub(super) const LARGEST_TEXT: u64 = 1 << 30;

/// The content of a file, before it is parsed.
pub(super) enum FileContent {
    Database,
    Text(String),
}

impl FileContent {
    pub(super) fn read(path: &Path) -> Result<Self, ImportError> {
        let failed = |source| ImportError::File { path: path.to_owned(), source };
        // A pipe or a device might never end.
        if !fs::metadata(path).map_err(failed)?.is_file() {
            return Err(ImportError::NotAPlainFile { path: path.to_owned() });
        }
        let mut file = File::open(path).map_err(failed)?;
        // Before it is read, and again afterwards: it may grow meanwhile.
        let is_too_large = file.metadata().map_err(failed)?.len() > LARGEST_TEXT;
        let mut bytes = Vec::new();
        let start = SQLITE.len() as u64;
        file.by_ref().take(start).read_to_end(&mut bytes).map_err(failed)?;
        if bytes == SQLITE {
            return Ok(Self::Database);
        }
        if is_too_large {
            return Err(ImportError::TooLarge { path: path.to_owned() });
        }
        if bytes.is_empty() {
            return Err(ImportError::Empty { path: path.to_owned() });
        }
        if !bytes.iter().any(|byte| matches!(byte, b'{' | b'[')) {
            return Err(unknown(path));
        }
        file.take(LARGEST_TEXT).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > LARGEST_TEXT {
            return Err(ImportError::TooLarge { path: path.to_owned() });
        }
        let text = String::from_utf8(bytes).map_err(|error| undecodable(path, error.utf8_error()))?;
        Ok(Self::Text(match text.strip_prefix('\u{feff}') {
            Some(rest) => rest.to_owned(),
            None => text,
        }))
    }
}

/// Returns the error for a file in an unknown format.
pub(super) fn unknown(path: &Path) -> ImportError {
    ImportError::UnknownFormat { path: path.to_owned(), source: None }
}

/// Returns the error for a file in an unknown format, with the error of the decoder.
fn undecodable(path: &Path, error: impl Error + Send + Sync + 'static) -> ImportError {
    ImportError::UnknownFormat { path: path.to_owned(), source: Some(Box::new(error)) }
}

/// The format of a text.
pub(super) struct RecognisedText {
    pub(super) format: ImportFormat,
    /// The creation time of the session; empty if the text has none.
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

/// Recognises the format of a JSON text.
pub(super) fn format_of(path: &Path, text: &str) -> Result<RecognisedText, ImportError> {
    let recognised = |format, created: Option<&Value>| RecognisedText {
        format,
        created: created.and_then(Value::as_str).unwrap_or("").to_owned(),
    };
    match text.trim_start().bytes().next() {
        Some(b'[') => {
            let messages: Vec<MessageProbe> = parse(path, text)?;
            match messages.first() {
                // The reader reports damaged ones among the rest.
                Some(first) if first.role.is_some() => Ok(recognised(ImportFormat::Axio, None)),
                Some(_) => Err(unknown(path)),
                None => Err(ImportError::NoMessages { path: path.to_owned() }),
            }
        }
        Some(b'{') => {
            let probe: Probe = parse(path, text)?;
            let created = probe.created_at.as_ref();
            if probe.format.as_ref().and_then(Value::as_str) == Some(SESSION_FORMAT) {
                let created = probe.session.as_ref().and_then(|session| session.get("created"));
                return Ok(recognised(ImportFormat::Json, created));
            }
            match (probe.messages, probe.id.and(probe.model)) {
                (Some(_), Some(_)) => Ok(recognised(ImportFormat::Cllm, created)),
                (Some(_), None) => Ok(recognised(ImportFormat::Axio, created)),
                // A conversation may be stored before its first message.
                (None, Some(_)) if created.is_some() => Ok(recognised(ImportFormat::Cllm, created)),
                (None, _) => Err(unknown(path)),
            }
        }
        _ => Err(unknown(path)),
    }
}

/// Parses JSON. The error distinguishes a damaged file from one in another format.
pub(super) fn parse<'a, T: Deserialize<'a>>(path: &Path, text: &'a str) -> Result<T, ImportError> {
    serde_json::from_str(text).map_err(|error| match error.classify() {
        Category::Data => undecodable(path, error),
        Category::Eof => ImportError::Truncated { path: path.to_owned(), source: error },
        Category::Syntax | Category::Io => ImportError::NotJson { path: path.to_owned(), source: error },
    })
}

/// The files of a folder.
#[derive(Debug, Default)]
pub(super) struct ImportFolder {
    /// The files that can be imported, oldest session first.
    pub(super) files: Vec<PathBuf>,
    /// The damaged files.
    pub(super) damaged: Vec<(PathBuf, ImportError)>,
    /// The number of files in other formats.
    pub(super) others: u64,
}

impl ImportFolder {
    /// Reads the files of a folder, without those of the folders in it.
    pub(super) fn read(folder: &Path) -> Result<Self, ImportError> {
        let failed = |source| ImportError::File { path: folder.to_owned(), source };
        let (mut found, mut files) = (Self::default(), Vec::new());
        for entry in fs::read_dir(folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.is_dir() {
                continue;
            }
            let created = match FileContent::read(&path) {
                Ok(FileContent::Database) => Ok(String::new()),
                Ok(FileContent::Text(text)) => format_of(&path, &text).map(|recognised| recognised.created),
                Err(error) => Err(error),
            };
            match created {
                Ok(created) => files.push((created, path)),
                Err(error) if error.is_other_format() => found.others += 1,
                Err(error) => found.damaged.push((path, error)),
            }
        }
        files.sort();
        found.files = files.into_iter().map(|(_, path)| path).collect();
        found.damaged.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_told_by_their_content() {
        let of = |text: &str| format_of(Path::new("f"), text).map(|recognised| recognised.format).ok();
        for (text, expected) in [
            (r#"{"format":"azureal-session","version":1}"#, Some(ImportFormat::Json)),
            (r#"{"id":"a","model":"m","messages":[]}"#, Some(ImportFormat::Cllm)),
            (r#"{"id":"a","model":"","created_at":"x"}"#, Some(ImportFormat::Cllm)),
            (r#"{"messages":[]}"#, Some(ImportFormat::Axio)),
            (r#" [{"role":"user","content":[]}]"#, Some(ImportFormat::Axio)),
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
