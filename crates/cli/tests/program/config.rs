//! Configuration files: what is in effect, and what is said of those that are wrong.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::world::{Ran, World};

/// Runs the program with a home of its own.
fn run(world: &World, arguments: &[&str]) -> Ran {
    run_with(world, arguments, &[])
}

fn run_with(world: &World, arguments: &[&str], environment: &[(&str, &str)]) -> Ran {
    let mut command = world.command(arguments);
    command.env("HOME", world.path("own")).envs(environment.iter().copied());
    world.ran(command.output().unwrap())
}

#[test]
fn without_files_the_defaults_are_shown() {
    let world = World::new();
    insta::assert_snapshot!(run(&world, &["config"]), @r"
    exit code 0
    --- stdout
    agent                   the first that is installed  default
    model                   the agent's own              default
    permission              the agent's own              default
    timeout                 none                         default
    default_system_message  none                         default
    compaction threshold    400000 characters            default
    ");
    let json = run(&world, &["config", "--json"]).json();
    assert_eq!(json["compaction_threshold"]["value"]["characters"], 400_000);
    assert!(!world.path("p/.azureal").exists() && !world.path("own").exists());
}

#[test]
fn what_is_in_effect_is_shown_with_where_it_comes_from() {
    let world = World::new();
    world.file(
        "own/.config/azureal/azufig.toml",
        "agent = \"codex\"\n\n[compaction]\nthreshold_tokens = 90000\n\n[variables]\nTOKEN = \"x\"\n",
    );
    world.file(
        "own/.cllm/Cllmfile.yml",
        "default_system_message: |\n  Be brief.\n  And kind.\nvariables:\n  TEST: null\n  DEEP: ~\ncontext_commands:\n  \
         - name: Status\n    command: git status --short {{ TEST | default('') }}\n    dynamic: true\n",
    );
    let ran = run_with(&world, &["config"], &[("TOKEN", "secret")]);
    insta::assert_snapshot!(ran, @r"
    exit code 0
    --- stdout
    agent                   codex                                        [folder]/own/.config/azureal/azufig.toml:1
    model                   the agent's own                              default
    permission              the agent's own                              default
    timeout                 none                                         default
    default_system_message  Be brief.␊And kind.                          [folder]/own/.cllm/Cllmfile.yml:1
    compaction threshold    90000 tokens                                 [folder]/own/.config/azureal/azufig.toml:4
    variable TOKEN          $TOKEN                                       environment, TOKEN
    variable TEST           must be given                                [folder]/own/.cllm/Cllmfile.yml:5
    variable DEEP           must be given                                [folder]/own/.cllm/Cllmfile.yml:6
    context command Status  git status --short {{ TEST | default('') }}  [folder]/own/.cllm/Cllmfile.yml:8, every turn, up to 10 s, on failure warn
    ");
    let json = run_with(&world, &["config", "--json"], &[("TOKEN", "secret")]);
    assert!(!json.stdout.contains("secret"), "{json}");
    let json = json.json();
    assert_eq!(json["agent"]["value"], "codex");
    assert_eq!(json["agent"]["line"], 1);
    assert_eq!(json["variables"][0]["source"], "environment");
    assert_eq!(json["context_commands"][0]["dynamic"], true);
    assert_eq!(json["files"][0]["in_effect"], true);
}

#[test]
fn what_is_not_trusted_is_shown_apart() {
    let world = World::new();
    world.file("p/Cllmfile.yml", "context_commands:\n- {name: a, command: \"echo a\\necho b\"}\n");
    insta::assert_snapshot!(run(&world, &["config"]), @r#"
    exit code 0
    --- stdout
    agent                   the first that is installed  default
    model                   the agent's own              default
    permission              the agent's own              default
    timeout                 none                         default
    default_system_message  none                         default
    compaction threshold    400000 characters            default

    Not trusted, and not in effect:
    [folder]/p/Cllmfile.yml
      context command "a": once per session, up to 10 s, on failure warn
        | echo a
        | echo b
    --- stderr
    warning: [folder]/p/Cllmfile.yml is not trusted, so nothing in there is in effect; `azureal trust` shows it
    "#);
    let json = run(&world, &["config", "--json"]).json();
    assert_eq!(json["context_commands"], serde_json::json!([]));
    assert_eq!(json["files"][0]["in_effect"], false);
}

#[test]
fn what_could_not_be_filled_in_is_told() {
    let world = World::new();
    world.file("own/.cllm/Cllmfile.yml", "context_commands:\n- {name: a, command: 'cat {{ FILE }}'}\n");
    let ran = run(&world, &["config"]);
    assert_eq!(ran.code, 0);
    assert_eq!(
        ran.stderr,
        "warning: no session could begin like this: [folder]/own/.cllm/Cllmfile.yml:2: context command `a`: there \
         is no variable `FILE`; there are none\n"
    );
}

/// Says what is said of a file of the project: without its path, and without the hint.
#[track_caller]
fn told(name: &str, content: &[u8]) -> String {
    let world = World::new();
    let path = world.file(&format!("p/{name}"), "");
    fs::write(path, content).unwrap();
    let ran = run(&world, &["config"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{}: {ran}", String::from_utf8_lossy(content));
    // That comes before any question of trust.
    assert_eq!(run(&world, &["trust", "--yes"]).code, 1);
    let error = ran.stderr.lines().next().unwrap();
    let error = error.strip_prefix("error: ").unwrap();
    error.strip_prefix(&format!("[folder]/p/{name}")).unwrap_or_else(|| panic!("{error}")).to_owned()
}

#[test]
fn what_is_wrong_with_an_azufig_is_told_with_its_place_and_what_is_allowed() {
    let told = |content: &str| told(".azureal/azufig.toml", content.as_bytes());
    for (content, expected) in [
        ("agent = \"x\"", ":1:9: `agent` is the text \"x\"; allowed is one of claude, codex, offline"),
        ("\nmodel = 5", ":2:9: `model` is 5; allowed is a text"),
        ("model = \" \"", ":1:9: `model` is an empty text; allowed is a text"),
        (
            "\n  modle = \"x\"",
            ":2:3: `modle` is not a key here; allowed: agent, model, default_system_message, turn, claude, compaction, originals, changes, recall, redact, variables, \
             context_commands, ui, keys; did you mean `model`?",
        ),
        (
            "[whatever]",
            ":1:2: `whatever` is not a key here; allowed: agent, model, default_system_message, turn, claude, compaction, originals, changes, recall, redact, \
             variables, context_commands, ui, keys",
        ),
        ("compaction = 5", ":1:14: `compaction` is 5; allowed is a table of keys and values"),
        (
            "[compaction]\nthreshold = 5",
            ":2:1: `threshold` is not a key here; allowed: threshold_characters, threshold_tokens",
        ),
        (
            "[compaction]\nthreshold_tokens = 0",
            ":2:20: `threshold_tokens` is 0; allowed is a whole number above 0",
        ),
        (
            "[compaction]\nthreshold_tokens = 1\nthreshold_characters = 1",
            ":3:1: `threshold_characters` is a second threshold; allowed is one",
        ),
        (
            "[turn]\noutput_limit = 5",
            ":2:1: `output_limit` is not a key here; allowed: permission, timeout, output_limit_mib; did you mean \
             `output_limit_mib`?",
        ),
        (
            "[turn]\noutput_limit_mib = -1",
            ":2:20: `output_limit_mib` is -1; allowed is a whole number of MiB above 0",
        ),
        (
            "[changes]\nmax_size = \"2 GiB\"",
            ":2:12: `max_size` is the text \"2 GiB\"; allowed is a size such as \"500 MB\" or \"2 GB\"",
        ),
        ("[changes]\nenabled = 1", ":2:11: `enabled` is 1; allowed is true or false"),
        (
            "[variables]\nA = 2024-01-01",
            ":2:5: `A` is a date; allowed is a text, a number, true or false; null in YAML and { required = true } in \
             TOML for one that must be given",
        ),
        (
            "[variables]\na-b = 1",
            ":2:1: `a-b` is not a name for a variable; allowed are letters, digits and _, not beginning with a digit",
        ),
        ("context_commands = \"date\"", ":1:20: `context_commands` is the text \"date\"; allowed is a list"),
        (
            "[[context_commands]]\nname = \"x\"",
            ":1:1: this context command has no `command`; it must have one",
        ),
        (
            "[[context_commands]]\nname = \"x\"\ncomand = \"x\"",
            ":3:1: `comand` is not a key here; allowed: name, command, on_failure, timeout, dynamic; did you mean \
             `command`?",
        ),
        (
            "[[context_commands]]\nname = \"a\\nb\"",
            ":2:8: `name` is the text \"a\u{240a}b\"; allowed is one line of up to 200 characters",
        ),
        (
            "[[context_commands]]\ncommand = \"a\\u0000b\"",
            ":2:11: `command` is the text \"a\u{2400}b\"; allowed is a text without null characters",
        ),
        (
            "[[context_commands]]\non_failure = \"explode\"",
            ":2:14: `on_failure` is the text \"explode\"; allowed is one of warn, ignore, fail",
        ),
        (
            "[[context_commands]]\ndynamic = \"yes\"",
            ":2:11: `dynamic` is the text \"yes\"; allowed is true or false",
        ),
        ("[claude]\ncache = true", ":2:9: `cache` is true; allowed is one of auto, off"),
        ("[claude]\ncaching = \"auto\"", ":2:1: `caching` is not a key here; allowed: cache"),
        ("a = 1\na = 2", ":2:1: this TOML cannot be read: duplicate key"),
        ("a = [1", ":1:7: this TOML cannot be read: unclosed array, expected `]`"),
    ] {
        assert_eq!(told(content), expected, "{content}");
    }
    for timeout in ["0", "-1", "0.0", "3601", "1e300", "\"5\"", "true", "inf", "nan"] {
        let told = told(&format!("[[context_commands]]\ntimeout = {timeout}"));
        assert!(told.starts_with(":2:11: `timeout` is "), "{told}");
        assert!(told.ends_with("; allowed is a number of seconds above 0 and up to 3600"), "{told}");
    }
}

#[test]
fn what_is_wrong_with_a_cllmfile_is_told_with_its_place_and_what_is_allowed() {
    let told = |content: &str| told("Cllmfile.yml", content.as_bytes());
    for (content, expected) in [
        ("- a", ":1:1: the file is a list; allowed is a table of keys and values"),
        ("text", ":1:1: the file is the text \"text\"; allowed is a table of keys and values"),
        ("a: 1\na: 2", ":2:1: this YAML cannot be read: duplicate mapping key: a not allowed here"),
        ("a: [1, 2", ":1:4: this YAML cannot be read: unclosed bracket '['"),
        ("a: *b", ":1:4: this YAML cannot be read: reference to unknown value"),
        ("default_system_message: [1]", ":1:25: `default_system_message` is a list; allowed is a text"),
        ("variables:\n- A", ":2:3: `variables` is a list; allowed is a table of keys and values"),
        (
            "context_commands:\n  - date",
            ":2:5: `context_commands` is the text \"date\"; allowed is a list of tables, each with a name and a command",
        ),
        (
            "context_commands:\n  - name: x\n    command: x\n    timeout: 5s",
            ":4:14: `timeout` is the text \"5s\"; allowed is a number of seconds above 0 and up to 3600",
        ),
        ("context_commands:\n  - name: \"\"", ":2:11: `name` is an empty text; allowed is a text"),
        (
            "a: 1\n---\nb: 2",
            ":3:1: this YAML cannot be read: only single YAML document expected but multiple found",
        ),
    ] {
        assert_eq!(told(content), expected, "{content}");
    }
}

#[test]
fn hostile_files_are_refused_in_time() {
    let bomb = {
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..12 {
            let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
            bomb.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
        }
        bomb
    };
    let many_variables: String = (0..300).map(|index| format!("A{index}: 1, ")).collect();
    let many_commands = "- {name: a, command: b}\n".repeat(65);
    let too_much = |place: &str| {
        format!(
            "{place}: this YAML cannot be read: there is too much; allowed are 20000 values, aliases unfolded, 32 deep"
        )
    };
    let too_large = " has more than 1048576 bytes".to_owned();
    let yaml = [
        (bomb, too_much(":5:10")),
        (format!("a: {}{}", "[".repeat(40), "]".repeat(40)), too_much(":1:35")),
        (format!("a: {}", "{a: ".repeat(1000)), too_much(":1:128")),
        (format!("a: [{}]", "1,".repeat(400_000)), too_much(":1:39999")),
        ("- ".repeat(100_000), too_much(":1:65")),
        (
            format!("a: {}{}", "[".repeat(100_000), "]".repeat(100_000)),
            ":1:259: this YAML cannot be read: recursion limit exceeded".to_owned(),
        ),
        ("a: 1\n".repeat(2 * 1024 * 1024), too_large.clone()),
        (
            format!("context_commands:\n{many_commands}"),
            ":1:1: `context_commands` has 65; allowed are 64".to_owned(),
        ),
        (format!("variables: {{{many_variables}}}"), ":1:1: `variables` has 300; allowed are 256".to_owned()),
    ];
    for (content, expected) in yaml {
        let told = told("Cllmfile.yml", content.as_bytes());
        assert_eq!(told, expected);
    }
    let too_deep = |place: &str| {
        format!("{place}: this TOML cannot be read: cannot recurse further; max recursion depth met")
    };
    let toml = [
        (format!("a = {}{}", "[".repeat(100_000), "]".repeat(100_000)), too_deep(":1:85")),
        (format!("a = {}1", "{a = ".repeat(100_000)), too_deep(":1:405")),
        (
            format!("{}a = 1", "a.".repeat(100_000)),
            ":1:1: this TOML cannot be read: recursion limit".to_owned(),
        ),
        (
            format!("agent = [{}]", "1,".repeat(400_000)),
            ":1:9: `agent` is a list; allowed is one of claude, codex, offline".to_owned(),
        ),
        (
            "[[context_commands]]\n".repeat(40_000),
            ":1:3: `context_commands` has 40000; allowed are 64".to_owned(),
        ),
        ("#".repeat(10 * 1024 * 1024), too_large),
    ];
    for (content, expected) in toml {
        let told = told(".azureal/azufig.toml", content.as_bytes());
        assert_eq!(told, expected);
    }
    assert_eq!(told("Cllmfile.yml", b"a: b\nc: \xff"), ":2:4: this is not text in UTF-8");
    assert_eq!(told(".azureal/azufig.toml", b"\xff\xfea\0"), ":1:1: this is not text in UTF-8");
}

#[test]
fn what_is_no_plain_file_is_not_read() {
    let world = World::new();
    let file = world.path("p/Cllmfile.yml");
    assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    insta::assert_snapshot!(run(&world, &["config"]), @r"
    exit code 1
    --- stderr
    error: [folder]/p/Cllmfile.yml is not a plain file
    hint: a configuration file is a plain file; move this away
    ");
    for target in ["/dev/zero", "/dev/tty", "/"] {
        fs::remove_file(&file).unwrap();
        symlink(target, &file).unwrap();
        assert_eq!(run(&world, &["config"]).code, 3, "{target}");
    }
    // What leads nowhere is no file.
    for target in ["nowhere", "Cllmfile.yml/x"] {
        fs::remove_file(&file).unwrap();
        symlink(target, &file).unwrap();
        assert_eq!(run(&world, &["config"]).code, i32::from(target != "nowhere"), "{target}");
    }
    fs::remove_file(&file).unwrap();
    world.file("p/.cllm", "a file where a folder could be");
    assert_eq!(run(&world, &["config"]).code, 0);
}

#[test]
fn parents_are_not_searched() {
    let world = World::new();
    world.file("Cllmfile.yml", "broken: [");
    world.file("p/Cllmfile.yml", "default_system_message: top\n");
    world.file("p/sub/Cllmfile.yml", "broken: [");
    assert_eq!(run(&world, &["trust", "--yes"]).code, 0);
    let mut command = world.command(&["config", "--json"]);
    let output = command.current_dir(world.path("p/sub")).env("HOME", world.path("own")).output().unwrap();
    assert_eq!(world.ran(output).json()["default_system_message"]["value"], "top");
}

#[test]
fn a_starter_is_written_once() {
    let world = World::new();
    insta::assert_snapshot!(run(&world, &["config", "--init"]), @r"
    exit code 0
    --- stdout
    wrote [folder]/p/.azureal/azufig.toml; after changing it, `azureal trust` puts it into effect
    ");
    let path = world.path("p/.azureal/azufig.toml");
    let starter = fs::read_to_string(&path).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&world.path("p/.azureal")), 0o700);
    let ignored = fs::read_to_string(world.path("p/.azureal/.gitignore")).unwrap();
    assert!(ignored.ends_with("*\n!azufig.toml\n"), "{ignored}");
    // It says nothing, so there is nothing to trust.
    assert!(run(&world, &["trust", "--show"]).quiet().starts_with("there is nothing to trust"));
    insta::assert_snapshot!(run(&world, &["config", "--init"]), @r"
    exit code 1
    --- stderr
    error: [folder]/p/.azureal/azufig.toml is there already; it was not changed
    hint: `azureal config` shows what is in effect
    ");
    assert_eq!(fs::read_to_string(&path).unwrap(), starter);
    // Every example in it works.
    let examples: String = starter
        .lines()
        .filter_map(|line| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ') && !rest.is_empty()))
        .map(|line| format!("{line}\n"))
        .collect();
    fs::write(&path, examples).unwrap();
    run(&world, &["trust", "--yes"]);
    let json = run(&world, &["config", "--json"]).json();
    assert_eq!(json["agent"]["value"], "claude");
    assert_eq!(json["context_commands"].as_array().unwrap().len(), 2);
    assert_eq!(json["variables"][1]["required"], true);
}

#[test]
fn a_starter_does_not_go_through_a_link() {
    let world = World::new();
    fs::create_dir(world.path("elsewhere")).unwrap();
    symlink(world.path("elsewhere"), world.path("p/.azureal")).unwrap();
    assert_eq!(run(&world, &["config", "--init"]).code, 3);
    fs::remove_file(world.path("p/.azureal")).unwrap();
    fs::create_dir(world.path("p/.azureal")).unwrap();
    symlink(world.path("elsewhere/new"), world.path("p/.azureal/azufig.toml")).unwrap();
    assert_eq!(run(&world, &["config", "--init"]).code, 1);
    assert_eq!(world.snapshot("elsewhere"), []);
}

/// Returns the blocks of a page that are written in a language.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let begin = format!("```{language}\n");
    page.split(&begin).skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

#[test]
fn the_examples_of_the_pages_work() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let pages = ["configuration.md", "context-commands.md"]
        .map(|page| fs::read_to_string(docs.join(page)).unwrap())
        .concat();
    let (toml, yaml) = (blocks(&pages, "toml"), blocks(&pages, "yaml"));
    assert!(!toml.is_empty() && !yaml.is_empty());
    let all = toml
        .iter()
        .map(|text| (".azureal/azufig.toml", text))
        .chain(yaml.iter().map(|text| ("Cllmfile.yml", text)));
    for (name, text) in all {
        let world = World::new();
        world.file(&format!("p/{name}"), text);
        let ran = run(&world, &["trust", "--yes"]);
        assert_eq!(ran.code, 0, "{text}{ran}");
        let ran = run_with(&world, &["config"], &[("TEST", "x"), ("FILE", "y")]);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{text}{ran}");
    }
}

/// Configurations as users of cllm have them.
#[test]
fn configurations_of_cllm_work_unchanged() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../azureal/tests/fixtures/cllm");
    let mut seen = 0;
    for entry in fs::read_dir(fixtures).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let world = World::new();
        world.file("p/Cllmfile.yml", &text);
        let ran = run(&world, &["trust", "--yes"]);
        assert_eq!(ran.code, 0, "{ran}");
        let environment = [("TEST_NAME", "test_login"), ("TEAM", "core")];
        let ran = run_with(&world, &["config", "--json"], &environment);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{}{ran}", path.display());
        let json = ran.json();
        let commands = json["context_commands"].as_array().unwrap();
        assert_eq!(commands.len(), text.matches("- name:").count(), "{}", path.display());
        assert!(json["default_system_message"]["value"].is_string(), "{}", path.display());
        seen += 1;
    }
    assert_eq!(seen, 3);
}
