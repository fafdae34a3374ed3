//! Queued prompts: each goes out once, when no process runs a turn in its session.

use std::fs::{self, File};
use std::io::Write;

use azureal_files::Folder;
use azureal_testkit::pty::PtyProgram;
use azureal_testkit::servers::{PostgresServer, RedisServer};
use azureal_testkit::until;
use rustix::fs::OFlags;

use crate::place::Place;

/// The key that queues a prompt.
const QUEUE: &str = "\x14";
const LEASE: &str = "S1.lease";

/// Starts a turn of an interface in S1, and returns the interface when its agent works.
fn first_turn(place: &Place) -> PtyProgram {
    let one = place.open(&[]);
    one.send("First\r");
    one.wait_for("Working on 1.");
    until("the session", || (place.run(&["show", "S1"]).status.success()).then_some(()));
    one
}

/// Opens another interface on S1 while a turn runs there.
fn second_interface(place: &Place, prompt: &str) -> PtyProgram {
    let two = place.open(&["-s", "S1"]);
    two.wait_for("Working on 1.");
    two.record();
    two.send(&format!("{prompt}\r"));
    two.wait_for(&format!("queued for after this turn: {prompt}"));
    two
}

fn wait_for_prompts(place: &Place, prompts: &[&str]) {
    until("the stored turns", || (place.prompts("S1") == prompts).then_some(()));
}

/// Checks that an interface has never said that a turn failed.
fn assert_no_error(program: &PtyProgram) {
    let screens = program.screens();
    assert!(!screens.iter().any(|screen| screen.contains('✗')), "{}", screens.join("\n"));
}

fn stores() -> Vec<Option<String>> {
    let postgres = PostgresServer::shared().map(|server| format!("{}?project=waiting", server.url()));
    let redis = RedisServer::shared().map(|server| format!("{}?loss=accepted&project=waiting", server.url()));
    [postgres, redis].into_iter().filter(Option::is_some).collect()
}

/// Returns a place for each kind of store.
fn places(project: &str) -> Vec<Place> {
    let stores = stores().into_iter().map(|store| store.map(|store| store.replace("waiting", project)));
    [None].into_iter().chain(stores).map(Place::with_store).collect()
}

#[test]
fn a_prompt_goes_out_once_when_the_turn_of_another_interface_has_ended() {
    for place in places("two-interfaces") {
        place.agent();
        let one = first_turn(&place);
        let two = second_interface(&place, "Second");
        place.let_answer(1);
        two.wait_for("Working on 2.");
        one.wait_for("Working on 2.");
        place.let_answer(2);
        two.wait_for("Answer 2.");
        wait_for_prompts(&place, &["First", "Second"]);
        assert_no_error(&two);
    }
}

#[test]
fn a_prompt_goes_out_once_after_a_turn_of_run() {
    let place = Place::new();
    place.agent();
    let mut run = place.command(&["run", "-a", "claude", "First"]).spawn().unwrap();
    until("the session", || place.run(&["show", "S1"]).status.success().then_some(()));
    let two = second_interface(&place, "Second");
    place.let_answer(1);
    assert!(run.wait().unwrap().success());
    two.wait_for("Working on 2.");
    place.let_answer(2);
    wait_for_prompts(&place, &["First", "Second"]);
    assert_no_error(&two);
}

#[test]
fn a_prompt_goes_out_after_a_turn_on_another_machine() {
    for store in stores() {
        let place = Place::with_store(store.map(|store| store.replace("waiting", "other-machine")));
        place.agent();
        let _one = first_turn(&place);
        let two = PtyProgram::start(&place.command_elsewhere(&["-s", "S1"]), 80, 24);
        two.wait_for("S1");
        two.record();
        two.send("Second\r");
        // Its output is not seen here.
        two.wait_for("the prompt waits: a turn of S1 is running");
        two.wait_for("waits for a turn of another process");
        place.let_answer(1);
        two.wait_for("Working on 2.");
        place.let_answer(2);
        wait_for_prompts(&place, &["First", "Second"]);
        assert_no_error(&two);
    }
}

