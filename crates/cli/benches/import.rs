//! Measures the import of the sessions that agents' programs keep: its time beside that of reading them alone, and its memory.
//!
//! ```sh
//! cargo bench -p azureal-cli --bench import
//! ```
#![expect(clippy::disallowed_macros, reason = "a bench prints")]
#![expect(clippy::unwrap_used, reason = "a bench that panics has failed")]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use azureal_agents::native;
use tempfile::TempDir;

/// Sessions of each agent.
const CLAUDE: usize = 1_600;
const CODEX: usize = 400;
/// Turns of the average session. They have a fifth of this to five times as many.
const TURNS: usize = 12;

fn main() {
    let place = TempDir::new().unwrap();
    let (home, project) = (place.path().join("home"), place.path().join("project"));
    fs::create_dir_all(project.join(".git")).unwrap();
    fs::write(project.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
    let bytes = fill(&home, &project);
    println!("sessions: {}, {} MB", CLAUDE + CODEX, bytes / 1_000_000);

    // Twice: the first time reads from the disk.
    read_all(&home);
    let began = Instant::now();
    let turns = read_all(&home);
    let parsing = began.elapsed();
    println!("reading them alone: {} ms, {turns} turns", parsing.as_millis());

    let (first, memory) = import(&home, &project);
    let ratio = first.as_secs_f64() / parsing.as_secs_f64();
    println!(
        "first import: {} ms, {ratio:.2}x (target 2.5x), {memory} MB at most (target 150)",
        first.as_millis()
    );
    let (second, memory) = import(&home, &project);
    println!("second import, which adds nothing: {} ms, {memory} MB at most", second.as_millis());
    let large = home.join(".claude/projects/-p/99999999-0000-4000-8000-000000000000.jsonl");
    fs::write(&large, claude_session("99999999-0000-4000-8000-000000000000", &project, 7_000)).unwrap();
    println!("one more session of {} MB", fs::metadata(&large).unwrap().len() / 1_000_000);
    let (third, memory) = import(&home, &project);
    println!("third import: {} ms, {memory} MB at most (target 150)", third.as_millis());
}

/// Reads all turns of all sessions, as the import does.
fn read_all(home: &Path) -> usize {
    let mut turns = 0;
    for (agent, folder) in [("claude", ".claude"), ("codex", ".codex")] {
        let source = native::source(agent).unwrap();
        let opened = source.open(&home.join(folder), home).unwrap();
        for session in opened.sessions(None).map(Result::unwrap) {
            opened.head(&session).unwrap();
            let mut reader = opened.turns(&session).unwrap();
            while reader.next_turn().unwrap().is_some() {
                turns += 1;
            }
        }
    }
    turns
}

/// Runs the program, and returns its time and its peak memory in MB.
fn import(home: &Path, project: &Path) -> (Duration, u64) {
    let began = Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_azureal"))
        .args(["import", "--from", "all"])
        .current_dir(project)
        .env_clear()
        .env("HOME", home)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut memory = 0;
    let ended = loop {
        if let Some(ended) = child.try_wait().unwrap() {
            break ended;
        }
        let text = fs::read_to_string(&status).unwrap_or_default();
        let peak = text
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse().ok());
        memory = peak.unwrap_or(memory).max(memory);
        thread::sleep(Duration::from_millis(5));
    };
    assert!(ended.success());
    (began.elapsed(), memory / 1024)
}

/// Writes the homes of both agents, and returns their size.
fn fill(home: &Path, project: &Path) -> usize {
    let claude = home.join(".claude/projects/-p");
    let codex = home.join(".codex/sessions/2026/11/15");
    fs::create_dir_all(&claude).unwrap();
    fs::create_dir_all(&codex).unwrap();
    let old = SystemTime::now() - Duration::from_secs(24 * 60 * 60);
    let mut bytes = 0;
    let mut write = |path: &Path, text: String| {
        bytes += text.len();
        fs::write(path, text).unwrap();
        fs::File::options().append(true).open(path).unwrap().set_modified(old).unwrap();
    };
    for number in 0..CLAUDE {
        let id = format!("{number:08x}-0000-4000-8000-000000000000");
        write(&claude.join(format!("{id}.jsonl")), claude_session(&id, project, turns(number)));
    }
    for number in 0..CODEX {
        let id = format!("01a1de0d-b840-77b0-ad8c-{number:012x}");
        let path = codex.join(format!("rollout-2026-11-15T07-13-23-{id}.jsonl"));
        write(&path, codex_session(&id, project, turns(number)));
    }
    bytes
}

/// Returns the number of turns of a session.
fn turns(number: usize) -> usize {
    [TURNS / 5, TURNS / 2, TURNS / 2, TURNS, TURNS, TURNS, TURNS * 3]
        .get(number % 7)
        .copied()
        .unwrap_or(TURNS)
}

/// Some lines of text that do not repeat.
fn text(seed: usize, words: usize) -> String {
    const WORDS: [&str; 16] = [
        "the", "parser", "reads", "each", "line", "once", "and", "returns", "what", "it", "means", "for",
        "a", "session", "of", "events",
    ];
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut text = String::new();
    for number in 0..words {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let _ =
            write!(text, "{}{}", WORDS.get(state % 16).unwrap(), if number % 12 == 11 { "\\n" } else { " " });
        if number % 7 == 0 {
            let _ = write!(text, "x{:x} ", state % 65_536);
        }
    }
    text
}

