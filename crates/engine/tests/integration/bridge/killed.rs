//! Turns whose azureal was killed, and their recovery.

use super::*;

/// Says which project another test wants a turn to be driven in, and by which script.
const DRIVE: [&str; 2] = ["AZUREAL_TEST_PROJECT", "AZUREAL_TEST_SCRIPT"];

#[test]
#[ignore = "is started by other tests, as the azureal that is killed"]
fn drives_a_turn_until_it_is_killed() {
    let [Ok(folder), Ok(script)] = DRIVE.map(std::env::var) else { return };
    let project = Project::open(Path::new(&folder));
    project.run(&Bridge::new(&script), "before the crash");
}

/// Starts an azureal of its own that runs a turn.
fn start_azureal(project: &Project, script: &str) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["drives_a_turn_until_it_is_killed", "--ignored", "--nocapture"])
        .env(DRIVE[0], &project.folder)
        .env(DRIVE[1], script)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Runs a turn in an azureal of its own, kills that one when the agent has said something, and returns the turn.
fn kill_azureal(
    project: &Project,
    script: &str,
    has_begun: impl Fn(&str) -> bool,
) -> (SpooledTurn, ProcessIdentity) {
    let mut azureal = start_azureal(project, script);
    let spools = project.path(".azureal/spool");
    until("the agent has begun", || {
        let output = fs::read_dir(&spools).ok()?.filter_map(|entry| {
            let path = entry.ok()?.path();
            (path.extension()? == "jsonl").then(|| fs::read_to_string(path).unwrap_or_default())
        });
        output.last().filter(|output| has_begun(output))
    });
    azureal.kill().unwrap();
    azureal.wait().unwrap();
    until("the turn is an orphan", || match &project.recover()[..] {
        [Recovered::Orphan(turn, process)] => Some((turn.clone(), process.clone())),
        _ => None,
    })
}

#[track_caller]
fn stored_once(project: &Project) -> Ingested {
    let stored = until("the turn is stored", || match project.recover().pop() {
        Some(Recovered::Stored(_, ingested)) => Some(ingested),
        Some(Recovered::Orphan(..)) => None,
        other => panic!("{other:?}"),
    });
    assert!(project.recover().is_empty(), "once");
    assert_eq!(project.outcomes().len(), 1);
    stored
}

#[test]
fn a_turn_whose_azureal_was_killed_can_still_be_watched_and_answered() {
    let project = Project::new();
    let (turn, process) = kill_azureal(&project, "ask", |output| output.contains("\"question\""));
    let agent = Bridge::new("");
    let mut watcher = project.spools.watch(&turn, &agent, Some(process)).unwrap();
    let control = project.spools.control(&turn.run).unwrap();
    control.answer(&question(&control), "yes").unwrap();
    let mut outputs = Vec::new();
    while let Some(more) = watcher.next_outputs().unwrap() {
        outputs.extend(more);
    }
    assert!(
        outputs.iter().any(|output| matches!(output, AgentOutput::Answered(answered) if answered.allowed))
    );
    assert!(outputs.contains(&AgentOutput::Delta("selected \"yes\"".into())));
    assert_eq!(stored_once(&project).complete.outcome, Some(Outcome::Done));
    let expected = [Message::user("before the crash"), Message::assistant("selected \"yes\"")];
    assert_eq!(project.history(), expected);
    project.nothing_is_left_of(&turn.run);
}

#[test]
fn a_turn_whose_azureal_was_killed_can_be_cancelled() {
    for over_the_channel in [true, false] {
        let project = Project::new();
        let (turn, process) = kill_azureal(&project, "wait", |output| output.contains("half"));
        if over_the_channel {
            project.spools.control(&turn.run).unwrap().cancel().unwrap();
        } else {
            // As `azureal cancel` does.
            let marker = Marker::new(RUN_MARKER, turn.run.clone()).unwrap();
            project.spools.cancel(&turn).unwrap();
            assert_eq!(stop(&process, &marker, &StopTimeouts::default()).survivors, []);
        }
        assert_eq!(stored_once(&project).complete.outcome, Some(Outcome::Cancelled));
        assert!(project.path("heard-cancel").exists());
        project.nothing_is_left_of(&turn.run);
    }
}

