//! Requests that read or change something.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use azureal::core::event::{ModelSwitch, ToolResult};
use azureal::desk::{EditPurpose, News, ReadWith, Request, TurnNews};
use azureal::{Environment, Event, Seq, SessionId, Workspace, block_on};
use azureal_core::NewTurn;
use azureal_testkit::programs::script;

use super::{CLAUDE, Listener, PANE, WAITING_CLAUDE, World, session};

/// Creates a session with events.
fn create(workspace: &Workspace, name: &str, events: Vec<Event>) -> SessionId {
    let id = block_on(workspace.create_session(name)).unwrap();
    block_on(workspace.store.append(id, NewTurn::verbatim(events))).unwrap();
    id
}

#[track_caller]
fn failed(desk: &Listener) -> &'static str {
    desk.until("failure", |news| match news {
        News::Failed { error, .. } => Some(error.kind()),
        _ => None,
    })
}

#[test]
fn sessions_are_renamed_forked_and_deleted() {
    let world = World::new("");
    for desk in [world.desk_in_memory(), world.desk()] {
        let one = create(&desk.workspace, "one", vec![Event::user("a"), Event::assistant("b")]);
        create(&desk.workspace, "two", vec![]);
        desk.desk.perform(Request::List { all_worktrees: false, limit: 10 });
        let names = |names: &[&str]| {
            desk.until("list", |news| match news {
                News::Sessions(lines) => {
                    let mut found: Vec<String> = lines.into_iter().map(|line| line.record.name).collect();
                    found.sort();
                    (found == names).then_some(())
                }
                _ => None,
            });
        };
        names(&["one", "two"]);
        desk.desk.perform(Request::Rename { session: one, name: "two".into() });
        assert_eq!(failed(&desk), "name_taken");
        desk.desk.perform(Request::Rename { session: one, name: "three".into() });
        names(&["three", "two"]);
        desk.open(one);
        desk.desk.perform(Request::Fork { session: one, at: Seq(1) });
        let forked = desk.until("fork", |news| match news {
            News::Forked { session, from } => (from == one).then_some(session),
            _ => None,
        });
        assert_eq!(block_on(desk.workspace.store.get(forked)).unwrap().counts.events, 1);
        desk.desk.perform(Request::Fork { session: one, at: Seq(9) });
        assert_eq!(failed(&desk), "not_found");
        desk.desk.perform(Request::Delete { session: one });
        names(&["S3", "two"]);
        desk.open(one);
        assert_eq!(failed(&desk), "not_found");
    }
}

#[test]
fn a_session_with_a_running_turn_is_not_deleted() {
    let world = World::new(WAITING_CLAUDE);
    for desk in [world.desk_in_memory(), world.desk()] {
        desk.send("Why?");
        desk.until_turn("begin", |news| matches!(news, TurnNews::Began { .. }).then_some(()));
        desk.desk.perform(Request::Delete { session: session(1) });
        assert_eq!(failed(&desk), "busy");
        desk.desk.perform(Request::Cancel { pane: PANE });
        desk.turn();
        desk.desk.perform(Request::Delete { session: session(1) });
        desk.until("notice", |news| match news {
            News::Notice(text) => text.starts_with("deleted S1").then_some(()),
            _ => None,
        });
    }
}