fn claude_session(id: &str, project: &Path, turns: usize) -> String {
    let (mut lines, mut entry, cwd) = (String::new(), 0, project.display().to_string());
    let mut add = |kind: &str, rest: String| {
        let parent = if entry == 0 { "null".to_owned() } else { format!("\"{id}-{}\"", entry - 1) };
        let _ = writeln!(
            lines,
            r#"{{"parentUuid":{parent},"isSidechain":false,"type":"{kind}",{rest},"uuid":"{id}-{entry}","timestamp":"2026-11-15T07:{:02}:{:02}.000Z","userType":"external","entrypoint":"cli","cwd":"{cwd}","sessionId":"{id}","version":"2.1.197","gitBranch":"main"}}"#,
            entry / 60 % 60,
            entry % 60,
        );
        entry += 1;
    };
    for turn in 0..turns {
        add("user", format!(r#""message":{{"role":"user","content":"{}"}}"#, text(turn, 30)));
        for call in 0..3 {
            let seed = turn * 8 + call;
            let usage = r#""usage":{"input_tokens":100,"cache_read_input_tokens":9000,"output_tokens":120}"#;
            add(
                "assistant",
                format!(
                    r#""message":{{"id":"m{seed}","role":"assistant","model":"claude-opus-4-8","content":[{{"type":"tool_use","id":"t{seed}","name":"Bash","input":{{"command":"grep -rn parser src/{seed}","description":"Look"}}}}],"stop_reason":"tool_use",{usage}}}"#
                ),
            );
            let output = text(seed, 500);
            add(
                "user",
                format!(
                    r#""message":{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t{seed}","content":"{output}","is_error":false}}]}},"toolUseResult":{{"stdout":"{output}","stderr":"","interrupted":false}}"#
                ),
            );
        }
        add(
            "assistant",
            format!(
                r#""message":{{"id":"a{turn}","role":"assistant","model":"claude-opus-4-8","content":[{{"type":"text","text":"{}"}}],"stop_reason":"end_turn","usage":{{"input_tokens":100,"output_tokens":300}}}}"#,
                text(turn + 7, 200)
            ),
        );
    }
    lines
}

fn codex_session(id: &str, project: &Path, turns: usize) -> String {
    let (mut lines, mut ordinal) = (String::new(), 0);
    let mut add = |kind: &str, payload: String| {
        let _ = writeln!(
            lines,
            r#"{{"timestamp":"2026-11-15T07:{:02}:{:02}.000Z","ordinal":{ordinal},"type":"{kind}","payload":{{{payload}}}}}"#,
            ordinal / 60 % 60,
            ordinal % 60
        );
        ordinal += 1;
    };
    let cwd = project.display();
    add(
        "session_meta",
        format!(
            r#""id":"{id}","timestamp":"2026-11-15T07:00:00Z","cwd":"{cwd}","source":"cli","base_instructions":"{}""#,
            text(1, 2_000)
        ),
    );
    for turn in 0..turns {
        add("event_msg", format!(r#""type":"task_started","turn_id":"t{turn}""#));
        add("turn_context", format!(r#""turn_id":"t{turn}","cwd":"{cwd}","model":"gpt-5.5""#));
        let prompt = text(turn, 30);
        add(
            "response_item",
            format!(
                r#""type":"message","role":"user","content":[{{"type":"input_text","text":"{prompt}"}}]"#
            ),
        );
        add(
            "event_msg",
            format!(
                r#""type":"item_completed","item":{{"type":"UserMessage","id":"u{turn}","content":[{{"type":"text","text":"{prompt}"}}]}}"#
            ),
        );
        for call in 0..3 {
            let seed = turn * 8 + call;
            let output = text(seed, 500);
            add(
                "response_item",
                format!(
                    r#""type":"function_call","name":"exec_command","arguments":"{{\"cmd\":\"ls {seed}\"}}","call_id":"c{seed}""#
                ),
            );
            add(
                "event_msg",
                format!(
                    r#""type":"item_completed","item":{{"type":"CommandExecution","id":"c{seed}","command":["bash","-lc","ls {seed}"],"aggregated_output":"{output}","exit_code":0,"status":"completed"}}"#
                ),
            );
            add(
                "response_item",
                format!(
                    r#""type":"function_call_output","call_id":"c{seed}","output":"Process exited with code 0\nOutput:\n{output}""#
                ),
            );
        }
        add(
            "event_msg",
            format!(
                r#""type":"item_completed","item":{{"type":"AgentMessage","id":"m{turn}","content":[{{"type":"Text","text":"{}"}}]}}"#,
                text(turn + 7, 200)
            ),
        );
        add(
            "event_msg",
            format!(
                r#""type":"token_count","info":{{"total_token_usage":{{"input_tokens":{},"output_tokens":{}}}}}"#,
                9_000 * (turn + 1),
                300 * (turn + 1)
            ),
        );
        add("event_msg", format!(r#""type":"task_complete","turn_id":"t{turn}","duration_ms":900"#));
    }
    lines
}
