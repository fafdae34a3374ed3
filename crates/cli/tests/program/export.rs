//! Sessions on their way out, and back in.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use serde_json::{Value, json};

use crate::world::{Ran, World, assistant, exported, user};

fn conversation() -> World {
    let world = World::new();
    let mut session = exported(
        "demo",
        &[
            json!({"SystemMessage": {"content": "Be brief.", "context_executed_at": "2026-01-31T09:30:00Z", "context_commands": [{"name": "git", "command": "git status", "exit_code": 0, "duration_ms": 3}]}}),
            json!({"ModelSwitch": {"model": "gpt-4"}}),
            user("List them — 列出"),
            json!({"AssistantText": {"text": "Yes.", "starts": true}}),
            json!({"ToolCall": {"tool_use_id": "t1", "tool_name": "Bash", "input": {"command": "ls -l", "n": 1.50}}}),
            json!({"ToolResult": {"tool_use_id": "t1", "tool_name": "Bash", "content": "a\n```\nb", "is_error": false}}),
            json!({"Message": {"role": "user", "content": [{"type": "image", "media_type": "image/png", "data": "AQID"}]}}),
            json!("Compacted"),
            json!({"Telemetry": null}),
            json!({"Complete": {"success": true, "duration_ms": 1500, "cost_usd": 0.0}}),
        ],
    );
    session["compactions"] = json!([
        {"after_seq": 4, "summary": "They began.", "writer": "claude/haiku", "opening_chars": 120},
    ]);
    session["session"]["input_tokens"] = json!(40);
    session["session"]["output_tokens"] = json!(2);
    // A text that kind and data cannot give back.
    session["events"].as_array_mut().unwrap().push(json!({
        "seq": 11, "kind": "Odd", "data": {"Odd": 1, "Even": 2}, "text": "{\"Odd\": 1,\n \"Even\": 2}",
    }));
    let path = world.file("demo.json", &session.to_string());
    let ran = world.run(&["import", path.to_str().unwrap()]);
    assert_eq!(ran.code, 0, "{ran}");
    world
}

