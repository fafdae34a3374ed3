//! Sessions with planted facts, and the list of what is true of them.
//!
//! The same number of turns gives the same session. The truth is written down while events are planted; the code that is measured
//! has no part in it.

use std::collections::{BTreeMap, BTreeSet};

use azureal_core::Event;
use azureal_core::event::{Changes, Complete, FileChange, FileStatus, Init, ToolCall, ToolResult, Undo};
use serde_json::json;

use crate::lists::Lists;

const ROOT: &str = "/users/dev/project";

/// Recorded turns of the real agents.
const RECORDINGS: [&str; 5] = [
    include_str!("../../../crates/transcript/tests/fixtures/claude-multi-tool.jsonl"),
    include_str!("../../../crates/transcript/tests/fixtures/codex-multi-tool.jsonl"),
    include_str!("../../../crates/transcript/tests/fixtures/claude-parallel-tools.jsonl"),
    include_str!("../../../crates/transcript/tests/fixtures/claude-permission-denied.jsonl"),
    include_str!("../../../crates/transcript/tests/fixtures/codex-plan.jsonl"),
];
/// What is true after all recordings, in the order above: files with how they were touched, commands that ended well, and
/// the subjects of failures.
const RECORDED_FILES: [(&str, &str); 6] = [
    ("analysis.ipynb", "edited"),
    ("hello.txt", "edited"),
    ("new.txt", "created edited"),
    ("notes.md", "deleted read"),
    ("src/main.rs", "read"),
    ("missing.txt", ""),
];
const RECORDED_COMMANDS: [&str; 7] = [
    "ls -1; echo two words",
    "grep -n TODO notes.md",
    "cat hello.txt",
    "cat new.txt",
    "sleep 0.6; echo slow",
    "echo fast",
    "echo testing",
];
const RECORDED_FAILURES: [&str; 8] = [
    "echo oops >&2; exit 3",
    "exit 7",
    "rm -rf build",
    "Write /users/dev/project/x.txt",
    "WebFetch https://example.com/",
    "Glob **/*.txt",
    "Grep TODO",
    "Read /users/dev/project/missing.txt",
];
/// The newest turns stay as they are, so nothing is planted in them.
const PLAIN_TURNS: usize = 4;

/// The facts of a session.
#[derive(Debug, Default)]
pub(crate) struct Truth {
    pub(crate) requirements: Vec<String>,
    pub(crate) decisions: Vec<String>,
    /// Each file with all ways in which it was touched.
    pub(crate) files: BTreeMap<String, BTreeSet<String>>,
    /// Commands whose last run ended well.
    pub(crate) commands: BTreeSet<String>,
    /// The subjects of failures that are open, with lines of their output.
    pub(crate) failures: BTreeMap<String, Vec<String>>,
}

/// A session that is being written.
pub(crate) struct Planted {
    pub(crate) turns: Vec<Vec<Event>>,
    pub(crate) truth: Truth,
    numbers: Numbers,
    calls: usize,
    /// Failures that a later turn fixes: the turn and the command.
    to_fix: Vec<(usize, String)>,
}

/// Numbers that look random and are always the same.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % limit.max(1)
    }
}

impl Planted {
    /// Writes a session of so many turns.
    pub(crate) fn new(turns: usize, lists: &Lists) -> Self {
        let mut session = Self {
            turns: Vec::new(),
            truth: Truth::default(),
            numbers: Numbers(20_260_131),
            calls: 0,
            to_fix: Vec::new(),
        };
        let planted = turns.saturating_sub(PLAIN_TURNS);
        for number in 0..planted {
            session.turn(number, planted, lists);
        }
        for number in planted..turns {
            let mut events = vec![Event::user("Please go on.")];
            session.say(&mut events, None, lists);
            events.push(done());
            session.turns.push(events);
            session.numbers.below(number + 1);
        }
        session
    }

    fn turn(&mut self, number: usize, planted: usize, lists: &Lists) {
        let is_codex = number / 5 % 2 == 1;
        let mut events = vec![Event::Init(Init {
            cwd: if is_codex { String::new() } else { ROOT.to_owned() },
            agent: Some(if is_codex { "codex" } else { "claude" }.to_owned()),
            ..Init::default()
        })];
        // As azureal stores it: the prompt first.
        events.insert(0, Event::user(self.prompt(number, lists)));
        let recordings = [1, 4, 7, 10, 13];
        if let Some(recorded) = recordings.iter().position(|turn| *turn == number) {
            self.replay(recorded, &mut events);
            self.turns.push(events);
            return;
        }
        self.files(number, is_codex, lists, &mut events);
        self.commands(number, planted, lists, &mut events);
        let decision = (number * 2 % 5 < 2).then(|| number * 2 / 5);
        self.say(&mut events, decision, lists);
        events.push(done());
        self.turns.push(events);
        if number % 20 == 19 {
            self.undo(number);
        }
    }

