//! Turns that wait for a store on a server, found again under whatever address the server has.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

use azureal_testkit::servers::{CuttingProxy, PostgresServer};

use crate::run::{fake_claude, signal, wait_until};
use crate::servers::{Server, on_every_server, run_on};
use crate::terminal::answering;
use crate::world::World;

on_every_server! {
    a_turn_is_found_when_its_server_has_another_address
    a_turn_that_waits_is_stored_after_a_yes
    folders_that_were_named_by_an_address_are_adopted
    a_turn_of_a_copy_that_was_used_before_is_not_stored_in_the_original
    recover_stores_the_turn_that_it_names
    a_turn_that_runs_does_not_wait
}

/// Kills azureal in the middle of a turn, and lets its agent end. Returns the run.
fn interrupted_turn(world: &World, store: &str) -> String {
    let runs = interrupted_turns(world, store, &[&[]]);
    runs.into_iter().next().unwrap()
}

/// Kills azureal in the middle of a turn with each of these arguments, and lets the agents end. Returns the runs.
fn interrupted_turns(world: &World, store: &str, turns: &[&[&str]]) -> Vec<String> {
    let (begun, go_on) = (world.path("begun"), world.path("go on"));
    drop(fs::remove_file(&go_on));
    fake_claude(
        world,
        &format!("touch '{}'; while [ ! -e '{}' ]; do sleep 0.05; done", begun.display(), go_on.display()),
    );
    let (mut agents, mut runs) = (Vec::new(), Vec::<String>::new());
    for arguments in turns {
        drop(fs::remove_file(&begun));
        let mut command = world.with_programs(&[&["run", "Do it"], *arguments].concat());
        command.env("AZUREAL_STORE", store).stdout(Stdio::null()).stderr(Stdio::null());
        let mut azureal = command.spawn().unwrap();
        wait_until("a running agent", || begun.exists());
        let running = run_on(world, store, &["ps", "--json"]).json();
        agents.extend(running.as_array().unwrap().iter().map(|each| each["pid"].as_u64().unwrap()));
        signal(&azureal, "-KILL");
        azureal.wait().unwrap();
        let headers =
            headers(world).into_iter().map(|it| it.file_stem().unwrap().to_str().unwrap().to_owned());
        let new: Vec<String> = headers.filter(|run| !runs.contains(run)).collect();
        assert_eq!(new.len(), 1, "{new:?}");
        runs.extend(new);
    }
    fs::write(&go_on, "").unwrap();
    for agent in agents {
        wait_until("the end of the agent", || !PathBuf::from(format!("/proc/{agent}/fd")).exists());
    }
    runs
}

/// Returns the headers of the turns that this machine keeps for stores on servers.
fn headers(world: &World) -> Vec<PathBuf> {
    let files = world.snapshot("p").into_iter().map(|(path, _)| path);
    files.filter(|path| path.to_str().unwrap().ends_with(".turn")).collect()
}

fn messages(world: &World, store: &str) -> u64 {
    let list = run_on(world, store, &["list", "--all", "--json"]).json();
    list[0]["message_count"].as_u64().unwrap()
}

