//! The text of a journal.

use std::time::Duration;

use crate::beneath::is_forbidden;
use crate::compare::Version;
use crate::origin::Began;

use super::identity::Identity;
use super::journal::{About, Journal, Step};

const HEADER: &[u8] = b"azureal undo 3";
/// The header of journals that do not say what they are about.
const FORMER_HEADER: &[u8] = b"azureal undo 2";

impl Journal {
    /// Returns the text: the header, the id, the time of the snapshot before the turn, the session, the snapshot after the undo and
    /// the note; then five fields for each step. Each field is followed by a NUL.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let began = self.began.0.map_or_else(String::new, |began| began.as_micros().to_string());
        let About { session, after, note } = &self.about;
        for field in [HEADER, self.id.as_bytes(), began.as_bytes()] {
            bytes.extend(field);
            bytes.push(0);
        }
        for field in [session, after, note] {
            // None of them has a NUL; one that had would make the journal unreadable.
            bytes.extend(field.bytes().filter(|byte| *byte != 0));
            bytes.push(0);
        }
        for step in &self.steps {
            bytes.push(if step.restored.is_some() { b'+' } else { b'-' });
            let [present, staged] = [step.present, step.staged]
                .map(|identity| identity.map_or_else(String::new, Identity::to_text));
            for field in [&[][..], &step.path, &step.place, present.as_bytes(), staged.as_bytes()] {
                bytes.extend(field);
                bytes.push(0);
            }
        }
        bytes.extend(b"end");
        bytes
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, &'static str> {
        let bytes = bytes.strip_suffix(b"\0end").ok_or("it is cut short")?;
        let mut fields = bytes.split(|byte| *byte == 0);
        let header = fields.next().unwrap_or_default();
        if ![HEADER, FORMER_HEADER].contains(&header) {
            return Err("it is no journal");
        }
        let mut text = || {
            let field = fields.next().ok_or("it is cut short")?;
            std::str::from_utf8(field).map(str::to_owned).map_err(|_| "it has bytes that are no text")
        };
        let id = text()?;
        if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-') {
            return Err("it has no id");
        }
        let began = Began(text()?.parse().ok().map(Duration::from_micros));
        let about = if header == HEADER {
            About { session: text()?, after: text()?, note: text()? }
        } else {
            About::default()
        };
        let mut steps = Vec::new();
        while let Some(kind) = fields.next() {
            let (Some(path), Some(place)) = (fields.next(), fields.next()) else {
                return Err("it is cut short");
            };
            let (Some(present), Some(staged)) = (fields.next(), fields.next()) else {
                return Err("it is cut short");
            };
            let identity = |text: &[u8]| match Identity::parse(text) {
                None if !text.is_empty() => Err("it has no identity of a file"),
                identity => Ok(identity),
            };
            let (present, staged) = (identity(present)?, identity(staged)?);
            if is_forbidden(path) || (!place.is_empty() && is_forbidden(place)) {
                return Err("it names a file that no undo changes");
            }
            // The staged file has the content.
            let restored = (kind == b"+").then(|| Version { mode: 0, id: String::new() });
            let (path, place) = (path.to_vec(), place.to_vec());
            steps.push(Step { path, restored, left: None, place, present, staged });
        }
        Ok(Self { id, began, about, steps })
    }
}
