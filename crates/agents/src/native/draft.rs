//! A turn while its records are read, for agents whose records are no lines of a stream.
//!
//! The reader of a format calls one method per record. The draft adds the start of the agent, counts tokens once, remembers
//! calls until their results come, and decides the outcome of the turn.

use std::collections::{HashSet, VecDeque};

use azureal_core::event::{
    AssistantText, Complete, FileStatus, Init, ModelSwitch, Outcome, Reasoning, Usage,
};
use azureal_core::{Event, Json, detail};
use jiff::Timestamp;

use super::turns::TurnBuilder;
use super::{NativePlace, NativeTurn};
use crate::calls::{Calls, Reported};
use crate::span::Span;

/// The number of unanswered calls that are remembered.
const MOST_OPEN: usize = 10_000;

/// The turns of a session, while they are read.
pub(crate) struct Draft {
    agent: &'static str,
    /// The agent's own id of the session.
    session: String,
    /// The directory of the session.
    cwd: String,
    turn: Turn,
    builder: TurnBuilder,
    /// The number of turns that began.
    count: u64,
    /// The finished turns.
    ready: VecDeque<NativeTurn>,
}

#[derive(Default)]
struct Turn {
    /// Whether it has a prompt or any event.
    has_content: bool,
    /// Whether the start of the agent was added.
    has_begun: bool,
    model: String,
    calls: Calls,
    /// The calls without a result.
    open: HashSet<String>,
    usage: Option<Usage>,
    cost_usd: f64,
    span: Span,
    end: TurnEnd,
}

/// The end of a turn, as far as its records tell.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum TurnEnd {
    /// The agent has more to do.
    #[default]
    Missing,
    Done,
    Failed,
    Cancelled,
}

impl Draft {
    pub(crate) fn new(agent: &'static str, session: &str, cwd: &str) -> Self {
        Self {
            agent,
            session: session.to_owned(),
            cwd: cwd.to_owned(),
            turn: Turn::default(),
            builder: TurnBuilder::default(),
            count: 0,
            ready: VecDeque::new(),
        }
    }

    /// Sets the directory of the session, if it is not known yet.
    pub(crate) fn runs_in(&mut self, cwd: &str) {
        if self.cwd.is_empty() {
            cwd.clone_into(&mut self.cwd);
            cwd.clone_into(&mut self.turn.calls.cwd);
        }
    }

    /// Ends the turn before, and begins one with the user's prompt. Programs add newlines at its end.
    pub(crate) fn prompt(&mut self, id: &str, time: Option<Timestamp>, text: &str) {
        self.close();
        self.begin(id, time);
        self.builder.prompt(text.trim_end_matches(['\n', '\r']));
    }

    /// Adds a prompt that the user gave while the agent worked.
    pub(crate) fn further_prompt(&mut self, text: &str) {
        self.builder.prompt(text.trim_end_matches(['\n', '\r']));
        self.turn.end = TurnEnd::Missing;
    }

    /// Makes sure that there is a turn for what comes: its prompt may be lost.
    pub(crate) fn reach(&mut self, id: &str, time: Option<Timestamp>) {
        if !self.turn.has_content {
            self.begin(id, time);
        }
        if let Some(time) = time {
            self.turn.span.add(time);
        }
    }

    fn begin(&mut self, id: &str, time: Option<Timestamp>) {
        self.count += 1;
        let number;
        let id = match id {
            "" => {
                number = self.count.to_string();
                &number
            }
            id => id,
        };
        self.builder.begin(id, time);
        self.turn = Turn { has_content: true, ..Turn::default() };
        self.turn.calls.cwd.clone_from(&self.cwd);
        if let Some(time) = time {
            self.turn.span.add(time);
        }
    }

    /// Names the model that answers.
    pub(crate) fn model(&mut self, model: &str) {
        if model.is_empty() || model == self.turn.model {
            return;
        }
        model.clone_into(&mut self.turn.model);
        if self.turn.has_begun {
            self.builder.event(Event::ModelSwitch(ModelSwitch::reported(model)));
        }
    }

    /// Adds a text of the agent.
    pub(crate) fn text(&mut self, text: String, subagent: Option<String>) {
        if text.trim().is_empty() {
            return;
        }
        if subagent.is_none() {
            self.turn.end = TurnEnd::Done;
        }
        self.event(Event::AssistantText(AssistantText { text, starts: None, subagent }));
    }

    /// Adds a thought of the model.
    pub(crate) fn reasoning(&mut self, text: String, subagent: Option<String>) {
        if text.trim().is_empty() {
            return;
        }
        self.event(Event::Reasoning(Reasoning { text, subagent }));
    }

    /// Adds a call. A call of the same id counts once.
    pub(crate) fn call(&mut self, id: &str, (tool, input): (String, Json), subagent: Option<String>) {
        if self.turn.calls.contains(id) {
            return;
        }
        if self.turn.open.len() < MOST_OPEN {
            self.turn.open.insert(id.to_owned());
        }
        self.turn.end = TurnEnd::Missing;
        let call = self.turn.calls.call(id, &tool, input, subagent);
        self.event(call);
    }

    /// Returns whether a call waits for its result.
    pub(crate) fn awaits(&self, id: &str) -> bool {
        self.turn.open.contains(id)
    }

