//! What a project is called on a server: by the host and the path of its repository.

use serde_json::{Value, json};

use crate::servers::{Server, on_every_server, run_on};
use crate::terminal::answering;
use crate::world::World;

on_every_server! {
    a_repository_of_another_host_is_another_project
    sessions_under_a_former_name_are_asked_about_and_an_unattended_run_is_refused
    sessions_that_are_not_ours_are_asked_about_once
}

/// Returns a project that was cloned from here.
fn cloned_from(url: &str) -> World {
    let world = World::new();
    world.file("p/.git/config", &format!("[remote \"origin\"]\n\turl = {url}\n"));
    world
}

/// Returns the URL of a server that names no project.
fn unnamed<S: Server>(server: &S) -> String {
    server.store("NAME").replace("project=NAME", "")
}

fn names(world: &World, store: &str) -> Vec<Value> {
    let ran = run_on(world, store, &["list", "--all", "--json"]);
    assert_eq!(ran.code, 0, "{ran}");
    ran.json().as_array().unwrap().iter().map(|session| session["name"].clone()).collect()
}

/// Lists in a terminal, and answers what is asked. Returns what the terminal showed.
fn list_answering(world: &World, store: &str, answer: &str) -> String {
    let mut command = world.command(&["list", "--all"]);
    command.env("AZUREAL_STORE", store);
    let (code, shown) = answering(command, answer);
    assert_eq!(code, 0, "{shown}");
    shown
}

fn a_repository_of_another_host_is_another_project<S: Server>() {
    let Some(server) = S::shared() else { return };
    let store = unnamed(server);
    let corp = cloned_from("git@git.corp.example:team/hosts.git");
    run_on(&corp, &store, &["run", "-a", "offline", "--name", "ours", "Hello"]);
    assert_eq!(names(&corp, &store), [json!("ours")]);
    let by_https = cloned_from("https://ada@Git.Corp.Example:8443/team/hosts");
    assert_eq!(names(&by_https, &store), [json!("ours")]);
    for url in ["https://evil.example/team/hosts.git", "https://git.corp.example@evil.example/team/hosts"] {
        assert_eq!(names(&cloned_from(url), &store), [] as [Value; 0], "{url}");
    }
    assert_eq!(names(&World::new(), &server.store("git.corp.example/team/hosts")), [json!("ours")]);
}

fn sessions_under_a_former_name_are_asked_about_and_an_unattended_run_is_refused<S: Server>() {
    let Some(server) = S::shared() else { return };
    let store = unnamed(server);
    // As the first release called it.
    let former = server.store("team/former");
    run_on(&World::new(), &former, &["run", "-a", "offline", "--name", "old", "Hello"]);
    let world = cloned_from("git@git.corp.example:team/former.git");
    for arguments in [&["list", "--json"][..], &["run", "-a", "offline", "--json", "Hello"]] {
        let ran = run_on(&world, &store, arguments);
        let error: Value = serde_json::from_str(ran.stderr.lines().last().unwrap()).unwrap();
        assert_eq!((ran.code, &error["error"]["kind"]), (3, &json!("project_name")), "{ran}");
        let hint = error["error"]["hint"].as_str().unwrap();
        assert!(hint.contains("`project=team/former`"), "{hint}");
        assert!(hint.contains("`project=git.corp.example/team/former`"), "{hint}");
    }
    let shown = list_answering(&world, &store, "y\n");
    assert!(shown.contains("Are they this project's?") && shown.contains("`team/former`"), "{shown}");
    assert_eq!(names(&world, &store), [json!("old")]);
    assert_eq!(names(&World::new(), &former), [json!("old")], "whoever names the project finds it as before");
    // Nobody else is asked, and nobody else gets them.
    assert_eq!(names(&cloned_from("https://evil.example/team/former"), &store), [] as [Value; 0]);
    run_on(&world, &store, &["run", "-a", "offline", "--name", "new", "Hello"]);
    assert_eq!(names(&World::new(), &former), [json!("new"), json!("old")]);
}

fn sessions_that_are_not_ours_are_asked_about_once<S: Server>() {
    let Some(server) = S::shared() else { return };
    let store = unnamed(server);
    let former = server.store("team/theirs");
    run_on(&World::new(), &former, &["run", "-a", "offline", "--name", "old", "Hello"]);
    let world = cloned_from("https://elsewhere.example/team/theirs");
    assert!(list_answering(&world, &store, "n\n").contains("Are they this project's?"));
    assert!(!list_answering(&world, &store, "n\n").contains("Are they this project's?"));
    assert_eq!(names(&world, &store), [] as [Value; 0]);
    // They are still there for the project that they belong to.
    let theirs = cloned_from("git@git.corp.example:team/theirs.git");
    list_answering(&theirs, &store, "y\n");
    assert_eq!(names(&theirs, &store), [json!("old")]);
}
