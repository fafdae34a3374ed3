//! Lines that cannot be read, and lines of unknown kinds.
//!
//! Neither ends a run. An unreadable line becomes an event, because its content is missing. An unknown kind is shown
//! once, because a newer program may print more than this build knows.

use std::borrow::Cow;
use std::collections::BTreeSet;

use azureal_core::Event;
use azureal_core::agent::AgentOutput;
use tracing::debug;

/// The kind of the error that stands for a line which cannot be read.
pub(crate) const UNREADABLE: &str = "unreadable_line";
/// The characters of a line that are quoted.
const EXCERPT_CHARS: usize = 200;
/// The number of kinds that are remembered; a stream of garbage must not fill the memory.
const MAX_KINDS: usize = 64;

/// Creates the event for a line that cannot be read.
pub(crate) fn unreadable_line(agent: &str, line: &[u8], why: &str) -> AgentOutput {
    debug!(agent, bytes = line.len(), why, "a line cannot be read");
    AgentOutput::Event(Event::error(
        UNREADABLE,
        format!("{agent} wrote a line of {} bytes that {why}: {}", line.len(), excerpt(line)),
    ))
}

/// Returns the beginning of a line.
pub(crate) fn excerpt(bytes: &[u8]) -> String {
    // A character has at most four bytes, so the rest of a line of megabytes is not decoded.
    let head = bytes.get(..EXCERPT_CHARS * 4).unwrap_or(bytes);
    shorten(&String::from_utf8_lossy(head), EXCERPT_CHARS).into_owned()
}

/// Returns at most `chars` characters of a text, with a mark where it was cut.
pub(crate) fn shorten(text: &str, chars: usize) -> Cow<'_, str> {
    match text.char_indices().nth(chars) {
        Some((end, _)) => Cow::Owned(format!("{}…", text.get(..end).unwrap_or(""))),
        None => Cow::Borrowed(text),
    }
}

/// Ignores a line of a known kind that has nothing to store or to show. Only its kind is logged.
pub(crate) fn ignored(agent: &str, kind: &str) -> Vec<AgentOutput> {
    debug!(agent, kind, "ignored a line");
    Vec::new()
}

/// The unknown kinds, each shown once.
#[derive(Default)]
pub(crate) struct UnknownKinds(BTreeSet<String>);

impl UnknownKinds {
    /// Returns a notice of this kind, unless there was one before.
    pub(crate) fn notice(&mut self, agent: &str, kind: &str) -> Vec<AgentOutput> {
        let kind = shorten(kind, 60).into_owned();
        debug!(agent, kind, "ignored a line of an unknown kind");
        if self.0.len() >= MAX_KINDS || self.0.contains(&kind) {
            return Vec::new();
        }
        let notice = format!("{agent} printed something that this version of azureal does not know: {kind}");
        self.0.insert(kind);
        vec![AgentOutput::Notice(notice)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_is_short_and_names_the_length() {
        let line = "ü".repeat(5000);
        let AgentOutput::Event(Event::Error(error)) = unreadable_line("x", line.as_bytes(), "is odd") else {
            panic!("no error")
        };
        assert_eq!(error.kind, "unreadable_line");
        assert!(error.message.starts_with("x wrote a line of 10000 bytes that is odd: üü"));
        assert!(error.message.chars().count() < 300, "{}", error.message);
        assert_eq!(excerpt(b"a\xFFb"), "a\u{FFFD}b");
    }

    #[test]
    fn a_line_that_is_ignored_is_logged_by_its_kind_and_never_by_its_text() {
        let log = azureal_testkit::captured_log(|| {
            for agent in crate::registry::all() {
                let mut parser = agent.parser();
                for line in
                    ["a-secret", r#"{"type":"novel","text":"a-secret"}"#, r#"{"Novel":{"x":"a-secret"}}"#]
                {
                    parser.line(line.as_bytes());
                }
                parser.end(&azureal_core::agent::Ending { stderr: "a-secret".into(), ..Default::default() });
            }
            crate::registry::all()[0].parser().line(br#"{"type":"keep_alive","text":"a-secret"}"#);
        });
        for agent in ["claude", "codex"] {
            let unreadable =
                format!(r#"a line cannot be read agent="{agent}" bytes=8 why="is not a JSON object""#);
            let unknown = format!(r#"ignored a line of an unknown kind agent="{agent}" kind="novel""#);
            for part in [unreadable, unknown] {
                assert!(log.contains(&part), "{part}: {log}");
            }
        }
        assert!(log.contains(r#"ignored a line agent="claude" kind="keep_alive""#), "{log}");
        assert!(log.contains(r#"decided the outcome of the run agent="offline" outcome="#), "{log}");
        assert!(!log.contains("a-secret"), "{log}");
    }

    #[test]
    fn a_kind_is_told_once() {
        let mut kinds = UnknownKinds::default();
        assert_eq!(kinds.notice("x", "a").len(), 1);
        assert_eq!(kinds.notice("x", "a").len(), 0);
        for number in 0..1000 {
            kinds.notice("x", &number.to_string());
        }
        assert_eq!(kinds.0.len(), MAX_KINDS);
    }
}
