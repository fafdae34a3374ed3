//! Sessions that become too long by themselves: compacted before a turn, and in the middle of one.

use std::sync::Mutex;
use std::time::Duration;

use azureal_agents::offline::Offline;
use azureal_core::agent::{
    Agent, AgentCommand, AgentError, AgentOutput, AgentParser, AgentRequest, Permission, Program,
};
use azureal_core::event::{Complete, Outcome, SystemMessage};
use azureal_core::{
    Compaction, Event, Keep, Role, Seq, Threshold, read_context, read_context_for, wrap_context,
};
use azureal_engine::{CompactionOptions, FinishedTurn, Summariser, TurnControls, TurnEvent, TurnOptions};
use futures_executor::block_on;

use crate::harness::{Project, drive, leak};

/// What the agent is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Prompt,
    Summary,
    GoOn,
}

/// What a program does when it is asked for something.
pub(crate) type Script = fn(Asked) -> String;

/// An agent whose program is a script, chosen by what it is asked for.
pub(crate) struct StandIn {
    name: &'static str,
    script: Script,
    requests: Mutex<Vec<(Asked, String)>>,
}

impl StandIn {
    pub(crate) fn new(name: &'static str, script: Script) -> &'static Self {
        leak(Self { name, script, requests: Mutex::default() })
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.requests.lock().unwrap().iter().map(|(asked, _)| *asked).collect()
    }

    fn request(&self, index: usize) -> String {
        self.requests.lock().unwrap()[index].1.clone()
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
        let asked = match turn.permission {
            Some(Permission::Answer) => Asked::Summary,
            _ if turn.frame.prompt.starts_with("Go on with the work") => Asked::GoOn,
            _ => Asked::Prompt,
        };
        let text = turn.frame.clone().into_text();
        self.requests.lock().unwrap().push((asked, text.clone()));
        Ok(AgentCommand {
            args: vec!["-c".into(), (self.script)(asked)],
            stdin: text.into_bytes(),
            ..AgentCommand::default()
        })
    }
    fn parser(&self) -> Box<dyn AgentParser> {
        Offline.parser()
    }
}

fn prints(event: &Event) -> String {
    format!("printf '%s\\n' '{}'\n", event.to_json())
}

pub(crate) fn says(text: &str) -> String {
    prints(&Event::assistant(text))
}

pub(crate) fn done() -> String {
    prints(&Event::Complete(Complete { success: true, ..Complete::default() }))
}

/// Says so much that the session becomes too long, in pieces, with a tool at work in between.
pub(crate) fn floods() -> String {
    let tool = r#"printf '%s\n' '{"ToolCall":{"tool_use_id":"t","tool_name":"Bash","input":{"command":"ls"}}}' '{"ToolResult":{"tool_use_id":"t","tool_name":"Bash","content":"x","is_error":false}}'
"#;
    (1..=30)
        .map(|number| says(&format!("Step {number}: {}", "looked at it from all sides, ".repeat(20))) + tool)
        .collect()
}

const SUMMARY: &str = "The login was fixed and the tests pass.";

/// Floods and then works without end, until it is stopped; goes on to the end when it is told to.
fn floods_and_goes_on(asked: Asked) -> String {
    match asked {
        Asked::Prompt => floods() + "sleep 1000",
        Asked::Summary => says(SUMMARY) + &done(),
        Asked::GoOn => says("All is done.") + &done(),
    }
}

pub(crate) struct World(pub(crate) Project);

/// What came of a turn.
struct Ran {
    finished: FinishedTurn,
    told: Vec<String>,
    /// The events that were reported.
    reported: Vec<Event>,
}

impl World {
    fn new(events: impl IntoIterator<Item = Event>) -> Self {
        let project = Project::in_memory();
        project.append(events);
        Self(project)
    }

    /// A session of so many turns of about three thousand characters.
    pub(crate) fn of_turns(count: usize) -> Self {
        let turn = |number: usize| {
            [
                Event::user(format!("Prompt {number}: never touch the tests.")),
                Event::assistant(format!(
                    "Answer {number}. {}",
                    "I looked at it from all sides. ".repeat(100)
                )),
            ]
        };
        Self::new((1..=count).flat_map(turn))
    }