fn a_turn_is_found_when_its_server_has_another_address<S: Server>() {
    let Some(server) = S::shared() else { return };
    let (world, proxy) = (World::new(), CuttingProxy::start(server.own_port()));
    let project = "another-address";
    let (before, now) = (server.store_at(proxy.port(), project), server.store(project));
    let run = interrupted_turn(&world, &before);
    // Without a terminal nothing is stored: it may be a copy.
    for arguments in [&["list"][..], &["ps"]] {
        let ran = run_on(&world, &now, arguments);
        assert_eq!(ran.code, 0, "{ran}");
        let expected = [
            "an interrupted turn waits in ",
            &format!("127.0.0.1:{}", proxy.port()),
            &format!("`azureal list --recover {run}` stores them there"),
        ];
        assert!(expected.iter().all(|part| ran.stderr.contains(part)), "{ran}");
    }
    assert_eq!(messages(&world, &now), 0);
    // Nor is it in the way of others.
    let ran = run_on(&world, &now, &["run", "-s", "beside", "-a", "offline", "Beside"]);
    assert_eq!(ran.code, 0, "{ran}");
    let ran = run_on(&world, &now, &["list", "--recover", "another"]);
    assert!(ran.code == 2 && ran.stderr.contains("no interrupted turn `another` waits"), "{ran}");
    let ran = run_on(&world, &now, &["list", "--recover", &run]);
    assert!(ran.code == 0 && ran.stderr.contains("recovered the last turn of S1"), "{ran}");
    assert!(run_on(&world, &now, &["show", "S1"]).stdout.contains("Do it"));
    for store in [&now, &before] {
        assert_eq!(run_on(&world, store, &["list"]).stderr, "", "asked again, or stored twice");
    }
    assert_eq!(headers(&world), [""; 0].map(PathBuf::from));
}

fn a_turn_that_waits_is_stored_after_a_yes<S: Server>() {
    let Some(server) = S::shared() else { return };
    let (world, proxy) = (World::new(), CuttingProxy::start(server.own_port()));
    let (before, now) = (server.store_at(proxy.port(), "asked"), server.store("asked"));
    interrupted_turn(&world, &before);
    let list = |answer: &str| {
        let mut command = world.command(&["list"]);
        command.env("AZUREAL_STORE", &now);
        answering(command, answer).1
    };
    let shown = list("n\n");
    assert!(shown.contains("Store them there?") && !shown.contains("recovered"), "{shown}");
    assert_eq!(messages(&world, &now), 0);
    let shown = list("y\n");
    assert!(shown.contains("recovered the last turn of S1"), "{shown}");
}

/// To azureal a copy is another address with the same id.
fn a_turn_of_a_copy_that_was_used_before_is_not_stored_in_the_original<S: Server>() {
    let Some(server) = S::shared() else { return };
    let (world, proxy) = (World::new(), CuttingProxy::start(server.own_port()));
    let (original, copy) = (server.store_at(proxy.port(), "copied"), server.store("copied"));
    for store in [&original, &copy] {
        let ran = run_on(&world, store, &["run", "-a", "offline", "Used"]);
        assert_eq!((ran.code, ran.stderr.contains("waits")), (0, false), "{ran}");
    }
    let stored = || -> u64 {
        let list = run_on(&world, &original, &["list", "--all", "--json"]).json();
        list.as_array().unwrap().iter().map(|each| each["message_count"].as_u64().unwrap()).sum()
    };
    let before = stored();
    let run = interrupted_turn(&world, &copy);
    // Whoever opens the original is told of it, for the copy may be the same store after all.
    let ran = run_on(&world, &original, &["list"]);
    assert!(ran.stderr.contains(&format!("`azureal list --recover {run}`")), "{ran}");
    assert!(!ran.stderr.contains("recovered"), "{ran}");
    assert_eq!(stored(), before);
    let ran = run_on(&world, &copy, &["list"]);
    assert!(ran.stderr.contains("recovered the last turn of "), "{ran}");
    assert!(stored() > before);
    assert_eq!(run_on(&world, &original, &["list"]).stderr, "");
}

fn recover_stores_the_turn_that_it_names<S: Server>() {
    let Some(server) = S::shared() else { return };
    let (world, proxy) = (World::new(), CuttingProxy::start(server.own_port()));
    let (before, now) = (server.store_at(proxy.port(), "named"), server.store("named"));
    for prompt in ["One", "Two"] {
        run_on(&world, &before, &["run", "-a", "offline", prompt]);
    }
    let runs =
        interrupted_turns(&world, &before, &[&["-s", "S1", "-a", "claude"], &["-s", "S2", "-a", "claude"]]);
    let ran = run_on(&world, &now, &["list", "--recover", &runs[1]]);
    assert!(ran.stderr.contains("recovered the last turn of S2"), "{ran}");
    assert!(!ran.stderr.contains("recovered the last turn of S1"), "{ran}");
    assert!(ran.stderr.contains(&format!("`azureal list --recover {}`", runs[0])), "{ran}");
    assert_eq!(headers(&world).len(), 1);
    let ran = run_on(&world, &now, &["list", "--recover", &runs[0]]);
    assert!(ran.stderr.contains("recovered the last turn of S1"), "{ran}");
    assert_eq!(run_on(&world, &now, &["list"]).stderr, "");
}

