//! Searches of a large store: `cargo bench -p azureal-search --bench search [-- SESSIONS EVENTS]`.
//!
//! Beside it, in the same run: `ripgrep` over the same texts in files, one per session, and a bare FTS5 table of them. The store is built in memory
//! (`/dev/shm`), and measured on the disk.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a benchmark"
)]

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use azureal_core::event::{Init, ToolCall, ToolResult};
use azureal_core::{Event, NewSession, NewTurn, SearchIndex, SessionId, SessionStore};
use azureal_search::{FileIndex, Filters, Query, Searcher, catch_up, searched_text};
use azureal_store::sqlite::{SqliteOptions, SqliteStore, Work};
use futures_executor::block_on;
use rusqlite::Connection;

const LIMIT: usize = 20;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }

    /// A number below the end; each half as far from 0 as the other is as likely: words are that frequent.
    fn rank(&mut self, end: usize) -> usize {
        let unit = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        ((end as f64).powf(unit) as usize).min(end - 1)
    }
}

fn vocabulary(random: &mut Random) -> Vec<String> {
    let mut syllables = Vec::new();
    for first in "bcdfghklmnprstvw".chars() {
        for vowel in "aeiou".chars() {
            syllables.extend(["", "n", "r", "s", "t", "l"].map(|last| format!("{first}{vowel}{last}")));
        }
    }
    (0..150_000)
        .map(|_| {
            (0..random.below(4) + 1).map(|_| syllables[random.below(syllables.len())].as_str()).collect()
        })
        .collect()
}

fn text(random: &mut Random, words: &[String], count: usize) -> String {
    let mut text = String::new();
    for _ in 0..count {
        let word = &words[random.rank(words.len())];
        match random.below(20) {
            0 => text.push_str(&format!("{word}_{}", words[random.rank(words.len())])),
            1 => text.push_str(&format!(
                "src/{word}/{}.rs:{}",
                words[random.rank(words.len())],
                random.below(900)
            )),
            2 => {
                let other = &words[random.rank(words.len())];
                text.push_str(&format!("{word}{}{}", other[..1].to_uppercase(), &other[1..]));
            }
            _ => text.push_str(word),
        }
        text.push(if random.below(12) == 0 { '\n' } else { ' ' });
    }
    text
}

/// Returns the events of a turn: a prompt, calls with their results, an answer.
fn turn(random: &mut Random, words: &[String], events: usize) -> Vec<Event> {
    let mut turn = vec![
        Event::user(text(random, words, 30)),
        Event::Init(Init { agent: Some("claude".into()), ..Init::default() }),
    ];
    while turn.len() + 2 < events {
        let input = format!(r#"{{"command":"{}"}}"#, text(random, words, 8).replace('\n', " "));
        turn.push(Event::ToolCall(ToolCall {
            tool_name: "Bash".into(),
            input: input.parse().unwrap(),
            ..ToolCall::default()
        }));
        turn.push(Event::ToolResult(ToolResult {
            tool_name: "Bash".into(),
            content: text(random, words, 90),
            ..ToolResult::default()
        }));
    }
    turn.push(Event::assistant(text(random, words, 70)));
    turn
}

fn percentile(times: &mut [Duration], percent: usize) -> f64 {
    times.sort();
    times[(times.len() - 1) * percent / 100].as_secs_f64() * 1e3
}

fn report(what: &str, mut times: Vec<Duration>) {
    let p = |times: &mut [Duration], percent| percentile(times, percent);
    println!(
        "{what:60} p50 {:8.1} ms  p95 {:8.1} ms  max {:8.1} ms  (n = {})",
        p(&mut times, 50),
        p(&mut times, 95),
        p(&mut times, 100),
        times.len()
    );
}

fn searcher<'a>(store: &'a SqliteStore, index: &'a FileIndex) -> Searcher<'a> {
    Searcher {
        store,
        index: Some(index as &dyn SearchIndex),
        source: None,
        mask: None,
        catch_up: Duration::from_secs(3600),
        scan: Duration::from_secs(3600),
        limit: Some(LIMIT),
        is_wanted: &|| true,
    }
}

fn options() -> SqliteOptions {
    SqliteOptions { work: Work::WhereCalled, ..SqliteOptions::default() }
}

/// Drops what the system has in memory of the files below a folder.
fn forget(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            forget(&path);
        } else {
            let file = File::open(path).unwrap();
            file.sync_all().unwrap();
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        }
    }
}

fn queries(
    random: &mut Random,
    words: &[String],
    texts: &[String],
    count: usize,
) -> Vec<(&'static str, String)> {
    let mut queries = Vec::new();
    for index in 0..count {
        let text = &texts[random.below(texts.len())];
        let all: Vec<&str> = text.split_whitespace().collect();
        let at = random.below(all.len().saturating_sub(1).max(1));
        queries.push(match index % 4 {
            0 => ("word", words[random.rank(words.len())].clone()),
            1 => ("two words", format!("{} {}", all[at], all[random.below(all.len())])),
            2 => ("phrase", format!("\"{}\"", all[at..(at + 2).min(all.len())].join(" "))),
            _ => ("prefix", format!("{}*", all[at].chars().take(4).collect::<String>())),
        });
    }
    queries
}