#[test]
fn a_turn_whose_azureal_and_bridge_were_killed_is_recovered_with_what_came() {
    let project = Project::new();
    let (turn, process) = kill_azureal(&project, "wait", |output| output.contains("half"));
    kill(process.pid);
    assert_eq!(stored_once(&project).complete.outcome, Some(Outcome::Interrupted));
    assert!(project.history()[1].first_text().unwrap().starts_with("half"));
    project.nothing_is_left_of(&turn.run);
}

#[test]
fn a_turn_whose_azureal_was_killed_and_whose_agent_dies_is_recovered() {
    let project = Project::new();
    let (turn, _) = kill_azureal(&project, "wait", |output| output.contains("half"));
    let agent = processes(&turn.run).into_iter().find(|process| {
        let line = fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
        line.ends_with(b"\0agent\0wait\0")
    });
    kill(agent.unwrap().pid);
    assert_eq!(stored_once(&project).complete.outcome, Some(Outcome::Interrupted));
    assert!(project.error().contains("signal 9"), "{}", project.error());
    project.nothing_is_left_of(&turn.run);
}

/// Returns the processes of the run in a project, with their arguments.
fn processes_of(project: &Project) -> Vec<(ProcessIdentity, String)> {
    let names = fs::read_dir(project.path(".azureal/spool")).into_iter().flatten();
    let runs = names.filter_map(|entry| Some(entry.ok()?.path().file_stem()?.to_str()?.to_owned()));
    let marked = runs.collect::<std::collections::BTreeSet<_>>().into_iter().flat_map(|run| processes(&run));
    let line = |pid: u32| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    marked
        .map(|process| {
            let line = String::from_utf8_lossy(&line(process.pid)).into_owned();
            (process, line)
        })
        .collect()
}

#[test]
fn a_turn_is_stored_once_whenever_its_processes_are_killed() {
    for round in 0..thorough(20, 400) {
        let project = Project::new();
        let mut azureal = start_azureal(&project, if round % 2 == 0 { "answer" } else { "wait" });
        // From the start of the process to the middle of the turn.
        std::thread::sleep(Duration::from_millis(round * 37 % 401));
        let victims: &[&str] =
            [&["azureal"][..], &["azureal", "__bridge"], &["azureal", "agent"]][round as usize % 3];
        if victims.contains(&"azureal") {
            azureal.kill().unwrap();
        }
        for (process, line) in processes_of(&project) {
            if victims.iter().any(|victim| line.contains(victim) && line.contains("test-child")) {
                // It may have ended by itself.
                drop(
                    Command::new("kill")
                        .args(["-9", &process.pid.to_string()])
                        .stderr(Stdio::null())
                        .status(),
                );
            }
        }
        azureal.wait().unwrap();
        let had_begun = fs::read_dir(project.path(".azureal/spool")).is_ok_and(|mut found| {
            found.any(|entry| entry.unwrap().path().extension().is_some_and(|kind| kind == "turn"))
        });
        let before = project.outcomes().len();
        until("all is stored", || {
            let found = project.recover();
            for found in &found {
                match found {
                    Recovered::Orphan(turn, _) => {
                        // One that waits for ever. It may have ended meanwhile.
                        drop(project.spools.control(&turn.run).unwrap().cancel());
                    }
                    // A process that has not become the bridge yet holds the lock of its azureal for a moment.
                    Recovered::Stored(..) | Recovered::Running(..) => {}
                    other => panic!("round {round}: {other:?}"),
                }
            }
            found.is_empty().then_some(())
        });
        let stored = project.outcomes().len();
        assert_eq!(stored, before + usize::from(had_begun && before == 0), "round {round}");
        assert_eq!(processes_of(&project), [], "round {round}");
        let left = processes_in(&project.directory);
        assert_eq!(left, [] as [String; 0], "round {round}");
    }
}

/// Returns the processes that run in a directory.
fn processes_in(directory: &Path) -> Vec<String> {
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let name = entry.ok()?.file_name().into_string().ok()?;
        name.parse::<u32>().ok()?;
        let is_there = fs::read_link(format!("/proc/{name}/cwd")).ok()? == directory;
        is_there.then(|| fs::read_to_string(format!("/proc/{name}/cmdline")).unwrap_or_default())
    });
    pids.filter(|line| !line.is_empty()).collect()
}
