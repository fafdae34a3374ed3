//! The sessions that the programs keep themselves give the events of their streams.

use std::fs;
use std::path::{Path, PathBuf};

use azureal_agents::native::{self, NativeHome, NativeTurn};
use azureal_core::agent::AgentOutput;
use azureal_core::event::Complete;
use azureal_core::{Event, compact_event};
use tempfile::TempDir;

use crate::cases::{self, Case};

/// A home with the session that a recorded run left.
struct Home {
    folder: TempDir,
    case: Case,
}

impl Home {
    /// Lays out the files of a recording as its program does; `None` if it left no session.
    fn of(case: Case) -> Option<Self> {
        let record = fs::read(case.folder.join("record.jsonl")).ok()?;
        let home = Self { folder: tempfile::tempdir().unwrap(), case };
        let file = home.file();
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, record).unwrap();
        for (source, target) in [
            ("subagents", file.with_extension("").join("subagents")),
            ("beside", file.parent().unwrap().into()),
        ] {
            let Ok(entries) = fs::read_dir(home.case.folder.join(source)) else { continue };
            fs::create_dir_all(&target).unwrap();
            for entry in entries {
                let entry = entry.unwrap();
                fs::copy(entry.path(), target.join(entry.file_name())).unwrap();
            }
        }
        Some(home)
    }

    fn file(&self) -> PathBuf {
        let name = match self.case.agent.name() {
            "claude" => "projects/-p/11111111-2222-4333-8444-555555555555.jsonl",
            _ => "sessions/2026/11/15/rollout-2026-11-15T07-13-23-01a1de0d-b840-77b0-ad8c-2e63383f2aa9.jsonl",
        };
        self.folder.path().join(name)
    }

    fn open(&self) -> Box<dyn NativeHome> {
        let source = native::source(self.case.agent.name()).unwrap();
        source.open(self.folder.path(), Path::new("/none")).unwrap()
    }

    /// Reads the turns of the only session.
    fn turns(&self) -> Vec<NativeTurn> {
        turns(&*self.open())
    }
}

fn turns(home: &dyn NativeHome) -> Vec<NativeTurn> {
    let sessions: Vec<_> = home.sessions(None).map(Result::unwrap).collect();
    assert_eq!(sessions.len(), 1);
    let mut reader = home.turns(&sessions[0]).unwrap();
    std::iter::from_fn(|| reader.next_turn().unwrap()).collect()
}

fn homes() -> Vec<Home> {
    let homes: Vec<Home> = cases::all().into_iter().filter_map(Home::of).collect();
    assert!(homes.len() > 30, "only {} sessions were found", homes.len());
    homes
}

/// The events of a turn without what only one of the two sources knows: the prompt, times, costs, the ids of Codex's items.
fn comparable(case: &Case, events: impl IntoIterator<Item = Event>) -> Vec<String> {
    let is_codex = case.agent.name() == "codex";
    let plain = |event: Event| match event {
        Event::UserMessage(_) => None,
        Event::Init(mut init) => {
            if is_codex {
                init.cwd.clear();
                init.model.clear();
            }
            // The size of the window is a setting of the program, not a part of the model's name.
            init.model = init.model.trim_end_matches("[1m]").to_owned();
            Some(Event::Init(init))
        }
        Event::Complete(complete) => {
            let usage = complete.usage.map(|mut usage| {
                usage.context_tokens = None;
                usage
            });
            Some(Event::Complete(Complete { duration_ms: 0, cost_usd: 0.0, usage, ..complete }))
        }
        Event::ToolCall(mut call) if is_codex => {
            call.tool_use_id.clear();
            Some(Event::ToolCall(call))
        }
        Event::ToolResult(mut result) if is_codex => {
            result.tool_use_id.clear();
            // The stream has no diffs.
            result.detail = None;
            Some(Event::ToolResult(result))
        }
        event => Some(event),
    };
    events.into_iter().map(compact_event).filter_map(plain).map(|event| event.to_json()).collect()
}

