//! The changes of a turn and their undo.

use std::fs;

use azureal_testkit::project::git_repository;
use azureal_testkit::until;
use serde_json::json;

use crate::place::Place;

/// Makes the project a git repository with one file, and puts an agent on the path that changes it.
fn changing(place: &Place) {
    let project = place.command(&[]).get_current_dir().unwrap().to_owned();
    fs::write(project.join("login.rs"), "fn login() {\n    once()\n}\n").unwrap();
    fs::write(project.join(".gitignore"), "*\n!/login.rs\n!/.gitignore\n").unwrap();
    git_repository(&project);
    let begin = json!({
        "type": "system", "subtype": "init", "session_id": "5f2a1c0e-0000-4000-8000-000000000003",
        "model": "claude-opus-4-5", "cwd": project, "tools": [], "apiKeySource": "none",
    });
    let end = json!({
        "type": "result", "subtype": "success", "is_error": false, "duration_ms": 1, "num_turns": 1,
        "result": "Done.", "session_id": "5f2a1c0e-0000-4000-8000-000000000003",
    });
    let script = format!(
        "if [ \"$1\" = --version ]; then echo '2.1.197 (Claude Code)'; exit; fi\n\
         cat > /dev/null\nprintf '%s\\n' '{begin}'\n\
         sed -i 's/once/twice/' login.rs\nprintf '%s\\n' '{end}'"
    );
    place.program("claude", &script);
}

#[test]
fn the_changes_of_a_turn_are_shown_and_undone() {
    let place = Place::new();
    changing(&place);
    let file = place.command(&[]).get_current_dir().unwrap().join("login.rs");
    let content = || fs::read_to_string(&file).unwrap();
    let program = place.open(&[]);
    program.send("Log in twice\r");
    program.wait_for("1 file changed, +1 −1 · Ctrl-X d shows them");
    program.wait_for("done in");
    assert!(content().contains("twice()"));

    program.send("\td");
    program.wait_for("S1, turn 1: 1 file changed, +1 −1");
    program.wait_for("modified login.rs +1 −1");
    program.wait_for("-    once()");
    program.wait_for("+    twice()");
    program.send("u");
    program.wait_for("Undo the changes of turn 1 of S1?");
    program.wait_for("1 file is restored.");
    program.send("y");
    program.wait_for("undid turn 1: 1 file changed, +1 −1; u takes it back");
    until("the file as it was", || content().contains("once()").then_some(()));

    // And back, with the question by Enter.
    program.send("u");
    program.wait_for("Take back the undo of turn 1 of S1?");
    program.send("\r");
    program.wait_for("took back the undo of turn 1");
    until("the file after the turn", || content().contains("twice()").then_some(()));

    // A file that was changed since is not overwritten by Enter.
    fs::write(&file, "mine\n").unwrap();
    program.send("u");
    program.wait_for("login.rs: changed since the turn");
    program.send("\r");
    program.wait_for_no("changed since the turn");
    assert_eq!(content(), "mine\n");
    program.send("u");
    program.wait_for("f undo all the same");
    program.send("f");
    until("the file as it was", || content().contains("once()").then_some(()));
    program.assert_listed();
}
