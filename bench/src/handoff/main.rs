//! Measures what the next agent still knows after a compaction without a model: planted facts by kind, and the share of the
//! ledger that is true.
//!
//! `bench/handoff` builds and runs this; `bench/README.md` explains the figures.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a tool reads its arguments and prints"
)]

mod lists;
mod score;
mod session;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use azureal_core::{
    Compaction, Digest, Event, Keep, NewSession, Seq, SessionStore, Threshold, append_events,
    read_context_for, wrap_context,
};
use azureal_engine::{CompactionOptions, Engine, EngineOptions, Spools};
use azureal_store::MemoryStore;
use futures_executor::block_on;

use lists::{Lists, labelled};
use score::{Score, Share, score};
use session::Planted;

/// The lengths of the sessions, in turns.
const LENGTHS: [usize; 3] = [20, 60, 300];
/// The session that the targets are about.
const TARGET: usize = 60;

/// The figures of one session.
struct Handoff {
    turns: usize,
    score: Score,
    chars_before: usize,
    chars_after: usize,
}

impl Handoff {
    /// Writes a session, compacts it with the digest and compares what is left with what was planted.
    fn measure(turns: usize, lists: &Lists, threshold: Threshold) -> Result<Self> {
        let planted = Planted::new(turns, lists);
        let store = Arc::new(MemoryStore::default());
        let id = block_on(store.create(NewSession::default()))?;
        for turn in planted.turns {
            block_on(append_events(&*store, id, turn))?;
        }
        let context =
            || -> Result<String> { Ok(wrap_context(&block_on(read_context_for(&*store, id, threshold))?)) };
        let before = context()?;
        let folder = tempfile::tempdir()?;
        let sessions: Arc<dyn SessionStore> = Arc::<MemoryStore>::clone(&store);
        let engine = Engine::new(EngineOptions::new(
            sessions,
            Spools::new(folder.path().join("spool")),
            folder.path(),
        ));
        let options = CompactionOptions {
            threshold,
            keep: Keep::Usual,
            summarisers: Vec::new(),
            timeout: Duration::from_secs(60),
        };
        engine.compact(id, &options, &|| false, &mut |_| {})?.context("nothing was compacted")?;
        let after = context()?;
        let score = score(&after, &planted.truth);
        Ok(Self { turns, score, chars_before: before.chars().count(), chars_after: after.chars().count() })
    }

    fn size_percent(&self) -> usize {
        self.chars_after * 100 / self.chars_before.max(1)
    }

    /// Returns the targets that are missed.
    fn missed(&self) -> Vec<String> {
        let Score { requirements, files, commands, failures, decisions, precision, .. } = &self.score;
        let shares = [
            ("requirements", requirements, 100),
            ("files", files, 100),
            ("commands", commands, 100),
            ("failures", failures, 100),
            ("decisions", decisions, 80),
            ("precision", precision, 90),
        ];
        let mut missed: Vec<String> = shares
            .iter()
            .filter(|(_, share, least)| !share.is_at_least(*least))
            .map(|(name, share, least)| format!("{name}: {}, at least {least} %", share.text()))
            .collect();
        if self.size_percent() > 45 {
            missed.push(format!("context: {} % of before, at most 45 %", self.size_percent()));
        }
        missed
    }

    fn row(&self) -> String {
        let Score { requirements, files, commands, failures, decisions, precision, .. } = &self.score;
        let cells = [requirements, files, commands, failures, decisions, precision].map(|share| share.text());
        format!(
            "| {} | {} | {} → {} ({} %) |",
            self.turns,
            cells.join(" | "),
            self.chars_before,
            self.chars_after,
            self.size_percent()
        )
    }
}

