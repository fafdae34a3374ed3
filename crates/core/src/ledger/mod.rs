//! The ledger: files, commands and open failures of the part of a session that a summary covers.
//!
//! A summary describes the work and may lose facts. The ledger has them from the events, without a model: every file and how
//! it was touched, every command and how its last run ended, and the failures that no later event fixed. It is rendered beside
//! the summary and is not stored; a [cache](LedgerCache) saves reading the same events at every turn.
//!
//! Events are taken newest first, so that the last outcome of a command is the first one seen and reading can stop when the
//! ledger is full. That depends on the events alone, not on the pages in which a store returns them.

mod cache;
mod command;
mod files;
mod line;
mod render;

use std::collections::{HashMap, HashSet};

pub use self::cache::{LedgerCache, LedgerKey};
use self::command::{CommandKey, Outcome, Succeeded};
use self::files::{Files, Touch};
use self::line::plain_line;
use crate::event::{DirectoryChanges, FileChange, FileStatus, Undo};
use crate::{Block, Event, Json, Page, Seq, SessionId, SessionStore, StoreError, Tool};

/// The kinds of events that a ledger is made from.
const KINDS: [&str; 8] =
    ["ToolCall", "ToolResult", "Changes", "Undo", "Init", "Error", "Complete", "Message"];
/// The most events that are read for one ledger.
const LOOKED_AT: usize = 4_096;
/// The number of events that are read at a time.
const PAGE: usize = 512;
/// The longest command in a line, in characters.
const COMMAND: usize = 200;
/// The characters of each end of an output that are searched.
const OUTPUT_END: usize = 4_000;
/// The longest path, in characters.
const PATH: usize = 500;

/// The facts of a part of a session.
///
/// ```
/// use azureal_core::{Event, Ledger, Seq};
///
/// let log = [
///     r#"{"ToolCall":{"tool_use_id":"1","tool_name":"Bash","input":{"command":"make"}}}"#,
///     r#"{"ToolResult":{"tool_use_id":"1","tool_name":"Bash","content":"error: no rule","is_error":true}}"#,
/// ];
/// let events: Vec<Event> = log.iter().map(|json| Event::from_json(json)).collect::<Result<_, _>>()?;
/// let ledger = Ledger::of([(Seq(2), &events[1]), (Seq(1), &events[0])], 12_000);
/// assert_eq!(ledger.render(12_000), "Failures that nothing fixed:\n- `make`: failed, error: no rule");
/// # Ok::<(), azureal_core::EventError>(())
/// ```
#[derive(Debug, Default)]
pub struct Ledger {
    files: Files,
    /// Each command with the outcome of its last run, newest first.
    commands: Vec<CommandLine>,
    known: HashSet<CommandKey>,
    succeeded: Succeeded,
    /// Failures of other tools and of agents, newest first.
    failures: Vec<String>,
    /// Subjects of other calls that ended later, whether they succeeded or failed.
    ended: HashSet<String>,
    /// Results whose calls are not seen yet.
    results: HashMap<String, Answer>,
    has_success: bool,
    /// The size so far, roughly, in characters.
    chars: usize,
    /// Whether older events were not looked at.
    is_cut: bool,
}

#[derive(Debug)]
struct CommandLine {
    text: String,
    outcome: Option<Outcome>,
    is_open: bool,
}

/// A result: whether it is an error, and the output that is searched.
#[derive(Debug)]
struct Answer {
    is_error: bool,
    output: String,
}

