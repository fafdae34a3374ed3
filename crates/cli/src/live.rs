//! A turn as it is shown while it runs.

use azureal::transcript::{Places, ending, short_count};
use azureal_core::agent::AgentOutput;
use azureal_core::event::{Complete, ErrorEvent};
use azureal_core::{Event, OnFailure, duration_text, visible, visible_line};
use azureal_engine::{CommandProgress, CommandRun, FinishedTurn};

use crate::failure::Failure;
use crate::live_rows::LiveRows;
use crate::live_text::{LiveText, shortened};
use crate::output::{Output, Paint, alarm, counted, error_width, in_rows, on_stderr, tell, warning};
use crate::spinner::{Draft, Spinner};
use azureal::json::TurnLine;
use azureal::meter::{ESTIMATE, Meter};

/// How much is shown of the names of the commands that run.
const LABEL_CHARS: usize = 60;

/// Shows a turn: its preparation, its texts as they are written, its tool calls, its end.
pub(crate) struct Live<'a> {
    out: &'a mut Output,
    agent: &'static str,
    is_kept: bool,
    spinner: Spinner,
    form: Form,
    /// The context commands that have not ended yet, by their names.
    commands: Vec<String>,
    last_error: Option<ErrorEvent>,
    /// The tokens of the last request, as the provider counted them.
    tokens: Option<u64>,
    expected_model: Option<String>,
    /// The changes of the turn, in words.
    changed: Vec<String>,
}

/// What a turn becomes.
enum Form {
    /// Rows of a terminal.
    Rows(Box<LiveRows>),
    Text(LiveText),
    /// Lines for programs, which come from elsewhere.
    Json,
}

/// From how full a session is on that is worth a word, in percent.
const WORTH_TELLING: u64 = 10;

impl<'a> Live<'a> {
    pub(crate) fn new(out: &'a mut Output, agent: &'static str, is_kept: bool, places: &Places) -> Self {
        let form = match (out.is_json(), out.is_terminal()) {
            (true, _) => Form::Json,
            (false, true) => Form::Rows(Box::new(LiveRows::new(out, places.clone()))),
            (false, false) => Form::Text(LiveText::default()),
        };
        Self {
            form,
            out,
            agent,
            is_kept,
            spinner: Spinner::start(agent),
            commands: Vec::new(),
            last_error: None,
            tokens: None,
            changed: Vec::new(),
            expected_model: None,
        }
    }

    /// Tells which model answers, if it is another than this one.
    pub(crate) fn expecting(mut self, model: Option<&str>) -> Self {
        self.expected_model = model.map(str::to_owned);
        self
    }

    /// Returns the last error that the agent reported.
    pub(crate) fn last_error(&self) -> Option<&ErrorEvent> {
        self.last_error.as_ref()
    }

