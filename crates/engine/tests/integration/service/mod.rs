//! The turn service: several turns at once, waiting, staging, following, and a caller who does not read.

mod following;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use azureal_core::agent::{Agent, AgentOutput};
use azureal_core::event::Outcome;
use azureal_core::{ContextCommand, Event, ListQuery, Message, NewSession, OnFailure, Seq, SessionId};
use azureal_engine::{
    Briefing, Busy, BusyPlace, Engine, EngineOptions, Leased, Recovered, SessionTarget, TurnError, TurnEvent,
    TurnHandle, TurnOptions, TurnRequest, this_process,
};
use futures_executor::block_on;
use futures_util::StreamExt;

use azureal_testkit::until;

use crate::harness::{
    CancelOnPanic, DONE, Project, Script, drive, leak, open_store, processes, says, waits_for,
};

/// Takes events until one is this, and returns all of them.
#[track_caller]
fn take_until(handle: &mut TurnHandle, mut is_it: impl FnMut(&TurnEvent) -> bool) -> Vec<TurnEvent> {
    let mut taken = Vec::new();
    loop {
        let Some(event) = handle.next_event() else {
            let names: Vec<String> = taken.iter().map(brief).collect();
            panic!("the turn has ended: {names:?}")
        };
        let found = is_it(&event);
        taken.push(event);
        if found {
            return taken;
        }
    }
}

/// Returns the beginning of what there is to say of an event: some are large.
fn brief(event: &TurnEvent) -> String {
    format!("{event:?}").chars().take(200).collect()
}

fn is_text(event: &TurnEvent, text: &str) -> bool {
    matches!(event, TurnEvent::Output(output) if **output == AgentOutput::Event(Event::assistant(text)))
}

/// Returns the process of the agent, once it runs.
#[track_caller]
fn began(handle: &mut TurnHandle) -> u32 {
    let mut pid = None;
    take_until(handle, |event| {
        if let TurnEvent::Began(began) = event {
            pid = Some(began.process.pid);
        }
        pid.is_some()
    });
    pid.unwrap()
}

/// Returns the events among the outputs.
fn reported(events: &[TurnEvent]) -> Vec<Event> {
    let event = |event: &TurnEvent| match event {
        TurnEvent::Output(output) => match &**output {
            AgentOutput::Event(event) => Some(event.clone()),
            _ => None,
        },
        _ => None,
    };
    events.iter().filter_map(event).collect()
}

/// Returns the events of the turns after this one, as a caller is told of them: without the prompt, which is the caller's, and
/// the end, which is in the result.
fn stored_after(project: &Project, after: Seq) -> Vec<Event> {
    let stored = project.stored().into_iter().filter(|stored| stored.seq > after);
    let is_told = |event: &Event| !matches!(event, Event::UserMessage(_) | Event::Complete(_));
    stored.map(|stored| stored.event().unwrap()).filter(is_told).collect()
}

fn sessions(project: &Project) -> Vec<SessionId> {
    let records = block_on(project.store.list(&ListQuery::default())).unwrap();
    records.into_iter().map(|record| record.id).collect()
}

fn new_session(name: &str) -> SessionTarget {
    SessionTarget::New(NewSession { name: Some(name.into()), ..NewSession::default() })
}

fn failing(command: &str) -> Briefing {
    let command =
        ContextCommand { on_failure: OnFailure::Fail, dynamic: true, ..ContextCommand::new("must", command) };
    Briefing { commands: vec![command], ..Briefing::default() }
}

#[test]
fn an_engine_is_shared_between_threads() {
    fn is_shared<T: Clone + Send + Sync + 'static>() {}
    fn is_sent<T: Send + 'static>() {}
    is_shared::<Engine>();
    is_shared::<EngineOptions>();
    is_sent::<TurnHandle>();
    is_sent::<TurnRequest>();
}