/// The events that only one of the sources has: `-` the stream, `+` the session.
fn differences(case: &Case, turn: &NativeTurn) -> Vec<String> {
    let stream = case.play().into_iter().filter_map(|output| match output {
        AgentOutput::Event(event) => Some(event),
        _ => None,
    });
    let stream = comparable(case, stream);
    let mut native = comparable(case, turn.events.clone());
    let mut differences = Vec::new();
    for event in stream {
        match native.iter().position(|other| *other == event) {
            Some(place) => drop(native.remove(place)),
            None => differences.push(format!("-{}", short(&event))),
        }
    }
    differences.extend(native.iter().map(|event| format!("+{}", short(event))));
    differences
}

/// The kind of an event, and its tool.
fn short(json: &str) -> String {
    let event = Event::from_json(json).unwrap();
    match &event {
        Event::ToolCall(call) => format!("ToolCall {}", call.tool_name),
        Event::ToolResult(result) => format!("ToolResult {}", result.tool_name),
        Event::Error(error) => format!("Error {}", error.kind),
        event => event.kind().to_owned(),
    }
}

/// All differences between the streams and the sessions, each with its reason. `-` is in the stream only, `+` in the session.
const DIFFERENCES: [(&str, &[&str], &str); 14] = [
    ("claude/1.0.128/api-400", &["-Init", "+Init"], "no line of the model names it before the first answer"),
    (
        "claude/1.0.128/multi-tool",
        &["-ToolCall Bash", "-ToolResult Bash", "-Complete", "+Complete"],
        "this version does not link the lines of a subagent to its call; they are left out, with their tokens",
    ),
    (
        "claude/2.0.77/multi-tool",
        &["-Complete", "+Complete"],
        "the program counts requests of its own that no line has, such as those that warm up subagents",
    ),
    (
        "claude/current/sigint-in-tool",
        &["-ToolResult Bash", "-Error interrupted", "+Error truncated"],
        "the program prints the refusal of the tool and its own end, and does not write them down",
    ),
    (
        "claude/current/sigkill-midstream",
        &["-Init", "-Error signal", "+Init", "+Error truncated"],
        "only the parent of the process sees the signal, and no line names the model before the first answer",
    ),
    (
        "claude/current/sigterm-in-tool",
        &["-Error signal", "-Complete", "+Error truncated", "+Complete"],
        "only the parent of the process sees the signal; the session has the tokens of the request, the stream has not",
    ),
    (
        "codex/0.36.0/multi-tool",
        &["-Init", "-ToolCall Write", "-ToolResult Write", "+Init", "+ToolCall Write", "+ToolResult Write"],
        "the stream names no thread, and paths of patches are as the model wrote them",
    ),
    (
        "codex/0.50.0/multi-tool",
        &["-ToolCall Write", "-ToolResult Write", "+ToolCall Write", "+ToolResult Write"],
        "paths of patches are as the model wrote them, with the answer that it got",
    ),
    (
        "codex/0.80.0/multi-tool",
        &[
            "-ToolCall Write",
            "-ToolResult Write",
            "+ToolCall Write",
            "+ToolResult Write",
            "+ToolCall Edit",
            "+ToolResult Edit",
        ],
        "as in 0.50.0, and a patch that failed is not printed",
    ),
    ("codex/current/api-500-mid-turn", &["-Complete", "+Complete"], "a failed turn prints no tokens"),
    ("codex/current/compaction", &["+Compacted"], "a compaction is not printed"),
    (
        "codex/current/patch-fails",
        &["+ToolCall Edit", "+ToolResult Edit"],
        "a patch that failed is not printed",
    ),
    (
        "codex/current/sigint-in-tool",
        &["-Error exit", "-Complete", "+ToolResult Bash", "+Error interrupted", "+Complete"],
        "the end of an interrupted turn is written down and not printed",
    ),
    (
        "codex/current/sigterm-midstream",
        &["-Error signal", "+Error truncated"],
        "only the parent of the process sees the signal",
    ),
];

#[test]
fn native_sessions_have_the_events_of_their_streams() {
    let mut found = Vec::new();
    for home in homes() {
        // A resumed session has the turns before it too.
        let differences = differences(&home.case, home.turns().last().unwrap());
        if !differences.is_empty() {
            found.push((home.case.name.clone(), differences));
        }
    }
    assert_eq!(found, known(&DIFFERENCES));
}