#[test]
fn a_chosen_agent_and_model_are_stored_and_restored() {
    let world = World::new(CLAUDE);
    script(&world.path("bin/codex"), "exit 1");
    for desk in [world.desk_in_memory(), world.desk()] {
        let switch = |agent: &str, model: Option<&str>| {
            let (agent, model) = (agent.to_owned(), model.map(str::to_owned));
            desk.desk.perform(Request::Switch { pane: PANE, agent, model });
        };
        // Before there is a session, it is for the first turn.
        switch("claude", Some("opus"));
        let is_told = |expected: &str| {
            let next = desk.until("next agent", |news| match news {
                News::NextAgent { pane: PANE, next } => Some(next),
                _ => None,
            });
            let model = next.model.map(|model| format!(" {model}")).unwrap_or_default();
            assert_eq!(format!("{}{model}", next.agent.unwrap()), expected);
        };
        is_told("claude opus");
        desk.send("Why?");
        desk.turn();
        let record = block_on(desk.workspace.store.get(session(1))).unwrap();
        assert_eq!(record.counts.requested_model.as_deref(), Some("opus"));
        assert_eq!(record.completed, Some(true));
        switch("nobody", None);
        assert_eq!(failed(&desk), "unknown_agent");
        switch("codex", Some("gpt-5"));
        let events = desk.until("event", |news| match news {
            News::Appended { events, .. } => Some(events),
            _ => None,
        });
        let expected = Event::ModelSwitch(ModelSwitch::chosen("codex", Some("gpt-5".into())));
        assert_eq!(events.iter().map(|stored| stored.event().unwrap()).collect::<Vec<_>>(), [expected]);
        is_told("codex gpt-5");
        let switched = block_on(desk.workspace.store.get(session(1))).unwrap();
        assert_eq!((switched.completed, switched.duration_ms), (record.completed, record.duration_ms));
        assert_eq!(switched.counts.messages, record.counts.messages);
        assert_eq!(switched.counts.rendered_chars, record.counts.rendered_chars);
        let next = || {
            desk.open(session(1));
            desk.until("opened", |news| match news {
                News::Opened(opened) => Some((opened.next.agent, opened.next.model)),
                _ => None,
            })
        };
        assert_eq!(next(), (Some("codex".into()), Some("gpt-5".into())));
        switch("claude", None);
        assert_eq!(next(), (Some("claude".into()), None));
        desk.send("Again");
        let told = desk.turn();
        assert!(told.contains(&"accepted S1 claude".to_owned()), "{told:?}");
        let record = block_on(desk.workspace.store.get(session(1))).unwrap();
        assert_eq!(record.counts.requested_model, None);
    }
}

#[test]
fn a_choice_during_a_turn_holds_from_its_end_on() {
    let world = World::new(WAITING_CLAUDE);
    let desk = world.desk();
    desk.send("Why?");
    desk.until_turn("begin", |news| matches!(news, TurnNews::Began { .. }).then_some(()));
    desk.desk.perform(Request::Switch { pane: PANE, agent: "claude".into(), model: Some("haiku".into()) });
    world.release();
    desk.turn();
    desk.until("event", |news| matches!(news, News::Appended { .. }).then_some(()));
    let record = block_on(desk.workspace.store.get(session(1))).unwrap();
    assert_eq!(record.counts.requested_model.as_deref(), Some("haiku"));
}

#[test]
fn events_are_read_in_pages_and_searched() {
    let world = World::new("");
    let desk = world.desk();
    let mut events: Vec<Event> = (1..=200).map(|n| Event::assistant(format!("text {n}"))).collect();
    events.insert(100, Event::user("The NEEDLE"));
    let id = create(&desk.workspace, "one", events);
    desk.desk.perform(Request::Open { pane: PANE, session: id, last: 10 });
    desk.desk.perform(Request::ReadBefore { pane: PANE, before: Seq(192), limit: 5 });
    desk.desk.perform(Request::ReadAfter { pane: PANE, after: Seq(201), limit: 5 });
    let numbers = |events: &[azureal::StoredEvent]| {
        events.first().zip(events.last()).map(|(first, last)| (first.seq.0, last.seq.0))
    };
    let mut pages = Vec::new();
    desk.until("pages", |news| {
        match news {
            News::Opened(opened) => pages.push(numbers(&opened.events)),
            News::Page { events, .. } => pages.push(numbers(&events)),
            _ => {}
        }
        (pages.len() == 3).then_some(())
    });
    assert_eq!(pages, [Some((192, 201)), Some((187, 191)), None]);
    let found = || {
        desk.until("result", |news| match news {
            News::Found { text, seq, .. } => Some((text, seq.map(|seq| seq.0))),
            _ => None,
        })
    };
    desk.desk.perform(Request::FindPrompt { pane: PANE, from: Seq::END, backwards: true });
    assert_eq!(found(), (None, Some(101)));
    let find = |text: &str| {
        let text = text.to_owned();
        desk.desk.perform(Request::FindText { pane: PANE, text, from: Seq::END, backwards: true });
    };
    find("needle");
    assert_eq!(found(), (Some("needle".into()), Some(101)));
    find("nowhere");
    assert_eq!(found(), (Some("nowhere".into()), None));
}