#[test]
fn two_turns_run_at_once_each_in_its_slot_and_one_is_cancelled() {
    let project = Project::new();
    let other = block_on(project.store.create(NewSession::default())).unwrap();
    let engine = project.engine();
    let meets = |own: &str, theirs: &str, then: &str| {
        Script::options(format!("touch {own}; {}; {}; {then}", waits_for(theirs), says("met")))
    };
    let submit = |session, options| engine.submit(TurnRequest::new(session, "go", options));
    let mut first = submit(project.session, meets("a", "b", "sleep 1000"));
    let _cancel = CancelOnPanic(first.controls());
    let first_pid = began(&mut first);
    let slots = engine.slots();
    assert_eq!(slots.active(), Some(first_pid));
    assert_eq!(
        slots.get(first_pid).map(|slot| (slot.session, slot.agent)),
        Some((project.session, "script"))
    );

    let mut second = submit(other, meets("b", "a", &format!("{}; {DONE}", waits_for("gate"))));
    let _cancel = CancelOnPanic(second.controls());
    let second_pid = began(&mut second);
    for handle in [&mut first, &mut second] {
        take_until(handle, |event| is_text(event, "met"));
    }
    let slots = engine.slots();
    let taken: Vec<_> = slots.iter().map(|(pid, slot)| (pid, slot.session)).collect();
    assert_eq!(taken, [(first_pid, project.session), (second_pid, other)]);
    assert_eq!(slots.active(), Some(second_pid), "the turn that began last");
    assert!(engine.activate(first_pid));
    assert!(!engine.activate(0), "there is no such slot");
    assert_eq!(engine.clone().slots().active(), Some(first_pid), "clones are the same engine");

    slots.get(first_pid).unwrap().controls.cancel();
    assert_eq!(first.result().unwrap().complete.outcome, Some(Outcome::Cancelled));
    let slots = engine.slots();
    assert_eq!(slots.iter().map(|(pid, _)| pid).collect::<Vec<_>>(), [second_pid]);
    assert_eq!(slots.active(), Some(second_pid), "the last one left");

    std::fs::write(project.path("gate"), "").unwrap();
    assert_eq!(second.result().unwrap().complete.outcome, Some(Outcome::Done));
    let slots = engine.slots();
    assert_eq!((slots.iter().count(), slots.active()), (0, None));
    assert_eq!(project.outcomes(), [Outcome::Cancelled]);
    let project = Project { session: other, ..project };
    assert_eq!(project.outcomes(), [Outcome::Done]);
    assert_eq!(project.texts(), ["go", "met"]);
}

/// A turn that runs until there is a file `gate`.
fn run_until_gate(project: &Project, engine: &Engine) -> (TurnHandle, CancelOnPanic) {
    let script = format!("{}; {}; {DONE}", says("one"), waits_for("gate"));
    let mut handle = engine.submit(TurnRequest::new(project.session, "first", Script::options(script)));
    let cancel = CancelOnPanic(handle.controls());
    take_until(&mut handle, |event| is_text(event, "one"));
    (handle, cancel)
}

/// A turn that says `two` and waits for others.
fn patient(project: &Project) -> TurnRequest {
    let options = Script::options(format!("{}; {DONE}", says("two")));
    TurnRequest { waits: true, ..TurnRequest::new(project.session, "second", options) }
}

fn is_waiting(event: &TurnEvent) -> bool {
    matches!(event, TurnEvent::Waiting(_))
}

#[test]
fn a_second_turn_in_a_session_is_refused_and_told_who_holds_it() {
    let project = Project::new();
    let engine = Engine::new(EngineOptions {
        user: Some("ann".into()),
        environment: project.environment.clone(),
        ..EngineOptions::new(Arc::clone(&project.store), project.spools.clone(), &project.directory)
    });
    let (first, _cancel) = run_until_gate(&project, &engine);
    let second = engine.submit(TurnRequest { waits: false, ..patient(&project) });
    let error = second.result().unwrap_err();
    let TurnError::Busy(Busy { session, holder: Some(holder), place: BusyPlace::Here }) = &error else {
        panic!("{error:?}")
    };
    assert_eq!(*session, project.session);
    assert_eq!(
        (holder.user.as_str(), holder.pid, holder.agent.as_str()),
        ("ann", std::process::id(), "script")
    );
    std::fs::write(project.path("gate"), "").unwrap();
    first.result().unwrap();
    assert_eq!(project.texts(), ["first", "one"]);
}

#[test]
fn a_turn_that_waits_runs_after_the_other_one() {
    let project = Project::new();
    let engine = project.engine();
    let (first, _cancel) = run_until_gate(&project, &engine);
    let mut second = engine.submit(patient(&project));
    let waiting = take_until(&mut second, is_waiting);
    let [.., TurnEvent::Waiting(busy)] = &waiting[..] else { panic!("{waiting:?}") };
    assert_eq!((busy.session, busy.place), (project.session, BusyPlace::Here));
    assert_eq!(project.last(), Seq::START, "the first one is not stored yet");
    std::fs::write(project.path("gate"), "").unwrap();
    assert_eq!(second.result().unwrap().complete.outcome, Some(Outcome::Done));
    first.result().unwrap();
    assert_eq!(project.texts(), ["first", "one", "second", "two"]);
}

