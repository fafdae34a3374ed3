//! A turn as it is shown while it goes on.

use azureal_core::agent::AgentOutput;
use azureal_core::event::{Complete, ErrorEvent, ToolCall, ToolResult};
use azureal_core::{Event, OnFailure, Tool, visible, visible_line};
use azureal_engine::{CommandProgress, CommandRun, FinishedTurn};

use crate::failure::Failure;
use crate::output::{Output, Paint, alarm, counted, error_width, in_rows, on_stderr, tell, warning};
use crate::spinner::Spinner;
use crate::token_counts::count;
use crate::transcript::{duration, ending, used};
use azureal::json::TurnLine;
use azureal::meter::{ESTIMATE, Meter};

/// How much of what a tool call is about is shown.
const ABOUT_CHARS: usize = 100;
/// How much is remembered of a text that is being written, in bytes, and how many calls without a result. An agent may
/// print without end.
const MOST_OPEN: usize = 16 << 20;
const MOST_CALLS: usize = 1_000;
/// How much is shown of the names of the commands that run.
const LABEL_CHARS: usize = 60;

/// Shows a turn: text as it is written, a line for every tool call once its outcome is known.
pub(crate) struct Live<'a> {
    out: &'a mut Output,
    agent: &'static str,
    is_kept: bool,
    spinner: Spinner,
    /// What was shown of a text that is not finished.
    open: String,
    /// Whether the cursor stands behind something.
    in_line: bool,
    /// The context commands that have not ended yet, by their names.
    commands: Vec<String>,
    /// The calls that have no result yet, by their ids.
    calls: Vec<(String, String)>,
    last_error: Option<ErrorEvent>,
    /// The tokens of the last request, as the provider counted them.
    tokens: Option<u64>,
    expected_model: Option<String>,
}

/// From how full a session is on that is worth a word, in percent.
const WORTH_TELLING: u64 = 10;

