//! What agents may do, how long turns may take, and further arguments: from the command line, the environment and files.

use std::fs;
use std::process::Command;

use crate::run::RECORDED;
use crate::world::{Ran, World};

const DENIED: &str =
    include_str!("../../../agents/tests/fixtures/claude/current/permission-denied/stdout.jsonl");
const READ_ONLY: &str =
    include_str!("../../../agents/tests/fixtures/codex/current/sandbox-read-only/stdout.jsonl");
const READ_ONLY_ERRORS: &str =
    include_str!("../../../agents/tests/fixtures/codex/current/sandbox-read-only/stderr.txt");
const USERS_FILE: &str = "h/.config/azureal/azufig.toml";

/// Puts an agent on the path that notes its arguments and prints a recording.
fn agent(world: &World, name: &str, printed: &str, errors: &str) {
    let (out, err) =
        (world.file(&format!("{name}.out"), printed), world.file(&format!("{name}.err"), errors));
    let notes = world.path("arguments");
    let (out, err, notes) = (out.display(), err.display(), notes.display());
    world.program(name, &format!("echo \"$*\" >> '{notes}'; cat > /dev/null; cat '{err}' >&2; cat '{out}'"));
}

fn command(world: &World, arguments: &[&str]) -> Command {
    let mut command = world.with_programs(arguments);
    command.env("HOME", world.path("h"));
    command
}

fn run(world: &World, arguments: &[&str]) -> Ran {
    world.ran(command(world, &[&["run"], arguments].concat()).output().unwrap())
}

/// Returns the arguments of the last run.
fn noted(world: &World) -> String {
    fs::read_to_string(world.path("arguments")).unwrap().lines().last().unwrap().to_owned()
}

#[test]
fn refused_tools_end_with_the_option_that_allows_them() {
    let world = World::new();
    agent(&world, "claude", DENIED, "");
    agent(&world, "codex", READ_ONLY, READ_ONLY_ERRORS);
    for (arguments, expected) in [
        (
            &["-a", "claude", "hi"][..],
            "claude was refused Write, Bash and WebFetch. Allow edits with `--permission edit`, commands too with \
             `--permission all`",
        ),
        (
            &["-a", "claude", "--permission", "edit", "hi"],
            "claude was refused Write, Bash and WebFetch. Allow everything with `--permission all`",
        ),
        (
            &["-a", "codex", "--permission", "read", "hi"],
            "codex was refused Edit. Allow edits with `--permission edit`",
        ),
    ] {
        let ran = run(&world, arguments);
        assert_eq!((ran.code, ran.stderr.lines().last().unwrap()), (0, expected), "{ran}");
        let closing = ran.stderr.lines().rev().nth(1).unwrap();
        assert!(
            closing.starts_with("! done in ") && closing.contains(" refused · ") && closing.contains(" · S"),
            "{closing}"
        );
        assert!(!ran.stderr.contains('✓'), "{ran}");
        let json = run(&world, &[arguments, &["--json"]].concat());
        assert_eq!(json.stderr.lines().last().unwrap(), expected, "{json}");
    }
}

#[test]
fn a_turn_without_refusals_says_nothing_of_permissions() {
    let world = World::new();
    agent(&world, "claude", RECORDED, "");
    let ran = run(&world, &["-a", "claude", "hi"]);
    assert!(ran.stderr.contains("✓ done in ") && !ran.stderr.contains("permission"), "{ran}");
}

#[test]
fn arguments_after_two_dashes_go_to_the_agents_program() {
    let world = World::new();
    agent(&world, "claude", RECORDED, "");
    agent(&world, "codex", READ_ONLY, "");
    assert_eq!(run(&world, &["-a", "claude", "hi", "--", "--max-turns", "3"]).code, 0);
    assert!(noted(&world).ends_with(" --max-turns 3"), "{}", noted(&world));
    assert_eq!(run(&world, &["-a", "codex", "hi", "--", "-c", "x=1"]).code, 0);
    assert!(noted(&world).ends_with(" -c x=1 -"), "{}", noted(&world));
    // The prompt is still that of the command line.
    let shown = world.run(&["show", "S1", "--json"]).json_lines();
    assert_eq!(shown[0]["data"]["content"], "hi");
    let ran = run(&world, &["-a", "claude", "--", "- fix the list"]);
    assert_eq!(ran.code, 2, "{ran}");
    assert!(ran.stderr.contains("hint: the prompt stands before `--`"), "{ran}");
    let ran = run(&world, &["-a", "offline", "hi", "--", "--max-turns", "3"]);
    assert_eq!(
        (ran.code, ran.stderr.lines().next()),
        (2, Some("error: offline takes no arguments")),
        "{ran}"
    );
    assert_eq!(world.run(&["list", "--json"]).json().as_array().unwrap().len(), 2, "no session was created");
}

#[test]
fn arguments_for_the_agent_are_not_used_for_summaries() {
    let world = World::new();
    agent(&world, "claude", RECORDED, "");
    world.file(USERS_FILE, "[compaction]\nthreshold_characters = 4000\n");
    for _ in 0..4 {
        let prompt = "long ".repeat(500);
        assert_eq!(run(&world, &["-s", "work", "-a", "claude", &prompt, "--", "--max-turns", "3"]).code, 0);
    }
    let noted = fs::read_to_string(world.path("arguments")).unwrap();
    let (summaries, turns): (Vec<&str>, Vec<&str>) = noted.lines().partition(|line| line.contains("--tools"));
    assert!(!summaries.is_empty() && turns.len() == 4, "{noted}");
    assert!(summaries.iter().all(|line| !line.contains("--max-turns")), "{noted}");
    assert!(turns.iter().all(|line| line.ends_with(" --max-turns 3")), "{noted}");
}

