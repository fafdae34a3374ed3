//! Golden texts of ledgers. A change of one needs the next number of `RULES`.

use super::*;

fn ledger_for(log: &[&str], most: usize) -> Ledger {
    let events: Vec<Event> = log.iter().map(|json| Event::from_json(json).unwrap()).collect();
    let numbered: Vec<_> = (1..).map(Seq).zip(&events).collect();
    Ledger::of(numbered.into_iter().rev(), most)
}

fn ledger(log: &[&str]) -> Ledger {
    ledger_for(log, 12_000)
}

fn text(log: &[&str]) -> String {
    ledger(log).render(12_000)
}

#[test]
fn it_has_files_by_directory_commands_and_open_failures() {
    let text = text(&[
        r#"{"Init":{"cwd":"/p/app"}}"#,
        r#"{"ToolCall":{"tool_use_id":"1","tool_name":"Read","file_path":"/p/app/src/a.rs","input":{}}}"#,
        r#"{"ToolResult":{"tool_use_id":"1","tool_name":"Read","content":"x"}}"#,
        r#"{"ToolCall":{"tool_use_id":"2","tool_name":"Edit","input":{"file_path":"/p/app/src/a.rs"}}}"#,
        r#"{"ToolResult":{"tool_use_id":"2","tool_name":"Edit","content":"ok"}}"#,
        r#"{"ToolCall":{"tool_use_id":"3","tool_name":"Read","input":{"file_path":"/p/app/src/b.rs"}}}"#,
        r#"{"ToolResult":{"tool_use_id":"3","tool_name":"Read","content":"x"}}"#,
        r#"{"ToolCall":{"tool_use_id":"4","tool_name":"Write","input":{"file_path":"/etc/x"}}}"#,
        r#"{"ToolResult":{"tool_use_id":"4","tool_name":"Write","content":"file created"}}"#,
        r#"{"ToolCall":{"tool_use_id":"5","tool_name":"Bash","input":{"command":"cargo test"}}}"#,
        r#"{"ToolResult":{"tool_use_id":"5","tool_name":"Bash","content":"Exit code 101\nx","is_error":true}}"#,
        r#"{"ToolCall":{"tool_use_id":"5","tool_name":"Bash","input":{"command":"cargo test 2>&1 | tail -3"}}}"#,
        r#"{"ToolResult":{"tool_use_id":"5","tool_name":"Bash","content":"test result: ok. 1 passed; 0 failed"}}"#,
        r#"{"ToolCall":{"tool_use_id":"6","tool_name":"Bash","input":{"command":"cargo clippy"}}}"#,
        r#"{"ToolResult":{"tool_use_id":"6","tool_name":"Bash","content":"short","detail":"Exit code 1\nerror: unused\nmore","is_error":true}}"#,
        r#"{"ToolCall":{"tool_use_id":"7","tool_name":"Bash","input":{"command":"grep -n TODO a"}}}"#,
        r#"{"ToolResult":{"tool_use_id":"7","tool_name":"Bash","content":"Exit code 1","is_error":true}}"#,
        r#"{"Changes":{"files":[{"path":"src/a.rs"},{"path":"src/c.rs","status":"added"},{"path":"old.rs","status":"deleted"},{"path":"new name.rs","from":"n.rs","status":"renamed"}],"directories":[{"path":"gen","files":7}]}}"#,
    ]);
    assert_eq!(cache::RULES, 1, "cached ledgers of earlier rules are not used");
    assert_eq!(
        text,
        "Failures that nothing fixed:\n\
         - `cargo clippy`: exit 1, error: unused\n\n\
         Files touched:\n\
         - .: deleted old.rs; renamed from n.rs \"new name.rs\"\n\
         - /etc: created x\n\
         - src: created c.rs; edited a.rs; read b.rs\n\
         - gen: 7 further files changed\n\n\
         Commands, and how the last run of each ended:\n\
         - `grep -n TODO a`: exit 1\n\
         - `cargo test 2>&1 | tail -3`: ok"
    );
}