/// Measures how long the context of a compacted session takes in a SQLite store, if the same turns come so many times: the number of
/// covered events, and the median in milliseconds.
fn time(turns: usize, rounds: usize, lists: &Lists) -> Result<(u64, f64)> {
    const REPETITIONS: usize = 51;
    let folder = tempfile::tempdir()?;
    let options = azureal_store::sqlite::SqliteOptions::default();
    let store = azureal_store::SqliteStore::open(folder.path().join("sessions.azs"), options)?;
    let id = block_on(store.create(NewSession::default()))?;
    let events: Vec<Event> = Planted::new(turns, lists).turns.concat();
    let mut last = Seq::START;
    for _ in 0..rounds {
        last = block_on(append_events(&store, id, events.clone()))?.last;
    }
    block_on(store.add_compaction(id, &Compaction::new(last, "summary ".repeat(500))))?;
    let mut times = Vec::new();
    for _ in 0..REPETITIONS {
        let started = std::time::Instant::now();
        block_on(read_context_for(&store, id, Threshold::default()))?;
        times.push(started.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok((last.0, times.get(REPETITIONS / 2).copied().unwrap_or(f64::NAN)))
}

/// Returns how many of the decisions are found, and how many of the other sentences are not taken for one.
fn sentences(text: &str) -> (Share, Share) {
    let (decisions, others) = labelled(text);
    let is_taken = |sentence: &String| {
        let mut digest = Digest::default();
        digest.push(&Event::assistant(sentence.as_str()));
        digest.finish().contains("Decisions:\n")
    };
    (Share::of(decisions.iter().map(is_taken)), Share::of(others.iter().map(|sentence| !is_taken(sentence))))
}

const PLANTED: &str = include_str!("planted.txt");
const HELD_OUT: &str = include_str!("held_out.txt");
const SECOND: &str = include_str!("second_held_out.txt");

fn main() -> Result<std::process::ExitCode> {
    let verbose = std::env::args().any(|argument| argument == "--verbose");
    let lists = Lists::planted()?;
    if std::env::args().any(|argument| argument == "--times") {
        for (turns, rounds) in [(20, 1), (60, 1), (300, 1), (3_000, 1), (60, 50)] {
            let (events, ms) = time(turns, rounds, &lists)?;
            println!("{turns} turns, {rounds} times: {events} covered events, {ms:.2} ms");
        }
        return Ok(std::process::ExitCode::SUCCESS);
    }
    let mut missed = Vec::new();
    for (name, threshold) in
        [("the default threshold", Threshold::default()), ("a threshold of 20 000", Threshold::Chars(20_000))]
    {
        println!("With {name}:\n");
        println!(
            "| turns | requirements | files | commands | failures | decisions | precision | characters |"
        );
        println!("|--:|--:|--:|--:|--:|--:|--:|--:|");
        for turns in LENGTHS {
            let handoff = Handoff::measure(turns, &lists, threshold)?;
            println!("{}", handoff.row());
            if verbose {
                handoff.score.wrong.iter().for_each(|line| eprintln!("{turns} wrong: {line}"));
                handoff.score.lost.iter().for_each(|line| eprintln!("{turns} lost: {line}"));
            }
            if turns == TARGET && threshold == Threshold::default() {
                missed = handoff.missed();
            }
        }
        println!();
    }
    println!("| sentences | decisions found | others not taken for one |");
    println!("|---|--:|--:|");
    for (name, text) in [
        ("written before the rules", PLANTED),
        ("written after the rules, which were widened once since", HELD_OUT),
        ("written after that", SECOND),
    ] {
        let (found, left) = sentences(text);
        println!("| {name} | {} | {} |", found.text(), left.text());
    }
    missed.iter().for_each(|line| println!("\nmissed at {TARGET} turns: {line}"));
    Ok(if missed.is_empty() { std::process::ExitCode::SUCCESS } else { std::process::ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_sixty_turns_the_targets_are_met() {
        let lists = Lists::planted().unwrap();
        let handoff = Handoff::measure(TARGET, &lists, Threshold::default()).unwrap();
        assert_eq!(handoff.missed(), Vec::<String>::new(), "wrong: {:#?}", handoff.score.wrong);
        let Score { files, commands, failures, decisions, requirements, .. } = handoff.score;
        for (name, share, least) in [
            ("requirements", requirements, 25),
            ("files", files, 80),
            ("commands", commands, 50),
            ("failures", failures, 12),
            ("decisions", decisions, 18),
        ] {
            assert!(share.of >= least, "only {} {name} were planted", share.of);
        }
    }

    #[test]
    fn a_context_that_lost_everything_scores_nothing() {
        let lists = Lists::planted().unwrap();
        let planted = Planted::new(TARGET, &lists);
        let nothing = score("", &planted.truth);
        for share in
            [nothing.files, nothing.commands, nothing.failures, nothing.decisions, nothing.requirements]
        {
            assert_eq!(share.found, 0);
        }
        let invented =
            "Files touched:\n- src: deleted lib.rs\n\nFailures that nothing fixed:\n- `cargo miri`: exit 1";
        let wrong = score(invented, &planted.truth);
        assert_eq!((wrong.precision.found, wrong.precision.of), (0, 2));
    }
}