    fn run(&self, agent: &'static StandIn, others: &[&'static StandIn], prompt: &str) -> Ran {
        self.run_while(agent, others, prompt, |_| {})
    }

    /// Returns options with a low threshold, of a turn whose agents write the summaries too.
    pub(crate) fn options(agent: &'static StandIn, others: &[&'static StandIn]) -> TurnOptions {
        let writers = std::iter::once(agent).chain(others.iter().copied());
        let summarisers = writers
            .map(|agent| Summariser { agent, program: "/bin/sh".into(), model: None, settings: None })
            .collect();
        let compaction = CompactionOptions {
            threshold: Threshold::Chars(10_000),
            keep: Keep::Usual,
            summarisers,
            timeout: Duration::from_secs(2),
        };
        TurnOptions {
            timeout: Some(Duration::from_secs(60)),
            compaction: Some(compaction),
            ..TurnOptions::new(agent, "/bin/sh")
        }
    }

    fn run_while(
        &self,
        agent: &'static StandIn,
        others: &[&'static StandIn],
        prompt: &str,
        mut at_summary: impl FnMut(&TurnControls),
    ) -> Ran {
        let options = Self::options(agent, others);
        let (mut told, mut reported) = (Vec::new(), Vec::new());
        let finished = drive(self.0.submit(prompt, options), |event, controls| match event {
            TurnEvent::Notice(text) => told.push(text),
            TurnEvent::Summarising { .. } => at_summary(controls),
            TurnEvent::Output(output) => {
                if let AgentOutput::Event(event) = *output {
                    reported.push(event);
                }
            }
            _ => {}
        });
        Ran { finished: finished.unwrap(), told, reported }
    }

    /// The kinds of the events without the tools, and what comes again but once.
    fn kinds(&self) -> Vec<String> {
        let mut kinds: Vec<String> = self.0.events().iter().map(|event| event.kind().to_owned()).collect();
        kinds.retain(|kind| !kind.starts_with("Tool"));
        kinds.dedup();
        kinds
    }
}

#[test]
fn a_session_that_is_too_long_is_compacted_before_its_next_turn() {
    let world = World::of_turns(6);
    let agent = StandIn::new("ann", |asked| match asked {
        Asked::Summary => says(SUMMARY) + &done(),
        _ => says("Short.") + &done(),
    });
    let before = world.0.events();
    let ran = world.run(agent, &[], "And now?");
    assert_eq!(agent.asked(), [Asked::Summary, Asked::Prompt]);
    let sent = agent.request(1);
    assert!(sent.contains(SUMMARY) && sent.contains("Prompt 1: never touch the tests."), "{sent}");
    assert!(!sent.contains("Answer 1."), "{sent}");
    assert!(sent.contains("Answer 6."), "{sent}");
    assert_eq!(ran.told.len(), 1, "{:?}", ran.told);
    assert!(
        ran.told[0].starts_with("compacted S1: ") && ran.told[0].ends_with("summary by ann"),
        "{:?}",
        ran.told
    );
    assert_eq!(world.0.events()[..before.len()], before, "what happened stays as it is");

    // It fits now, so that the next turn asks nobody for a summary.
    world.run(agent, &[], "And then?");
    assert_eq!(agent.asked()[2..], [Asked::Prompt]);
}