fn main() {
    let numbers: Vec<usize> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let sessions = numbers.first().copied().unwrap_or(10_000);
    let events = numbers.get(1).copied().unwrap_or(1_000_000);
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut random = Random(17);
    let words = vocabulary(&mut random);

    let began = Instant::now();
    let store = SqliteStore::open(memory.path().join("x.azs"), options()).unwrap();
    let files = disk.path().join("texts");
    fs::create_dir(&files).unwrap();
    let (mut bytes, mut sample, mut stored) = (0, Vec::new(), 0);
    let bare = Connection::open(disk.path().join("bare.sqlite")).unwrap();
    bare.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; CREATE VIRTUAL TABLE bare USING fts5(text, content=''); BEGIN").unwrap();
    let mut to_bare = Duration::ZERO;
    for number in 0..sessions {
        let mut log = Vec::new();
        while log.len() < events / sessions {
            log.extend(turn(&mut random, &words, 20));
        }
        let mut file = std::io::BufWriter::new(File::create(files.join(format!("{number}.txt"))).unwrap());
        for event in &log {
            let Some(searched) = searched_text(event) else { continue };
            bytes += searched.text.len();
            writeln!(file, "{}", searched.text).unwrap();
            let began = Instant::now();
            bare.prepare_cached("INSERT INTO bare (text) VALUES (?1)")
                .unwrap()
                .execute([&searched.text])
                .unwrap();
            to_bare += began.elapsed();
            if random.below(events / 2_000 + 1) == 0 {
                sample.push(searched.text);
            }
        }
        stored += log.len();
        block_on(store.create_with(NewSession::default(), NewTurn::verbatim(log), Vec::new())).unwrap();
    }
    let last = Instant::now();
    bare.execute_batch("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    to_bare += last.elapsed();
    drop(store);
    let place = disk.path().join("x.azs");
    fs::copy(memory.path().join("x.azs"), &place).unwrap();
    println!(
        "{sessions} sessions, {stored} events, {:.1} MB of text; made in {:.0?}",
        bytes as f64 / 1e6,
        began.elapsed()
    );
    println!("{:60} {:.1} MB", "store", fs::metadata(&place).unwrap().len() as f64 / 1e6);

    let store = SqliteStore::open(&place, options()).unwrap();
    let folder = disk.path().join("search");
    let index = FileIndex::open(&folder, "x").unwrap();
    let began = Instant::now();
    block_on(catch_up(&store, &index, &|| false, &mut |_| ())).unwrap();
    println!("{:60} {:.1?}", "first index", began.elapsed());
    drop(index);
    let index = FileIndex::open(&folder, "x").unwrap();
    let size = |path: &Path| fs::metadata(path).unwrap().len() as f64;
    let words_size = size(&folder.join("words.sqlite"));
    println!(
        "{:60} {:.1} MB, {:.0} % of the text",
        "index",
        words_size / 1e6,
        words_size * 100.0 / bytes as f64
    );
    let bare_size = size(&disk.path().join("bare.sqlite"));
    println!(
        "{:60} {:.1} MB, {:.0} % of the text, in {to_bare:.1?}",
        "bare FTS5",
        bare_size / 1e6,
        bare_size * 100.0 / bytes as f64
    );

    let asked = queries(&mut random, &words, &sample, 400);
    let search = |store: &SqliteStore, index: &FileIndex, text: &str| {
        let query = Query::words(text).unwrap();
        let found =
            block_on(searcher(store, index).search(&query, &Filters::default(), &mut |_| ())).unwrap();
        assert!(found.index_error.is_none() && found.scanned == 0);
        found.hits.len()
    };
    let mut all = Vec::new();
    for sort in ["word", "two words", "phrase", "prefix"] {
        let mut times = Vec::new();
        for (_, text) in asked.iter().filter(|(of, _)| *of == sort) {
            let began = Instant::now();
            search(&store, &index, text);
            times.push(began.elapsed());
        }
        all.extend(times.clone());
        report(&format!("search, warm: {sort}"), times);
    }
    report("search, warm: all", all);

    drop((store, index));
    let mut times = Vec::new();
    for (_, text) in asked.iter().take(40) {
        forget(disk.path());
        let began = Instant::now();
        let store = SqliteStore::open(&place, options()).unwrap();
        let index = FileIndex::open(&folder, "x").unwrap();
        search(&store, &index, text);
        times.push(began.elapsed());
    }
    report("search, cold: opened, nothing in memory", times);

    let store = SqliteStore::open(&place, options()).unwrap();
    let index = FileIndex::open(&folder, "x").unwrap();
    let mut times = Vec::new();
    for _ in 0..100 {
        let session = SessionId::new(u32::try_from(random.below(sessions) + 1).unwrap()).unwrap();
        let new = turn(&mut random, &words, 20);
        block_on(store.append(session, NewTurn::verbatim(new))).unwrap();
        let began = Instant::now();
        let behind = block_on(catch_up(&store, &index, &|| false, &mut |_| ())).unwrap();
        times.push(began.elapsed());
        assert_eq!(behind.indexed, 19);
    }
    report("catching up after a turn of 19 events", times);

    let one_word: Vec<&String> = asked.iter().filter(|(of, _)| *of == "word").map(|(_, text)| text).collect();
    let mut times = Vec::new();
    for word in &one_word {
        let began = Instant::now();
        let mut statement =
            bare.prepare_cached("SELECT rowid FROM bare WHERE bare MATCH ?1 ORDER BY rank LIMIT 20").unwrap();
        let rows: Vec<i64> = statement
            .query_map([format!("\"{word}\"")], |row| row.get(0))
            .unwrap()
            .map(Result::unwrap)
            .collect();
        assert!(rows.len() <= LIMIT);
        times.push(began.elapsed());
    }
    report("bare FTS5, ordered by rank, warm: word", times);
    let mut times = Vec::new();
    for word in one_word.iter().take(20) {
        let began = Instant::now();
        match Command::new("rg")
            .args(["--count", "--ignore-case", "--word-regexp", word])
            .arg(&files)
            .output()
        {
            Ok(_) => times.push(began.elapsed()),
            Err(_) => break,
        }
    }
    if times.is_empty() {
        println!("there is no `rg` on the path");
    } else {
        report("ripgrep over the texts in files, warm: word", times);
    }
}
