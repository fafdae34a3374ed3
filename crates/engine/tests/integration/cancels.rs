//! Cancels by another process, at every moment: what is confirmed is heeded.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use azureal_core::event::Outcome;
use azureal_core::{Event, NewSession, SessionId};
use azureal_engine::{
    CancelResult, FoundSpool, SpooledRun, SpooledTurn, Spools, TurnError, TurnEvent, TurnOptions,
    cancel_running,
};
use azureal_testkit::{thorough, until};
use futures_executor::block_on;

use crate::auto_compact::{Asked, StandIn, World, done, floods, says};
use crate::counting_store::CountingStore;
use crate::harness::{Project, Script, drive, processes};

/// Cancels as another process does, which knows no more than what it finds.
fn cancel(spools: &Spools, session: SessionId) -> CancelResult {
    cancel_running(spools, session, None).unwrap()
}

#[test]
fn a_cancel_while_the_agent_is_stopped_for_a_compaction_ends_the_turn() {
    let world = World::of_turns(1);
    // It takes its time to stop.
    let agent = StandIn::new("ann", |asked| match asked {
        Asked::Prompt => {
            format!("trap 'touch stopping; sleep 0.5; exit 130' INT\n{}sleep 1000 & wait", floods())
        }
        Asked::Summary | Asked::GoOn => says("All is done.") + &done(),
    });
    let (spools, session, stopping) = (world.0.spools.clone(), world.0.session, world.0.path("stopping"));
    let canceller = thread::spawn(move || {
        until("the agent is being stopped", || stopping.exists().then_some(()));
        cancel(&spools, session)
    });
    let finished = world.0.submit("Do it all", World::options(agent, &[])).result().unwrap();
    assert!(matches!(canceller.join().unwrap(), CancelResult::Cancelled(_)));
    assert_eq!(finished.complete.outcome, Some(Outcome::Cancelled));
    assert_eq!(agent.asked(), [Asked::Prompt], "no summary is asked for, and the agent is not started again");
}

#[test]
fn a_cancel_that_was_looked_up_before_the_agent_was_started_stops_it() {
    let project = Project::in_memory();
    let options = TurnOptions { timeout: Some(Duration::from_secs(60)), ..Script::options("sleep 1000") };
    let (spools, session) = (project.spools.clone(), project.session);
    let finished = drive(project.submit("Go", options), |event, _| {
        if let TurnEvent::Began(began) = event {
            let (turn, _) = spools.turn_of(&began.run).unwrap();
            // As it was found a moment before.
            let known = SpooledRun { turn, process: None, is_orphan: false };
            let result = cancel_running(&spools, session, Some(known)).unwrap();
            assert!(matches!(result, CancelResult::Cancelled(_)), "{result:?}");
        }
    });
    assert_eq!(finished.unwrap().complete.outcome, Some(Outcome::Cancelled));
}

#[test]
fn a_store_that_is_away_when_the_agent_names_its_run_stops_no_cancel() {
    let store = Arc::new(CountingStore::with_gate("note_run"));
    let project = Project::in_temporary(tempfile::tempdir().unwrap(), Arc::clone(&store) as _);
    let init =
        r#"printf '%s\n' '{"Init":{"cwd":"/","model":"m","agent":"script","agent_session":"uuid-1"}}'"#;
    let away = store.gate.lock().unwrap();
    let mut handle = project.submit("Go", Script::options(format!("{init}; sleep 1000")));
    let began = loop {
        match handle.next_event() {
            Some(TurnEvent::Began(began)) => break began,
            Some(_) => {}
            None => panic!("it did not begin"),
        }
    };
    until("the store is asked", || store.has_been_called("note_run").then_some(()));
    handle.cancel();
    until("the agent has ended", || processes(&began.run).is_empty().then_some(()));
    drop(away);
    assert_eq!(handle.result().unwrap().complete.outcome, Some(Outcome::Cancelled));
    assert_eq!(block_on(project.store.noted_runs()).unwrap(), [], "the note does not come after the turn");
}

/// Leaves a turn of another session, which has ended and is not stored.
fn leave_a_turn_of_another_session(project: &Project, run: &str) {
    let other = block_on(project.store.create(NewSession::default())).unwrap();
    let turn = SpooledTurn { session: other.number(), ..project.spooled(run) };
    let spool = project.spools.begin(turn).unwrap();
    let line = Event::assistant("before").to_json() + "\n";
    std::io::Write::write_all(&mut spool.output().unwrap(), line.repeat(2_000).as_bytes()).unwrap();
    drop(spool);
    // A process that another round is starting has the lock of the header too, until its program runs.
    until("it has no owner", || {
        let found = project.spools.find().unwrap();
        found.iter().any(|found| matches!(found, FoundSpool::Orphan(_))).then_some(())
    });
}

