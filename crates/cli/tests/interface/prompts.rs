//! Prompts, turns and what is left of them.

use azureal_testkit::until;

use crate::place::Place;

#[test]
fn a_prompt_is_sent_and_its_answer_shown() {
    let place = Place::new();
    place.agent();
    let program = place.open(&[]);
    program.send("What is this?\r");
    program.wait_for("Working on 1.");
    // The prompt box is empty, and the prompt is in the session.
    program.wait_for("What is this?");
    place.let_answer(1);
    program.wait_for("Answer 1.");
    until("the stored turn", || (place.prompts("S1") == ["What is this?"]).then_some(()));
    program.assert_listed();
}

#[test]
fn a_draft_survives_the_death_of_the_process() {
    let place = Place::new();
    place.session("work", &["Hello?", "Hello."]);
    let mut program = place.open(&["-s", "work"]);
    program.send("a prompt that is not finished");
    program.wait_for("not finished");
    // Nothing that is older than a second is lost.
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    program.kill("KILL");
    program.wait_for_exit();
    let program = place.open(&["-s", "work"]);
    program.wait_for("a prompt that is not finished");
}

#[test]
fn a_draft_is_not_lost_when_another_interface_types_in_the_same_session() {
    let place = Place::new();
    place.session("work", &["Hello?", "Hello."]);
    let kept = |what: &str, is_so: &dyn Fn(&str) -> bool| {
        until(what, || {
            let files = std::fs::read_dir(place.path("home/.local/state/azureal/desk")).ok()?.flatten();
            let texts = files.filter_map(|file| std::fs::read_to_string(file.path()).ok());
            texts.into_iter().any(|text| is_so(&text)).then_some(())
        });
    };
    let mut one = place.open(&["-s", "work"]);
    let two = place.open(&["-s", "work"]);
    one.wait_for("Hello.");
    two.wait_for("Hello.");
    one.send("draft A important");
    kept("the first draft", &|text| text.contains("\"draft A important\""));
    two.send("bbb");
    kept("the second draft", &|text| text.contains("\"bbb\""));
    two.send("\x15");
    kept("no draft", &|text| !text.contains("\"bbb\""));
    one.kill("KILL");
    one.wait_for_exit();
    let three = place.open(&["-s", "work"]);
    three.wait_for("Hello.");
    three.send("\x1b[A");
    three.wait_for("draft A important");
}

#[test]
fn a_turn_that_is_left_running_is_there_when_the_interface_is_opened_again() {
    let place = Place::new();
    place.agent();
    let mut program = place.open(&[]);
    program.send("Take your time\r");
    program.wait_for("Working on 1.");
    program.send("\x18q");
    program.wait_for("leave");
    program.send("l");
    assert_eq!(program.wait_for_exit(), Some(0));
    program.wait_for("S1 runs in the background: `azureal -s S1` shows it, `azureal cancel S1` stops");

    let program = place.open(&["-s", "S1"]);
    program.wait_for("Working on 1.");
    place.let_answer(1);
    program.wait_for("Answer 1.");
    until("the stored turn", || (place.prompts("S1") == ["Take your time"]).then_some(()));
}

#[test]
fn a_prompt_that_is_sent_while_a_turn_runs_replaces_it() {
    let place = Place::new();
    place.agent();
    let program = place.open(&[]);
    program.send("First\r");
    program.wait_for("Working on 1.");
    program.send("Second\r");
    program.wait_for("Working on 2.");
    place.let_answer(2);
    program.wait_for("Answer 2.");
    until("the stored turns", || (place.prompts("S1") == ["First", "Second"]).then_some(()));
    let events = place.events("S1");
    let outcomes: Vec<_> = events.iter().filter_map(|event| event["data"]["outcome"].as_str()).collect();
    assert_eq!(outcomes.first(), Some(&"cancelled"), "{events:?}");
}

#[test]
fn a_prompt_is_edited_in_the_users_editor_which_has_the_terminal_for_itself() {
    let place = Place::new();
    // It asks, as an editor would: an interface that still reads would take the answer.
    let editor =
        "printf 'your text: '; read -r text; printf '%s, and %s' \"$(cat \"$1\")\" \"$text\" > \"$1\"";
    azureal_testkit::programs::script(&place.path("bin/editor"), editor);
    let mut command = place.command(&[]);
    command.env("EDITOR", "editor");
    let program = azureal_testkit::pty::PtyProgram::start(&command, 80, 24);
    program.wait_for("›");
    for (index, text) in ["more", "even more"].into_iter().enumerate() {
        if index == 0 {
            program.send("some words");
            program.wait_for("some words");
        }
        program.send("\x07");
        program.wait_for("your text:");
        assert!(!program.modes().alternate_screen);
        program.send(&format!("{text}\r"));
        program.wait_for(&format!(", and {text}"));
        assert!(program.modes().alternate_screen);
    }
    program.wait_for("some words, and more, and even more");
    program.assert_listed();
}