    /// Writes the lines for programs, if the output is for them.
    pub(crate) fn lines<'l>(&mut self, lines: impl IntoIterator<Item = TurnLine<'l>>) -> Result<(), Failure> {
        if self.out.is_json() {
            for line in lines {
                self.out.json(&line)?;
                self.out.flush()?;
            }
        }
        Ok(())
    }

    /// Shows how far the context commands are: on a terminal those that run, and how long each took.
    pub(crate) fn command(&mut self, progress: &CommandProgress) {
        match progress {
            CommandProgress::Began(names) => {
                self.commands.clone_from(names);
                self.spinner.label(&self.waiting_for_commands());
            }
            CommandProgress::Ended(run) => {
                let ended = self.commands.iter().position(|name| *name == run.command.name);
                ended.map(|index| self.commands.remove(index));
                self.ended(run);
                if self.commands.is_empty() {
                    self.spinner.label(self.agent);
                } else {
                    self.spinner.relabel(&self.waiting_for_commands());
                }
            }
            CommandProgress::Survived(count) => {
                self.tell(&warning(&format!(
                    "{} of the context commands could not be ended",
                    counted(*count as u64, "child process")
                )));
            }
        }
    }

    fn ended(&mut self, run: &CommandRun) {
        let name = visible_line(&run.command.name);
        match (run.failure(), run.command.on_failure) {
            (None, _) if self.spinner.is_seen() => {
                let took = duration_text(u64::try_from(run.duration.as_millis()).unwrap_or(u64::MAX));
                self.tell(&on_stderr().quiet(&format!("✓ {name} {took}")));
            }
            (Some(why), OnFailure::Warn) => {
                self.tell(&warning(&format!("the context command `{name}` failed: {why}")));
            }
            // One that must not fail is told as the reason why the turn does not begin.
            (None, _) | (Some(_), OnFailure::Ignore | OnFailure::Fail) => {}
        }
    }

    /// Shows that an agent is asked for a summary of what is too long.
    pub(crate) fn summary(&mut self, agent: &str) {
        self.spinner.label(&format!("the session is long: {agent} writes a summary"));
    }

    /// Shows that the agent continues after a compaction. Its output from now on is another run's.
    pub(crate) fn go_on(&mut self) -> Result<(), Failure> {
        self.spinner.label(self.agent);
        self.end_run()
    }

    fn waiting_for_commands(&self) -> String {
        format!("context: {}", shortened(&self.commands.join(", "), LABEL_CHARS))
    }

    /// Shows what a line of the agent says. `meter` measures the context with it.
    pub(crate) fn take(&mut self, output: &AgentOutput, meter: Option<&Meter>) -> Result<(), Failure> {
        self.tokens = meter.filter(|meter| meter.tokens_by != ESTIMATE).map(|meter| meter.tokens);
        match output {
            AgentOutput::Event(event) => self.event(event),
            AgentOutput::Delta(text) => self.delta(text),
            AgentOutput::Notice(text) | AgentOutput::Retry(text) => {
                self.tell(&visible(text));
                Ok(())
            }
            AgentOutput::Question(question) => {
                self.tell(&visible(&format!("{} asks for permission: {}", self.agent, question.title)));
                Ok(())
            }
            AgentOutput::Answered(answered) => {
                let answer = if answered.allowed { "allowed" } else { "refused" };
                self.tell(&visible(&format!("{answer}: {}", answered.title)));
                Ok(())
            }
            // Told at the end of the turn, with how to allow them.
            AgentOutput::Refused(_) => Ok(()),
            // Remembered for the next turn.
            AgentOutput::Cache(_) => Ok(()),
            AgentOutput::Usage(usage) => {
                if self.tokens.is_some() && usage.context_tokens.is_some() {
                    self.spinner.relabel(&self.waiting());
                }
                Ok(())
            }
        }
    }

    /// Ends with what was shown: the rest is told elsewhere.
    pub(crate) fn leave(mut self) -> Result<(), Failure> {
        match &self.form {
            Form::Text(_) => self.end_line()?,
            Form::Rows(_) | Form::Json => self.end_run()?,
        }
        self.out.flush()
    }

    fn delta(&mut self, delta: &str) -> Result<(), Failure> {
        match &mut self.form {
            Form::Json => Ok(()),
            Form::Text(text) => {
                let text = text.delta(delta);
                self.write(&text)
            }
            Form::Rows(rows) => {
                let Some((lines, draft)) = rows.delta(delta, self.out) else { return Ok(()) };
                if lines.is_empty() {
                    self.spinner.draft(draft);
                    return Ok(());
                }
                self.write_before(&lines, draft)
            }
        }
    }

    /// Shows an event of the agent.
    fn event(&mut self, event: &Event) -> Result<(), Failure> {
        match event {
            Event::Error(error) => self.last_error = Some(error.clone()),
            Event::Changes(changes) => self.changed.push(changes.summary()),
            _ => {}
        }
        match (&mut self.form, event) {
            (Form::Json, _) => Ok(()),
            (_, Event::Error(error)) => {
                self.end_line()?;
                self.tell(&alarm(&visible(&error.message)));
                Ok(())
            }
            (Form::Rows(rows), event) => {
                let lines = rows.event(event, self.out);
                self.label_call(event);
                self.write_before(&lines, Draft::default())
            }
            // Codex does not say which model answers.
            (Form::Text(_), Event::Init(init))
                if !init.model.is_empty()
                    && self.expected_model.as_ref().is_some_and(|model| *model != init.model) =>
            {
                self.tell(&format!("model {}", visible_line(&init.model)));
                Ok(())
            }
            (Form::Text(text), event) => {
                let text = text.event(event);
                self.label_call(event);
                self.write(&text)
            }
        }
    }

    /// Says what is waited for when a call begins or ends.
    fn label_call(&self, event: &Event) {
        if matches!(event, Event::ToolCall(_) | Event::ToolResult(_)) {
            self.spinner.label(&self.waiting());
        }
    }

    /// Says what is waited for: a tool, or the agent, and how much it has before it.
    fn waiting(&self) -> String {
        let running = match &self.form {
            Form::Rows(rows) => rows.running(),
            Form::Text(text) => text.running(),
            Form::Json => None,
        };
        let what = running.unwrap_or_else(|| self.agent.to_owned());
        match self.tokens {
            Some(tokens) => format!("{what} · {} tokens", short_count(tokens)),
            None => what,
        }
    }

    /// Shows how the turn ended, once it is stored.
    pub(crate) fn end(&mut self, finished: &FinishedTurn, meter: Option<&Meter>) -> Result<(), Failure> {
        self.end_run()?;
        if self.out.is_json() {
            return Ok(());
        }
        self.spinner.hide();
        if matches!(self.form, Form::Rows(_)) {
            self.out.text("\n")?;
        }
        self.out.flush()?;
        let place = match self.is_kept {
            true => finished.session.to_string(),
            false => "nothing was stored".to_owned(),
        };
        let full = meter.filter(|meter| meter.percent >= WORTH_TELLING);
        let full = full.map(|meter| format!("context {} % full", meter.percent));
        let refused = finished.refused.len();
        tell(&closing(place, &finished.complete, refused, full, on_stderr(), error_width()));
        let changed = match &self.changed[..] {
            [] => return Ok(()),
            [changed] => changed,
            // The parts of a turn that was compacted in the middle may have changed the same files.
            _ => "files changed",
        };
        tell(&on_stderr().quiet(&format!("{changed} · azureal diff {}", finished.session)));
        Ok(())
    }

    /// Tells of something on standard error.
    pub(crate) fn tell(&mut self, line: &str) {
        self.spinner.hide();
        tell(line);
        self.show_spinner();
    }

    fn write(&mut self, text: &str) -> Result<(), Failure> {
        if text.is_empty() {
            return Ok(());
        }
        self.spinner.hide();
        self.out.text(text)?;
        self.out.flush()?;
        self.show_spinner();
        Ok(())
    }

    /// Writes lines, with a draft below them.
    fn write_before(&mut self, lines: &str, draft: Draft) -> Result<(), Failure> {
        self.spinner.hide();
        self.spinner.draft(draft);
        self.out.text(lines)?;
        self.out.flush()?;
        self.show_spinner();
        Ok(())
    }

    /// Draws the status line again, unless the cursor is behind other text.
    fn show_spinner(&self) {
        if !matches!(&self.form, Form::Text(text) if text.is_in_line()) {
            self.spinner.show();
        }
    }

    /// Ends what is left open when the agent's program has ended.
    fn end_run(&mut self) -> Result<(), Failure> {
        match &mut self.form {
            Form::Json => Ok(()),
            Form::Text(text) => {
                let text = text.end_run();
                self.write(&text)
            }
            Form::Rows(rows) => {
                let lines = rows.end_run(self.out);
                self.write_before(&lines, Draft::default())
            }
        }
    }

    fn end_line(&mut self) -> Result<(), Failure> {
        let Form::Text(text) = &mut self.form else { return Ok(()) };
        let mut end = String::new();
        text.end_line(&mut end);
        self.write(&end)
    }
}