#[test]
fn ten_turns_after_a_compaction_cause_no_second_one_before_the_threshold_is_reached_again() {
    const THRESHOLD: u64 = 20_000;
    fn works(_: Asked) -> String {
        let tools: String = (0..4)
            .map(|number| {
                let call = format!(
                    r#"{{"ToolCall":{{"tool_use_id":"{number}","tool_name":"Edit","input":{{"file_path":"src/part{number}.rs"}}}}}}"#
                );
                let result = format!(
                    r#"{{"ToolResult":{{"tool_use_id":"{number}","tool_name":"Edit","content":"ok","is_error":false}}}}"#
                );
                format!("printf '%s\\n' '{call}' '{result}'\n")
            })
            .collect();
        tools + &says(&"I chose the shorter way and looked at the rest. ".repeat(9)) + &done()
    }
    let world = World::of_turns(7);
    let agent = StandIn::new("ann", works);
    let options = || TurnOptions {
        timeout: Some(Duration::from_secs(60)),
        compaction: Some(CompactionOptions {
            threshold: Threshold::Chars(THRESHOLD),
            keep: Keep::Usual,
            // The digest.
            summarisers: Vec::new(),
            timeout: Duration::from_secs(2),
        }),
        ..TurnOptions::new(agent, "/bin/sh")
    };
    let record = || block_on(world.0.store.get(world.0.session)).unwrap();
    let run = |number: usize| {
        let before = record().chars_since_compaction();
        let compactions = world.0.compactions();
        let prompt = format!("Prompt {number}: never touch the tests.");
        drive(world.0.submit(&prompt, options()), |_, _| {}).unwrap();
        (before, world.0.compactions() - compactions)
    };
    let (before, compacted) = run(0);
    assert!(before > THRESHOLD && compacted == 1, "{before} characters, {compacted} compactions");
    let opening = record().opening;
    assert!(opening <= THRESHOLD / 4 + 300, "the summary and what is beside it have {opening} characters");
    for number in 1..=10 {
        let (before, compacted) = run(number);
        assert_eq!(compacted, 0, "turn {number}, {before} characters since the compaction");
        // What is counted is what is sent.
        let context = read_context_for(&*world.0.store, world.0.session, Threshold::Chars(THRESHOLD));
        let chars = wrap_context(&block_on(context).unwrap()).chars().count() as u64;
        assert_eq!(record().context_chars(), chars);
    }
    let turns_until_the_next = (11..60).find(|number| {
        let (before, compacted) = run(*number);
        assert_eq!(compacted > 0, before > THRESHOLD, "turn {number}, {before} characters");
        compacted > 0
    });
    assert!(turns_until_the_next.is_some(), "the threshold is reached again");
    assert!(record().opening <= THRESHOLD / 4 + 300, "{}", record().opening);
    // A size that is not that of the opening, as after a change of the threshold, is corrected by the next turn.
    let (store, session, opening) = (&world.0.store, world.0.session, record().opening);
    let newest = block_on(store.compactions(session)).unwrap().pop().unwrap();
    let stale = Compaction { opening_chars: Some(opening + 1_000), ..newest };
    block_on(store.add_compaction(session, &stale)).unwrap();
    run(60);
    assert_eq!(record().opening, opening);
}

#[test]
fn a_session_that_becomes_too_long_in_mid_turn_is_compacted_and_goes_on_by_itself() {
    let world = World::of_turns(1);
    let agent = StandIn::new("ann", floods_and_goes_on);
    let ran = world.run(agent, &[], "Do it all, and keep the names");
    assert_eq!(agent.asked(), [Asked::Prompt, Asked::Summary, Asked::GoOn]);
    assert_eq!(ran.finished.complete.outcome, Some(Outcome::Done));
    assert_eq!(
        world.kinds(),
        [
            "UserMessage",
            "AssistantText",
            "UserMessage",
            "AssistantText",
            "Init",
            "Compacting",
            "Complete",
            "Compacted",
            "AssistantText",
            "Init",
            "Complete"
        ]
    );
    assert_eq!(world.0.outcomes(), [Outcome::Interrupted, Outcome::Done]);
    // Of both parts, what is stored is reported, without how each began and ended.
    let is_reported = |event: &Event| !matches!(event.kind(), "UserMessage" | "Compacted" | "Complete");
    let stored: Vec<Event> = world.0.events().into_iter().skip(2).filter(is_reported).collect();
    assert_eq!(ran.reported, stored);
    assert_eq!(ran.finished.first, Some(Seq(3)), "the first part belongs to the turn");
    assert_eq!(ran.finished.last, Some(world.0.last()));
    let record = block_on(world.0.store.get(world.0.session)).unwrap();
    assert_eq!(ran.finished.context_chars, record.context_chars());

    let sent = agent.request(2);
    assert!(sent.contains(SUMMARY), "{sent}");
    assert!(
        sent.contains("Do it all, and keep the names"),
        "the prompt of the turn is carried along: {sent}"
    );
    let history = world.0.history();
    let said =
        history.iter().filter(|message| message.role == Role::User).map(|message| format!("{message:?}"));
    assert!(!said.collect::<String>().contains("Go on with the work"), "nobody said that");
    let context = block_on(read_context(&*world.0.store, world.0.session)).unwrap();
    assert!(!context.contains("Go on with the work") && context.contains("All is done."), "{context}");
    assert!(!context.contains("[This turn was interrupted"), "it continued: {context}");
    assert_eq!(ran.told.len(), 1, "{:?}", ran.told);
}

