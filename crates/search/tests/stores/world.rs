//! Random sessions and random queries over few words, so that they meet.

use azureal_core::event::{Changes, FileChange, Init, Reasoning, ToolCall, ToolResult};
use azureal_core::{Event, NewSession, NewTurn, SessionId, SessionStore};
use azureal_search::{Case, Query, QueryError};
use futures_executor::block_on;

/// A small generator of random numbers.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % (end as u64)).unwrap()
    }

    pub(crate) fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

const WORDS: [&str; 46] = [
    "the",
    "token",
    "tokens",
    "Token",
    "row",
    "lock",
    "race",
    "HashMap",
    "hash_map",
    "hashmap",
    "map",
    "find_for_update",
    "src/auth/token.rs",
    "std::fs::read",
    "parseHTTPHeader",
    "v1.2.3",
    "1.2",
    "42",
    "検索",
    "検索エンジン",
    "索",
    "한국어",
    "✅",
    "🎉",
    "Café",
    "cafe\u{301}",
    "naïve",
    "ÄPFEL",
    "äpfel",
    "don't",
    "->",
    "{}",
    "a_b_c",
    "a.b",
    "ab",
    "abc",
    "x",
    "sha256",
    "e002",
    "OR",
    // Characters whose capital letters are not one to one.
    "Stra\u{DF}e",
    "STRA\u{1E9E}E",
    "\u{212A}elvin",
    "\u{17F}ign",
    "\u{3A3}\u{3C2}\u{3C3}",
    "nul\0byte",
];

pub(crate) const TOOLS: [&str; 4] = ["Bash", "Edit", "mcp__x-y__z", "bash"];
/// Times of turns, in seconds since 1970 too.
pub(crate) const TIMES: [(&str, i64); 3] = [
    ("2000-02-29T12:00:00Z", 951_825_600),
    ("2026-01-31T09:30:00Z", 1_769_851_800),
    ("2026-01-31T09:30:01Z", 1_769_851_801),
];

pub(crate) const AGENTS: [&str; 3] = ["claude", "codex", "Ägent-1"];

fn text(random: &mut Random) -> String {
    let count = random.below(12);
    let mut text = String::new();
    for _ in 0..count {
        text.push_str(random.one(&WORDS));
        text.push_str(random.one(&[" ", " ", " ", "\n", ", ", ""]));
    }
    text
}

fn event(random: &mut Random) -> Event {
    let tool = random.one(&TOOLS).to_owned();
    match random.below(10) {
        0 | 1 => Event::assistant(text(random)),
        2 => Event::Reasoning(Reasoning { text: text(random), subagent: None }),
        3 | 4 => {
            let input = serde_json::json!({"command": text(random), "n": [random.below(50)]}).to_string();
            Event::ToolCall(ToolCall {
                tool_name: tool,
                input: input.parse().unwrap(),
                ..ToolCall::default()
            })
        }
        5 | 6 => {
            let detail = (random.below(3) == 0).then(|| text(random));
            Event::ToolResult(ToolResult {
                tool_name: tool,
                content: text(random),
                detail,
                ..ToolResult::default()
            })
        }
        7 => Event::Changes(Changes {
            files: vec![FileChange { path: random.one(&WORDS).to_owned(), ..FileChange::default() }],
            ..Changes::default()
        }),
        8 => Event::error("agent", text(random)),
        _ => Event::Compacted,
    }
}

/// Returns the events of a turn.
pub(crate) fn turn(random: &mut Random) -> NewTurn {
    let mut events = vec![Event::user(text(random))];
    if random.below(5) > 0 {
        events.push(Event::Init(Init { agent: Some(random.one(&AGENTS).to_owned()), ..Init::default() }));
    }
    events.extend((0..random.below(8)).map(|_| event(random)));
    let happened_at = (random.below(2) == 0).then(|| random.one(&TIMES).0.to_owned());
    NewTurn { happened_at, ..NewTurn::verbatim(events) }
}