#[test]
fn permission_and_model_are_those_of_the_nearest_place_that_sets_them() {
    let world = World::new();
    agent(&world, "claude", RECORDED, "");
    let asked = |environment: &[(&str, &str)], arguments: &[&str]| {
        let mut command = command(&world, &[&["run", "-a", "claude"], arguments, &["hi"]].concat());
        let ran = world.ran(command.envs(environment.iter().copied()).output().unwrap());
        assert_eq!(ran.code, 0, "{ran}");
        let noted = noted(&world);
        let after = |name: &str| {
            let (_, value) = noted.split_once(&format!("{name} "))?;
            value.split(' ').next().map(str::to_owned)
        };
        (after("--permission-mode").unwrap_or_default(), after("--model").unwrap_or_default())
    };
    let both = |permission: &str, model: &str| (permission.to_owned(), model.to_owned());
    assert_eq!(asked(&[], &[]), both("", ""));
    world.file(USERS_FILE, "model = \"opus\"\n[turn]\npermission = \"edit\"\n");
    assert_eq!(asked(&[], &[]), both("acceptEdits", "opus"));
    world.file("p/.azureal/azufig.toml", "model = \"haiku\"\n[turn]\npermission = \"read\"\n");
    assert_eq!(world.ran(command(&world, &["trust", "--yes"]).output().unwrap()).code, 0);
    assert_eq!(asked(&[], &[]), both("dontAsk", "haiku"), "a project can lower it");
    let environment = [("AZUREAL_PERMISSION", "all"), ("AZUREAL_MODEL", "sonnet")];
    assert_eq!(asked(&environment, &[]), both("bypassPermissions", "sonnet"));
    assert_eq!(asked(&environment, &["--permission", "edit", "-m", "opus"]), both("acceptEdits", "opus"));
}

#[test]
fn the_environment_chooses_the_agent_and_the_timeout() {
    let world = World::new();
    world.program("codex", "exec sleep 60");
    world.file(USERS_FILE, "agent = \"claude\"\n");
    let mut command = command(&world, &["run", "hi"]);
    let ran =
        world.ran(command.env("AZUREAL_AGENT", "codex").env("AZUREAL_TIMEOUT", "0.3").output().unwrap());
    assert_eq!(ran.code, 1, "{ran}");
    assert!(ran.stderr.contains("codex") && ran.stderr.contains("exceeded its time limit of 0.3 s"), "{ran}");
}

#[test]
fn a_wrong_value_in_the_environment_is_an_error_that_names_it() {
    let world = World::new();
    let ran = world.ran(
        command(&world, &["run", "-a", "offline", "hi"]).env("AZUREAL_PERMISSION", "x").output().unwrap(),
    );
    assert_eq!(
        ran.stderr.lines().next().unwrap(),
        "error: `AZUREAL_PERMISSION` in the environment is `x`; allowed is one of read, edit, all"
    );
    assert_eq!(ran.code, 2);
    assert!(!world.store().exists());
}

#[test]
fn a_project_cannot_allow_its_agents_more_than_to_read() {
    for (file, expected) in [
        (
            "model = \"opus\"\n\n[turn]\npermission = \"all\"\n",
            ":4:14: a project's file can only set `permission`",
        ),
        ("[turn]\npermission = \"edit\"\n", ":2:14: a project's file can only set `permission`"),
        ("[turn]\ntimeout = 5\nfallback = [\"codex\"]\n", ":3:1: `fallback` is not a key here"),
        ("store = \"postgres://h/db\"\n", ":1:1: `store` is not a key here"),
        ("[agents.mine]\nacp = [\"evil\"]\n", ":1:2: `agents` is not a key here"),
    ] {
        let world = World::new();
        world.file("p/.azureal/azufig.toml", file);
        for arguments in [&["config"][..], &["trust", "--yes"]] {
            let ran = world.ran(command(&world, arguments).output().unwrap());
            assert_eq!(ran.code, 1, "{ran}");
            assert!(ran.stderr.contains(&format!("azufig.toml{expected}")), "{ran}");
        }
        let ran = run(&world, &["-a", "offline", "hi"]);
        assert_eq!(ran.code, 1, "{ran}");
        let place: String = expected.split(": ").next().unwrap().to_owned();
        assert!(ran.stderr.contains(&format!("azufig.toml{place}: ")) && !world.store().exists(), "{ran}");
    }
}

#[test]
fn where_each_value_comes_from_is_shown() {
    let world = World::new();
    world.file(USERS_FILE, "[turn]\npermission = \"edit\"\ntimeout = 600\n");
    let mut shown = command(&world, &["config"]);
    let ran = world.ran(shown.env("AZUREAL_MODEL", "opus").env("AZUREAL_TIMEOUT", "1.5").output().unwrap());
    insta::assert_snapshot!(ran, @r"
    exit code 0
    --- stdout
    agent                   claude             environment, AZUREAL_MODEL
    model                   opus               environment, AZUREAL_MODEL
    permission              edit               [folder]/h/.config/azureal/azufig.toml:2
    timeout                 1.5 s              environment, AZUREAL_TIMEOUT
    default_system_message  none               default
    compaction threshold    400000 characters  default
    ");
    let mut shown = command(&world, &["config", "--json"]);
    let json = world.ran(shown.env("AZUREAL_MODEL", "opus").output().unwrap()).json();
    assert_eq!(
        json["model"],
        serde_json::json!({"value": "opus", "source": "environment", "variable": "AZUREAL_MODEL"})
    );
    assert_eq!((&json["permission"]["value"], &json["permission"]["line"]), (&"edit".into(), &2.into()));
    assert_eq!((&json["timeout"]["value"], &json["timeout"]["line"]), (&600.0.into(), &3.into()));
}
