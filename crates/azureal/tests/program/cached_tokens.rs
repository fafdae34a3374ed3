//! What is shown of tokens that a provider read from its cache, with what both agents print.

use serde_json::{Value, json};

use crate::world::{Ran, World};

const CLAUDE: &str = include_str!("../../../agents/tests/fixtures/claude/current/usage-cache/stdout.jsonl");
const CODEX: &str = include_str!("../../../agents/tests/fixtures/codex/current/plain/stdout.jsonl");

/// Makes programs of both agents that answer every prompt with a recording.
fn world() -> World {
    let world = World::new();
    for (agent, recording) in [("claude", CLAUDE), ("codex", CODEX)] {
        let recording = world.file(&format!("bin/{agent}.jsonl"), recording);
        world.program(agent, &format!("cat > /dev/null\ncat '{}'", recording.display()));
    }
    world
}

fn run(world: &World, arguments: &[&str]) -> Ran {
    world.ran(world.with_programs(arguments).output().unwrap())
}

#[track_caller]
fn ends_with(text: &str, expected: &str) {
    let last = text.trim_end().lines().last().unwrap();
    assert!(last.starts_with("✓ done in ") && last.ends_with(expected), "{text}");
}

#[test]
fn the_end_of_a_turn_says_how_much_was_cached() {
    let world = world();
    let claude = " · 17k in, 87 % cached · 340 out · $0.03";
    let codex = " · 1.2k in, 81 % cached · 56 out";
    ends_with(&run(&world, &["run", "-a", "claude", "-s", "a", "hi"]).stderr, &format!("{claude} · S1"));
    ends_with(&world.run(&["show", "a"]).quiet(), claude);
    ends_with(&run(&world, &["run", "-a", "codex", "-s", "b", "hi"]).stderr, &format!("{codex} · S2"));
    ends_with(&world.run(&["show", "b"]).quiet(), codex);
}

#[test]
fn programs_get_every_count_of_both_agents() {
    let world = world();
    let claude = json!({"input_tokens": 17212, "output_tokens": 340, "cache_read_tokens": 15000, "cache_write_tokens": 2200});
    let codex = json!({"input_tokens": 1234, "output_tokens": 56, "cache_read_tokens": 1000});
    for (agent, expected) in [("claude", &claude), ("codex", &codex)] {
        let lines = run(&world, &["run", "--json", "-a", agent, "-s", "both", "hi"]).json_lines();
        let last = lines.last().unwrap();
        assert_eq!((&last["kind"], &last["data"]["usage"]), (&json!("Complete"), expected), "{last}");
    }
    // Both turns of the session, then the last one.
    let counts = |value: &Value| {
        ["input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"]
            .map(|name| value[name].as_u64().unwrap())
    };
    let sum = [18_446, 396, 16_000, 2_200];
    let tokens = world.run(&["tokens", "both", "--json"]).json();
    assert_eq!(counts(&tokens), sum);
    assert_eq!(counts(&tokens["last_turn"]), [1_234, 56, 1_000, 0]);
    assert_eq!(counts(&world.run(&["list", "--json"]).json()[0]), sum);
    insta::assert_snapshot!(world.run(&["tokens", "both"]).quiet(), @r"
    session    S1 both
    used       18k in, 86 % cached, 11 % written · 396 out, as the agents reported
    last turn  1.2k in, 81 % cached · 56 out
    context    76 (estimate: characters / 4), 304 characters
    ");

    // They go along to another store.
    let exported = world.run(&["export", "both"]).quiet();
    let file = world.file("exported.json", &exported);
    let import = ["--store", "copy.azs", "import", file.to_str().unwrap()];
    assert_eq!(world.run(&import).code, 0);
    world.run(&["copy", "--to", "other.azs"]).quiet();
    for store in ["copy.azs", "other.azs"] {
        let tokens = world.run(&["--store", store, "tokens", "both", "--json"]).json();
        assert_eq!(counts(&tokens), sum, "{store}");
    }
}

#[test]
fn a_turn_whose_agent_reports_of_no_cache_says_nothing_of_one() {
    let world = World::new();
    let ran = world.run(&["run", "-a", "offline", "-s", "quiet", "hi"]);
    assert!(!ran.stderr.contains("cached"), "{ran}");
    let tokens = world.run(&["tokens", "quiet", "--json"]).json();
    assert_eq!((&tokens["cache_read_tokens"], &tokens["cache_write_tokens"]), (&json!(0), &json!(0)));
    assert!(!world.run(&["tokens", "quiet"]).quiet().contains("cached"));
}