#[test]
fn a_turn_that_is_cancelled_while_it_waits_leaves_nothing() {
    let project = Project::new();
    let engine = project.engine();
    let (first, _cancel) = run_until_gate(&project, &engine);
    let files = project.spool_files();
    let mut second = engine.submit(patient(&project));
    take_until(&mut second, is_waiting);
    assert!(second.stage("third"));
    second.cancel();
    let error = second.result().unwrap_err();
    assert!(
        matches!(&error, TurnError::GaveUpWaiting(busy) if busy.session == project.session && busy.place == BusyPlace::Here),
        "{error:?}"
    );
    assert_eq!(project.spool_files(), files);
    std::fs::write(project.path("gate"), "").unwrap();
    first.result().unwrap();
    assert_eq!(project.texts(), ["first", "one"]);
}

#[test]
fn a_plan_is_made_again_for_a_session_that_has_changed() {
    let project = Project::new();
    let engine = project.engine();
    let (first, _cancel) = run_until_gate(&project, &engine);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let plan = {
        let seen = Arc::clone(&seen);
        move |start: &azureal_engine::TurnStart<'_>| {
            let counts = &start.record().unwrap().counts;
            seen.lock().unwrap().push((counts.events, counts.agent.clone(), start.events().unwrap().len()));
            // By what the session is now.
            let text = if counts.events == 0 { "too early" } else { "two" };
            Ok(Script::options(format!("{}; {DONE}", says(text))))
        }
    };
    let mut second = engine.submit(TurnRequest { plan: Arc::new(plan), ..patient(&project) });
    take_until(&mut second, is_waiting);
    assert_eq!(*seen.lock().unwrap(), [(0, None, 0)]);
    std::fs::write(project.path("gate"), "").unwrap();
    second.result().unwrap();
    first.result().unwrap();
    // The prompt, what it said, its start and its end.
    assert_eq!(*seen.lock().unwrap(), [(0, None, 0), (4, Some("script".to_owned()), 4)]);
    assert_eq!(project.texts(), ["first", "one", "second", "two"]);
}

#[test]
fn a_staged_prompt_is_sent_when_the_turn_before_it_is_stored() {
    let project = Project::new();
    let script = format!(
        "input=$(cat); case $input in *second) {}; {DONE};; *) {}; sleep 1000;; esac",
        says("whole"),
        says("half")
    );
    let (mut stored, mut runs) = (Vec::new(), Vec::new());
    let finished = drive(project.submit("first", Script::options(script)), |event, controls| match event {
        TurnEvent::Began(began) => runs.push((began.run, began.record.counts.events, began.continues)),
        TurnEvent::Stored(finished) => stored.push(*finished),
        event if is_text(&event, "half") => assert!(controls.stage("second")),
        _ => {}
    });
    let finished = finished.unwrap();
    assert_eq!(project.outcomes(), [Outcome::Cancelled, Outcome::Done]);
    assert_eq!(project.texts(), ["first", "half", "second", "whole"]);
    assert_eq!(finished.complete.outcome, Some(Outcome::Done));
    assert_eq!(stored.last(), Some(&finished), "the result is that of the second");
    assert_eq!(stored[0].complete.outcome, Some(Outcome::Cancelled));
    assert_eq!((stored[0].first, stored[0].last.map(Seq::next)), (Some(Seq(1)), finished.first));
    assert_eq!(finished.last, Some(project.last()));
    let [(one, 0, false), (two, seen, false)] = &runs[..] else { panic!("{runs:?}") };
    assert_eq!(Some(Seq(*seen)), stored[0].last, "the second sees the first");
    for run in [one, two] {
        assert_eq!(processes(run), []);
    }
}

#[test]
fn a_plan_that_fails_leaves_no_trace() {
    let project = Project::new();
    let before = sessions(&project);
    let targets = [
        SessionTarget::Existing(project.session),
        new_session("new"),
        SessionTarget::Named(NewSession { name: Some("named".into()), ..NewSession::default() }),
    ];
    for target in targets {
        let is_existing = target == SessionTarget::Existing(project.session);
        let request = TurnRequest {
            plan: Arc::new(|_| Err("no agent is installed".into())),
            ..TurnRequest::new(target, "hi", Script::options(""))
        };
        let mut handle = project.engine().submit(request);
        assert!(handle.next_event().is_none());
        assert_eq!(handle.session(), is_existing.then_some(project.session));
        let error = handle.result().unwrap_err();
        assert!(matches!(&error, TurnError::Plan(_)), "{error:?}");
        assert_eq!(error.to_string(), "no agent is installed");
    }
    assert_eq!(sessions(&project), before);
    assert!(!project.spools.exist(), "no lease, no spool");
    assert_eq!(project.last(), Seq::START);
}