#[test]
fn json_has_everything_and_comes_back() {
    let world = conversation();
    let first = world.run(&["export", "demo"]);
    let path = world.file("again.json", &first.stdout);
    let other = World::new();
    let ran = other.run(&["import", path.to_str().unwrap()]);
    assert_eq!(ran.code, 0, "{ran}");
    let second = other.run(&["export", "demo"]);
    let strip = |ran: &Ran| {
        let mut value = ran.json();
        value["session"]["created"] = Value::Null;
        for compaction in value["compactions"].as_array_mut().unwrap() {
            compaction["created"] = Value::Null;
        }
        value
    };
    assert_eq!(strip(&first), strip(&second));
    let summary = &first.json()["compactions"][0];
    assert_eq!(
        (&summary["summary"], &summary["writer"], &summary["opening_chars"]),
        (&json!("They began."), &json!("claude/haiku"), &json!(120))
    );
    // To the byte, also what has an odd shape.
    let events = |ran: &Ran| {
        ran.stdout.lines().filter(|line| line.starts_with("{\"seq\"")).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(events(&first), events(&second));
    assert!(first.stdout.contains(r#""text":"{\"Odd\": 1,\n \"Even\": 2}""#), "{first}");
    // And once more, it changes nothing.
    assert!(other.run(&["import", path.to_str().unwrap()]).quiet().contains("unchanged"));
}

#[test]
fn markdown_is_for_people() {
    insta::assert_snapshot!(conversation().run(&["export", "demo", "--format", "markdown"]), @r"
    exit code 0
    --- stdout
    # demo

    - Session: S1
    - Created: [time]
    - Worktree: .
    - Model: gpt-4
    - Messages: 5

    ## System

    ```
    Be brief.
    ```

    *Model: gpt-4*

    ## User

    > List them — 列出

    ## Assistant

    Yes.

    <details>
    <summary>Summary of the events up to 4 by claude/haiku</summary>

    They began.

    </details>

    **Bash** `ls -l`

    ````
    a
    ```
    b
    ````

    ## User

    [image: image/png, 3 bytes]

    *Unknown event: Telemetry*

    *Done in 1.5 s*

    *Unknown event: Odd*
    ");
}

#[test]
fn markdown_is_no_json() {
    let world = conversation();
    insta::assert_snapshot!(world.run(&["export", "demo", "--format", "markdown", "--json"]), @r#"
    exit code 2
    --- stderr
    {"error":{"kind":"usage","message":"`--json` and `--format markdown` are two formats for one output","hint":"write the document to a file with `-o`, or leave out `--json`"}}
    "#);
    // The document in a file, and where it is as JSON, are two outputs.
    let ran = world.run(&["export", "demo", "--format", "markdown", "--json", "-o", "demo.md"]);
    assert_eq!(ran.json()["file"], "demo.md");
}

#[test]
fn cllm_gets_the_six_keys_it_knows() {
    let ran = conversation().run(&["export", "demo", "-f", "cllm"]);
    assert!(ran.stdout.is_ascii());
    insta::assert_snapshot!(ran, @r#"
    exit code 0
    --- stdout
    {
      "id": "demo",
      "model": "gpt-4",
      "messages": [
        {
          "role": "system",
          "content": "Be brief."
        },
        {
          "role": "user",
          "content": "List them \u2014 \u5217\u51fa"
        },
        {
          "role": "assistant",
          "content": "Yes.\n\n[tool call: Bash {\"command\":\"ls -l\",\"n\":1.5}]"
        },
        {
          "role": "user",
          "content": "[tool result]\na\n```\nb"
        },
        {
          "role": "user",
          "content": "[image: image/png, 3 bytes]"
        }
      ],
      "created_at": "[time]",
      "updated_at": "[time]",
      "metadata": {
        "context_executed_at": "[time]",
        "context_commands": [
          {
            "name": "git",
            "command": "git status",
            "exit_code": 0,
            "duration_ms": 3
          }
        ],
        "total_tokens": 42,
        "azureal": {
          "uuid": "[uuid]",
          "events": 11,
          "messages": 5,
          "hash": "03c38d06751634364e023d0d9e66a458da0001cfa77c5eb08637145ce3717ca0"
        }
      }
    }
    "#);
}

#[test]
fn axio_gets_messages() {
    let world = conversation();
    insta::assert_snapshot!(world.run(&["export", "demo", "-f", "axio"]), @r#"
    exit code 0
    --- stdout
    [
    {"role":"system","content":[{"type":"text","text":"Be brief."}]},
    {"role":"user","content":[{"type":"text","text":"List them — 列出"}]},
    {"role":"assistant","content":[{"type":"text","text":"Yes."},{"type":"tool_use","id":"t1","name":"Bash","input":{"command":"ls -l","n":1.5}}]},
    {"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"a\n```\nb","is_error":false}]},
    {"role":"user","content":[{"type":"image","media_type":"image/png","data":"AQID"}]}
    ]
    "#);
}

#[test]
fn messages_survive_the_way_through_axio() {
    let world = conversation();
    let first = world.run(&["export", "demo", "-f", "axio"]).quiet();
    let path = world.file("axio.json", &first);
    let other = World::new();
    other.run(&["import", path.to_str().unwrap()]).quiet();
    assert_eq!(other.run(&["export", "axio", "-f", "axio"]).quiet(), first);
}

#[test]
fn conversations_survive_the_way_through_cllm() {
    let world = World::new();
    world.session(
        "talk",
        &[
            json!({"SystemMessage": {"content": "s", "context_executed_at": "t", "context_commands": []}}),
            json!({"ModelSwitch": {"model": "m"}}),
            user("a"),
            json!({"AssistantText": {"text": "b", "starts": true}}),
        ],
    );
    let path = world.file("talk.json", &world.run(&["export", "talk", "-f", "cllm"]).quiet());
    let other = World::new();
    other.run(&["import", path.to_str().unwrap()]).quiet();
    let show = |world: &World| world.run(&["show", "talk", "--json"]).quiet();
    assert_eq!(show(&other), show(&world));
}

/// Continues a conversation, as cllm does: it loads a file by its name, keeps what it does not know, and saves by the id.
fn continue_in_cllm(world: &World, path: &str, said: &[&str]) {
    let file = world.path(path);
    let mut conversation: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let messages = conversation["messages"].as_array_mut().unwrap();
    for (index, text) in said.iter().enumerate() {
        messages.push(json!({"role": if index % 2 == 0 { "user" } else { "assistant" }, "content": text}));
    }
    conversation["metadata"]["total_tokens"] = json!(7);
    let saved = file.with_file_name(format!("{}.json", conversation["id"].as_str().unwrap()));
    fs::write(saved, format!("{conversation:#}")).unwrap();
}

#[test]
fn a_conversation_that_was_continued_in_cllm_continues_its_session() {
    let world = conversation();
    let model = json!({"ModelSwitch": {"model": "ada", "agent": "offline"}});
    world.session(
        "quiet",
        &[json!({"SystemMessage": {"content": "", "context_executed_at": "t"}}), user("a"), model],
    );
    world.run(&["export", "demo", "-f", "cllm", "-o", "fix-login.json"]);
    world.run(&["export", "quiet", "-f", "cllm", "-o", "quiet.json"]);
    let read = |path: &str| -> Value {
        serde_json::from_str(&fs::read_to_string(world.path(path)).unwrap()).unwrap()
    };
    // cllm loads by the name of the file and saves by the id.
    assert_eq!(read("p/fix-login.json")["id"], "fix-login");
    // The built-in agent has no model, and an empty message is none.
    let quiet = read("p/quiet.json");
    assert_eq!((&quiet["model"], quiet["messages"].as_array().unwrap().len()), (&json!(""), 1));

    let before = world.run(&["show", "demo", "--json"]).quiet().lines().count();
    let tokens = |world: &World| {
        let list = world.run(&["list", "--json"]).json();
        let demo = list.as_array().unwrap().iter().find(|session| session["name"] == "demo");
        demo.unwrap()["input_tokens"].clone()
    };
    let counted = tokens(&world);
    continue_in_cllm(&world, "p/fix-login.json", &["More “here”", "Yes"]);
    insta::assert_snapshot!(world.run(&["import", "fix-login.json"]), @r"
    exit code 0
    --- stdout
    S1 demo has 2 new events, from fix-login.json
    ");
    assert!(world.run(&["import", "fix-login.json"]).quiet().contains("unchanged"));
    continue_in_cllm(&world, "p/fix-login.json", &["And more", "No"]);
    assert!(world.run(&["import", "fix-login.json"]).quiet().contains("S1 demo has 2 new events"));
    assert_eq!(world.run(&["show", "demo", "--json"]).quiet().lines().count(), before + 4);
    assert_eq!(tokens(&world), counted);
    assert_eq!(world.run(&["list", "--json"]).json()[0]["completed"], Value::Null);
    // Where both were continued, they are two.
    world.run(&["run", "-s", "demo", "-a", "offline", "Here too"]);
    continue_in_cllm(&world, "p/fix-login.json", &["There too", "Both"]);
    let ran = world.run(&["import", "fix-login.json"]);
    assert!(ran.stdout.contains("a fork of S1: their logs differ"), "{ran}");
    // In a store without the session, and where the messages were changed, it is a conversation like any other.
    let other = World::new();
    other.run(&["import", world.path("p/fix-login.json").to_str().unwrap()]);
    assert_eq!(other.run(&["list", "--json"]).json()[0]["name"], "fix-login");
    let mut changed = read("p/fix-login.json");
    changed["messages"][1]["content"] = json!("Something else");
    let changed = world.file("changed.json", &changed.to_string());
    let ran = world.run(&["import", changed.to_str().unwrap()]);
    assert!(ran.stdout.contains(" fix-login"), "{ran}");
    // The record of the commands comes back without a message.
    let back = World::new();
    back.run(&["import", world.path("p/quiet.json").to_str().unwrap()]);
    let first = back.run(&["show", "quiet", "--json"]).quiet();
    assert!(
        first.starts_with(r#"{"seq":1,"kind":"SystemMessage","data":{"content":"","context_executed_at""#),
        "{first}"
    );
}

#[test]
fn an_interrupted_call_has_an_error_in_axio() {
    let world = World::new();
    world.session(
        "cut",
        &[
            user("go"),
            json!({"ToolCall": {"tool_use_id": "t1", "tool_name": "Bash", "input": {"command": "ls"}}}),
            json!({"Complete": {"success": false, "duration_ms": 1, "cost_usd": 0.0}}),
            user("again"),
        ],
    );
    insta::assert_snapshot!(world.run(&["export", "cut", "-f", "axio"]), @r#"
    exit code 0
    --- stdout
    [
    {"role":"user","content":[{"type":"text","text":"go"}]},
    {"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"Bash","input":{"command":"ls"}}]},
    {"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"The call was interrupted and has no result.","is_error":true}]},
    {"role":"user","content":[{"type":"text","text":"again"}]}
    ]
    "#);
}

#[test]
fn a_file_is_private_and_never_overwritten_by_accident() {
    let world = conversation();
    insta::assert_snapshot!(world.run(&["export", "demo", "-o", "out.json"]), @r"
    exit code 0
    --- stdout
    S1 demo is in out.json
    ");
    let file = world.path("p/out.json");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    insta::assert_snapshot!(world.run(&["export", "demo", "-o", "out.json"]), @r"
    exit code 3
    --- stderr
    error: out.json exists already
    hint: `--force` replaces it; nothing was written
    ");
    fs::write(&file, "mine").unwrap();
    assert_eq!(world.run(&["export", "demo", "-o", "out.json", "--json"]).code, 3);
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    assert_eq!(world.run(&["export", "demo", "-o", "out.json", "--force"]).code, 0);
    assert!(fs::read_to_string(&file).unwrap().starts_with("{\"format\":\"azureal-session\""));
    let left: Vec<_> =
        fs::read_dir(world.path("p")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "no draft is left: {left:?}");
}

#[test]
fn a_link_is_not_followed() {
    let world = conversation();
    let target = world.file("target", "mine");
    symlink(&target, world.path("p/link")).unwrap();
    symlink(world.path("nowhere"), world.path("p/dangling")).unwrap();
    for arguments in [
        &["export", "demo", "-o", "link"][..],
        &["export", "demo", "-o", "link", "--force"],
        &["export", "demo", "-o", "dangling"],
        &["export", "demo", "-o", "dangling", "--force"],
        &["export", "demo", "-o", ".git", "--force"],
    ] {
        let ran = world.run(arguments);
        assert_eq!(ran.code, 3, "{ran}");
    }
    assert_eq!(fs::read_to_string(target).unwrap(), "mine");
    assert!(!world.path("nowhere").exists());
    insta::assert_snapshot!(world.run(&["export", "demo", "-o", "no/such/folder/x"]), @r"
    exit code 1
    --- stderr
    error: no/such/folder/x: no such file or directory
    hint: create the folder no/such/folder first
    ");
}

#[test]
fn a_session_without_events_can_be_exported() {
    let world = World::new();
    world.session("a", &[]);
    for format in ["json", "openai", "anthropic", "cllm", "axio"] {
        let text = world.run(&["export", "a", "-f", format]).quiet();
        serde_json::from_str::<Value>(&text).unwrap();
    }
    assert!(world.run(&["export", "a", "-f", "html"]).quiet().ends_with("</html>\n"));
    assert!(world.run(&["export", "a", "-f", "markdown"]).quiet().starts_with("# a\n"));
    world.session("b", &[assistant("x")]);
}

#[test]
fn an_export_does_not_replace_the_store() {
    let world = conversation();
    symlink(world.path("p"), world.path("link")).unwrap();
    let before = world.snapshot("p/.azureal");
    let spellings = [
        ".azureal/sessions.azs".to_owned(),
        "./x/../.azureal//sessions.azs".to_owned(),
        world.store().to_str().unwrap().to_owned(),
        world.path("link/.azureal/sessions.azs").to_str().unwrap().to_owned(),
        ".azureal/sessions.azs-journal".to_owned(),
        ".azureal/sessions.azs-wal".to_owned(),
        world.path("link/.azureal/sessions.azs-shm").to_str().unwrap().to_owned(),
    ];
    fs::create_dir(world.path("p/x")).unwrap();
    for path in spellings {
        let ran = world.run(&["export", "demo", "-o", &path, "--force"]);
        assert_eq!(ran.code, 3, "{path}: {ran}");
        assert!(ran.stderr.contains("belongs to the store"), "{path}: {ran}");
        assert_eq!(world.snapshot("p/.azureal"), before, "{path}");
    }
    // Also where the store is named by the link, and the file is not.
    let store = world.path("link/.azureal/sessions.azs");
    let ran =
        world.run(&["export", "demo", "--store", store.to_str().unwrap(), "-o", ".azureal/sessions.azs"]);
    assert_eq!(ran.code, 3, "{ran}");
    assert_eq!(world.run(&["list"]).code, 0);
}