    /// Every second prompt has a requirement.
    fn prompt(&mut self, number: usize, lists: &Lists) -> String {
        let task = format!("Step {number}: please look at {} next.", pick(&lists.files, number * 7));
        if number % 2 == 1 {
            return task;
        }
        let round = number / 2 / lists.requirements.len();
        let sentence = pick(&lists.requirements, number / 2);
        let requirement = if round == 0 { sentence.clone() } else { format!("In part {round}: {sentence}") };
        self.truth.requirements.push(requirement.clone());
        format!("{task} {requirement}")
    }

    /// Answers with sentences that decide nothing, and with a decision in the middle.
    fn say(&mut self, events: &mut Vec<Event>, decision: Option<usize>, lists: &Lists) {
        let mut said: Vec<String> =
            (0..14).map(|_| pick(&lists.others, self.numbers.below(lists.others.len())).clone()).collect();
        if let Some(index) = decision {
            let round = index / lists.decisions.len();
            let sentence = pick(&lists.decisions, index * 5);
            let sentence = if round == 0 {
                sentence.clone()
            } else {
                sentence.replace('.', &format!(" in part {round}."))
            };
            self.truth.decisions.push(sentence.clone());
            said.insert(7, sentence);
        }
        events.push(Event::assistant(said.join(" ")));
    }

    /// Reads, edits, writes, deletes and renames files: with tools, and beside them.
    fn files(&mut self, number: usize, is_codex: bool, lists: &Lists, events: &mut Vec<Event>) {
        let mut changed = Vec::new();
        for step in 0..3 {
            let index = number * 3 + step;
            let round = index / lists.files.len();
            let base = pick(&lists.files, index * 11);
            let path = if round == 0 { base.clone() } else { format!("part{round}/{base}") };
            let absolute = format!("{ROOT}/{path}");
            let (tool, how, status) = match index % 7 {
                0 | 3 => ("Read", "read", None),
                1 | 4 | 6 => ("Edit", "edited", Some(FileStatus::Modified)),
                2 => ("Write", "created", Some(FileStatus::Added)),
                _ => ("", "edited", Some(FileStatus::Modified)),
            };
            match tool {
                // The shell did it: only the snapshots show it.
                "" => {
                    let command = format!("sed -i s/one/two/ {path}");
                    self.run(events, &command, None, "");
                }
                _ => self.call(
                    events,
                    tool,
                    json!({"file_path": absolute}),
                    Some(&absolute),
                    result_of(tool),
                    false,
                ),
            }
            self.touched(&path, how);
            if let Some(status) = status {
                changed.push(FileChange {
                    path: path.clone(),
                    status,
                    added: Some(3),
                    removed: Some(1),
                    from: None,
                });
            }
        }
        if number % 9 == 8 {
            let (old, new) = (format!("old/name{number}.rs"), format!("new/name{number}.rs"));
            changed.push(FileChange {
                path: new.clone(),
                status: FileStatus::Renamed,
                from: Some(old.clone()),
                ..FileChange::default()
            });
            self.touched(&new, &format!("renamed from {old}"));
        }
        if is_codex && number.is_multiple_of(5) {
            let path = format!("tmp/scratch{number}.txt");
            self.call(
                events,
                "Delete",
                json!({"file_path": format!("{ROOT}/{path}")}),
                None,
                "file deleted",
                false,
            );
            self.touched(&path, "deleted");
        }
        if !changed.is_empty() {
            let changes = Changes { files: changed, ..Changes::default() };
            events.push(Event::Changes(changes));
        }
    }