/// Changes a store at random: turns, new sessions, forks, clears, deletions, names.
pub(crate) fn change(store: &dyn SessionStore, sessions: &mut Vec<SessionId>, random: &mut Random) {
    let new = || NewSession { worktree: ".".to_owned(), ..NewSession::default() };
    if sessions.is_empty() || random.below(6) == 0 {
        let worktree = random.one(&[".", "../feat"]).to_owned();
        let session = block_on(store.create(NewSession { worktree, ..new() })).unwrap();
        block_on(store.append(session, turn(random))).unwrap();
        sessions.push(session);
        return;
    }
    let place = random.below(sessions.len());
    let session = sessions[place];
    match random.below(12) {
        0 => {
            block_on(store.delete(session)).unwrap();
            sessions.remove(place);
        }
        1 => {
            block_on(store.clear(session)).unwrap();
            for _ in 0..random.below(3) {
                block_on(store.append(session, turn(random))).unwrap();
            }
        }
        2 => sessions.push(block_on(store.fork(session, azureal_core::Seq::END, new())).unwrap()),
        4 => {
            // An agent that is named apart from its prompt.
            let agent = Some(random.one(&AGENTS).to_owned());
            let init = Event::Init(Init { agent, ..Init::default() });
            block_on(store.append(session, NewTurn::verbatim([init]))).unwrap();
        }
        3 => block_on(store.rename(session, &format!("name {}", random.below(1_000_000)))).unwrap(),
        _ => {
            block_on(store.append(session, turn(random))).unwrap();
        }
    }
}

/// Returns a query of every sort, with its text.
pub(crate) fn query(random: &mut Random) -> (String, Result<Query, QueryError>) {
    let case = random.one(&[Case::Sensitive, Case::Ignored]);
    match random.below(10) {
        0..6 => {
            let text = words(random);
            let query = Query::words(&text);
            (text, query)
        }
        6..8 => {
            let text = part(random);
            let query = Query::fixed(&text, case);
            (format!("fixed {text:?}, {case:?}"), query)
        }
        _ => {
            let text = expression(random);
            let query = Query::pattern(&text, case);
            (format!("expression {text:?}, {case:?}"), query)
        }
    }
}

/// Returns a part of a text, often from the middle of one word to the middle of the next.
fn part(random: &mut Random) -> String {
    let mut text = format!("{}{}{}", random.one(&WORDS), random.one(&[" ", ", ", ""]), random.one(&WORDS));
    if random.below(4) == 0 {
        text = text.to_uppercase();
    }
    let start = random.below(text.chars().count());
    text.chars().skip(start).take(random.below(9) + 1).collect()
}

/// Returns a regular expression.
fn expression(random: &mut Random) -> String {
    let literal = |random: &mut Random| regex::escape(&part(random));
    let (one, other) = (literal(random), literal(random));
    match random.below(9) {
        0 => format!("{one}|{other}"),
        1 => format!("{one}.*{other}"),
        2 => format!("({one})+"),
        3 => format!("(?i){one}"),
        4 => format!("{one}\\w*"),
        5 => format!("(?i:{one}|{other}) "),
        6 => format!("(({one})?|x){other}"),
        7 => format!("\\b{one}"),
        _ => format!("(?s){one}(.|{other}){{1,9}}"),
    }
}

/// Returns a query of words, phrases and prefixes.
fn words(random: &mut Random) -> String {
    let mut query = String::new();
    for _ in 0..=random.below(3) {
        let word = random.one(&WORDS);
        match random.below(5) {
            0 => query.push_str(&format!("\"{word} {}\"", random.one(&WORDS))),
            1 => {
                let count = word.chars().count();
                let start: String = word.chars().take(random.below(count) + 1).collect();
                query.push_str(&format!("{start}*"));
            }
            2 => query.push_str(&format!("\"{word} {}\"*", random.one(&["t", "ha", "a", "検", "1"]))),
            _ => query.push_str(word),
        }
        query.push(' ');
    }
    query
}
