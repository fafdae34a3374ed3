//! The outcome of a run, decided from all that is known of it.
//!
//! The stream, the exit status and our own actions can contradict each other: programs exit with 0 after an
//! interrupt, or without printing their end. A run has exactly one outcome. The order of the decision: azureal
//! stopped it; a signal; the stream; the exit status; no end at all.

use std::time::Duration;

use azureal_core::Event;
use azureal_core::agent::{AgentOutput, Ending, Exit};
use azureal_core::event::{Complete, ErrorEvent, Outcome, Usage};
use tracing::debug;

use crate::unreadable::{excerpt, shorten};

/// The lines of standard error that an error quotes, from the end.
const STDERR_LINES: usize = 8;
const STDERR_CHARS: usize = 2000;

/// The end of the run according to the stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum StreamEnd {
    /// No end: it is not over, or was truncated.
    #[default]
    Missing,
    /// The run is done.
    Done,
    /// The run failed.
    Failed,
    /// The run was interrupted.
    Interrupted,
}

/// The state that a parser gathers for the end of a run.
#[derive(Default)]
pub(crate) struct Closing {
    pub(crate) stream_end: StreamEnd,
    /// Whether the program began to work: if it ends after that without an outcome, it has died.
    pub(crate) begun: bool,
    /// Whether an event already has the reason of the failure.
    pub(crate) has_error: bool,
    /// The reason of the failure, if the stream has it and no event does yet.
    pub(crate) reason: Option<ErrorEvent>,
    pub(crate) cost_usd: f64,
    pub(crate) usage: Option<Usage>,
    /// The duration of the run, if the stream has it.
    pub(crate) duration: Option<Duration>,
}

impl Closing {
    /// Returns the last outputs of a run: an error if it needs one, then the one [`Event::Complete`].
    pub(crate) fn close(&mut self, agent: &str, ending: &Ending) -> Vec<AgentOutput> {
        let outcome = self.outcome(ending);
        let (exit, stream_end, stopped) = (ending.exit, self.stream_end, ending.stopped);
        debug!(agent, ?outcome, ?exit, ?stream_end, ?stopped, "decided the outcome of the run");
        let mut out = Vec::new();
        if let Some(error) = self.error(agent, ending, outcome) {
            out.push(AgentOutput::Event(Event::Error(error)));
        } else if !ending.fragment.is_empty() {
            out.push(AgentOutput::Notice(format!("the output of {agent} {}", cut_line(ending))));
        }
        // Without an exit status the duration was not measured and is an estimate.
        let duration = self.duration.filter(|_| ending.exit.is_none()).unwrap_or(ending.duration);
        out.push(AgentOutput::Event(Event::Complete(Complete {
            success: outcome == Outcome::Done,
            duration_ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
            cost_usd: self.cost_usd,
            outcome: Some(outcome),
            usage: self.usage,
            continues: outcome == Outcome::Interrupted && ending.stopped == Some(Outcome::Interrupted),
            // The engine knows it.
            started_at: None,
        })));
        out
    }

    fn outcome(&self, ending: &Ending) -> Outcome {
        // A run that was stopped only to compact the session, and had reached its end, is done.
        let was_done = ending.stopped == Some(Outcome::Interrupted) && self.stream_end == StreamEnd::Done;
        if let Some(stopped) = ending.stopped.filter(|_| !was_done) {
            return stopped;
        }
        if was_done {
            return Outcome::Done;
        }
        match (ending.exit, self.stream_end) {
            (Some(Exit::Signal(_)), _) => Outcome::Interrupted,
            (_, StreamEnd::Failed) => Outcome::Failed,
            (_, StreamEnd::Interrupted) => Outcome::Interrupted,
            (Some(Exit::Code(0)) | None, StreamEnd::Done) => Outcome::Done,
            (Some(Exit::Code(0)) | None, StreamEnd::Missing) => Outcome::Interrupted,
            // Claude Code catches SIGTERM and exits with 143; Codex catches SIGINT and exits with 1.
            (Some(Exit::Code(code)), StreamEnd::Missing) if self.begun || signal_of_code(code).is_some() => {
                Outcome::Interrupted
            }
            (Some(Exit::Code(_)), StreamEnd::Missing | StreamEnd::Done) => Outcome::Failed,
        }
    }

    fn error(&mut self, agent: &str, ending: &Ending, outcome: Outcome) -> Option<ErrorEvent> {
        // What we did ourselves needs no error.
        if ending.stopped.is_some()
            || outcome == Outcome::Done
            || (outcome == Outcome::Failed && self.has_error)
        {
            return None;
        }
        let (kind, mut message) = match (ending.exit, self.stream_end) {
            (Some(Exit::Signal(signal)), _) => ("signal", format!("{agent} was ended by {}", name(signal))),
            (_, StreamEnd::Failed | StreamEnd::Interrupted) => match self.reason.take() {
                Some(reason) => return Some(reason),
                None if self.stream_end == StreamEnd::Failed => {
                    ("failed", format!("{agent} says that it failed"))
                }
                None => ("interrupted", format!("{agent} was interrupted")),
            },
            (Some(Exit::Code(0)) | None, _) => {
                ("truncated", format!("the output of {agent} stops before its end"))
            }
            (Some(Exit::Code(code)), _) => match (signal_of_code(code), self.reason.take()) {
                (_, Some(reason)) => return Some(reason),
                (Some(signal), None) => ("signal", format!("{agent} was ended by {}", name(signal))),
                (None, None) => ("exit", format!("{agent} exited with code {code}")),
            },
        };
        if !ending.fragment.is_empty() {
            message.push_str("; its output ");
            message.push_str(&cut_line(ending));
        }
        let stderr = last_lines(&ending.stderr);
        if !stderr.is_empty() {
            message.push('\n');
            message.push_str(&stderr);
        }
        Some(ErrorEvent { message, kind: kind.to_owned() })
    }
}