    fn commands(&mut self, number: usize, planted: usize, lists: &Lists, events: &mut Vec<Event>) {
        let index = number;
        let (command, output) = pick(&lists.commands, index * 7);
        let command = in_part(command, index / lists.commands.len());
        self.run(events, &command, None, output);
        if number % 3 == 2 {
            let index = number / 3;
            let (command, output) = pick(&lists.failures, index * 5);
            let command = in_part(command, index / lists.failures.len());
            self.run(events, &command, Some(1 + i64::try_from(index % 3).unwrap_or(0)), output);
            if index.is_multiple_of(2) && number + 2 < planted {
                self.to_fix.push((number + 2, command));
            }
        }
        let (due, later): (Vec<_>, Vec<_>) = self.to_fix.drain(..).partition(|(turn, _)| *turn <= number);
        self.to_fix = later;
        for (at, (_, command)) in due.into_iter().enumerate() {
            // As agents do: the same command with less output.
            let again =
                if at.is_multiple_of(2) { format!("{command} 2>&1 | tail -20") } else { command.clone() };
            self.truth.failures.remove(&command);
            self.run(events, &again, None, "ok, nothing to report");
        }
    }

    fn run(&mut self, events: &mut Vec<Event>, command: &str, exit: Option<i64>, output: &str) {
        let lines: Vec<String> = output.split(" | ").map(str::to_owned).collect();
        let text = match exit {
            Some(exit) => format!("Exit code {exit}\nstarting\n{}", lines.join("\n")),
            None => lines.join("\n"),
        };
        self.call(events, "Bash", json!({ "command": command }), None, &text, exit.is_some());
        if exit.is_some() {
            self.truth.failures.insert(command.to_owned(), lines);
        } else {
            self.truth.commands.insert(command.to_owned());
        }
    }

    fn call(
        &mut self,
        events: &mut Vec<Event>,
        tool: &str,
        input: serde_json::Value,
        path: Option<&str>,
        result: &str,
        is_error: bool,
    ) {
        self.calls += 1;
        let id = format!("call_{}", self.calls);
        let path = path.map(str::to_owned);
        events.push(Event::ToolCall(ToolCall {
            tool_use_id: id.clone(),
            tool_name: tool.to_owned(),
            file_path: path.clone(),
            input: input.into(),
            ..ToolCall::default()
        }));
        events.push(Event::ToolResult(ToolResult {
            tool_use_id: id,
            tool_name: tool.to_owned(),
            file_path: path,
            content: result.to_owned(),
            is_error,
            ..ToolResult::default()
        }));
    }

    fn touched(&mut self, path: &str, how: &str) {
        self.truth.files.entry(path.to_owned()).or_default().insert(how.to_owned());
    }

    /// The user takes back what the last turn changed.
    fn undo(&mut self, number: usize) {
        let seq = |events: &[Event], turns: usize| (turns + events.len()) as u64;
        let before: usize = self.turns.iter().rev().skip(1).map(Vec::len).sum();
        let Some(last) = self.turns.last_mut() else { return };
        let Some(at) = last.iter().position(|event| matches!(event, Event::Changes(_))) else { return };
        let Some(Event::Changes(changes)) = last.get(at) else { return };
        let files = changes.files.clone();
        let of = seq(last.get(..=at).unwrap_or_default(), before);
        last.push(Event::Undo(Undo { of, turn: number as u64 + 1, files: files.clone(), ..Undo::default() }));
        for file in files {
            self.touched(&file.path, &format!("undone (turn {})", number + 1));
        }
    }

    fn replay(&mut self, recorded: usize, events: &mut Vec<Event>) {
        let lines = RECORDINGS.get(recorded).copied().unwrap_or_default().lines();
        events.extend(lines.filter_map(|line| Event::from_json(line).ok()));
        if recorded + 1 < RECORDINGS.len() {
            return;
        }
        for (path, how) in RECORDED_FILES.iter().filter(|(_, how)| !how.is_empty()) {
            how.split(' ').for_each(|how| self.touched(path, how));
        }
        self.truth.commands.extend(RECORDED_COMMANDS.map(str::to_owned));
        self.truth.failures.extend(RECORDED_FAILURES.map(|subject| (subject.to_owned(), Vec::new())));
    }
}

fn pick<T>(list: &[T], index: usize) -> &T {
    list.get(index % list.len()).unwrap_or_else(|| unreachable!("a list is empty"))
}

fn in_part(command: &str, round: usize) -> String {
    if round == 0 { command.to_owned() } else { format!("cd part{round} && {command}") }
}

fn result_of(tool: &str) -> &'static str {
    match tool {
        "Read" => "1\tuse std::fs;\n2\t\n3\tfn main() {}",
        "Write" => "File created successfully",
        _ => "The file has been updated successfully.",
    }
}

fn done() -> Event {
    Event::Complete(Complete { success: true, ..Complete::default() })
}