impl<'a> Live<'a> {
    pub(crate) fn new(out: &'a mut Output, agent: &'static str, is_kept: bool) -> Self {
        Self {
            out,
            agent,
            is_kept,
            spinner: Spinner::start(agent),
            open: String::new(),
            in_line: false,
            commands: Vec::new(),
            calls: Vec::new(),
            last_error: None,
            tokens: None,
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
                let took = duration(u64::try_from(run.duration.as_millis()).unwrap_or(u64::MAX));
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

    /// Shows that the agent goes on after a compaction; what it says from now on is another run's.
    pub(crate) fn go_on(&mut self) -> Result<(), Failure> {
        self.spinner.label(self.agent);
        self.end_run()
    }

    fn waiting_for_commands(&self) -> String {
        format!("context: {}", shortened_to(LABEL_CHARS, &self.commands.join(", ")))
    }

    /// Shows what a line of the agent says. `meter` measures the context with it.
    pub(crate) fn take(&mut self, output: &AgentOutput, meter: Option<&Meter>) -> Result<(), Failure> {
        self.tokens = meter.filter(|meter| meter.tokens_by != ESTIMATE).map(|meter| meter.tokens);
        match output {
            AgentOutput::Event(event) => self.event(event),
            AgentOutput::Delta(_) if self.out.is_json() => Ok(()),
            AgentOutput::Delta(text) => {
                if self.open.len() < MOST_OPEN {
                    self.open.push_str(text);
                }
                self.write(&visible(text))
            }
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
        self.end_line()?;
        self.out.flush()
    }

    /// Shows an event of the agent.
    fn event(&mut self, event: &Event) -> Result<(), Failure> {
        if let Event::Error(error) = event {
            self.last_error = Some(error.clone());
        }
        if self.out.is_json() {
            return Ok(());
        }
        match event {
            Event::Init(init) if self.expected_model.as_ref().is_some_and(|model| *model != init.model) => {
                self.tell(&format!("model {}", visible_line(&init.model)));
                Ok(())
            }
            Event::AssistantText(said) if said.subagent.is_none() => self.finished(&said.text),
            Event::Plan(plan) => self.finished(&plan.content),
            Event::ToolCall(call) => self.called(call),
            Event::ToolResult(result) => self.answered(result),
            Event::Error(error) => {
                self.end_line()?;
                self.tell(&alarm(&visible(&error.message)));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Says what is waited for: a tool, or the agent, and how much it has before it.
    fn waiting(&self) -> String {
        let what = self.calls.last().map_or(self.agent, |(_, line)| line.trim_start());
        match self.tokens {
            Some(tokens) => format!("{what} · {} tokens", count(tokens)),
            None => what.to_owned(),
        }
    }

    /// The finished text takes the place of what was shown of it: only what is missing is written.
    fn finished(&mut self, text: &str) -> Result<(), Failure> {
        let shown = std::mem::take(&mut self.open);
        match text.strip_prefix(&shown) {
            Some(rest) => self.write(&visible(rest))?,
            None => {
                self.end_line()?;
                self.write(&visible(text))?;
            }
        }
        self.end_line()
    }

    fn called(&mut self, call: &ToolCall) -> Result<(), Failure> {
        self.end_line()?;
        let about = Tool::named(&call.tool_name).key_text(&call.input);
        let about: String = shortened(&about);
        let indent = if call.subagent.is_some() { "  " } else { "" };
        let line = format!("{indent}{} {about}", call.tool_name);
        let line = visible_line(line.trim_end()).into_owned();
        if self.calls.len() >= MOST_CALLS {
            self.calls.remove(0);
        }
        self.calls.push((call.tool_use_id.clone(), line));
        self.spinner.label(&self.waiting());
        Ok(())
    }

    fn answered(&mut self, result: &ToolResult) -> Result<(), Failure> {
        let found = self.calls.iter().position(|(id, _)| *id == result.tool_use_id);
        let line = match found {
            Some(index) => self.calls.remove(index).1,
            None => visible_line(&result.tool_name).into_owned(),
        };
        self.spinner.label(&self.waiting());
        let paint = self.out.paint();
        let text = if result.is_error {
            let why = result.content.lines().find(|line| !line.trim().is_empty()).unwrap_or("failed");
            format!("{} {line}: {}\n", paint.danger("✗"), visible_line(&shortened(why.trim())))
        } else {
            format!("{} {line}\n", paint.success("✓"))
        };
        self.end_line()?;
        self.write(&text)
    }

    /// Shows how the turn ended, once it is stored.
    pub(crate) fn end(&mut self, finished: &FinishedTurn, meter: Option<&Meter>) -> Result<(), Failure> {
        self.end_run()?;
        if self.out.is_json() {
            return Ok(());
        }
        self.spinner.hide();
        self.out.flush()?;
        let place = match self.is_kept {
            true => finished.session.to_string(),
            false => "nothing was stored".to_owned(),
        };
        let full = meter.filter(|meter| meter.percent >= WORTH_TELLING);
        let full = full.map(|meter| format!("context {} % full", meter.percent));
        let refused = finished.refused.len();
        tell(&closing(place, &finished.complete, refused, full, on_stderr(), error_width()));
        Ok(())
    }

    /// Tells of something on standard error.
    pub(crate) fn tell(&mut self, line: &str) {
        self.spinner.hide();
        tell(line);
        if !self.in_line {
            self.spinner.show();
        }
    }

    fn write(&mut self, text: &str) -> Result<(), Failure> {
        if text.is_empty() {
            return Ok(());
        }
        self.spinner.hide();
        self.out.text(text)?;
        self.out.flush()?;
        self.in_line = !text.ends_with('\n');
        if !self.in_line {
            self.spinner.show();
        }
        Ok(())
    }

    /// Ends what is left open when the agent's program has ended.
    fn end_run(&mut self) -> Result<(), Failure> {
        self.end_line()?;
        for (_, line) in std::mem::take(&mut self.calls) {
            self.write(&format!("? {line}: no result\n"))?;
        }
        Ok(())
    }

    fn end_line(&mut self) -> Result<(), Failure> {
        self.open.clear();
        if self.in_line { self.write("\n") } else { Ok(()) }
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
    let text = ending(complete);
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
    let parts = [vec![text.clone()], used(complete), vec![place], full.into_iter().collect()].concat();
    // Painted last: colours have no width.
    in_rows(&parts, width.unwrap_or(usize::MAX)).replacen(&text, &painted, 1)
}

fn shortened(text: &str) -> String {
    shortened_to(ABOUT_CHARS, text)
}

fn shortened_to(chars: usize, text: &str) -> String {
    let mut short: String = text.chars().take(chars).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
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