fn a_turn_that_runs_does_not_wait<S: Server>() {
    let Some(server) = S::shared() else { return };
    let (world, proxy) = (World::new(), CuttingProxy::start(server.own_port()));
    let (before, now) = (server.store_at(proxy.port(), "running"), server.store("running"));
    let (begun, go_on) = (world.path("begun"), world.path("go on"));
    let wait =
        format!("touch '{}'; while [ ! -e '{}' ]; do sleep 0.05; done", begun.display(), go_on.display());
    fake_claude(&world, &wait);
    let mut command = world.with_programs(&["run", "Do it"]);
    command.env("AZUREAL_STORE", &before).stdout(Stdio::null()).stderr(Stdio::null());
    let mut azureal = command.spawn().unwrap();
    wait_until("a running agent", || begun.exists());
    assert_eq!(run_on(&world, &now, &["list"]).stderr, "");
    fs::write(&go_on, "").unwrap();
    assert!(azureal.wait().unwrap().success());
    assert_eq!(run_on(&world, &now, &["list"]).stderr, "");
}

fn folders_that_were_named_by_an_address_are_adopted<S: Server>() {
    let Some(server) = S::shared() else { return };
    let (world, store) = (World::new(), server.store("adopted"));
    interrupted_turn(&world, &store);
    // As azureal left it before stores had ids.
    let header = world.path("p").join(headers(&world)[0].strip_prefix("p").unwrap_or(&headers(&world)[0]));
    let folder = header.ancestors().nth(2).unwrap().to_owned();
    let (kind, _) = folder.file_name().unwrap().to_str().unwrap().split_once('-').unwrap();
    let (server_text, part) = match kind {
        "postgres" => (format!("postgres://127.0.0.1:{}/postgres", server.own_port()), "azureal"),
        _ => (format!("redis://127.0.0.1:{}/0", server.own_port()), ""),
    };
    let hash = blake3::hash(format!("{server_text} {part} adopted").as_bytes()).to_hex();
    let former = folder.with_file_name(format!("{kind}-{}", &hash[..16]));
    fs::remove_file(folder.join("store.json")).unwrap();
    fs::rename(&folder, &former).unwrap();
    let ran = run_on(&world, &store, &["list"]);
    assert!(ran.stderr.contains("recovered the last turn of S1"), "{ran}");
    assert!(!former.exists() && folder.exists());
}

#[test]
fn doctor_names_turns_of_stores_that_it_cannot_reach() {
    let Some(server) = PostgresServer::shared() else { return };
    let (world, proxy) = (World::new(), CuttingProxy::start(server.port()));
    let store = server.store_at(proxy.port(), "unreached");
    let run = interrupted_turn(&world, &store);
    let gone = "postgres://tester@127.0.0.1:1/postgres?project=unreached";
    for store in ["", gone] {
        let ran = run_on(&world, store, &["doctor", "--json"]);
        let found = ran.json()["findings"].clone();
        let found = found.as_array().unwrap().iter().find(|each| each["kind"] == "turn_elsewhere");
        let message = found.unwrap()["message"].as_str().unwrap();
        let named = format!("postgres://127.0.0.1:{}/postgres, project `unreached`: {run}", proxy.port());
        assert!(message.contains(&named), "{message}");
    }
    let ran = run_on(&world, &store, &["doctor", "--json"]);
    assert!(!ran.stdout.contains("turn_elsewhere"), "{ran}");
}