#[test]
fn a_new_session_that_another_process_holds_is_not_deleted() {
    let project = Project::new();
    let next = SessionId::new(project.session.number() + 1).unwrap();
    let Leased::Ours(_lease) = project.spools.lease(next, &this_process("other")).unwrap() else { panic!() };
    let target = SessionTarget::New(NewSession::default());
    let request = TurnRequest::new(target, "hi", Script::options("touch asked"));
    let error = project.engine().submit(request).result().unwrap_err();
    assert!(matches!(&error, TurnError::Busy(busy) if busy.session == next), "{error:?}");
    assert_eq!(block_on(project.store.get(next)).unwrap().id, next);
}

#[test]
fn a_new_session_whose_context_cannot_be_gathered_is_never_created() {
    let project = Project::new();
    let before = sessions(&project);
    let options = TurnOptions { briefing: failing("exit 7"), ..Script::options("touch asked") };
    let engine = project.engine();
    for target in [new_session("new"), SessionTarget::New(NewSession::default())] {
        let mut handle = engine.submit(TurnRequest::new(target, "hi", options.clone()));
        while let Some(event) = handle.next_event() {
            assert!(!matches!(event, TurnEvent::Accepted(_)), "{event:?}");
        }
        assert_eq!(handle.session(), None);
        let error = handle.result().unwrap_err();
        let TurnError::NotGathered { outcome: Some(Outcome::Failed), source } = &error else {
            panic!("{error:?}")
        };
        assert_eq!(source.to_string(), "the context command `must` failed: Command exited with code 7");
    }
    assert_eq!(sessions(&project), before);
    let next = block_on(project.store.create(NewSession::default())).unwrap();
    assert_eq!(next.number(), project.session.number() + 1, "no number was used up");
    assert!(!project.path("asked").exists());
    assert_eq!(project.spool_files(), [] as [std::path::PathBuf; 0]);
}

#[test]
fn a_new_session_with_a_stored_turn_is_not_deleted_because_the_next_one_cannot_be_gathered() {
    let project = Project::new();
    // The command succeeds once.
    let options = TurnOptions {
        briefing: failing("[ ! -e ran ] && touch ran"),
        ..Script::options(format!("{}; sleep 1000", says("half")))
    };
    let request = TurnRequest::new(new_session("new"), "first", options);
    let (mut session, mut notices) = (None, Vec::new());
    let finished = drive(project.engine().submit(request), |event, controls| {
        if is_text(&event, "half") {
            assert!(controls.stage("second"));
        }
        match event {
            TurnEvent::Accepted(accepted) => session = Some(accepted.record.id),
            TurnEvent::Notice(notice) => notices.push(notice),
            _ => {}
        }
    });
    assert!(matches!(finished, Err(TurnError::NotGathered { .. })), "{finished:?}");
    assert_eq!(notices, ["not sent: second"]);
    let project = Project { session: session.unwrap(), ..project };
    assert_eq!(project.outcomes(), [Outcome::Cancelled]);
    assert_eq!(project.history(), [Message::user("first"), Message::assistant("half")]);
    assert_eq!(project.spool_files(), [] as [std::path::PathBuf; 0]);
}

#[test]
fn a_new_session_does_not_take_the_name_of_another() {
    let project = Project::new();
    let named = NewSession { name: Some("login".into()), ..NewSession::default() };
    let taken = block_on(project.store.create(named.clone())).unwrap();
    let before = sessions(&project);
    let request = TurnRequest::new(new_session("login"), "hi", Script::options("touch asked"));
    let error = project.engine().submit(request).result().unwrap_err();
    assert!(
        matches!(&error, TurnError::NameTaken { name, session } if name == "login" && *session == taken),
        "{error:?}"
    );
    assert_eq!(sessions(&project), before);
    assert!(!project.path("asked").exists() && !project.spools.exist());
    // To continue it is another request.
    let options = Script::options(format!("{}; {DONE}", says("hello")));
    let request = TurnRequest::new(SessionTarget::Named(named), "hi", options);
    assert_eq!(project.engine().submit(request).result().unwrap().session, taken);
    assert_eq!(sessions(&project).len(), before.len());
}

