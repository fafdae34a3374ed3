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

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use azureal_core::event::{Init, ToolCall, ToolResult};
use azureal_core::{Event, IndexKind, NewSession, NewTurn, SearchIndex, SessionId, SessionStore};
use azureal_search::{Case, FileIndex, Filters, Query, Searcher, catch_up, searched_text};
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

/// Returns the words of this repository, the most frequent one first, and then words that two of them make: made-up words would share few trigrams with
/// each other, or too many.
fn vocabulary(random: &mut Random) -> Vec<String> {
    fn count_words(folder: &Path, counts: &mut HashMap<String, usize>) {
        let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        for path in paths {
            if path.is_dir() {
                count_words(&path, counts);
            } else if path.extension().is_some_and(|end| end == "rs" || end == "md") {
                let text = fs::read_to_string(path).unwrap_or_default();
                for word in text.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| word.len() > 1) {
                    *counts.entry(word.to_lowercase()).or_default() += 1;
                }
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut counts = HashMap::new();
    count_words(&root.join("crates"), &mut counts);
    count_words(&root.join("docs"), &mut counts);
    let mut counts: Vec<(String, usize)> = counts.into_iter().collect();
    counts.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
    let mut words: Vec<String> = counts.into_iter().map(|(word, _)| word).collect();
    let real = words.len();
    println!("{real} words");
    while words.len() < 150_000 {
        words.push(format!("{}{}", words[random.below(real)], words[random.below(real)]));
    }
    words
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
            3 => text.push_str(&format!("{word}({}) ->", words[random.rank(words.len())])),
            4 => text.push_str(&format!("{word}::{}", words[random.rank(words.len())])),
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

/// What is searched for, and how it is called.
struct Asked {
    sort: &'static str,
    text: String,
    query: Query,
}

/// Returns queries of words, phrases and prefixes.
fn words_asked(random: &mut Random, words: &[String], texts: &[String], count: usize) -> Vec<Asked> {
    let mut asked = Vec::new();
    for index in 0..count {
        let text = &texts[random.below(texts.len())];
        let all: Vec<&str> =
            text.split_whitespace().filter(|word| word.contains(char::is_alphabetic)).collect();
        let at = random.below(all.len().saturating_sub(1).max(1));
        let (sort, text) = match index % 4 {
            0 => ("word", words[random.rank(words.len())].clone()),
            1 => ("two words", format!("{} {}", all[at], all[random.below(all.len())])),
            2 => ("phrase", format!("\"{}\"", all[at..(at + 2).min(all.len())].join(" "))),
            _ => ("prefix", format!("{}*", all[at].chars().take(4).collect::<String>())),
        };
        asked.push(Asked { sort, query: Query::words(&text).unwrap(), text });
    }
    asked
}

/// Returns queries of parts of texts, and of expressions with such parts.
fn substrings_asked(random: &mut Random, texts: &[String], count: usize) -> Vec<Asked> {
    let mut asked = Vec::new();
    while asked.len() < count {
        let text = &texts[random.below(texts.len())];
        let mut part = |length: usize| {
            let start = random.below(text.len().saturating_sub(length).max(1));
            text.get(start..start + length).filter(|part| !part.contains('\n')).map(str::to_owned)
        };
        let (sort, text) = match asked.len() % 4 {
            0 => ("part of 6 characters", part(6)),
            1 => ("part of 12 characters", part(12)),
            2 => {
                let parts = part(7).zip(part(5));
                let expression =
                    parts.map(|(one, other)| format!("{}.*{}", regex::escape(&one), regex::escape(&other)));
                ("expression", expression)
            }
            _ => ("absent text", part(9).map(|part| part + "=>")),
        };
        let Some(text) = text else { continue };
        let query = match sort {
            "expression" => Query::pattern(&text, Case::Sensitive),
            _ => Query::fixed(&text, Case::Ignored),
        };
        asked.push(Asked { sort, query: query.unwrap(), text });
    }
    asked
}

/// The store on the disk, with the folder of its indexes.
struct Place<'a> {
    store: &'a Path,
    folder: &'a Path,
}

impl Place<'_> {
    fn open(&self, kind: IndexKind) -> (SqliteStore, FileIndex) {
        let store = SqliteStore::open(self.store, options()).unwrap();
        (store, FileIndex::open(self.folder, kind, "x").unwrap())
    }

    /// Creates an index.
    fn index(&self, kind: IndexKind, bytes: usize) {
        let (store, index) = self.open(kind);
        let began = Instant::now();
        block_on(catch_up(&store, &index, &|| false, &mut |_| ())).unwrap();
        println!("{:60} {:.1?}", format!("first index of {kind:?}"), began.elapsed());
        drop(index);
        size(&format!("index of {kind:?}"), &FileIndex::path(self.folder, kind), bytes);
    }

    /// Searches for all of it, warm and cold.
    fn search(&self, kind: IndexKind, asked: &[Asked]) {
        let search = |store: &SqliteStore, index: &FileIndex, query: &Query| {
            let began = Instant::now();
            let found =
                block_on(searcher(store, index).search(query, &Filters::default(), &mut |_| ())).unwrap();
            assert!(found.index_error.is_none());
            (began.elapsed(), found)
        };
        let (store, index) = self.open(kind);
        let mut all = Vec::new();
        let mut sorts: Vec<&str> = asked.iter().map(|asked| asked.sort).collect();
        sorts.sort_unstable();
        sorts.dedup();
        for sort in sorts {
            let (mut times, mut scans, mut hits) = (Vec::new(), 0, 0);
            for Asked { query, .. } in asked.iter().filter(|asked| asked.sort == sort) {
                let (time, found) = search(&store, &index, query);
                times.push(time);
                scans += usize::from(found.scanned > 0);
                hits += found.hits.len();
            }
            all.extend(times.clone());
            report(&format!("search, warm: {sort} ({hits} hits, {scans} scans)"), times);
        }
        report(&format!("search, warm: all of {kind:?}"), all);
        drop((store, index));
        let mut times = Vec::new();
        for Asked { query, .. } in asked.iter().take(40) {
            forget(self.store.parent().unwrap());
            let began = Instant::now();
            let (store, index) = self.open(kind);
            search(&store, &index, query);
            times.push(began.elapsed());
        }
        report(&format!("search, cold: opened, nothing in memory, all of {kind:?}"), times);
    }
}

fn size(what: &str, path: &Path, bytes: usize) {
    let size = fs::metadata(path).unwrap().len() as f64;
    println!("{what:60} {:.1} MB, {:.0} % of the text", size / 1e6, size * 100.0 / bytes as f64);
}

/// Searches the texts in files with `ripgrep`.
fn ripgrep<'a>(what: &str, arguments: &[&str], asked: impl Iterator<Item = &'a Asked>, files: &Path) {
    let mut times = Vec::new();
    for Asked { text, .. } in asked.take(20) {
        let began = Instant::now();
        let ran = Command::new("rg").args(arguments).args(["--count", "-e", text]).arg(files).output();
        let Ok(ran) = ran else {
            println!("there is no `rg` on the path");
            return;
        };
        // 1: nothing found.
        assert!(matches!(ran.status.code(), Some(0 | 1)), "{}", String::from_utf8_lossy(&ran.stderr));
        times.push(began.elapsed());
    }
    report(what, times);
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
    println!("{:60} {to_bare:.1?}", "bare FTS5");
    size("bare FTS5", &disk.path().join("bare.sqlite"), bytes);

    let folder = disk.path().join("search");
    let place = Place { store: &place, folder: &folder };
    let asked = words_asked(&mut random, &words, &sample, 400);
    let substrings = substrings_asked(&mut random, &sample, 400);
    for kind in FileIndex::KINDS {
        place.index(kind, bytes);
    }
    place.search(IndexKind::Words, &asked);
    place.search(IndexKind::Substrings, &substrings);

    let (store, words_index) = place.open(IndexKind::Words);
    let (_, substrings_index) = place.open(IndexKind::Substrings);
    let (mut of_words, mut of_substrings) = (Vec::new(), Vec::new());
    for _ in 0..100 {
        let session = SessionId::new(u32::try_from(random.below(sessions) + 1).unwrap()).unwrap();
        let new = turn(&mut random, &words, 20);
        block_on(store.append(session, NewTurn::verbatim(new))).unwrap();
        for (index, times) in [(&words_index, &mut of_words), (&substrings_index, &mut of_substrings)] {
            let began = Instant::now();
            let behind = block_on(catch_up(&store, index, &|| false, &mut |_| ())).unwrap();
            times.push(began.elapsed());
            assert_eq!(behind.indexed, 19);
        }
    }
    report("catching up after a turn of 19 events: Words", of_words);
    report("catching up after a turn of 19 events: Substrings", of_substrings);

    let mut times = Vec::new();
    for Asked { text, .. } in asked.iter().filter(|asked| asked.sort == "word") {
        let began = Instant::now();
        let mut statement =
            bare.prepare_cached("SELECT rowid FROM bare WHERE bare MATCH ?1 ORDER BY rank LIMIT 20").unwrap();
        let rows: Vec<i64> = statement
            .query_map([format!("\"{text}\"")], |row| row.get(0))
            .unwrap()
            .map(Result::unwrap)
            .collect();
        assert!(rows.len() <= LIMIT);
        times.push(began.elapsed());
    }
    report("bare FTS5, ordered by rank, warm: word", times);
    ripgrep(
        "ripgrep over the texts in files, warm: word",
        &["--ignore-case", "--word-regexp"],
        asked.iter().filter(|asked| asked.sort == "word"),
        &files,
    );
    ripgrep(
        "ripgrep over the texts in files, warm: part of 12 characters",
        &["--ignore-case", "--fixed-strings"],
        substrings.iter().filter(|asked| asked.sort == "part of 12 characters"),
        &files,
    );
    let expressions = substrings.iter().filter(|asked| asked.sort == "expression");
    ripgrep("ripgrep over the texts in files, warm: expression", &[], expressions, &files);
}