/// Holds the lease of S1, as a process does that stores or compacts.
fn hold_lease(place: &Place) -> (Folder, File) {
    let folder = Folder::open_or_create(&place.path("p/.git/azureal/spool")).unwrap();
    let mut file = folder.create_file(LEASE.as_ref(), OFlags::RDWR).unwrap();
    file.lock().unwrap();
    file.write_all(br#"{"pid":7,"agent":"claude","since":"2026-01-01T00:00:00Z"}"#).unwrap();
    (folder, file)
}

#[test]
fn a_prompt_goes_out_when_whoever_holds_the_session_releases_it() {
    let place = Place::new();
    place.agent();
    place.session("work", &["Hello?", "Hello."]);
    let (folder, lock) = hold_lease(&place);
    let program = place.open(&["-s", "work"]);
    program.wait_for("Hello.");
    program.record();
    program.send("First\r");
    program.wait_for("the prompt waits: a turn of S1 is running");
    program.send(&format!("Second{QUEUE}"));
    program.wait_for("queued for after this turn: Second");
    folder.remove(LEASE.as_ref()).unwrap();
    drop(lock);
    program.wait_for("Working on 1.");
    place.let_answer(1);
    program.wait_for("Working on 2.");
    place.let_answer(2);
    wait_for_prompts(&place, &["Hello?", "First", "Second"]);
    assert_no_error(&program);
}

#[test]
fn the_prompt_of_another_interface_goes_out_once_after_the_holder_was_killed() {
    for place in places("killed-holder") {
        place.agent();
        let mut one = first_turn(&place);
        one.send(&format!("Of the first{QUEUE}"));
        one.wait_for("queued for after this turn: Of the first");
        until("the kept queue", || kept(&place).contains("Of the first").then_some(()));
        let two = second_interface(&place, "Second");
        assert!(!two.screen().contains("Of the first"), "{}", two.screen());
        one.kill("KILL");
        one.wait_for_exit();
        // Its agent continues.
        place.let_answer(1);
        two.wait_for("Working on 2.");
        place.let_answer(2);
        two.wait_for("Answer 2.");
        wait_for_prompts(&place, &["First", "Second"]);
        // The next interface offers what the killed one had, and no other one does.
        let three = place.open(&["-s", "S1"]);
        three.wait_for("held until you send it: Of the first");
        let four = place.open(&["-s", "S1"]);
        four.wait_for("Answer 2.");
        assert!(!four.screen().contains("held"), "{}", four.screen());
        three.send("\r");
        three.wait_for("Working on 3.");
        place.let_answer(3);
        wait_for_prompts(&place, &["First", "Second", "Of the first"]);
    }
}

/// Returns what interfaces keep.
fn kept(place: &Place) -> String {
    let files = fs::read_dir(place.path("home/.local/state/azureal/desk")).unwrap().flatten();
    let files = files.filter(|file| file.path().extension().is_some_and(|end| end == "json"));
    files.filter_map(|file| fs::read_to_string(file.path()).ok()).collect()
}

#[test]
fn a_second_interface_does_not_send_the_queue_of_the_first() {
    let place = Place::new();
    place.agent();
    let one = first_turn(&place);
    one.send(&format!("Deploy{QUEUE}"));
    one.wait_for("queued for after this turn: Deploy");
    until("the kept queue", || kept(&place).contains("Deploy").then_some(()));
    let two = place.open(&["-s", "S1"]);
    two.wait_for("Working on 1.");
    assert!(!two.screen().contains("Deploy"), "{}", two.screen());
    place.let_answer(1);
    one.wait_for("Working on 2.");
    place.let_answer(2);
    two.wait_for("Answer 2.");
    // What either had left to send would go out before this one.
    two.send("Last\r");
    two.wait_for("Working on 3.");
    place.let_answer(3);
    wait_for_prompts(&place, &["First", "Deploy", "Last"]);
}

#[test]
fn a_held_prompt_is_not_sent_by_a_turn_of_another_process() {
    let place = Place::new();
    place.agent();
    let one = first_turn(&place);
    one.send(&format!("Deploy{QUEUE}"));
    one.wait_for("queued for after this turn: Deploy");
    one.send("\x1b");
    one.wait_for("held until you send it: Deploy");
    place.let_answer(2);
    assert!(place.run(&["run", "-s", "S1", "A question"]).status.success());
    one.wait_for("Answer 2.");
    one.send("Another\r");
    one.wait_for("Working on 3.");
    place.let_answer(3);
    one.wait_for("Answer 3.");
    wait_for_prompts(&place, &["First", "A question", "Another"]);
    one.wait_for("↵ sends the waiting prompt");
    one.send("\r");
    one.wait_for("Working on 4.");
    place.let_answer(4);
    wait_for_prompts(&place, &["First", "A question", "Another", "Deploy"]);
}

#[test]
fn prompts_of_an_interface_that_was_left_are_held_and_sent_by_a_key_in_their_order() {
    let place = Place::new();
    place.agent();
    let mut one = first_turn(&place);
    one.send(&format!("One{QUEUE}Two{QUEUE}"));
    one.wait_for("queued for after this turn: Two");
    one.send("\x18q");
    one.wait_for("leave");
    one.send("l");
    one.wait_for_exit();
    let two = place.open(&["-s", "S1"]);
    two.wait_for("held until you send it: Two");
    place.let_answer(1);
    two.wait_for("Answer 1.");
    two.wait_for("↵ sends the waiting prompt");
    two.send("\r");
    two.wait_for("Working on 2.");
    place.let_answer(2);
    two.wait_for("Working on 3.");
    place.let_answer(3);
    wait_for_prompts(&place, &["First", "One", "Two"]);
}

#[test]
fn a_prompt_that_is_being_sent_is_offered_by_no_other_interface() {
    for _ in 0..3 {
        let place = Place::new();
        place.agent();
        let mut one = first_turn(&place);
        one.send(&format!("Second{QUEUE}"));
        one.wait_for("queued for after this turn: Second");
        place.let_answer(1);
        // As soon as its agent has started.
        until("the second agent", || place.path("gate/turn-2").exists().then_some(()));
        one.kill("KILL");
        one.wait_for_exit();
        let two = place.open(&["-s", "S1"]);
        two.wait_for("Working on 2.");
        assert!(!two.screen().contains("held"), "{}", two.screen());
        place.let_answer(2);
        wait_for_prompts(&place, &["First", "Second"]);
    }
}

/// Three interfaces, one of which is killed, and `run`, all in one session.
#[test]
fn in_a_storm_every_prompt_goes_out_at_most_once_and_in_the_order_of_its_interface() {
    for place in places("storm") {
        place.agent();
        (1..=40).for_each(|turn| place.let_answer(turn));
        place.session("work", &["Hello?", "Hello."]);
        let mut interfaces: Vec<PtyProgram> = (0..3).map(|_| place.open(&["-s", "work"])).collect();
        interfaces.iter().for_each(|interface| interface.wait_for("Hello."));
        for number in 1..=4 {
            for (interface, name) in interfaces.iter().zip(["A", "B", "C"]) {
                interface.send(&format!("{name}{number}{QUEUE}"));
            }
            if number == 2 {
                let run = place.run(&["run", "-s", "work", "--wait", "R1"]);
                assert!(run.status.success(), "{run:?}");
            }
        }
        until("the kept prompts", || kept(&place).contains("C4").then_some(()));
        let mut killed = interfaces.pop().unwrap();
        killed.kill("KILL");
        killed.wait_for_exit();
        let of = |prompts: &[String], name: &str| -> Vec<String> {
            prompts.iter().filter(|prompt| prompt.starts_with(name)).cloned().collect()
        };
        let all = |name: &str| (1..=4).map(|number| format!("{name}{number}")).collect::<Vec<_>>();
        let is_idle = || place.run(&["--json", "ps"]).stdout == b"[]\n";
        until("the prompts of the two that run", || {
            let prompts = place.prompts("S1");
            (of(&prompts, "A") == all("A") && of(&prompts, "B") == all("B") && is_idle()).then_some(())
        });
        // What the killed one had left goes out by a key, after what is sent now.
        let last = place.open(&["-s", "work"]);
        last.send("last\r");
        until("the last prompt", || place.prompts("S1").contains(&"last".to_owned()).then_some(()));
        last.wait_for_no("is running");
        last.send("\r");
        until("the end", || (kept(&place).contains(r#""queues":{}"#) && is_idle()).then_some(()));
        let prompts = place.prompts("S1");
        for name in ["A", "B", "C"] {
            let sent = of(&prompts, name);
            assert!(sent.windows(2).all(|pair| pair[0] < pair[1]), "{prompts:?}");
        }
        // One that was being sent when its interface was killed is in the history at least.
        for prompt in all("C") {
            let is_there = prompts.contains(&prompt) || kept(&place).contains(&prompt);
            assert!(is_there, "{prompt} in {prompts:?}\n{}", kept(&place));
        }
        assert_eq!(of(&prompts, "R"), ["R1"]);
    }
}