#[test]
fn the_full_form_of_a_result_is_read_with_its_secrets_masked() {
    let secret = "sk-ant-api03-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    let long = format!("{secret}\\n{}", "line\\n".repeat(3_000));
    let claude = format!(
        r#"[ "$1" = --version ] && echo 2.1.197 && exit
cat > /dev/null
echo '{{"type":"assistant","message":{{"id":"m","role":"assistant","content":[{{"type":"tool_use","id":"t","name":"Bash","input":{{"command":"x"}}}}]}}}}'
printf '%s\n' '{{"type":"user","message":{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t","content":"{long}"}}]}}}}'
echo '{{"type":"result","subtype":"success","is_error":false,"duration_ms":1,"result":"Done."}}'"#
    );
    let world = World::new(&claude);
    let desk = world.desk();
    desk.send("Go");
    let last = desk.until_turn("end", |news| match news {
        TurnNews::Stored { last, .. } => last,
        _ => None,
    });
    desk.turn();
    desk.desk.perform(Request::ReadFull { pane: PANE, first: Seq(1), last });
    let events = desk.until("full events", |news| match news {
        News::Full { events, .. } => Some(events),
        _ => None,
    });
    let [(_, Event::ToolResult(ToolResult { content, omitted, .. }))] = events.as_slice() else {
        unreachable!("{events:?}")
    };
    assert_eq!((content.lines().count(), *omitted), (3_001, None));
    assert!(!content.contains(secret));
}

#[test]
fn the_context_of_the_next_agent_is_shown_with_the_sizes_of_its_parts() {
    let world = World::new("");
    let desk = world.desk();
    let id = create(&desk.workspace, "one", vec![Event::user("Hello"), Event::assistant("Hi")]);
    desk.open(id);
    desk.desk.perform(Request::Context { pane: PANE });
    let (parts, text, meter) = desk.until("context", |news| match news {
        News::Context { parts, text, meter, .. } => Some((parts, text, meter)),
        _ => None,
    });
    assert!(text.contains("Hello") && text.contains("Hi"), "{text}");
    let sum: u64 = parts.iter().map(|(_, chars)| chars).sum();
    assert_eq!((sum, meter.chars), (text.chars().count() as u64, sum));
    assert_eq!(parts.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["events", "tags"]);
}

#[test]
fn a_session_is_compacted_with_progress_and_an_end() {
    let world = World::new("");
    fs::remove_file(world.path("bin/claude")).unwrap();
    let desk = world.desk();
    let events = (0..40).flat_map(|n| {
        [
            Event::user(format!("Question {n}")),
            Event::assistant("word ".repeat(200)),
            Event::Complete(Default::default()),
        ]
    });
    let id = create(&desk.workspace, "one", events.collect());
    desk.open(id);
    desk.desk.perform(Request::Compact { pane: PANE });
    let told = desk.turn();
    assert!(told.iter().any(|word| word.contains("covers the events up to")), "{told:?}");
    assert_eq!(told.last().map(String::as_str), Some("over"));
    assert_eq!(block_on(desk.workspace.store.compactions(id)).unwrap().len(), 1);
}

#[test]
fn the_tones_of_code_are_places_in_the_source_of_its_block() {
    let world = World::new("");
    let desk = world.desk();
    let id = create(&desk.workspace, "one", vec![Event::user("a")]);
    desk.open(id);
    desk.until("opened", |news| matches!(news, News::Opened(_)).then_some(()));
    let highlight = |language: &str, code: &str| {
        let (language, code) = (language.to_owned(), code.to_owned());
        desk.desk.perform(Request::Highlight { pane: PANE, block: (Seq(1), 2), at: 100, language, code });
    };
    highlight("no-such-language", "fn main() {}");
    highlight("rust", "fn main() {}");
    let tones = desk.until("tones", |news| match news {
        News::Highlighted { block: (Seq(1), 2), at: 100, tones, .. } => Some(tones),
        _ => None,
    });
    assert_eq!(tones[0], (100..102, azureal::transcript::Tone::Keyword), "{tones:?}");
    assert_eq!(desk.rest(), [""; 0], "an unknown language has no answer");
}

#[test]
fn agents_are_found_at_once_and_their_versions_follow() {
    let world = World::new(CLAUDE);
    let desk = world.desk();
    desk.desk.perform(Request::Agents);
    let version = desk.until("version", |news| match news {
        News::Agents(lines) => {
            let line = |name: &str| lines.iter().find(|line| line.name == name).unwrap();
            assert_eq!(
                (line("codex").version.as_deref(), line("codex").hint.as_deref()),
                (None, Some("not installed"))
            );
            line("claude").version.clone().filter(|version| !version.is_empty())
        }
        _ => None,
    });
    assert_eq!(version, "2.1.197");
}

