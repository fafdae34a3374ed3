//! Damaged sessions: what can be read is read, the rest is reported, and nothing panics.

use std::fs;
use std::path::Path;

use azureal_agents::native::{NativeError, NativePlace, NativeTurn};
use azureal_core::Event;
use azureal_testkit::thorough;

use crate::cases::{self, Case};

/// The cases with one record per line.
const LINES: [&str; 3] = ["gemini/three-turns", "qwen/three-turns", "copilot/three-turns"];

/// Numbers that look random and are the same in every run.
struct Random(u64);

impl Random {
    /// Returns a number below `end`, or 0 if there is none.
    fn below(&mut self, end: usize) -> usize {
        // xorshift64*, by Vigna.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        usize::try_from(self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16).unwrap() % end.max(1)
    }
}

fn events(turns: &[NativeTurn]) -> Vec<&Event> {
    turns.iter().flat_map(|turn| &turn.events).filter(|event| event.kind() != "Complete").collect()
}

fn problems(turns: &[NativeTurn]) -> Vec<String> {
    turns.iter().flat_map(|turn| &turn.problems).map(ToString::to_string).collect()
}

fn read(agent: &str, path: &Path, content: &[u8]) -> Vec<NativeTurn> {
    fs::write(path, content).unwrap();
    cases::read_file(agent, path)
}

#[test]
fn a_cut_last_line_costs_only_itself() {
    for name in LINES {
        let case = Case::named(name);
        let (path, whole) = (case.file(), fs::read(case.file()).unwrap());
        let without = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
        let expected = read(&case.agent, &path, &whole[..without]);
        let cut = read(&case.agent, &path, &whole[..whole.len() - 3]);
        assert_eq!(events(&cut), events(&expected), "{name}");
        let found = problems(&cut);
        assert!(matches!(&found[..], [one] if one.contains("it is cut off after ")), "{name}: {found:?}");
        assert!(problems(&expected).is_empty());
        // A last line that only lacks its newline is whole.
        let complete = read(&case.agent, &path, &whole[..whole.len() - 1]);
        assert_eq!(complete, read(&case.agent, &path, &whole), "{name}");
    }
}

#[test]
fn a_bad_line_in_the_middle_costs_only_itself_and_is_named() {
    for name in LINES {
        let case = Case::named(name);
        let (path, whole) = (case.file(), fs::read_to_string(case.file()).unwrap());
        let expected = read(&case.agent, &path, whole.as_bytes());
        for garbage in
            ["not JSON", "[1,2]", "{\"half\":", "\u{0}\u{1b}[2J", "{}", "{\"type\":7,\"id\":{},\"uuid\":[]}"]
        {
            let mut lines: Vec<&str> = whole.lines().collect();
            lines.insert(4, garbage);
            let turns = read(&case.agent, &path, lines.join("\n").as_bytes());
            assert_eq!(events(&turns), events(&expected), "{name}: {garbage}");
            let found: Vec<&NativePlace> =
                turns.iter().flat_map(|turn| &turn.problems).map(|p| &p.place).collect();
            assert_eq!(found, [&NativePlace::Line(5)], "{name}: {garbage}");
        }
    }
}

#[test]
fn an_empty_file_is_an_error_and_one_without_records_has_no_turn() {
    for name in LINES {
        let case = Case::named(name);
        let path = case.file();
        fs::write(&path, "").unwrap();
        let home = cases::open(&case.agent, &path);
        let listed = home.sessions(None).next().unwrap();
        assert!(matches!(listed, Err(NativeError::Empty { .. })), "{name}: {listed:?}");
        assert!(events(&read(&case.agent, &path, b"\n\n\n")).is_empty());
        let turns = read(&case.agent, &path, b"garbage");
        assert!(events(&turns).is_empty() && problems(&turns).len() == 1, "{name}: {turns:?}");
    }
}

#[test]
fn a_line_over_the_limit_is_skipped_and_named() {
    for name in LINES {
        let case = Case::named(name);
        let (path, whole) = (case.file(), fs::read_to_string(case.file()).unwrap());
        let expected = read(&case.agent, &path, whole.as_bytes());
        let long = format!("{{\"x\":\"{}\"}}\n", "y".repeat(33 << 20));
        let (head, rest) = whole.split_at(whole.find('\n').unwrap() + 1);
        let turns = read(&case.agent, &path, [head, &long, rest].concat().as_bytes());
        assert_eq!(events(&turns), events(&expected), "{name}");
        assert_eq!(problems(&turns), ["line 2 was left out: it has 33 MiB"], "{name}");
    }
}

#[test]
fn a_result_of_megabytes_is_cut_down() {
    let case = Case::named("qwen/three-turns");
    let (path, whole) = (case.file(), fs::read_to_string(case.file()).unwrap());
    let long = "one more line\\n".repeat(300_000);
    let turns = read(
        &case.agent,
        &path,
        whole.replace("one\\ntwo\\nthree\\n\"}}}]", &format!("{long}\"}}}}}}]")).as_bytes(),
    );
    let size: usize = turns.iter().flat_map(|turn| &turn.events).map(|event| event.to_json().len()).sum();
    assert!(size < 64 << 10, "{size}");
    assert!(problems(&turns).is_empty());
}

/// Random bytes, and recordings with random damage, never panic; every turn that comes is complete.
#[test]
fn no_damage_makes_a_reader_panic() {
    let mut random = Random(0x5EED);
    for case in Case::all() {
        let (path, whole) = (case.file(), fs::read(case.file()).unwrap());
        for _ in 0..thorough(300, 10_000) {
            let content = match random.below(4) {
                0 => (0..random.below(2000)).map(|_| u8::try_from(random.below(256)).unwrap()).collect(),
                _ => damaged(&whole, &mut random),
            };
            fs::write(&path, &content).unwrap();
            let home = cases::open(&case.agent, &path);
            let Some(Ok(session)) = home.sessions(None).next() else { continue };
            let _ = home.head(&session);
            let Ok(mut turns) = home.turns(&session) else { continue };
            while let Ok(Some(turn)) = turns.next_turn() {
                let ends = turn.events.iter().filter(|event| event.kind() == "Complete").count();
                assert!(ends == 1 || (turn.events.is_empty() && !turn.problems.is_empty()), "{turn:?}");
            }
        }
    }
}

fn damaged(whole: &[u8], random: &mut Random) -> Vec<u8> {
    let mut content = whole.to_vec();
    for _ in 0..=random.below(6) {
        if content.is_empty() {
            break;
        }
        let at = random.below(content.len());
        match random.below(6) {
            0 => content[at] ^= 1 << random.below(8),
            1 => content.truncate(at),
            2 => content.insert(at, [0, 0xFF, b'\n', b'"', b'{', b'\\'][random.below(6)]),
            3 => {
                let end = (at + random.below(300)).min(content.len());
                content.drain(at..end);
            }
            4 => replace(&mut content, at, b":100", b":-1e999"),
            _ => replace(&mut content, at, b":{", b":[[[[[[[[]]]]]]]],\"y\":{"),
        }
    }
    content
}

/// Replaces the first place of a text at or behind `at`.
fn replace(content: &mut Vec<u8>, at: usize, old: &[u8], new: &[u8]) {
    if let Some(found) = content[at..].windows(old.len()).position(|part| part == old) {
        content.splice(at + found..at + found + old.len(), new.iter().copied());
    }
}
