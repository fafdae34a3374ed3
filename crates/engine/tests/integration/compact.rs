//! Compactions: who writes the summary, what is kept, and what never changes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use azureal_agents::offline::Offline;
use azureal_core::agent::{Agent, AgentCommand, AgentError, AgentParser, AgentRequest, Permission, Program};
use azureal_core::event::{Complete, Init, SystemMessage, ToolCall, ToolResult};
use azureal_core::{Compaction, Event, Holder, Json, Keep, NewTurn, Seq, Threshold, read_context};
use azureal_engine::{
    CompactionError, CompactionOptions, Leased, Summarised, Summariser, TurnEvent, this_process,
};
use azureal_testkit::thorough;
use futures_executor::block_on;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::harness::{Project, leak};
use crate::machine::busy;

/// An agent whose program prints what the test says, or runs a script.
struct StandIn {
    name: &'static str,
    script: &'static str,
    /// What is printed, given the record that is to be summarised.
    answer: fn(&str) -> String,
    asked: AtomicUsize,
}

impl StandIn {
    fn new(name: &'static str, answer: fn(&str) -> String) -> &'static Self {
        leak(Self { name, script: "cat", answer, asked: AtomicUsize::new(0) })
    }

    fn script(name: &'static str, script: &'static str) -> &'static Self {
        leak(Self { name, script, answer: |_| String::new(), asked: AtomicUsize::new(0) })
    }

    fn times_asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

impl Agent for StandIn {
    fn name(&self) -> &'static str {
        self.name
    }
    fn program(&self) -> Program {
        Program::Named("sh")
    }
    fn answers_for(&self, _: &str) -> bool {
        false
    }
    fn command(&self, turn: &AgentRequest) -> Result<AgentCommand, AgentError> {
        assert_eq!(turn.permission, Some(Permission::Answer), "who summarises has no tools");
        self.asked.fetch_add(1, Ordering::SeqCst);
        let record = turn.frame.rest.trim();
        let record = record.strip_prefix("<azureal-session-context>\n").unwrap();
        let record = record.strip_suffix("\n</azureal-session-context>").unwrap();
        Ok(AgentCommand {
            args: vec!["-c".into(), self.script.into()],
            stdin: (self.answer)(record).into_bytes(),
            ..AgentCommand::default()
        })
    }
    fn parser(&self) -> Box<dyn AgentParser> {
        Offline.parser()
    }
}

/// Returns what an agent prints that says this and is done.
fn says(text: &str) -> String {
    let complete = Event::Complete(Complete { success: true, ..Complete::default() });
    format!("{}\n{}\n", Event::assistant(text).to_json(), complete.to_json())
}

const GOOD: &str = "They fixed the login, and the tests pass.";

fn good(_: &str) -> String {
    says(GOOD)
}

struct World(Project);

impl World {
    fn new(events: impl IntoIterator<Item = Event>) -> Self {
        let project = Project::in_memory();
        project.append(events);
        Self(project)
    }

    /// A session with five prompts of a few thousand characters.
    fn long() -> Self {
        let turn = |number: usize| {
            [
                Event::user(format!("Prompt {number}: fix the login, and never touch the tests.")),
                Event::assistant(format!(
                    "Answer {number}. {}",
                    "I looked at it from all sides. ".repeat(100)
                )),
                Event::Complete(Complete { success: true, ..Complete::default() }),
            ]
        };
        Self::new((1..=5).flat_map(turn))
    }

    fn events(&self) -> Vec<String> {
        self.0.stored().into_iter().map(|stored| stored.json.unwrap()).collect()
    }

    fn context(&self) -> String {
        block_on(read_context(&*self.0.store, self.0.session)).unwrap().into_string()
    }

    /// Compacts the session; nobody cancels that.
    fn compact_by(&self, options: &CompactionOptions) -> Result<Option<Summarised>, CompactionError> {
        self.0.engine().compact(self.0.session, options, &|| false, &mut |_| {})
    }