/// One line on how the turn ended, how long it took and what it used; several on a narrow terminal.
fn closing(
    place: String,
    complete: &Complete,
    refused: usize,
    full: Option<String>,
    paint: Paint,
    width: Option<usize>,
) -> String {
    let mut parts = ending(complete).into_iter();
    let text = parts.next().unwrap_or_default();
    let text = match (complete.success, refused) {
        (true, 0) => format!("✓ {text}"),
        // The agent is done, but not with what it wanted to do.
        (true, refused) => format!("! {text}, {} refused", counted(refused as u64, "tool call")),
        (false, _) => format!("✗ {text}"),
    };
    let painted = match (complete.success, refused) {
        (true, 0) => paint.success(&text),
        (true, _) => paint.caution(&text),
        (false, _) => paint.danger(&text),
    };
    let parts: Vec<String> = std::iter::once(text.clone()).chain(parts).chain([place]).chain(full).collect();
    // Painted last: colours have no width.
    in_rows(&parts, width.unwrap_or(usize::MAX)).replacen(&text, &painted, 1)
}

#[cfg(test)]
mod tests {
    use azureal_core::event::Usage;

    use super::*;

    #[test]
    fn the_end_of_a_turn_is_one_line_where_the_terminal_is_wide_enough() {
        let usage = Usage {
            input_tokens: 74_000,
            output_tokens: 1_200,
            cache_read_tokens: 69_000,
            ..Usage::default()
        };
        let complete = Complete {
            success: true,
            duration_ms: 12_000,
            cost_usd: 0.04,
            usage: Some(usage),
            ..Complete::default()
        };
        let shown = |refused, paint, width| {
            let full = Some("context 18 % full".to_owned());
            closing("S3".to_owned(), &complete, refused, full, paint, width)
        };
        let line = "✓ done in 12 s · 74k in, 93 % cached · 1.2k out · $0.04 · S3 · context 18 % full";
        for width in [None, Some(120), Some(81)] {
            assert_eq!(shown(0, Paint::PLAIN, width), line);
        }
        insta::assert_snapshot!(shown(0, Paint::PLAIN, Some(50)), @r"
        ✓ done in 12 s · 74k in, 93 % cached · 1.2k out
          $0.04 · S3 · context 18 % full
        ");
        insta::assert_snapshot!(shown(2, Paint::PLAIN, Some(50)), @r"
        ! done in 12 s, 2 tool calls refused
          74k in, 93 % cached · 1.2k out · $0.04 · S3
          context 18 % full
        ");
    }
}