impl Ledger {
    /// Creates the ledger of these events, newest first, for a rendering of at most so many characters.
    pub fn of<'a>(newest_first: impl IntoIterator<Item = (Seq, &'a Event)>, most: usize) -> Self {
        let mut ledger = Self::default();
        for (looked_at, (seq, event)) in newest_first.into_iter().enumerate() {
            if looked_at == LOOKED_AT || ledger.is_full(most) {
                ledger.is_cut = true;
                break;
            }
            ledger.push_older(seq, event);
        }
        ledger
    }

    /// Returns whether older events would only be left out.
    fn is_full(&self, most: usize) -> bool {
        self.chars > most.saturating_add(most / 4)
    }

    /// Takes the event before those that were taken.
    fn push_older(&mut self, seq: Seq, event: &Event) {
        match event {
            Event::ToolResult(result) => {
                let output = result.detail.as_ref().unwrap_or(&result.content);
                self.answered(&result.tool_use_id, result.is_error, output);
            }
            Event::ToolCall(call) => {
                self.called(&call.tool_use_id, &call.tool_name, call.file_path.as_deref(), &call.input);
            }
            Event::Message(message) => {
                for block in message.content.iter().rev() {
                    match block {
                        Block::ToolResult { tool_use_id, content, is_error } => {
                            self.answered(tool_use_id, *is_error, &content.text());
                        }
                        Block::ToolUse { id, name, input } => self.called(id, name, None, input),
                        Block::Text { .. } | Block::Image(_) => {}
                    }
                }
            }
            Event::Changes(changes) => {
                changes.files.iter().for_each(|file| self.changed(file));
                for directory in &changes.directories {
                    self.chars += self.files.count_further(&directory.path, directory.files);
                }
            }
            Event::Undo(undo) => self.undone(seq, undo),
            Event::Init(init) => self.files.root(&init.cwd),
            Event::Error(error) if !self.has_success => {
                let why = plain_line(&error.message, COMMAND);
                self.fail(String::new(), format!("the agent: {why}"));
            }
            // The turn reached its end, so what its program complained of before is over.
            Event::Complete(complete) => self.has_success |= complete.success,
            _ => {}
        }
    }

    fn answered(&mut self, id: &str, is_error: bool, output: &str) {
        // The reason is in the first or the last lines; the middle of a long output is not searched.
        let output = match output.len() > 2 * OUTPUT_END {
            false => output.to_owned(),
            true => {
                let head = output.char_indices().nth(OUTPUT_END).map_or(output.len(), |(end, _)| end);
                let tail = output.char_indices().nth_back(OUTPUT_END).map_or(0, |(start, _)| start).max(head);
                let part = |from: usize, to: usize| output.get(from..to).unwrap_or_default();
                format!("{}\n{}", part(0, head), part(tail, output.len()))
            }
        };
        self.results.insert(id.to_owned(), Answer { is_error, output });
    }

    fn called(&mut self, id: &str, name: &str, path: Option<&str>, input: &Json) {
        let answer = self.results.remove(id);
        let tool = Tool::named(name);
        let about = tool.key_text(input);
        let how = match tool {
            Tool::Bash => return self.ran(&about, answer.as_ref()),
            Tool::Read => Some(Touch::Read),
            Tool::Edit => Some(Touch::Edited),
            Tool::Write => Some(Touch::Written),
            _ if name.eq_ignore_ascii_case("NotebookRead") => Some(Touch::Read),
            _ if name.eq_ignore_ascii_case("NotebookEdit") => Some(Touch::Edited),
            _ if name.eq_ignore_ascii_case("Delete") => Some(Touch::Deleted),
            _ => None,
        };
        // The end of a call without a result is not known.
        let Some(answer) = answer else { return };
        let path = path.unwrap_or(&about);
        match how.filter(|_| !path.is_empty()) {
            // One call on a file repairs the failure of another.
            Some(how) if !answer.is_error => {
                let is_new = how == Touch::Written && created(&answer.output);
                self.touch(path, if is_new { Touch::Created } else { how });
                self.ended.insert(path.to_owned());
            }
            Some(_) => self.fail_call(path.to_owned(), name, path, &answer),
            None if answer.is_error => self.fail_call(format!("{name} {about}"), name, &about, &answer),
            None => {
                self.ended.insert(format!("{name} {about}"));
            }
        }
    }

    fn fail_call(&mut self, subject: String, name: &str, about: &str, answer: &Answer) {
        let about = plain_line(about, COMMAND);
        let space = if about.is_empty() { "" } else { " " };
        let outcome = Outcome::of(true, &answer.output).text();
        self.fail(subject, format!("{}{space}{about}: {outcome}", plain_line(name, 100)));
    }

    /// Adds a failure unless a later call about the same ended.
    fn fail(&mut self, subject: String, line: String) {
        if self.ended.insert(subject) {
            self.chars += line.chars().count() + 3;
            self.failures.push(line);
        }
    }

    fn ran(&mut self, command: &str, answer: Option<&Answer>) {
        let key = CommandKey::of(command);
        let outcome = answer.map(|answer| Outcome::of_command(command, answer.is_error, &answer.output));
        let is_fixed = self.succeeded.covers(&key);
        if outcome == Some(Outcome::Done) {
            self.succeeded.add(key.clone());
        }
        let text = plain_line(command, COMMAND);
        if text.is_empty() || !self.known.insert(key) {
            return;
        }
        let is_open = match &outcome {
            Some(failed @ Outcome::Failed { .. }) => !is_fixed && !failed.is_answer_no(command),
            Some(Outcome::Done) | None => false,
        };
        let line = CommandLine { text, outcome, is_open };
        self.chars += line.render().chars().count() + 3;
        self.commands.push(line);
    }

    fn touch(&mut self, path: &str, how: Touch) {
        let path = path.chars().take(PATH).collect::<String>();
        self.chars += self.files.touch(&path, how);
    }

    fn changed(&mut self, file: &FileChange) {
        match (file.status, &file.from) {
            (FileStatus::Renamed, Some(from)) => self.touch(&file.path, Touch::RenamedFrom(from.clone())),
            (FileStatus::Added, _) => self.touch(&file.path, Touch::Created),
            (FileStatus::Deleted, _) => self.touch(&file.path, Touch::Deleted),
            (FileStatus::Mode, _) => self.touch(&file.path, Touch::Mode),
            (FileStatus::Modified | FileStatus::Renamed, _) => self.touch(&file.path, Touch::Edited),
        }
    }

    fn undone(&mut self, seq: Seq, undo: &Undo) {
        // An undo that was itself undone left no trace but the files as they were. A redo that was undone left none at all: the
        // first undo, which comes next, counts again.
        let is_undone = if undo.redo { self.files.forget_undo(seq.0) } else { self.files.redo(seq.0) };
        if !is_undone {
            for file in &undo.files {
                self.touch(&file.path, Touch::Undone { turn: undo.turn, of: undo.of });
            }
            for DirectoryChanges { path, files } in &undo.directories {
                self.chars += self.files.count_further_undone(path, *files, undo.turn, undo.of);
            }
        }
    }
}