#[test]
fn a_text_from_the_editor_is_kept_whatever_the_editor_does() {
    let place = Place::new();
    for (name, editor, shown) in [
        ("error", "printf 'of the editor' > \"$1\"; exit 3", "of the editor"),
        ("killed", "printf 'of the editor' > \"$1\"; kill -9 $$", "of the editor"),
        ("bytes", "printf 'caf\\351 of the editor' > \"$1\"", "caf"),
    ] {
        azureal_testkit::programs::script(&place.path(&format!("bin/{name}")), editor);
        let mut command = place.command(&[]);
        command.env("EDITOR", name).env("TMPDIR", place.path("home"));
        let program = azureal_testkit::pty::PtyProgram::start(&command, 120, 24);
        program.wait_for("›");
        program.send("a prompt");
        program.wait_for("› a prompt");
        program.send("\x07");
        program.wait_for("your text is kept as");
        program.wait_for(&format!("› {shown}"));
        let files = std::fs::read_dir(place.path("home")).unwrap().flatten();
        let files: Vec<_> =
            files.filter(|file| file.file_name().to_string_lossy().ends_with(".md")).collect();
        assert_eq!(files.len(), 1, "{name}");
        let kept = std::fs::read(files[0].path()).unwrap();
        assert!(kept.ends_with(b"of the editor"), "{name}");
        program.wait_for(&files[0].file_name().to_string_lossy());
        std::fs::remove_file(files[0].path()).unwrap();
        // What was there before is one undo away.
        program.send("\x1f");
        program.wait_for("› a prompt");
    }
}

#[test]
fn prompts_of_all_sessions_are_found_by_their_words() {
    let place = Place::new();
    place.agent();
    place.let_answer(1);
    place.let_answer(2);
    let mut program = place.open(&[]);
    program.send("Count the apples\r");
    program.wait_for("Answer 1.");
    program.send("\x18n");
    program.wait_for("new conversation");
    program.send("Count the pears\r");
    program.wait_for("Answer 2.");
    until("the stored turns", || (place.prompts("S2") == ["Count the pears"]).then_some(()));
    // While a turn runs, Ctrl-C cancels it.
    program.wait_for("✓ done in");
    program.send("\x03\x03");
    program.wait_for_exit();

    let program = place.open(&["-s", "S1"]);
    program.send("a draft");
    program.wait_for("› a draft");
    // The newest first, older ones with the same key, and Esc gives the draft back.
    program.send("\x12Count");
    program.wait_for("Count the pears");
    program.send("\x12");
    program.wait_for("Count the apples");
    program.send("\x1b");
    program.wait_for("› a draft");
    program.send("\x12APPLES");
    program.wait_for("Count the apples");
    program.send("\r");
    program.wait_for("› Count the apples");
    // Taken, not sent.
    assert_eq!(place.prompts("S1"), ["Count the apples"]);
    program.assert_listed();
}

#[test]
fn the_first_turn_of_another_process_is_in_the_list_with_its_agent_and_prompt() {
    let place = Place::new();
    place.agent();
    place.session("work", &["Hello?", "Hello."]);
    let program = azureal_testkit::pty::PtyProgram::start(&place.command(&["-s", "work"]), 120, 40);
    program.wait_for("Hello.");
    let mut other = place.command(&["run", "-a", "claude", "From elsewhere"]).spawn().unwrap();
    program.wait_until("the turn in the list", |screen| {
        let row = screen.lines().find(|row| row.trim_start().starts_with("S2"));
        row.is_some_and(|row| row.contains('●') && row.contains("From elsewhere") && row.contains("claude"))
    });
    place.let_answer(1);
    assert!(other.wait().unwrap().success());
    program.wait_until("the end", |screen| {
        screen.lines().any(|row| row.trim_start().starts_with("S2") && row.contains('✓'))
    });
    program.assert_listed();
}