#[test]
fn results_of_one_long_line_leave_a_context_that_an_agent_takes() {
    /// Prints a call and its result, one line of a megabyte; then what takes the last room.
    fn script(asked: Asked) -> String {
        let result = r#"for i in 1 2 3; do
            echo '{"ToolCall":{"tool_use_id":"t","tool_name":"Read","input":{"file_path":"/min.js"}}}'
            printf '{"ToolResult":{"tool_use_id":"t","tool_name":"Read","is_error":false,"content":"'
            head -c 1000000 /dev/zero | tr '\0' x
            echo '"}}'
        done
        "#;
        match asked {
            Asked::Prompt => result.to_owned() + &floods() + result + "sleep 1000",
            other => floods_and_goes_on(other),
        }
    }
    let world = World::of_turns(1);
    let agent = StandIn::new("ann", script);
    let ran = world.run(agent, &[], "Read it");
    assert_eq!(ran.finished.complete.outcome, Some(Outcome::Done));
    assert_eq!(agent.asked(), [Asked::Prompt, Asked::Summary, Asked::GoOn]);
    let (summary, go_on) = (agent.request(1).chars().count(), agent.request(2).chars().count());
    assert!(summary < 100_000, "{summary} characters to be summarised");
    assert!(go_on < 20_000, "{go_on} characters, with a threshold of 10,000");
}

#[test]
fn an_agent_that_is_at_its_end_is_not_stopped_however_much_it_says() {
    let world = World::of_turns(1);
    let agent = StandIn::new("ann", |_| says(&"A long answer. ".repeat(2_000)) + &done());
    let ran = world.run(agent, &[], "Tell me all");
    assert_eq!((agent.asked(), ran.finished.complete.outcome), (vec![Asked::Prompt], Some(Outcome::Done)));
    assert_eq!(world.0.compactions(), 0);
    assert!(!world.kinds().contains(&"Compacting".to_owned()));
}

#[test]
fn a_turn_is_compacted_once_however_long_it_becomes() {
    let world = World::of_turns(1);
    let agent = StandIn::new("ann", |asked| match asked {
        Asked::Summary => says(SUMMARY) + &done(),
        Asked::Prompt => floods() + "sleep 1000",
        Asked::GoOn => floods() + &floods() + &done(),
    });
    let ran = world.run(agent, &[], "Do it");
    assert_eq!(agent.asked(), [Asked::Prompt, Asked::Summary, Asked::GoOn]);
    assert_eq!(ran.finished.complete.outcome, Some(Outcome::Done));
    assert_eq!(world.0.compactions(), 1);
}