/// Returns whether the result of a write says that the file is new.
fn created(output: &str) -> bool {
    let start: String = output.chars().take(40).collect::<String>().to_ascii_lowercase();
    start.starts_with("file created")
}

impl CommandLine {
    fn render(&self) -> String {
        let outcome = self.outcome.as_ref().map_or_else(|| "not finished".to_owned(), Outcome::text);
        format!("`{}`: {outcome}", self.text)
    }
}

/// Reads the ledger of the events up to `until`, for a rendering of at most so many characters.
pub async fn read_ledger<S: SessionStore + ?Sized>(
    store: &S,
    id: SessionId,
    until: Seq,
    most: usize,
) -> Result<Ledger, StoreError> {
    let mut ledger = Ledger::default();
    let mut before = Seq(until.0.saturating_add(1).min(Seq::END.0));
    let mut looked_at = 0;
    loop {
        let page = store.read(id, Page::Before(before, PAGE)).await?;
        let Some(first) = page.first().map(|stored| stored.seq) else { return Ok(ledger) };
        before = first;
        for stored in page.iter().rev() {
            if looked_at == LOOKED_AT || ledger.is_full(most) {
                ledger.is_cut = true;
                return Ok(ledger);
            }
            looked_at += 1;
            if KINDS.contains(&stored.kind.as_str())
                && let Ok(event) = stored.event()
            {
                ledger.push_older(stored.seq, &event);
            }
        }
    }
}

#[cfg(test)]
mod tests;