    /// Adds the result of a call. The result of an edit carries the diff, if the program reports one.
    pub(crate) fn result(
        &mut self,
        id: &str,
        Answer { content, is_error, diff }: Answer,
        subagent: Option<String>,
    ) {
        self.turn.open.remove(id);
        self.turn.end = TurnEnd::Missing;
        let path = self.turn.calls.edited_file(id);
        let reported = path.zip(diff.as_deref()).and_then(|(path, diff)| patch(path, &self.cwd, diff));
        let reported = reported.map_or(Reported::Unknown, |diff| Reported::Diff(Some(diff)));
        let result = self.turn.calls.result(id, content, is_error, reported, subagent);
        self.event(result);
    }

    /// Adds an error of the program.
    pub(crate) fn error(&mut self, kind: &str, message: impl Into<String>) {
        self.event(Event::error(kind, message.into()));
        self.turn.end = TurnEnd::Failed;
    }

    /// Adds a compaction of the agent's context.
    pub(crate) fn compacted(&mut self, summary: Option<String>) {
        self.event(Event::Compacted);
        if let Some(summary) = summary {
            self.builder.summary(summary);
        }
    }

    /// Notes that the program says that the turn is done.
    pub(crate) fn done(&mut self) {
        self.turn.end = TurnEnd::Done;
    }

    /// Notes that the user stopped the agent.
    pub(crate) fn cancelled(&mut self) {
        self.turn.end = TurnEnd::Cancelled;
    }

    /// Counts the tokens of a request. Each request is counted once. `is_main` is `false` for requests of subagents, whose
    /// context is another one.
    pub(crate) fn usage(&mut self, used: Usage, is_main: bool) {
        let all = self.turn.usage.unwrap_or_default();
        let context = used.input_tokens.saturating_add(used.output_tokens);
        self.turn.usage = Some(Usage {
            input_tokens: all.input_tokens.saturating_add(used.input_tokens),
            output_tokens: all.output_tokens.saturating_add(used.output_tokens),
            cache_read_tokens: all.cache_read_tokens.saturating_add(used.cache_read_tokens),
            cache_write_tokens: all.cache_write_tokens.saturating_add(used.cache_write_tokens),
            context_tokens: Some(context).filter(|_| is_main && context > 0).or(all.context_tokens),
        });
    }

    /// Adds to the cost of the turn.
    pub(crate) fn cost(&mut self, cost_usd: f64) {
        if cost_usd.is_finite() && cost_usd > 0.0 {
            self.turn.cost_usd += cost_usd;
        }
    }

    /// Adds a part that cannot be read.
    pub(crate) fn problem(&mut self, place: NativePlace, reason: impl Into<String>) {
        self.builder.problem(place, reason);
    }

    /// Adds an event of the agent, after its start.
    fn event(&mut self, event: Event) {
        self.start();
        self.turn.has_content = true;
        self.builder.event(event);
    }

    /// Adds the start of the agent, once.
    fn start(&mut self) {
        if self.turn.has_begun {
            return;
        }
        self.turn.has_begun = true;
        self.builder.event(Event::Init(Init {
            cwd: self.cwd.clone(),
            model: self.turn.model.clone(),
            agent: Some(self.agent.to_owned()),
            agent_session: Some(self.session.clone()).filter(|session| !session.is_empty()),
            requested_model: None,
        }));
    }

    /// Ends the turn.
    fn close(&mut self) {
        if !self.turn.has_content {
            return;
        }
        self.start();
        let turn = std::mem::take(&mut self.turn);
        let outcome = match turn.end {
            TurnEnd::Done if turn.open.is_empty() => Outcome::Done,
            TurnEnd::Done | TurnEnd::Missing => Outcome::Interrupted,
            TurnEnd::Failed => Outcome::Failed,
            TurnEnd::Cancelled => Outcome::Cancelled,
        };
        let complete = Event::Complete(Complete {
            success: outcome == Outcome::Done,
            duration_ms: u64::try_from(turn.span.length().as_millis()).unwrap_or(u64::MAX),
            cost_usd: turn.cost_usd,
            outcome: Some(outcome),
            usage: turn.usage,
            continues: false,
            started_at: None,
        });
        if let Some(mut ended) = self.builder.event(complete) {
            ended.is_open = outcome == Outcome::Interrupted;
            self.ready.push_back(ended);
        }
    }

    /// Ends the last turn.
    pub(crate) fn finish(&mut self) {
        self.close();
        self.ready.extend(self.builder.rest());
    }

    /// Takes the next finished turn.
    pub(crate) fn take(&mut self) -> Option<NativeTurn> {
        self.ready.pop_front()
    }
}

/// The result of a call.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) content: String,
    pub(crate) is_error: bool,
    /// The unified diff of an edit, as the program has it.
    pub(crate) diff: Option<String>,
}

impl Answer {
    /// The output of a command, with its exit code in front if that is not 0.
    pub(crate) fn of_command(output: &str, exit_code: Option<i64>, has_failed: bool) -> Self {
        let (content, is_error) = match exit_code {
            Some(code) if code != 0 => (format!("Exit code {code}\n{output}"), true),
            _ => (output.to_owned(), has_failed),
        };
        Self { content, is_error, diff: None }
    }
}

/// Returns the diff of a file as results carry it, from a unified diff; `None` if that has no lines.
fn patch(path: &str, cwd: &str, diff: &str) -> Option<String> {
    let is_new = diff.lines().any(|line| line.starts_with("@@ -0,0 "));
    let status = if is_new { FileStatus::Added } else { FileStatus::Modified };
    let hunks: Vec<&str> = diff.lines().skip_while(|line| !line.starts_with("@@")).collect();
    detail::of_patch(path, cwd, status, &hunks)
}