#[test]
fn whatever_the_summariser_does_the_turn_still_runs() {
    let scripts: [(&str, Script); 6] = [
        ("nothing", |_| done()),
        ("no words of its own", |_| "cat".to_owned()),
        ("more than there was", |_| says(&"more and more ".repeat(5_000)) + &done()),
        ("garbage", |_| "head -c 100000 /dev/urandom".to_owned()),
        ("an error", |_| "for line in 1 2 3 4 5 6; do echo no $line >&2; done; exit 3".to_owned()),
        ("no end", |_| "sleep 1000".to_owned()),
    ];
    for (what, script) in scripts {
        let world = World::of_turns(6);
        let agent = StandIn::new("ann", |asked| match asked {
            Asked::Summary => "exit 1".to_owned(),
            _ => says("Short.") + &done(),
        });
        let bad = StandIn::new("bob", script);
        let ran = world.run(agent, &[bad], "And now?");
        assert_eq!(ran.finished.complete.outcome, Some(Outcome::Done), "{what}");
        assert_eq!(
            (agent.asked(), bad.asked()),
            (vec![Asked::Summary, Asked::Prompt], vec![Asked::Summary]),
            "{what}"
        );
        assert_eq!(ran.told.len(), 1, "{what}: {:?}", ran.told);
        let line = &ran.told[0];
        assert_eq!(line.lines().count(), 1, "{what}: {line}");
        assert!(line.contains("azureal's own digest") && line.contains("ann wrote none"), "{what}: {line}");
        assert_eq!(world.0.compactions(), 1, "{what}");
    }
}

#[test]
fn what_cannot_be_made_smaller_is_told_as_it_is_and_nobody_is_asked() {
    let world = World::new([Event::user("word ".repeat(4_000)), Event::assistant("b")]);
    let agent = StandIn::new("ann", |asked| match asked {
        Asked::Prompt => floods() + &done(),
        _ => panic!("nobody is to be asked for that"),
    });
    let ran = world.run(agent, &[], "c");
    assert_eq!((agent.asked(), ran.finished.complete.outcome), (vec![Asked::Prompt], Some(Outcome::Done)));
    assert_eq!(ran.told.len(), 1);
    assert!(ran.told[0].ends_with("a summary would gain nothing"), "{:?}", ran.told);
}

#[test]
fn a_long_system_message_is_no_reason_to_compact_and_no_part_of_what_is_summarised() {
    let system = SystemMessage { content: "rule ".repeat(4_000), ..SystemMessage::default() };
    let world = World::new([Event::SystemMessage(system)]);
    let agent = StandIn::new("ann", |asked| match asked {
        Asked::Summary => says(SUMMARY) + &done(),
        _ => says(&"I looked at it from all sides. ".repeat(60)) + &done(),
    });
    let ran = world.run(agent, &[], "a");
    assert_eq!((ran.told, world.0.compactions()), (vec![], 0));
    for number in 1..=9 {
        world.run(agent, &[], &format!("Prompt {number}"));
    }
    let requests = agent.requests.lock().unwrap();
    let summaries: Vec<_> = requests.iter().filter(|(asked, _)| *asked == Asked::Summary).collect();
    assert!(!summaries.is_empty());
    assert!(summaries.iter().all(|(_, request)| !request.contains("rule rule")), "{summaries:?}");
}

#[test]
fn a_cancel_while_the_summary_is_written_ends_the_turn() {
    let world = World::of_turns(6);
    let agent = StandIn::new("ann", |_| "sleep 1000".to_owned());
    let ran = world.run_while(agent, &[], "And now?", TurnControls::cancel);
    assert_eq!(ran.finished.complete.outcome, Some(Outcome::Cancelled));
    assert_eq!((world.0.compactions(), agent.asked()), (0, vec![Asked::Summary]));
}

#[test]
fn a_system_message_is_told_exactly_once_however_often_its_session_is_compacted() {
    let system = SystemMessage { content: "Never touch the tests.".into(), ..SystemMessage::default() };
    let world = World::new([Event::SystemMessage(system)]);
    let agent = StandIn::new("ann", |asked| match asked {
        Asked::Summary => says(SUMMARY) + &done(),
        _ => says(&"I looked at it from all sides. ".repeat(120)) + &done(),
    });
    for number in 1..=10 {
        world.run(agent, &[], &format!("Prompt {number}"));
    }
    assert!(world.0.compactions() >= 2, "{}", world.0.compactions());
    let requests = agent.requests.lock().unwrap();
    for (asked, request) in requests.iter().filter(|(asked, _)| *asked == Asked::Prompt) {
        assert_eq!(request.matches("Never touch the tests.").count(), 1, "{asked:?}: {request}");
    }
}