/// Returns the known differences without their reasons.
fn known(table: &[(&str, &[&str], &str)]) -> Vec<(String, Vec<String>)> {
    let texts = |differences: &[&str]| differences.iter().map(|text| (*text).to_owned()).collect();
    table.iter().map(|(case, differences, _)| ((*case).to_owned(), texts(differences))).collect()
}

/// The runs that left the sessions in `recordings/fixtures`: the session, the prompt, and the recording.
const RUNS: [(&str, &str, &str); 11] = [
    ("11111111", "My name is Ada", "claude/current/session-first"),
    ("11111111", "What is my name?", "claude/current/session-resume"),
    ("11111111", "And again?", "claude/current/session-continue"),
    ("11111111", "Who am I?", "claude/current/session-after-compact"),
    ("22222222", "Named", "claude/current/session-name"),
    ("62b952c0", "Fork me", "claude/current/session-fork"),
    ("01a1de1d-d4cc", "My name is Ada", "codex/current/session-first"),
    ("01a1de1d-d4cc", "What is my name?", "codex/current/session-resume"),
    ("01a1de1d-d4cc", "Again?", "codex/current/session-resume-flags-after"),
    ("01a1de1d-d4cc", "From stdin on resume.", "codex/current/session-resume-stdin"),
    ("01a1de1d-eeea", "Fork me", "codex/current/session-fork"),
];

/// The differences between these sessions and the streams, each with its reason.
const DIFFERENCES_OF_RUNS: [(&str, &[&str], &str); 5] = [
    (
        "claude/current/session-continue",
        &["+Compacted", "+Command", "+AssistantText"],
        "the next run was `/compact`, which is no prompt: its events belong to the turn before",
    ),
    ("codex/current/session-resume", &["-Complete", "+Complete"], WHOLE_THREAD),
    ("codex/current/session-resume-flags-after", &["-Complete", "+Complete"], WHOLE_THREAD),
    ("codex/current/session-resume-stdin", &["-Complete", "+Complete"], WHOLE_THREAD),
    ("codex/current/session-fork", &["-Complete", "+Complete"], WHOLE_THREAD),
];

const WHOLE_THREAD: &str =
    "the output has the tokens of the whole thread, and the turn those that were added";

#[test]
fn sessions_of_several_runs_have_the_events_of_each_stream() {
    let homes = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/fixtures");
    let mut found = Vec::new();
    for (session, prompt, recording) in RUNS {
        let case = cases::named(recording);
        let agent = case.agent.name();
        let home = native::source(agent).unwrap().open(&homes.join(agent), Path::new("/none")).unwrap();
        let file = home.sessions(None).map(Result::unwrap).find(|found| found.id.starts_with(session));
        let mut reader = home.turns(&file.unwrap()).unwrap();
        let turns: Vec<NativeTurn> = std::iter::from_fn(|| reader.next_turn().unwrap()).collect();
        let is_of_run = |turn: &&NativeTurn| matches!(turn.events.first(), Some(Event::UserMessage(typed)) if typed.content.trim() == prompt.trim());
        let turn = turns.iter().rfind(is_of_run).unwrap_or_else(|| panic!("{recording}: {turns:?}"));
        let differences = differences(&case, turn);
        if !differences.is_empty() {
            found.push((recording.to_owned(), differences));
        }
    }
    assert_eq!(found, known(&DIFFERENCES_OF_RUNS));
}

#[test]
fn a_resumed_thread_of_codex_counts_its_tokens_once() {
    let homes = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/fixtures");
    let home = native::source("codex").unwrap().open(&homes.join("codex"), Path::new("/none")).unwrap();
    let usage = |events: &[Event]| match events.last() {
        Some(Event::Complete(complete)) => complete.usage.unwrap().input_tokens,
        other => panic!("{other:?}"),
    };
    let file = home.sessions(None).map(Result::unwrap).find(|found| found.id.starts_with("01a1de1d-d4cc"));
    let mut reader = home.turns(&file.unwrap()).unwrap();
    let turns: Vec<NativeTurn> = std::iter::from_fn(|| reader.next_turn().unwrap()).collect();
    let sum: u64 = turns.iter().map(|turn| usage(&turn.events)).sum();
    // The run of the last turn printed the sum.
    let printed = cases::named("codex/current/session-resume-stdin").play();
    let printed: Vec<Event> = printed
        .into_iter()
        .filter_map(|output| match output {
            AgentOutput::Event(event) => Some(event),
            _ => None,
        })
        .collect();
    assert_eq!(sum, usage(&printed));
}