    fn compact(&self, agents: &[&'static StandIn], timeout: Duration) -> (Summarised, Vec<String>) {
        let options = CompactionOptions { timeout, ..asking(agents) };
        let mut told = Vec::new();
        let mut report = |event| match event {
            TurnEvent::Summarising { agent } => told.push(format!("{agent}?")),
            TurnEvent::NotSummarised { agent, why } => told.push(format!("{agent}: {why}")),
            other => panic!("{other:?}"),
        };
        let summarised = self.0.engine().compact(self.0.session, &options, &|| false, &mut report);
        (summarised.unwrap().unwrap(), told)
    }
}

#[test]
fn a_summary_remembers_who_wrote_it() {
    let says_model: fn(&str) -> String = |_| {
        let init = Event::Init(Init { model: "large-2".into(), ..Init::default() });
        format!("{}\n{}", init.to_json(), says(GOOD))
    };
    for (answer, model, expected) in [
        (good as fn(&str) -> String, None, "ann"),
        (good, Some("small"), "ann/small"),
        (says_model, None, "ann/large-2"),
        (says_model, Some("large"), "ann/large-2"),
        (|_| String::new(), Some("large"), "digest"),
    ] {
        let world = World::long();
        let agent = StandIn::new("ann", answer);
        let mut options = asking(&[agent]);
        options.summarisers[0].model = model.map(str::to_owned);
        let report = world.compact_by(&options).unwrap().unwrap();
        assert_eq!(report.writer, expected);
        let stored = block_on(world.0.store.compactions(world.0.session)).unwrap();
        assert_eq!(stored[0].writer.as_deref(), Some(expected));
    }
}

/// Returns the options of a compaction that asks these agents.
fn asking(agents: &[&'static StandIn]) -> CompactionOptions {
    let summariser = |agent: &&'static StandIn| Summariser {
        agent: *agent,
        program: "/bin/sh".into(),
        model: None,
        settings: None,
    };
    CompactionOptions {
        threshold: Threshold::default(),
        keep: Keep::Usual,
        summarisers: agents.iter().map(summariser).collect(),
        timeout: Duration::from_secs(20),
    }
}

#[test]
fn the_first_agent_that_can_writes_the_summary() {
    let world = World::long();
    let (before, events) = (world.context(), world.events());
    let [first, second] = ["first", "second"].map(|name| StandIn::new(name, good));
    let (report, told) = world.compact(&[first, second], Duration::from_secs(20));
    assert_eq!(
        (report.agent.as_deref(), report.summary.as_str(), told),
        (Some("first"), GOOD, vec!["first?".to_owned()])
    );
    assert_eq!(
        (report.boundary.after_seq, report.boundary.inside_turn),
        (Seq(6), false),
        "three prompts stay"
    );
    assert_eq!((first.times_asked(), second.times_asked()), (1, 0));
    let after = world.context();
    assert_eq!((report.chars_before, report.chars_after), (before.chars().count(), after.chars().count()));
    assert!(
        after.contains(GOOD)
            && after.contains("### Prompt, event 1\nPrompt 1:")
            && !after.contains("Answer 1.")
    );
    assert!(!report.frees_little());
    assert_eq!(world.events(), events, "no event is touched");
    assert_eq!(world.0.spool_files(), [] as [std::path::PathBuf; 0]);
    assert!(block_on(world.0.store.remove_compaction(world.0.session, Seq(6))).unwrap());
    assert_eq!(world.context(), before, "undone, byte for byte");
}

#[test]
fn whoever_fails_is_asked_once_and_the_next_one_is() {
    let bad: [(&'static StandIn, &str); 7] = [
        (StandIn::new("bad", |_| says(" \n ")), "it said nothing"),
        (StandIn::new("bad", says), "it gave the record back"),
        (StandIn::new("bad", |record| says(&record.repeat(2))), "its summary is longer than the record"),
        (StandIn::new("bad", |_| says(&"\u{1}\u{fffd}".repeat(400))), "what it said is no text"),
        (StandIn::new("bad", |_| "no JSON at all\n{\"half\":".repeat(50)), ""),
        (StandIn::script("bad", "echo 'out of order' >&2; exit 1"), ""),
        (StandIn::script("bad", "setsid sleep 1000 & sleep 1000"), "it took longer than 0.5 seconds"),
    ];
    for (bad, expected) in bad {
        let world = World::long();
        let next = StandIn::new("next", good);
        let (report, told) = world.compact(&[bad, next], Duration::from_millis(500));
        assert_eq!((report.agent.as_deref(), report.summary.as_str()), (Some("next"), GOOD), "{told:?}");
        assert_eq!((bad.times_asked(), next.times_asked()), (1, 1));
        assert!(told[1].starts_with("bad: ") && told[1].contains(expected), "{told:?}");
        assert_eq!(report.failed.len(), 1);
        assert_eq!(world.0.spool_files(), [] as [std::path::PathBuf; 0]);
    }
}

#[test]
fn without_any_agent_the_digest_is_written() {
    let world = World::long();
    let bad = StandIn::script("bad", "exit 1");
    let (report, _) = world.compact(&[bad], Duration::from_secs(20));
    assert_eq!((report.agent, report.failed.len()), (None, 1));
    assert!(report.summary.contains("never touch the tests"), "{}", report.summary);
    assert!(world.context().contains(&report.summary));
    assert!(world.compact_again().is_none(), "nothing was added, so there is nothing to gain");
}

impl World {
    fn compact_again(&self) -> Option<Summarised> {
        self.compact_by(&CompactionOptions { keep: Keep::Prompts(3), ..asking(&[]) }).unwrap()
    }
}

#[test]
fn an_endless_talker_is_stopped_and_a_long_summary_is_cut() {
    let _busy = busy();
    let world = World::long();
    let endless = StandIn::script(
        "endless",
        "ulimit -f 2097152; yes '{\"delta\":\"and on and on and on and on and on and on\"}'",
    );
    let long = StandIn::new("long", |_| says(&"A sentence of the summary. ".repeat(200)));
    let (report, told) = world.compact(&[endless, long], Duration::from_secs(60));
    assert!(told[1].contains("16 MiB"), "{told:?}");
    assert_eq!(report.agent.as_deref(), Some("long"));
    assert!(report.summary.chars().count() <= 4_000);
    assert!(
        report.summary.ends_with("A sentence of the summary.\n[the summary was longer and was cut here]")
    );
}

/// Prints a little, so that it is being read, and then as fast as it can; leaves a file behind if nobody stops it before it
/// has printed a gigabyte. What it prints says nothing to the parser.
const FLOOD: &str = "ulimit -f 2097152
    for i in 1 2 3 4 5 6 7 8 9 10; do echo '{\"notice\":\"slow\"}'; sleep 0.02; done
    yes '{\"usage\":{\"input_tokens\":1,\"output_tokens\":2}}'
    touch not-stopped";

#[test]
fn an_agent_that_prints_faster_than_it_is_read_is_stopped() {
    let _busy = busy();
    let world = World::long();
    let next = StandIn::new("next", good);
    let (_, told) = world.compact(&[StandIn::script("flood", FLOOD), next], Duration::from_secs(60));
    assert!(told[1].contains("it printed more than 16 MiB"), "{told:?}");
    assert!(!world.0.path("not-stopped").exists(), "it printed a gigabyte");
}

#[test]
fn a_cancel_reaches_an_agent_that_never_stops_printing() {
    let _busy = busy();
    let world = World::long();
    // Slower than what is read, and without a pause in which nothing is there to read. It ends when it has printed 8 MiB.
    let script = "(ulimit -f 16384; while :; do echo '{\"notice\":\"x\"}'; done); touch not-stopped";
    let agent = StandIn::script("busy", script);
    let checks = AtomicUsize::new(0);
    let is_cancelled = || checks.fetch_add(1, Ordering::Relaxed) == 10;
    let result = world.0.engine().compact(world.0.session, &asking(&[agent]), &is_cancelled, &mut |_| {});
    assert!(matches!(result, Err(CompactionError::Cancelled)));
    assert!(!world.0.path("not-stopped").exists(), "it printed all that it could");
}

#[test]
fn a_summary_of_one_sentence_is_too_short_for_a_long_record() {
    let turn =
        |number: usize| [Event::user(format!("Prompt {number}")), Event::assistant("word ".repeat(5_000))];
    let world = World::new((1..=8).flat_map(turn));
    let short = StandIn::new("short", |_| says("Everything is done."));
    let (report, told) = world.compact(&[short, StandIn::new("lazy", good)], Duration::from_secs(20));
    assert_eq!((report.agent, report.failed.len()), (None, 2), "the digest is next");
    assert!(told[1].starts_with("short: its summary is too short: 19 characters for 1"), "{told:?}");
    assert!(told[3].starts_with("lazy: its summary is too short: "), "{told:?}");

    let long = StandIn::new("long", |_| says(&"They did one thing after the other. ".repeat(20)));
    let world = World::new((1..=8).flat_map(turn));
    let (report, _) = world.compact(&[short, long], Duration::from_secs(20));
    assert_eq!((report.agent.as_deref(), report.failed.len()), (Some("long"), 1), "the next agent is asked");
}

#[test]
fn a_later_summary_is_made_of_the_earlier_one_and_the_events_since() {
    let world = World::long();
    world.compact(&[StandIn::new("first", good)], Duration::from_secs(20));
    let more = (6..=9)
        .flat_map(|number| [Event::user(format!("Prompt {number}")), Event::assistant("y".repeat(3_000))]);
    block_on(world.0.store.append(world.0.session, NewTurn::verbatim(more))).unwrap();
    let echo = StandIn::new("echo", |record| {
        assert!(
            record.contains(GOOD) && record.contains("Answer 3.") && !record.contains("Answer 2."),
            "{record}"
        );
        says("All of it.")
    });
    let (report, _) = world.compact(&[echo], Duration::from_secs(20));
    assert_eq!(report.summary, "All of it.");
    let context = world.context();
    assert!(context.contains("All of it.") && !context.contains(GOOD));
    assert!(context.contains("Prompt 1:"), "the user's words of every part stay: {context}");
}

#[test]
fn a_system_message_is_told_exactly_once_however_often_it_is_compacted() {
    let system =
        Event::SystemMessage(SystemMessage { content: "Be kind.".into(), ..SystemMessage::default() });
    let turn = |number: usize| [Event::user(format!("Prompt {number}")), Event::assistant("z".repeat(3_000))];
    let world = World::new(std::iter::once(system).chain((1..=5).flat_map(turn)));
    for round in 1..=2 {
        world.compact(&[StandIn::new("agent", good)], Duration::from_secs(20));
        let context = world.context();
        assert_eq!(context.matches("Be kind.").count(), 1, "round {round}: {context}");
        assert!(context.starts_with("## System message\nBe kind.\n"), "round {round}: {context}");
        block_on(world.0.store.append(world.0.session, NewTurn::verbatim((6..=9).flat_map(turn)))).unwrap();
    }
}

#[test]
fn a_preview_changes_nothing() {
    let world = World::long();
    let before = world.context();
    let agent = StandIn::new("first", good);
    let report = world.0.engine().summarise(world.0.session, &asking(&[agent]), &|| false, &mut |_| {});
    let report = report.unwrap().unwrap();
    assert!(report.summary == GOOD && report.chars_after < report.chars_before);
    assert_eq!(world.context(), before);
    assert_eq!(block_on(world.0.store.compactions(world.0.session)).unwrap(), []);
}

#[test]
fn nobody_is_asked_where_there_is_nothing_to_gain() {
    let agent = StandIn::new("agent", good);
    for events in
        [vec![], vec![Event::user("Hello")], vec![Event::user("a"), Event::assistant("b"), Event::user("c")]]
    {
        let world = World::new(events);
        assert_eq!(world.compact_by(&asking(&[agent])).unwrap(), None);
    }
    assert_eq!(agent.times_asked(), 0);
}

#[test]
fn one_compaction_at_a_time() {
    let world = World::long();
    let holder = Holder { pid: 7, since: "now".into(), ..this_process("claude") };
    let Leased::Ours(lease) = world.0.spools.lease_compaction(world.0.session, &holder).unwrap() else {
        panic!()
    };
    let busy = world.compact_by(&asking(&[]));
    assert!(
        matches!(&busy, Err(CompactionError::Busy { holder: Some(found), .. }) if *found == holder),
        "{busy:?}"
    );
    assert_eq!(busy.unwrap_err().to_string(), "S1 is being compacted by process 7 since now");
    drop(lease);
    assert!(world.compact_by(&asking(&[])).unwrap().is_some());
}

#[test]
fn whoever_does_not_want_to_wait_stops_it() {
    let world = World::long();
    let before = world.context();
    let agent = StandIn::script("slow", "sleep 1000");
    let result = world.0.engine().compact(world.0.session, &asking(&[agent]), &|| true, &mut |_| {});
    assert!(matches!(result, Err(CompactionError::Cancelled)));
    assert_eq!((world.context(), world.0.spool_files()), (before, vec![]));
}

/// Any history: prompts, texts, calls and results in any order, with ids that are used again, and turns that end or not.
fn history() -> impl Strategy<Value = Vec<Event>> {
    let text = || (0..1_500_usize).prop_map(|length| "word ".repeat(length / 5));
    let id = || (0..4_u8).prop_map(|id| id.to_string());
    let event = prop_oneof![
        3 => text().prop_map(Event::user),
        3 => text().prop_map(Event::assistant),
        4 => id().prop_map(|tool_use_id| Event::ToolCall(ToolCall {
            tool_use_id,
            tool_name: "Bash".into(),
            input: Json::empty_object(),
            ..ToolCall::default()
        })),
        4 => (id(), text()).prop_map(|(tool_use_id, content)| {
            Event::ToolResult(ToolResult { tool_use_id, content, ..ToolResult::default() })
        }),
        2 => Just(Event::Complete(Complete { success: true, ..Complete::default() })),
    ];
    vec(event, 0..40)
}

/// Says whether a result after the cut answers a call before it.
fn parts_a_pair(events: &[Event], cut: usize) -> bool {
    let mut newest = std::collections::HashMap::new();
    events.iter().enumerate().any(|(index, event)| match event {
        Event::ToolCall(call) => {
            newest.insert(call.tool_use_id.as_str(), index);
            false
        }
        Event::ToolResult(result) if index >= cut => {
            newest.get(result.tool_use_id.as_str()).is_some_and(|call| *call < cut)
        }
        _ => false,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(thorough(300, 3_000)))]

    #[test]
    fn a_compaction_makes_the_context_smaller_and_can_be_undone(
        events in history(),
        threshold in 200..20_000_u64,
        keep in prop_oneof![3 => Just(Keep::Usual), 1 => (0..5_usize).prop_map(Keep::Prompts)],
    ) {
        let world = World::new(events.clone());
        let (before, stored) = (world.context(), world.events());
        let options = CompactionOptions { threshold: Threshold::Chars(threshold), keep, ..asking(&[]) };
        let report = world.compact_by(&options).unwrap();
        prop_assert_eq!(world.events(), stored);
        let after = world.context();
        let compactions = block_on(world.0.store.compactions(world.0.session)).unwrap();
        let Some(report) = report else {
            prop_assert_eq!((after, compactions.len()), (before, 0));
            return Ok(());
        };
        prop_assert!(after.chars().count() < before.chars().count());
        prop_assert!(!parts_a_pair(&events, usize::try_from(report.boundary.after_seq.0).unwrap()));
        prop_assert!(block_on(world.0.store.remove_compaction(world.0.session, report.boundary.after_seq)).unwrap());
        prop_assert_eq!(world.context(), before, "undone, byte for byte");
        // However the session goes on, what was told is how the next context begins.
        block_on(world.0.store.add_compaction(world.0.session, &Compaction::new(report.boundary.after_seq, &report.summary))).unwrap();
        block_on(world.0.store.append(world.0.session, NewTurn::verbatim([Event::user("more")]))).unwrap();
        prop_assert!(world.context().starts_with(&after));
    }
}