#[test]
fn files_of_the_project_take_effect_once_they_are_trusted() {
    let world = World::new(CLAUDE);
    fs::create_dir(world.path("project/.azureal")).unwrap();
    let file = world.path("project/.azureal/azufig.toml");
    fs::write(&file, "default_system_message = \"Be brief.\"\n").unwrap();
    let desk = world.desk();
    let required = || {
        desk.until("question", |news| match news {
            News::TrustRequired { content } => Some(content),
            _ => None,
        })
    };
    assert!(required().contains("Be brief."));
    // What the user has seen is not what is there now.
    fs::write(&file, "default_system_message = \"Be long.\"\n").unwrap();
    desk.desk.perform(Request::Trust);
    assert!(required().contains("Be long."));
    desk.desk.perform(Request::Trust);
    desk.until("notice", |news| match news {
        News::Notice(text) => text.contains("in effect").then_some(()),
        _ => None,
    });
    desk.send("Why?");
    let mut appended = Vec::new();
    let first = desk.until("begin", |news| match news {
        News::Appended { events, .. } => {
            appended.extend(events.into_iter().map(|stored| (stored.seq.0, stored.kind)));
            None
        }
        News::Turn { news, .. } => match *news {
            TurnNews::Began { first, .. } => Some(first.0),
            _ => None,
        },
        _ => None,
    });
    assert_eq!((appended, first), (vec![(1, "SystemMessage".to_owned())], 2), "it comes before the prompt");
}

#[test]
fn paths_are_completed_without_those_that_git_ignores() {
    let world = World::new("");
    let project = world.path("project");
    fs::create_dir_all(project.join("src")).unwrap();
    for file in ["src/main.rs", "mainly.log", "README.md"] {
        fs::write(project.join(file), "").unwrap();
    }
    let git = std::process::Command::new("git").args(["init", "-q"]).current_dir(&project).status();
    assert!(git.unwrap().success());
    fs::write(project.join(".gitignore"), "*.log\n").unwrap();
    let desk = world.desk();
    desk.desk.perform(Request::CompletePath { prefix: "main".into() });
    let paths = desk.until("paths", |news| match news {
        News::Paths { paths, .. } => Some(paths),
        _ => None,
    });
    assert_eq!(paths, ["src/main.rs"]);
}

#[test]
fn the_turns_of_a_session_are_counted_and_a_pager_begins_at_the_event_that_is_read() {
    let world = World::new("");
    script(&world.path("bin/less"), "echo \"$1\" > \"$FOLDER/line\"; cat \"$2\" > \"$FOLDER/paged\"");
    let own = World::environment_in(world.folder.path());
    let variables = own.variables().map(|(name, value)| (name.to_owned(), value.to_owned()));
    let environment = Environment::new(variables.chain([("PAGER".into(), "less".into())]));
    let workspace =
        Workspace::open(&world.path("project"), &environment, &azureal::Options::default()).unwrap();
    let events = (1..=700).map(|n| Event::user(format!("Prompt {n}\nof two lines"))).collect();
    let id = create(&workspace, "one", events);
    let desk = Listener::of(workspace);
    desk.open(id);
    let turns = desk.until("number of turns", |news| match news {
        News::Counted { pane: PANE, turns, last } => Some((turns, last)),
        _ => None,
    });
    assert_eq!(turns, (700, Seq(700)));
    for (at, begins) in
        [(Some(Seq(1)), "> Prompt 1"), (Some(Seq(400)), "> Prompt 400"), (Some(Seq(700)), "> Prompt 700")]
    {
        desk.desk.perform_in_terminal(Request::Read { pane: PANE, at, with: ReadWith::Pager });
        let line = fs::read_to_string(world.path("line")).unwrap();
        let line: usize = line.trim().strip_prefix('+').unwrap().parse().unwrap();
        let paged = fs::read_to_string(world.path("paged")).unwrap();
        let lines: Vec<&str> = paged.lines().skip(line - 1).collect();
        assert!(lines[0].starts_with("## ") && lines[2].trim_end() == begins, "{line}: {:?}", &lines[..3]);
    }
    for at in [None, Some(Seq(900))] {
        desk.desk.perform_in_terminal(Request::Read { pane: PANE, at, with: ReadWith::Pager });
        assert_eq!(fs::read_to_string(world.path("line")).unwrap(), "+G\n");
        assert_eq!(fs::read_to_string(world.path("paged")).unwrap().matches("of two lines").count(), 700);
    }
}