#[test]
fn every_turn_has_a_prompt_and_an_end_and_nothing_is_unreadable() {
    for home in homes() {
        let name = &home.case.name;
        let turns = home.turns();
        assert_eq!(turns.len(), 1 + usize::from(name.contains("resumed")), "{name}");
        for turn in &turns {
            assert!(matches!(turn.events.first(), Some(Event::UserMessage(_))), "{name}");
            assert!(matches!(turn.events.get(1), Some(Event::Init(_))), "{name}");
            let ends = turn.events.iter().filter(|event| matches!(event, Event::Complete(_))).count();
            assert!(ends == 1 && matches!(turn.events.last(), Some(Event::Complete(_))), "{name}");
            assert_eq!(turn.problems, [], "{name}");
            assert!(!turn.id.is_empty() && turn.started.is_some() && !turn.is_ours, "{name}");
        }
        let ids: Vec<&str> = turns.iter().map(|turn| turn.id.as_str()).collect();
        assert_eq!(ids, home.turns().iter().map(|turn| turn.id.clone()).collect::<Vec<_>>(), "{name}");
    }
}

#[test]
fn the_head_of_a_session_has_its_directory_and_id() {
    for home in homes() {
        let name = &home.case.name;
        let opened = home.open();
        let session = opened.sessions(None).next().unwrap().unwrap();
        let head = opened.head(&session).unwrap();
        assert_eq!(head.cwd.as_deref(), Some(Path::new(concat!("/", "home/dev/project"))), "{name}");
        assert!(head.started.is_some() && !head.is_subagent, "{name}");
        let beginning = fs::read(home.file()).unwrap();
        let recognised: Vec<&str> = native::sources()
            .iter()
            .filter(|source| source.recognises(&home.file(), &beginning))
            .map(|source| source.agent())
            .collect();
        assert_eq!(recognised, [home.case.agent.name()], "{name}");
    }
}

#[test]
fn a_damaged_session_is_read_as_far_as_possible() {
    for home in homes() {
        let whole = home.turns();
        let file = home.file();
        let content = fs::read(&file).unwrap();
        let texts = |turns: &[NativeTurn]| {
            turns
                .iter()
                .flat_map(|turn| &turn.events)
                .filter(|event| matches!(event, Event::AssistantText(_)))
                .count()
        };
        // A bad line in the middle.
        let lines: Vec<&[u8]> = content.split_inclusive(|byte| *byte == b'\n').collect();
        let middle = lines.len() / 2;
        let damaged =
            [lines[..middle].concat(), b"{\"type\":\"user\",\n".to_vec(), lines[middle..].concat()].concat();
        fs::write(&file, &damaged).unwrap();
        let read = home.turns();
        assert_eq!(texts(&read), texts(&whole), "{}", home.case.name);
        let problems: Vec<String> =
            read.iter().flat_map(|turn| &turn.problems).map(ToString::to_string).collect();
        assert_eq!(problems.len(), 1, "{}: {problems:?}", home.case.name);
        assert!(problems[0].starts_with(&format!("line {} was left out: ", middle + 1)), "{problems:?}");
        // A last line that is cut off anywhere.
        let last = content.len() - lines.last().unwrap().len();
        fs::write(&file, &content[..last + (content.len() - last) / 2]).unwrap();
        let problems = home.turns().iter().map(|turn| turn.problems.len()).sum::<usize>();
        assert_eq!(problems, 1, "{}", home.case.name);
        // Nothing that can be read.
        fs::write(&file, b"\0\0\0\nnot json\n[1]\n").unwrap();
        let turns = home.turns();
        assert_eq!(turns.iter().map(|turn| turn.events.len()).sum::<usize>(), 0);
        assert_eq!(turns.iter().map(|turn| turn.problems.len()).sum::<usize>(), 3);
    }
}
