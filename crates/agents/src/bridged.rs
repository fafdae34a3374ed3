//! Parses the output of a bridge, for every agent behind one.
//!
//! The bridge and the agent share one file: `{"message":…}` comes from the agent, and goes to the parser of its
//! protocol. Questions, answers and the end of the run come from the bridge, and are the same for all.

use azureal_core::Event;
use azureal_core::agent::{AgentOutput, AgentParser, Ending};
use azureal_core::bridge::{Answered, AnsweredBy, BridgeEnd, BridgeLine};
use azureal_core::event::{ErrorEvent, Outcome, Usage};
use tracing::debug;

use crate::closing::{Closing, StreamEnd, name};
use crate::unreadable::{excerpt, unreadable_line};

/// Parses the messages of one protocol, in one run.
pub trait MessageParser: Send {
    /// Parses one message, which is JSON.
    fn message(&mut self, message: &str) -> Vec<AgentOutput>;

    /// Returns what is still open when the run ends, such as a text that was cut off.
    fn end(&mut self) -> Vec<AgentOutput> {
        Vec::new()
    }

    /// Returns the tokens of the run, as far as the agent has reported them.
    fn usage(&self) -> Option<Usage> {
        None
    }
}

/// Parses the output of a bridge.
pub struct Bridged<P> {
    agent: &'static str,
    messages: P,
    closing: Closing,
    stopped: Option<Outcome>,
}

impl<P: MessageParser> Bridged<P> {
    /// Parses the output of a bridge to this agent.
    pub fn new(agent: &'static str, messages: P) -> Self {
        Self { agent, messages, closing: Closing::default(), stopped: None }
    }

    fn note(&mut self, outputs: &[AgentOutput]) {
        for output in outputs {
            self.closing.begun |= matches!(output, AgentOutput::Event(Event::Init(_)));
            self.closing.has_error |= matches!(output, AgentOutput::Event(Event::Error(_)));
        }
    }

    /// Takes the end of the run from the bridge.
    fn take_end(&mut self, end: BridgeEnd) {
        let (stream_end, kind) = match end.outcome {
            Outcome::Done => (StreamEnd::Done, ""),
            Outcome::Failed => (StreamEnd::Failed, "failed"),
            Outcome::Interrupted => (StreamEnd::Interrupted, "interrupted"),
            Outcome::Cancelled | Outcome::Timeout => {
                self.stopped = Some(end.outcome);
                return;
            }
        };
        self.closing.stream_end = stream_end;
        let exit = match (end.code, end.signal) {
            (_, Some(signal)) => format!("; it was ended by {}", name(signal)),
            (Some(code), None) if stream_end == StreamEnd::Interrupted => {
                format!("; it exited with code {code}")
            }
            _ => String::new(),
        };
        if let Some(reason) = end.reason {
            self.closing.reason = Some(ErrorEvent {
                kind: kind.to_owned(),
                message: format!("{}: {reason}{exit}", self.agent),
            });
            // An earlier error of the agent is not the reason why the bridge ended it.
            self.closing.has_error = false;
        }
    }
}

/// Returns what follows from the answer to a question.
fn answered(answered: Answered) -> Vec<AgentOutput> {
    let is_refused = !answered.allowed && answered.by != AnsweredBy::End;
    let refused = is_refused.then(|| AgentOutput::Refused(vec![answered.title.clone()]));
    [AgentOutput::Answered(answered)].into_iter().chain(refused).collect()
}

impl<P: MessageParser> AgentParser for Bridged<P> {
    fn line(&mut self, line: &[u8]) -> Vec<AgentOutput> {
        match BridgeLine::read(line) {
            Ok(BridgeLine::Message(message)) => {
                let outputs = self.messages.message(message.get());
                self.note(&outputs);
                outputs
            }
            Ok(BridgeLine::Unreadable(found)) => {
                debug!(agent = self.agent, bytes = found.bytes, "a message cannot be read");
                let what = format!("sent a message of {} bytes that {}", found.bytes, found.why);
                let text = format!("{} {what}: {}", self.agent, excerpt(found.text.as_bytes()));
                vec![AgentOutput::Event(Event::error("unreadable_line", text))]
            }
            Ok(BridgeLine::Question(question)) => vec![AgentOutput::Question(question)],
            Ok(BridgeLine::Answer(answer)) => answered(answer),
            Ok(BridgeLine::End(end)) => {
                self.take_end(end);
                Vec::new()
            }
            Err(_) => vec![unreadable_line(self.agent, line, "is no line of a bridge")],
        }
    }