#[test]
fn a_turn_whose_handle_is_dropped_is_stored() {
    let project = Project::new();
    let options = Script::options(format!("{}; {DONE}", says("hello")));
    drop(project.submit("hi", options.clone()));
    until("the turn is stored", || (project.outcomes() == [Outcome::Done]).then_some(()));
    until("its lease is released", || project.spool_files().is_empty().then_some(()));
    let mut handle = project.submit("again", options);
    began(&mut handle);
    drop(handle);
    until("the turn is stored", || (project.outcomes() == [Outcome::Done; 2]).then_some(()));
    assert_eq!(project.texts(), ["hi", "hello", "again", "hello"]);
    until("its lease is released", || project.spool_files().is_empty().then_some(()));
}

/// A script that prints so many events of so many characters.
fn floods(count: usize, chars: usize) -> String {
    let line = Event::assistant(format!("& {}", "x".repeat(chars))).to_json();
    format!("seq {count} | sed 's/.*/{line}/'")
}

#[test]
fn a_caller_who_does_not_read_does_not_hold_up_the_turn_and_misses_nothing() {
    // The second is more than a reader catches up with: the rest comes from the store.
    for (count, chars) in [(2_000, 10), (2_000, 12_000)] {
        let project = Project::new();
        let mut handle = project.submit("hi", Script::options(format!("{}; {DONE}", floods(count, chars))));
        until("the turn is stored", || (project.last() > Seq::START).then_some(()));
        let events = take_until(&mut handle, |event| matches!(event, TurnEvent::Stored(_)));
        assert!(handle.next_event().is_none());
        let (live, stored) = (reported(&events), stored_after(&project, Seq::START));
        assert_eq!(stored.len(), count + 1, "and the start of the run");
        assert!(live == stored, "{chars}: {} of {}", live.len(), stored.len());
        assert_eq!(handle.result().unwrap().complete.outcome, Some(Outcome::Done));
    }
}

#[test]
fn a_handle_is_a_stream_of_the_same_events() {
    let tell = |event: &TurnEvent| match event {
        TurnEvent::Accepted(accepted) => format!("accepted {}", accepted.agent),
        TurnEvent::Began(began) => format!("began {}", began.record.id),
        TurnEvent::Output(output) => format!("{output:?}"),
        TurnEvent::Stored(finished) => format!("stored {:?}", finished.complete.outcome),
        other => panic!("{other:?}"),
    };
    let script = format!("{}; echo '{{\"delta\":\"th\"}}'; {}; {DONE}", says("one"), says("three"));
    let run = |project: &Project| {
        let options = TurnOptions { model: Some("m".into()), ..Script::options(script.clone()) };
        project.submit("hi", options)
    };
    let (blocking, streaming) = (Project::in_memory(), Project::in_memory());
    let mut told = Vec::new();
    drive(run(&blocking), |event, _| told.push(tell(&event))).unwrap();
    let streamed: Vec<String> = block_on(run(&streaming).map(|event| tell(&event)).collect());
    let same = |line: &String| line.replace(blocking.directory.to_str().unwrap(), "DIR");
    let told: Vec<_> = told.iter().map(same).collect();
    let same = |line: &String| line.replace(streaming.directory.to_str().unwrap(), "DIR");
    assert_eq!(streamed.iter().map(same).collect::<Vec<_>>(), told);
    assert_eq!(told.first().unwrap(), "accepted script");
    assert_eq!(told.last().unwrap(), "stored Some(Done)");
    assert_eq!(told.len(), 7, "two texts, a delta and the start among them: {told:?}");
}

#[test]
fn a_finished_turn_knows_the_size_of_the_context() {
    let project = Project::new();
    let usage = r#"{"Complete":{"success":true,"duration_ms":1,"cost_usd":0.0,"usage":{"input_tokens":3,"output_tokens":4,"context_tokens":77}}}"#;
    let script = format!("{}; echo '{usage}'", says("a rather long answer"));
    let briefing = Briefing { system: Some("Be brief.".into()), ..Briefing::default() };
    let options = TurnOptions { briefing, ..Script::options(script) };
    let first = project.engine().submit(TurnRequest::new(new_session("new"), "hi", options.clone()));
    let first = first.result().unwrap();
    let second = project.engine().submit(TurnRequest::new(first.session, "and now?", options));
    let second = second.result().unwrap();
    let last = project.engine().submit(TurnRequest::new(first.session, "bye", Script::options(DONE)));
    let last = last.result().unwrap();
    assert!(first.context_chars < second.context_chars && second.context_chars < last.context_chars);
    assert_eq!((first.context_tokens, last.context_tokens), (Some(77), None));
    let record = block_on(project.store.get(last.session)).unwrap();
    assert_eq!(last.context_chars, record.context_chars());
    assert_eq!(last.context_tokens, record.counts.context_tokens);
}