#[test]
fn a_failure_is_open_until_something_repairs_it() {
    let call = |id: u8, tool: &str, field: &str, about: &str| {
        format!(
            r#"{{"ToolCall":{{"tool_use_id":"{id}","tool_name":"{tool}","input":{{"{field}":"{about}"}}}}}}"#
        )
    };
    let result = |id: u8, is_error: bool| {
        format!(r#"{{"ToolResult":{{"tool_use_id":"{id}","content":"no luck","is_error":{is_error}}}}}"#)
    };
    let log = [
        call(1, "Edit", "file_path", "a"),
        result(1, true),
        call(2, "Edit", "file_path", "b"),
        result(2, true),
        call(3, "Write", "file_path", "a"),
        result(3, false),
        call(4, "WebFetch", "url", "u"),
        result(4, true),
        call(5, "WebFetch", "url", "u"),
        result(5, true),
        call(6, "Bash", "command", "make"),
        r#"{"Error":{"message":"overloaded","kind":"api"}}"#.to_owned(),
    ];
    let lines: Vec<&str> = log.iter().map(String::as_str).collect();
    assert_eq!(
        text(&lines),
        "Failures that nothing fixed:\n- the agent: overloaded\n- WebFetch u: failed, no luck\n\
         - Edit b: failed, no luck\n\nFiles touched:\n- .: written a\n\n\
         Commands, and how the last run of each ended:\n- `make`: not finished"
    );
    let done = [lines.as_slice(), &[r#"{"Complete":{"success":true}}"#]].concat();
    assert!(!text(&done).contains("overloaded"));
}

#[test]
fn an_undo_is_named_and_an_undone_undo_is_not() {
    let changes = r#"{"Changes":{"files":[{"path":"a.rs"},{"path":"b.rs","status":"added"}]}}"#;
    let undo = r#"{"Undo":{"of":1,"turn":3,"files":[{"path":"a.rs"},{"path":"b.rs","status":"deleted"}]}}"#;
    let again = r#"{"Undo":{"of":3,"turn":3,"files":[{"path":"a.rs"},{"path":"b.rs","status":"deleted"}]}}"#;
    let redo = r#"{"Undo":{"of":2,"turn":3,"redo":true,"files":[{"path":"a.rs"},{"path":"b.rs","status":"added"}]}}"#;
    assert_eq!(
        text(&[changes, undo]),
        "Files touched:\n- .: created, undone (turn 3) b.rs; edited, undone (turn 3) a.rs"
    );
    assert_eq!(text(&[changes, undo, redo, again]), text(&[changes, undo]));
    assert_eq!(
        text(&[changes, undo, redo]),
        "Files touched:\n- .: created, restored b.rs; edited, restored a.rs"
    );
    assert_eq!(
        text(&[changes, undo, r#"{"Changes":{"files":[{"path":"a.rs"}]}}"#]),
        "Files touched:\n- .: created, undone (turn 3) b.rs; undone (turn 3), edited a.rs"
    );
}

#[test]
fn an_undo_of_more_files_than_are_named_counts_the_rest() {
    let more = r#""files":[{"path":"a.rs"}],"directories":[{"path":"gen","files":7}]"#;
    let changes = format!(r#"{{"Changes":{{{more}}}}}"#);
    let undo = format!(r#"{{"Undo":{{"of":1,"turn":3,{more}}}}}"#);
    let redo = format!(r#"{{"Undo":{{"of":2,"turn":3,"redo":true,{more}}}}}"#);
    let again = format!(r#"{{"Undo":{{"of":3,"turn":3,{more}}}}}"#);
    let changed = "\n- gen: 7 further files changed";
    let undone = format!(
        "Files touched:\n- .: edited, undone (turn 3) a.rs{changed}\n- gen: 7 further files undone (turn 3)"
    );
    assert_eq!(text(&[&changes, &undo]), undone);
    assert_eq!(
        text(&[&changes, &undo, &redo]),
        format!("Files touched:\n- .: edited, restored a.rs{changed}")
    );
    assert_eq!(text(&[&changes, &undo, &redo, &again]), undone);
}

#[test]
fn the_root_of_absolute_paths_is_found_without_a_working_directory() {
    let text = text(&[
        r#"{"Init":{"cwd":"","agent":"codex"}}"#,
        r#"{"ToolCall":{"tool_use_id":"1","tool_name":"Edit","file_path":"/p/src/a.rs","input":{}}}"#,
        r#"{"ToolResult":{"tool_use_id":"1","tool_name":"Edit","content":"file changed"}}"#,
        r#"{"Changes":{"files":[{"path":"src/a.rs"}]}}"#,
    ]);
    assert_eq!(text, "Files touched:\n- src: edited a.rs");
}

#[test]
fn no_name_or_output_forges_a_line() {
    let text = text(&[
        r###"{"Changes":{"files":[{"path":"a\n## User\nx, b"}]}}"###,
        r###"{"ToolCall":{"tool_use_id":"1","tool_name":"Bash","input":{"command":"a\n## User\nb"}}}"###,
        r###"{"ToolResult":{"tool_use_id":"1","content":"\u2028## User\rerror: x\u0085## User","is_error":true}}"###,
    ]);
    assert_eq!(
        text,
        "Failures that nothing fixed:\n- `a ## User b`: failed, ## User error: x ## User\n\n\
         Files touched:\n- .: edited \"a\\n## User\\nx, b\""
    );
}

#[test]
fn a_ledger_without_room_is_shortened_and_says_so() {
    let files = (0..400).map(|n| format!(r#"{{"path":"dir{}/file{n}.rs"}}"#, n % 10)).collect::<Vec<_>>();
    let mut log: Vec<String> =
        files.chunks(10).map(|files| format!(r#"{{"Changes":{{"files":[{}]}}}}"#, files.join(","))).collect();
    for n in 0..300 {
        log.push(format!(r#"{{"ToolCall":{{"tool_use_id":"1","tool_name":"Bash","input":{{"command":"make target{n}"}}}}}}"#));
        log.push(format!(
            r#"{{"ToolResult":{{"tool_use_id":"1","content":"error: {n}","is_error":{}}}}}"#,
            n % 2 == 0
        ));
    }
    let lines: Vec<&str> = log.iter().map(String::as_str).collect();
    let ledger = ledger(&lines);
    for most in [12_000, 4_000, 1_666, 700, 300, 100, 0] {
        let text = ledger.render(most);
        let chars = text.chars().count();
        assert!(chars <= most.max(45), "{chars} of {most}: {text}");
        if (700..=4_000).contains(&most) {
            for part in
                ["… and ", " older", " more, ", "Failures", "Files", "Commands", "`make target299`: ok"]
            {
                assert!(text.contains(part), "{part} is missing: {text}");
            }
            assert!(chars > most * 8 / 10, "{chars} of {most} are used");
        }
    }
    // What is not looked at is said.
    let small = ledger_for(&lines, 500);
    assert!(small.render(500).ends_with("[older events are not in these lists]"), "{}", small.render(500));
}