#[test]
fn a_text_is_edited_in_a_private_file_and_a_session_is_read_in_a_pager() {
    let world = World::new("");
    script(
        &world.path("bin/edit"),
        "stat -c %a \"$2\" > \"$FOLDER/mode\"; echo \"$1 $2\" > \"$FOLDER/file\"; cat \"$2\" > \"$FOLDER/was\"; echo ' and more' >> \"$2\"",
    );
    script(&world.path("bin/page"), "cat \"$1\" > \"$FOLDER/paged\"");
    let own = World::environment_in(world.folder.path());
    let more = [("EDITOR".into(), "edit --wait".into()), ("PAGER".into(), "page".into())];
    let variables = own.variables().map(|(name, value)| (name.to_owned(), value.to_owned())).chain(more);
    let environment = Environment::new(variables);
    let workspace =
        Workspace::open(&world.path("project"), &environment, &azureal::Options::default()).unwrap();
    let id = create(&workspace, "one", vec![Event::user("Hello\u{1b}[31m")]);
    let desk = Listener::of(workspace);
    let edit = |text: &str, purpose| {
        desk.desk.perform_in_terminal(Request::Edit { text: text.into(), purpose });
        desk.until("edited text", |news| match news {
            News::Edited { text, .. } => Some(text),
            _ => None,
        })
    };
    assert_eq!(edit("a prompt", EditPurpose::Prompt).as_deref(), Some("a prompt and more"));
    assert_eq!(fs::read_to_string(world.path("mode")).unwrap(), "600\n");
    let file = fs::read_to_string(world.path("file")).unwrap();
    let path = file.trim().strip_prefix("--wait ").unwrap();
    assert!(!std::path::Path::new(path).exists(), "it is deleted");
    assert_eq!(edit("a context", EditPurpose::Look), None);
    assert_eq!(fs::read_to_string(world.path("paged")).unwrap(), "a context", "the pager shows it");
    assert_eq!(fs::read_to_string(world.path("was")).unwrap(), "a prompt", "the editor does not");
    script(&world.path("bin/edit"), "exit 1");
    assert_eq!(edit("a prompt", EditPurpose::Prompt), None, "nothing was changed");
    script(&world.path("bin/edit"), "head -c 11000000 /dev/zero > \"$2\"; echo \"$2\" > \"$FOLDER/file\"");
    assert_eq!(edit("a prompt", EditPurpose::Prompt), None, "it is too long for a prompt");
    let path = fs::read_to_string(world.path("file")).unwrap();
    assert_eq!(fs::metadata(path.trim()).unwrap().len(), 11_000_000, "it is kept");
    fs::remove_file(path.trim()).unwrap();
    desk.open(id);
    desk.desk.perform_in_terminal(Request::Read { pane: PANE, at: None, with: ReadWith::Pager });
    let paged = fs::read_to_string(world.path("paged")).unwrap();
    assert!(paged.contains("Hello") && !paged.contains('\u{1b}'), "{paged}");
    desk.desk.perform(Request::Copy { text: "text".into() });
    desk.until("copy", |news| match news {
        News::Copied { by, text } => {
            assert_eq!((by, text.as_str()), (None, "text"), "there is no desktop");
            Some(())
        }
        _ => None,
    });
    let folder = world.path("home/.local/state/azureal");
    desk.desk.perform(Request::Keep(Box::default()));
    desk.desk.leave();
    assert_eq!(fs::metadata(folder.join("desk")).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn a_search_over_all_sessions_ends_with_the_last_one_asked_for() {
    let world = World::new("");
    for desk in [world.desk_in_memory(), world.desk()] {
        for number in 0..3 {
            create(
                &desk.workspace,
                &format!("session {number}"),
                vec![Event::user(format!("token number{number}"))],
            );
        }
        for text in ["t", "to", "tok", "token number1", "token number2"] {
            desk.desk.perform(Request::Search { text: text.into() });
        }
        let found = |text: &str| {
            desk.until("hits", |news| match news {
                News::SearchFound(found) if found.text == text && found.is_over => Some(found),
                _ => None,
            })
        };
        let hits = found("token number2").hits;
        assert_eq!(hits.len(), 1);
        assert_eq!((hits[0].session.name.as_str(), hits[0].seq), ("session 2", Seq(1)));
        desk.desk.perform(Request::Search { text: "role:user tok".into() });
        assert_eq!(found("role:user tok").total.events, 3);
        desk.desk.perform(Request::Search { text: "role:nobody tok".into() });
        assert!(found("role:nobody tok").problem.unwrap().contains("is no role"));
    }
}