/// About how many milliseconds a turn takes without a cancel, of each kind.
const LASTS: [u64; 4] = [80, 200, 300, 120];

/// Returns a turn of each kind, one after the other.
fn turn_of_round(round: u64) -> (World, &'static StandIn) {
    let quick = |asked| match asked {
        Asked::Summary => "sleep 0.02\n".to_owned() + &says("They met.") + &done(),
        Asked::Prompt | Asked::GoOn => says("one") + "sleep 0.03\n" + &says("two") + &done(),
    };
    match round % 4 {
        0 => (World::of_turns(1), StandIn::new("ann", quick)),
        // Compacted before the turn.
        1 => (World::of_turns(6), StandIn::new("ann", quick)),
        // Compacted in mid-turn.
        2 => {
            let floods = |asked| match asked {
                Asked::Prompt => floods() + "sleep 1000",
                Asked::Summary | Asked::GoOn => says("They met.") + &done(),
            };
            (World::of_turns(1), StandIn::new("ann", floods))
        }
        // A turn of another session is stored first.
        _ => {
            let world = World::of_turns(1);
            leave_a_turn_of_another_session(&world.0, &format!("other-{}-{round}", std::process::id()));
            (world, StandIn::new("ann", quick))
        }
    }
}

/// Cancels a turn after this time; returns whether the cancel was confirmed.
fn cancel_after(moment: Duration, round: u64) -> bool {
    let (world, agent) = turn_of_round(round);
    let (spools, session) = (world.0.spools.clone(), world.0.session);
    let canceller = thread::spawn(move || {
        thread::sleep(moment);
        cancel(&spools, session)
    });
    let result = world.0.submit("Do it all", World::options(agent, &[])).result();
    let what = format!("round {round}, cancelled after {moment:?}: {result:?}, {:?}", agent.asked());
    let outcome = result.unwrap().complete.outcome;
    let result = canceller.join().unwrap();
    assert_eq!(world.0.outcomes().last(), outcome.as_ref(), "{what}");
    assert!(world.0.spools.find().unwrap().is_empty(), "{what}");
    match result {
        CancelResult::Cancelled(run) => {
            assert_eq!(processes(&run.turn.run), [], "{what}");
            assert_eq!(outcome, Some(Outcome::Cancelled), "{what}");
            true
        }
        // Before the turn had its lease, or after it had ended.
        CancelResult::NotRunning => {
            assert_eq!(outcome, Some(Outcome::Done), "{what}");
            false
        }
        CancelResult::Storing => panic!("{what}"),
    }
}

#[test]
fn a_confirmed_cancel_at_any_moment_ends_the_turn_as_cancelled() {
    const WORKERS: u64 = 4;
    let rounds = thorough(80, 10_000_u64);
    // Most of a round is spent waiting.
    let confirmed = thread::scope(|scope| {
        let work = |worker: u64| {
            let mut random = 0x2545_F491_4F6C_DD1D_u64 ^ worker;
            let is_confirmed = |round: &u64| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let lasts = LASTS.get(*round as usize % LASTS.len()).copied().unwrap_or(1);
                cancel_after(Duration::from_micros(random % (lasts * 1_500)), *round)
            };
            (0..rounds).filter(|round| round / 4 % WORKERS == worker).filter(is_confirmed).count()
        };
        let workers: Vec<_> = (0..WORKERS).map(|worker| scope.spawn(move || work(worker))).collect();
        workers.into_iter().map(|worker| worker.join().unwrap() as u64).sum::<u64>()
    });
    assert!(confirmed > 0 && confirmed < rounds, "{confirmed} of {rounds} confirmed");
}

#[test]
fn a_cancel_while_turns_of_other_sessions_are_stored_is_heard_between_two() {
    let store = Arc::new(CountingStore::with_gate("append"));
    let project = Project::in_temporary(tempfile::tempdir().unwrap(), Arc::clone(&store) as _);
    for number in 0..2 {
        leave_a_turn_of_another_session(&project, &format!("stored-{}-{number}", std::process::id()));
    }
    let away = store.gate.lock().unwrap();
    let handle = project.submit("Go", Script::options("touch started"));
    until("the first one is being stored", || store.has_been_called("append").then_some(()));
    handle.cancel();
    drop(away);
    let result = handle.result();
    assert!(matches!(result, Err(TurnError::Stopped { .. })), "{result:?}");
    assert!(!project.path("started").exists() && project.events().is_empty());
    assert_eq!(project.spools.find().unwrap().len(), 1, "the other one is left to the next command");
}
