//! Reads what the built-in agent prints: events as they are stored, and what is only shown.

use azureal_core::Event;
use azureal_core::agent::{AgentOutput, AgentParser, Ending};
use azureal_core::event::{Complete, Usage};
use serde::Deserialize;

use super::NAME;
use crate::closing::{Closing, StreamEnd};
use crate::unreadable::{UnknownKinds, unreadable_line};
use crate::wire::{Fields, Loose, lenient, push_bounded};

/// The reader of one run.
#[derive(Default)]
pub(super) struct Parser {
    /// The unfinished text.
    open: String,
    closing: Closing,
    unknown: UnknownKinds,
}

/// A line that is only shown.
#[derive(Deserialize)]
struct Shown {
    #[serde(default, deserialize_with = "lenient")]
    delta: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    notice: Option<String>,
    #[serde(default)]
    usage: Loose<Usage>,
    #[serde(default, deserialize_with = "lenient")]
    refused: Option<Vec<String>>,
}

impl AgentParser for Parser {
    fn line(&mut self, line: &[u8]) -> Vec<AgentOutput> {
        if line.trim_ascii().is_empty() {
            return Vec::new();
        }
        let text = String::from_utf8_lossy(line);
        if let Some(shown) = Fields::of(&text).and_then(|fields| fields.read::<Shown>()) {
            if let Some(delta) = shown.delta {
                push_bounded(&mut self.open, &delta);
                return vec![AgentOutput::Delta(delta)];
            }
            if let Some(notice) = shown.notice {
                return vec![AgentOutput::Notice(notice)];
            }
            if let Some(usage) = shown.usage.0 {
                self.closing.usage = Some(usage);
                return vec![AgentOutput::Usage(usage)];
            }
            if let Some(tools) = shown.refused {
                return vec![AgentOutput::Refused(tools)];
            }
        }
        match Event::from_json(&text) {
            Ok(Event::Complete(Complete { success, cost_usd, usage, .. })) => {
                self.closing.stream_end = if success { StreamEnd::Done } else { StreamEnd::Failed };
                self.closing.cost_usd = cost_usd;
                self.closing.usage = usage.or(self.closing.usage);
                Vec::new()
            }
            Ok(Event::Unknown(event)) => self.unknown.notice(NAME, event.kind()),
            Ok(event) => {
                self.closing.begun |= matches!(event, Event::Init(_));
                self.closing.has_error |= matches!(event, Event::Error(_));
                if matches!(event, Event::AssistantText(_)) {
                    self.open.clear();
                }
                vec![AgentOutput::Event(event)]
            }
            Err(_) => vec![unreadable_line(NAME, line, "is no event")],
        }
    }

    fn end(&mut self, ending: &Ending) -> Vec<AgentOutput> {
        let mut out = Vec::new();
        if !self.open.is_empty() {
            out.push(AgentOutput::Event(Event::assistant(std::mem::take(&mut self.open))));
        }
        out.extend(self.closing.close(NAME, ending));
        out
    }
}

#[cfg(test)]
mod tests {
    use azureal_core::agent::Exit;
    use azureal_core::event::Outcome;

    use super::super::{Persona, answer, line_of};
    use super::*;

    fn ended(code: i32) -> Ending {
        Ending { exit: Some(Exit::Code(code)), ..Ending::default() }
    }

    #[test]
    fn an_answer_is_read_back_as_it_was_given() {
        for persona in Persona::ALL {
            let given = answer(persona, "/p", "What now?\u{0}\n\"quoted\"");
            let mut parser = Parser::default();
            let mut read: Vec<AgentOutput> =
                given.iter().flat_map(|output| parser.line(line_of(output).as_bytes())).collect();
            read.extend(parser.end(&ended(0)));
            assert_eq!(read, given);
        }
    }

    #[test]
    fn what_is_only_shown_is_read_back() {
        let usage = Usage { input_tokens: 3, output_tokens: 4, cache_read_tokens: 1, ..Usage::default() };
        for output in [
            AgentOutput::Delta("a\n".into()),
            AgentOutput::Notice("n".into()),
            AgentOutput::Usage(usage),
            AgentOutput::Refused(vec!["Bash".into()]),
            AgentOutput::Event(Event::user("x")),
        ] {
            assert_eq!(Parser::default().line(line_of(&output).as_bytes()), [output]);
        }
    }

    #[test]
    fn a_run_that_dies_keeps_what_it_had_said() {
        let mut parser = Parser::default();
        parser.line(br#"{"delta":"half an "}"#);
        parser.line(br#"{"delta":"answer"}"#);
        let out = parser.end(&Ending { exit: Some(Exit::Signal(9)), ..Ending::default() });
        assert_eq!(out.first(), Some(&AgentOutput::Event(Event::assistant("half an answer"))));
        let Some(AgentOutput::Event(Event::Complete(complete))) = out.last() else { panic!("{out:?}") };
        assert_eq!(complete.outcome, Some(Outcome::Interrupted));
    }

    #[test]
    fn what_is_no_event_is_told() {
        let mut parser = Parser::default();
        for line in [b"nonsense".as_slice(), b"[]", b"{\"UserMessage\":3}", b"\xFF"] {
            let out = parser.line(line);
            assert!(matches!(out.as_slice(), [AgentOutput::Event(Event::Error(_))]), "{out:?}");
        }
        assert!(matches!(parser.line(br#"{"Later":{}}"#).as_slice(), [AgentOutput::Notice(_)]));
    }
}