fn cut_line(ending: &Ending) -> String {
    let fragment = &ending.fragment;
    format!("ends in a line that is cut off after {} bytes: {}", fragment.len(), excerpt(fragment))
}

/// Returns the signal that an exit code stands for, by the custom of shells.
fn signal_of_code(code: i32) -> Option<i32> {
    (129..=159).contains(&code).then(|| code - 128)
}

pub(crate) fn name(signal: i32) -> String {
    let name = match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        6 => "SIGABRT",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        15 => "SIGTERM",
        other => return format!("signal {other}"),
    };
    format!("signal {signal} ({name})")
}

fn last_lines(stderr: &str) -> String {
    let lines: Vec<&str> = stderr.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    let tail = lines.get(lines.len().saturating_sub(STDERR_LINES)..).unwrap_or(&[]);
    shorten(&tail.join("\n"), STDERR_CHARS).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(closing: Closing, ending: &Ending) -> (Option<(String, String)>, Outcome) {
        let mut closing = closing;
        let mut out = closing.close("x", ending);
        let Some(AgentOutput::Event(Event::Complete(complete))) = out.pop() else {
            panic!("no end: {out:?}")
        };
        assert_eq!(complete.success, complete.outcome == Some(Outcome::Done));
        let error = out.into_iter().find_map(|output| match output {
            AgentOutput::Event(Event::Error(error)) => Some((error.kind, error.message)),
            _ => None,
        });
        (error, complete.outcome.unwrap())
    }

    #[test]
    fn a_run_has_one_outcome_and_says_why() {
        let code = |code| Ending { exit: Some(Exit::Code(code)), ..Ending::default() };
        let signal = |signal| Ending { exit: Some(Exit::Signal(signal)), ..Ending::default() };
        let stopped = |by| Ending { stopped: Some(by), exit: Some(Exit::Code(0)), ..Ending::default() };
        for (stream_end, has_error, ending, kind, outcome) in [
            (StreamEnd::Done, false, code(0), None, Outcome::Done),
            (StreamEnd::Done, false, Ending::default(), None, Outcome::Done),
            (StreamEnd::Done, false, code(1), Some("exit"), Outcome::Failed),
            (StreamEnd::Done, false, signal(9), Some("signal"), Outcome::Interrupted),
            (StreamEnd::Failed, true, code(1), None, Outcome::Failed),
            (StreamEnd::Failed, false, code(1), Some("failed"), Outcome::Failed),
            (StreamEnd::Failed, true, code(0), None, Outcome::Failed),
            (StreamEnd::Interrupted, false, code(0), Some("interrupted"), Outcome::Interrupted),
            (StreamEnd::Missing, false, code(0), Some("truncated"), Outcome::Interrupted),
            (StreamEnd::Missing, false, Ending::default(), Some("truncated"), Outcome::Interrupted),
            (StreamEnd::Missing, false, code(2), Some("exit"), Outcome::Failed),
            (StreamEnd::Missing, false, code(143), Some("signal"), Outcome::Interrupted),
            (StreamEnd::Missing, true, signal(15), Some("signal"), Outcome::Interrupted),
            (StreamEnd::Interrupted, false, stopped(Outcome::Cancelled), None, Outcome::Cancelled),
            (StreamEnd::Missing, false, stopped(Outcome::Timeout), None, Outcome::Timeout),
            (StreamEnd::Missing, false, stopped(Outcome::Interrupted), None, Outcome::Interrupted),
            (StreamEnd::Done, false, stopped(Outcome::Interrupted), None, Outcome::Done),
            (StreamEnd::Done, false, stopped(Outcome::Cancelled), None, Outcome::Cancelled),
        ] {
            let closing = Closing { stream_end, has_error, ..Closing::default() };
            let (error, found) = close(closing, &ending);
            let error_kind = error.as_ref().map(|(kind, _)| kind.as_str());
            assert_eq!((error_kind, found), (kind, outcome), "{stream_end:?}, {has_error}, {ending:?}");
        }
    }

    #[test]
    fn an_error_quotes_the_cut_line_and_the_end_of_stderr() {
        let ending = Ending {
            exit: Some(Exit::Code(1)),
            stderr: (1..=20).map(|number| format!("line {number}\n\n")).collect(),
            fragment: b"{\"type\":\"res".to_vec(),
            ..Ending::default()
        };
        let (error, _) = close(Closing::default(), &ending);
        assert_eq!(
            error.unwrap().1,
            "x exited with code 1; its output ends in a line that is cut off after 12 bytes: {\"type\":\"res\n\
             line 13\nline 14\nline 15\nline 16\nline 17\nline 18\nline 19\nline 20"
        );
    }

    #[test]
    fn the_reason_that_the_stream_gave_is_told() {
        let reason = ErrorEvent { kind: "k".into(), message: "m".into() };
        let closing = Closing { stream_end: StreamEnd::Failed, reason: Some(reason), ..Closing::default() };
        let (error, _) = close(closing, &Ending { exit: Some(Exit::Code(1)), ..Ending::default() });
        assert_eq!(error, Some(("k".into(), "m".into())));
    }
}