    fn end(&mut self, ending: &Ending) -> Vec<AgentOutput> {
        let mut outputs = self.messages.end();
        self.closing.usage = self.messages.usage();
        let stopped = ending.stopped.or(self.stopped);
        outputs.extend(self.closing.close(self.agent, &Ending { stopped, ..ending.clone() }));
        outputs
    }
}

#[cfg(test)]
mod tests {
    use azureal_core::agent::Exit;
    use azureal_core::event::Complete;

    use super::*;

    /// Each message is what the agent says.
    struct Plain;

    impl MessageParser for Plain {
        fn message(&mut self, message: &str) -> Vec<AgentOutput> {
            vec![AgentOutput::Event(Event::assistant(message))]
        }
    }

    fn play(lines: &[&str], ending: &Ending) -> (Vec<AgentOutput>, Complete) {
        let mut parser = Bridged::new("x", Plain);
        let mut outputs: Vec<AgentOutput> =
            lines.iter().flat_map(|line| parser.line(line.as_bytes())).collect();
        outputs.extend(parser.end(ending));
        let Some(AgentOutput::Event(Event::Complete(complete))) = outputs.pop() else {
            panic!("{outputs:?}")
        };
        (outputs, complete)
    }

    fn exited(code: i32) -> Ending {
        Ending { exit: Some(Exit::Code(code)), ..Ending::default() }
    }

    #[test]
    fn messages_are_the_agents_and_the_end_is_the_bridges() {
        let lines = [r#"{"message":{"end":{"outcome":"failed"}}}"#, r#"{"end":{"outcome":"done","code":0}}"#];
        let (outputs, complete) = play(&lines, &exited(0));
        assert_eq!(outputs, [AgentOutput::Event(Event::assistant(r#"{"end":{"outcome":"failed"}}"#))]);
        assert_eq!(complete.outcome, Some(Outcome::Done));
    }

    #[test]
    fn an_end_has_its_outcome_and_its_reason() {
        for (end, ending, outcome, error) in [
            (r#"{"outcome":"cancelled"}"#, exited(0), Outcome::Cancelled, None),
            (r#"{"outcome":"timeout"}"#, exited(1), Outcome::Timeout, None),
            (r#"{"outcome":"failed","reason":"no"}"#, exited(1), Outcome::Failed, Some("x: no")),
            (
                r#"{"outcome":"interrupted","reason":"gone","signal":9}"#,
                exited(1),
                Outcome::Interrupted,
                Some("x: gone; it was ended by signal 9 (SIGKILL)"),
            ),
        ] {
            let (outputs, complete) = play(&[&format!(r#"{{"end":{end}}}"#)], &ending);
            assert_eq!(complete.outcome, Some(outcome), "{end}");
            let found = outputs.iter().find_map(|output| match output {
                AgentOutput::Event(Event::Error(error)) => Some(error.message.as_str()),
                _ => None,
            });
            assert_eq!(found, error, "{end}");
        }
        // A bridge that was killed has no end.
        let killed = Ending { exit: Some(Exit::Signal(9)), ..Ending::default() };
        assert_eq!(play(&[r#"{"message":1}"#], &killed).1.outcome, Some(Outcome::Interrupted));
    }

    #[test]
    fn a_question_and_a_refusal_are_told() {
        let question = r#"{"question":{"id":"q1","title":"run","kind":"execute","input":"{}","options":[]}}"#;
        let refused =
            r#"{"answer":{"question":"q1","title":"run","option":"no","allowed":false,"by":"person"}}"#;
        let (outputs, _) = play(&[question, refused, "garbage"], &exited(0));
        assert!(matches!(&outputs[0], AgentOutput::Question(question) if question.id == "q1"));
        assert!(matches!(&outputs[1], AgentOutput::Answered(answered) if !answered.allowed));
        assert_eq!(outputs[2], AgentOutput::Refused(vec!["run".to_owned()]));
        assert!(
            matches!(&outputs[3], AgentOutput::Event(Event::Error(error)) if error.kind == "unreadable_line")
        );
    }
}
