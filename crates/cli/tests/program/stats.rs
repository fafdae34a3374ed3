//! stats: what turns took, added up.

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::world::{Ran, World, user};

/// A turn: agent, model, when it began, milliseconds, tokens sent, cost.
type Turn = (&'static str, &'static str, &'static str, u64, u64, f64);

fn events(turns: &[Turn]) -> Vec<Value> {
    let turn = |turn: &Turn| {
        let (agent, model, started_at, duration_ms, input_tokens, cost_usd) = turn;
        let mut complete = json!({
            "success": true, "duration_ms": duration_ms, "cost_usd": cost_usd,
            "usage": {"input_tokens": input_tokens, "output_tokens": 10, "cache_read_tokens": input_tokens / 2},
        });
        if !started_at.is_empty() {
            complete["started_at"] = json!(started_at);
        }
        let init = json!({"Init": {"cwd": "/p", "model": model, "agent": agent}});
        [user("go"), init, json!({"Complete": complete})]
    };
    turns.iter().flat_map(turn).collect()
}

const FIRST: [Turn; 3] = [
    ("claude", "opus", "2026-01-30T23:30:00Z", 1_000, 100, 0.5),
    ("claude", "haiku", "2026-01-31T10:00:00Z", 2_000, 200, 0.25),
    ("codex", "gpt-5", "2026-02-01T10:00:00Z", 4_000, 400, 0.0),
];
const SECOND: [Turn; 2] =
    [("claude", "opus", "2026-01-31T11:00:00Z", 500, 50, 0.125), ("codex", "", "", 70, 7, 0.0)];

fn world() -> World {
    let world = World::new();
    world.session("first", &events(&FIRST));
    world.session("=cmd(),\"x\"", &events(&SECOND));
    world
}

/// Returns the groups of an answer: their keys, turns, tokens sent and milliseconds.
fn groups(stats: &Value, by: &str) -> Vec<(Value, u64, u64, u64)> {
    let number = |group: &Value, field: &str| group[field].as_u64().unwrap();
    let groups = stats["by"][by].as_array().unwrap().iter();
    groups
        .map(|group| {
            let numbers = ["turns", "input_tokens", "duration_ms"].map(|field| number(group, field));
            (group["key"].clone(), numbers[0], numbers[1], numbers[2])
        })
        .collect()
}

fn stats(world: &World, arguments: &[&str]) -> Value {
    let by = ["stats", "--json", "--by", "agent,model,day,worktree,session"];
    let ran = world.run(&[&by[..], arguments].concat());
    assert_eq!(ran.code, 0, "{ran}");
    ran.json()
}

#[test]
fn turns_are_added_up_by_each_property() {
    let found = stats(&world(), &[]);
    assert_eq!(
        groups(&found, "agent"),
        [(json!("codex"), 2, 407, 4_070), (json!("claude"), 3, 350, 3_500)],
        "by tokens: codex reports no cost"
    );
    assert_eq!(
        groups(&found, "model"),
        [
            (json!("gpt-5"), 1, 400, 4_000),
            (json!("haiku"), 1, 200, 2_000),
            (json!("opus"), 2, 150, 1_500),
            (Value::Null, 1, 7, 70)
        ]
    );
    assert_eq!(
        groups(&found, "day"),
        [
            (json!("2026-01-30"), 1, 100, 1_000),
            (json!("2026-01-31"), 2, 250, 2_500),
            (json!("2026-02-01"), 1, 400, 4_000),
            (Value::Null, 1, 7, 70)
        ]
    );
    assert_eq!(groups(&found, "worktree"), [(json!("."), 5, 757, 7_570)]);
    assert_eq!(groups(&found, "session"), [(json!("S1"), 3, 700, 7_000), (json!("S2"), 2, 57, 570)]);
}

/// The shape is public: fields may be added, never removed.
#[test]
fn the_json_of_stats_has_this_shape() {
    let found =
        world().run(&["stats", "--json", "--by", "session", "--since", "2026-02-01", "-n", "1"]).json();
    assert_eq!(
        found,
        json!({
            "since": "[time]",
            "worktree": ".",
            "total": {
                "sessions": 1, "turns": 1, "failed": 0, "input_tokens": 400, "output_tokens": 10,
                "cache_read_tokens": 200, "cache_write_tokens": 0, "cost_usd": 0.0, "duration_ms": 4000, "unpriced_turns": 1,
            },
            "by": {"session": [{
                "key": "S1", "name": "first", "sessions": 1, "turns": 1, "failed": 0, "input_tokens": 400, "output_tokens": 10,
                "cache_read_tokens": 200, "cache_write_tokens": 0, "cost_usd": 0.0, "duration_ms": 4000, "unpriced_turns": 1,
            }]},
            // The turn without a time is after one of January.
            "undated_turns": 1,
            "damaged_events": 0,
        })
    );
    let all = world().run(&["stats", "--json", "--all"]).json();
    assert_eq!((&all["since"], &all["worktree"]), (&Value::Null, &Value::Null));
    assert_eq!(all["by"].as_object().unwrap().keys().collect::<Vec<_>>(), ["agent", "model", "day"]);
}

#[test]
fn a_day_is_one_of_the_users_time_zone() {
    let world = world();
    let mut command = world.command(&["stats", "--json", "--by", "day", "--since", "2026-01-31"]);
    let found = world.ran(command.env("TZ", "Europe/Berlin").output().unwrap()).json();
    assert_eq!(
        groups(&found, "day"),
        [(json!("2026-01-31"), 3, 350, 3_500), (json!("2026-02-01"), 1, 400, 4_000), (Value::Null, 1, 7, 70)]
    );
}

#[test]
fn people_get_a_table_and_programs_values() {
    let world = world();
    insta::assert_snapshot!(world.run(&["stats", "--by", "day,session"]), @r#"
    exit code 0
    --- stdout
    5 turns in 2 sessions · 757 in, 49 % cached · 50 out · $0.88 · cost of 2 turns unknown · 7 s

    DAY         SESSIONS  TURNS   IN  CACHED  OUT   COST  TIME
    2026-01-30         1      1  100    50 %   10  $0.50   1 s
    2026-01-31         2      2  250    50 %   20  $0.38   2 s
    2026-02-01         1      1  400    50 %   10          4 s
    unknown            1      1    7    42 %   10          0 s

    SESSION        TURNS   IN  CACHED  OUT   COST  TIME
    S1 first           3  700    50 %   30  $0.75   7 s
    S2 =cmd(),"x"      2   57    49 %   20  $0.12   0 s
    "#);
    insta::assert_snapshot!(world.run(&["stats", "--csv", "--by", "model,session"]).quiet(), @r#"
    by,key,name,outside_turns,sessions,turns,failed,input_tokens,output_tokens,cache_read_tokens,cache_write_tokens,cost_usd,duration_ms,unpriced_turns
    model,gpt-5,,false,1,1,0,400,10,200,0,0,4000,1
    model,haiku,,false,1,1,0,200,10,100,0,0.25,2000,0
    model,opus,,false,2,2,0,150,20,75,0,0.625,1500,0
    model,,,false,1,1,0,7,10,3,0,0,70,1
    session,S1,first,false,1,3,0,700,30,350,0,0.75,7000,1
    session,S2,"'=cmd(),""x""",false,1,2,0,57,20,28,0,0.125,570,1
    "#);
    insta::assert_snapshot!(world.run(&["stats", "--since", "2026-02-01T12:00:00Z"]), @r"
    exit code 0
    --- stderr
    warning: not counted: 1 turn whose time is not known and may be before [time]
    no turns since then
    ");
    let empty = World::new();
    insta::assert_snapshot!(empty.run(&["stats"]), @r"
    exit code 0
    --- stderr
    no sessions yet; `azureal import --from all --all-projects` imports those that agents keep, of all projects
    ");
    empty.session("elsewhere", &[]);
    Connection::open(empty.store()).unwrap().execute("UPDATE sessions SET worktree = 'other'", []).unwrap();
    insta::assert_snapshot!(empty.run(&["stats"]), @r"
    exit code 0
    --- stderr
    no turns in this worktree yet; `azureal stats --all` counts those of all worktrees
    ");
    insta::assert_snapshot!(world.run(&["stats", "--since", "tomorrow"]), @r"
    exit code 2
    --- stderr
    error: `tomorrow` is not a time
    hint: `30m`, `12h`, `7d`, `2w`, a date such as `2026-01-31`, or `[time]`
    ");
    assert_eq!(world.run(&["stats", "--json", "--csv"]).code, 2);
}

#[test]
fn turns_without_a_cost_are_compared_by_their_tokens() {
    let models = |turns: &[Turn]| -> Vec<Value> {
        let world = World::new();
        world.session("one", &events(turns));
        groups(&stats(&world, &[]), "model").into_iter().map(|(model, ..)| model).collect()
    };
    let opus = ("claude", "opus", "", 1, 100, 0.5);
    // The history of the same agent was imported, without what it cost.
    assert_eq!(models(&[opus, ("claude", "haiku", "", 1, 50_000, 0.0)]), ["haiku", "opus"]);
    // One turn was cancelled.
    let cancelled = ("claude", "haiku", "", 1, 9_000, 0.0);
    assert_eq!(
        models(&[opus, ("claude", "sonnet", "", 1, 90_000, 0.25), cancelled]),
        ["opus", "sonnet", "haiku"]
    );
    // Among those without a cost, the tokens decide.
    let [few, more] = [("codex", "a", "", 1, 10, 0.0), ("codex", "b", "", 1, 20, 0.0)];
    let priced = ("claude", "sonnet", "", 1, 90_000, 0.25);
    assert_eq!(models(&[few, more, priced]), ["sonnet", "b", "a"]);
}

#[test]
fn sessions_that_took_the_same_are_in_the_order_of_their_numbers() {
    let world = World::new();
    for number in 1..=10 {
        world.session(&format!("s{number}"), &events(&[("claude", "opus", "", 1, 100, 0.5)]));
    }
    let found = stats(&world, &[]);
    let keys: Vec<String> =
        groups(&found, "session").into_iter().map(|(key, ..)| key.as_str().unwrap().to_owned()).collect();
    assert_eq!(keys, (1..=10).map(|number| format!("S{number}")).collect::<Vec<_>>());
}

/// A program that answers as Claude Code does.
fn claude(world: &World) {
    let lines = [
        json!({"type": "system", "subtype": "init", "session_id": "a", "model": "opus", "cwd": "/p", "tools": []}),
        json!({"type": "assistant", "message": {"id": "m", "role": "assistant", "content": [{"type": "text", "text": "Hi."}]}}),
        json!({
            "type": "result", "subtype": "success", "is_error": false, "duration_ms": 1, "result": "Hi.", "total_cost_usd": 1.5,
            "usage": {"input_tokens": 1_000, "output_tokens": 7},
        }),
    ];
    let prints: String = lines.iter().map(|line| format!("echo '{line}'\n")).collect();
    world.program(
        "claude",
        &format!("[ \"$1\" = --version ] && echo 2.1.197 && exit\ncat > /dev/null\n{prints}"),
    );
}

fn run(world: &World, arguments: &[&str]) -> Ran {
    let ran = world.ran(world.with_programs(arguments).output().unwrap());
    assert_eq!(ran.code, 0, "{ran}");
    ran
}

#[test]
fn a_fork_counts_its_own_turns_and_the_sums_are_those_of_the_list() {
    let world = World::new();
    claude(&world);
    run(&world, &["run", "-a", "claude", "-s", "first", "one"]);
    run(&world, &["run", "-a", "claude", "-s", "first", "two"]);
    run(&world, &["fork", "S1", "--name", "copy"]);
    let turns = |found: &Value| {
        let groups = groups(found, "session").into_iter();
        groups
            .map(|(key, turns, input, _)| (key.as_str().unwrap().to_owned(), turns, input))
            .collect::<Vec<_>>()
    };
    assert_eq!(turns(&stats(&world, &[])), [("S1".to_owned(), 2, 2_000)]);
    run(&world, &["run", "-a", "claude", "-s", "copy", "three"]);
    // Its original need not be there.
    for turns in [3, 1] {
        let (found, listed) = (stats(&world, &[]), world.run(&["list", "--json"]).json());
        assert_eq!(found["total"]["turns"], json!(turns), "{found} {listed}");
        let sum = |field: &str| {
            listed.as_array().unwrap().iter().map(|record| record[field].as_u64().unwrap()).sum::<u64>()
        };
        for field in
            ["input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "duration_ms"]
        {
            assert_eq!(found["total"][field], json!(sum(field)), "{field}");
            for by in ["agent", "model", "day", "worktree", "session"] {
                let groups = found["by"][by].as_array().unwrap().iter();
                let total: u64 = groups.map(|group| group[field].as_u64().unwrap()).sum();
                assert_eq!(json!(total), found["total"][field], "{field} by {by}");
            }
        }
        let cost: f64 =
            listed.as_array().unwrap().iter().map(|record| record["cost_usd"].as_f64().unwrap()).sum();
        assert_eq!(found["total"]["cost_usd"], json!(cost));
        world.run(&["rm", "S1", "--yes"]);
    }
    // The turns of this version have a time.
    assert_eq!(stats(&world, &["--since", "1h"])["total"]["turns"], json!(1));
    assert_eq!(stats(&world, &["--since", "0m"])["undated_turns"], json!(0));
}

#[test]
fn the_turns_that_merged_stores_share_count_once() {
    let world = World::new();
    claude(&world);
    let turns = |store: &str, prompts: &[&str]| {
        for prompt in prompts {
            run(&world, &["run", "--store", store, "-a", "claude", "-s", "work", prompt]);
        }
    };
    turns("a.azs", &["one", "two"]);
    std::fs::copy(world.path("p/a.azs"), world.path("p/b.azs")).unwrap();
    turns("a.azs", &["here"]);
    turns("b.azs", &["there"]);
    let check = |expected: [u64; 2]| {
        for _ in 0..2 {
            run(&world, &["import", "b.azs", "--store", "a.azs"]);
            let found = stats(&world, &["--store", "a.azs"]);
            let mut sessions = groups(&found, "session");
            sessions.sort_by_key(|(key, ..)| key.to_string());
            let taken = sessions.iter().map(|(_, turns, input, _)| (*turns, *input));
            assert_eq!(taken.collect::<Vec<_>>(), expected.map(|turns| (turns, turns * 1_000)), "{found}");
            assert_eq!(found["by"]["agent"].as_array().unwrap().len(), 1, "nothing outside turns: {found}");
            assert_eq!(found["total"]["cost_usd"], json!(expected.iter().sum::<u64>() as f64 * 1.5));
        }
    };
    check([3, 1]);
    // The fork grows with its source.
    turns("b.azs", &["more", "and more"]);
    check([3, 3]);
}

#[test]
fn what_a_session_took_outside_its_turns_is_a_group_of_its_own() {
    let world = World::new();
    claude(&world);
    run(&world, &["run", "-a", "claude", "-s", "first", "one"]);
    let store = Connection::open(world.store()).unwrap();
    // As a compaction adds them.
    store.execute("UPDATE sessions SET tokens_in = tokens_in + 300", []).unwrap();
    drop(store);
    let found = stats(&world, &[]);
    let outside = &found["by"]["agent"][1];
    assert_eq!(
        (&outside["key"], &outside["outside_turns"], &outside["input_tokens"], &outside["turns"]),
        (&Value::Null, &json!(true), &json!(300), &json!(0))
    );
    assert_eq!(groups(&found, "session").len(), 1);
    assert_eq!(found["total"]["input_tokens"], json!(1_300));
    assert_eq!(stats(&world, &["--since", "1h"])["total"]["input_tokens"], json!(1_000), "it has no time");
}

#[test]
fn costs_that_no_agent_reports_break_no_sum() {
    let world = World::new();
    world.session(
        "absurd",
        &events(&[("claude", "opus", "", 1, 1, 1e308), ("claude", "opus", "", 1, 1, 1e308)]),
    );
    world.session("negative", &events(&[("claude", "haiku", "", 1, 1, -3.5)]));
    let found = stats(&world, &[]);
    assert_eq!(found["total"]["cost_usd"], json!(f64::MAX), "{found}");
    let table = world.run(&["stats", "--by", "model"]).quiet();
    assert!(table.contains(" $1.8e308 ") && !table.contains("-3.5"), "{table}");
    assert!(!stats(&world, &["--by", "session"])["by"]["agent"].to_string().contains("null"), "{found}");
}

#[test]
fn a_damaged_row_is_skipped_and_reported() {
    let world = world();
    let store = Connection::open(world.store()).unwrap();
    store.execute("UPDATE events SET data = x'28b52ffd00' WHERE session_id = 1 AND seq = 3", []).unwrap();
    drop(store);
    let ran = world.run(&["stats", "--json", "--by", "session"]);
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (0, "warning: 1 event cannot be read: what these turns took is counted without them\n")
    );
    let found = ran.json();
    assert_eq!(found["damaged_events"], json!(1));
    assert_eq!(
        groups(&found, "session")[0],
        (json!("S1"), 2, 600, 7_000),
        "its time is in the total of the session"
    );
}
