//! The history in the prompt caches of the providers, with the real agents in front of a server that has such caches.

use std::fs;
use std::process::Command;
use std::time::Duration;

use azureal_testkit::model_server::{Answer, Api, Cache, CacheKeys, Clock, ModelServer, Request, Usage};
use serde_json::{Value, json};

use crate::real_agents::{Real, finish};
use crate::world::Ran;

/// The refusal of a request with too many breakpoints, as the API words it.
const TOO_MANY: &str = "A maximum of 4 blocks with cache_control may be provided. Found 5.";

/// An answer of 20,000 characters: 5,000 tokens as the server counts.
fn long_answer(number: usize) -> String {
    let mut text = format!("Answer {number}: ");
    text.push_str(&format!("word{number} ").repeat(20_000));
    text.truncate(20_000);
    text
}

fn caching() -> ModelServer {
    ModelServer::answering(|request| Answer::from(long_answer(request.number).as_str()))
        .with_cache(Cache::new(&Clock::new()).keys(CacheKeys::Shared))
}

impl Real {
    /// Makes the project a repository, as the projects of most people are.
    fn in_git(self) -> Self {
        let git = "git init -q -b main && git config user.name t && git config user.email t@t && \
                   echo 1 > begun.txt && git add . && git commit -qm Begin";
        assert!(
            Command::new("sh").args(["-c", git]).current_dir(self.home.project()).status().unwrap().success()
        );
        self
    }

    /// Changes a file, as work does between two turns, and asks.
    fn work_and_ask(&self, agent: &str, number: usize) -> Ran {
        fs::write(self.home.project().join(format!("file{number}.txt")), "new").unwrap();
        let ran = self.ask(agent, &format!("Prompt {number}"), &[]);
        assert_eq!(ran.code, 0, "{ran}");
        ran
    }
}

fn used(server: &ModelServer) -> Usage {
    server.served().last().unwrap().usage.unwrap()
}

/// Returns the user texts that come from azureal: the history, the context of the turn and the prompt.
fn ours(request: &Request) -> Vec<&str> {
    let texts = request.user_texts();
    let first = texts.iter().position(|text| text.starts_with("<azureal-session-context>"));
    first.map_or_else(Vec::new, |first| texts[first..].to_vec())
}

#[test]
fn claude_reads_the_history_from_the_cache_and_writes_only_what_is_new() {
    let server = caching();
    let Some(real) = Real::new(&server) else { return };
    let real = real.in_git();
    let mut turns = Vec::new();
    for number in 1..=6 {
        real.work_and_ask("claude", number);
        turns.push(used(&server));
    }
    // The first turn shows which breakpoints there are. The second has a history that is long enough for what was
    // measured: it is written once. From then on a turn writes the one before it and itself.
    for (index, pair) in turns.windows(2).enumerate().skip(1) {
        let [before, turn] = pair else { unreachable!() };
        assert!(turn.cache_read >= before.cache_read + 4_900, "turn {}: {turns:?}", index + 2);
        assert!((5_000..9_000).contains(&turn.cache_write), "turn {}: {turns:?}", index + 2);
        assert_eq!(
            turn.input, before.input,
            "what Claude Code itself says after its last breakpoint: {turns:?}"
        );
    }
    assert_eq!(server.most_breakpoints(), 4);
    let requests = server.requests();
    let last = requests.last().unwrap();
    let texts = ours(last);
    assert!(texts.len() >= 7, "five turns, what is left, and the prompt: {}", texts.len());
    for (earlier, later) in ours(&requests[requests.len() - 2]).iter().zip(&texts).take(4) {
        assert_eq!(earlier, later);
    }
    // The git status is told after the history, and by nobody else.
    let turn = texts.iter().find(|text| text.contains("<azureal-turn-context>")).unwrap();
    assert!(turn.starts_with("\n</azureal-session-context>\n\n"), "{turn}");
    assert!(turn.contains("--- Context: git status ---\n") && turn.contains("?? file6.txt"), "{turn}");
    assert!(!last.body.to_string().contains("gitStatus") && !last.system().contains("file6.txt"));
    // What is told is what `context` shows.
    let joined = texts.concat();
    let (told, _) = joined.split_once("\n\n<azureal-turn-context>").unwrap();
    assert!(
        real.run(&["context", "work"])
            .stdout
            .starts_with(told.strip_suffix("\n</azureal-session-context>").unwrap())
    );
    // The user sees it.
    let complete = real.events().pop().unwrap();
    assert_eq!(complete["data"]["usage"]["cache_read_tokens"], turns[5].cache_read);
    assert_eq!(complete["data"]["usage"]["cache_write_tokens"], turns[5].cache_write);
}

#[test]
fn without_the_cache_setting_the_history_is_one_piece_and_paid_for_again() {
    let server = caching();
    let Some(real) = Real::new(&server) else { return };
    let real = real.in_git();
    let config = real.home.home().join(".config/azureal");
    fs::create_dir_all(&config).unwrap();
    fs::write(config.join("azufig.toml"), "[claude]\ncache = \"off\"\n").unwrap();
    for number in 1..=4 {
        real.work_and_ask("claude", number);
    }
    let request = server.requests().pop().unwrap();
    assert_eq!(ours(&request).len(), 2, "the history and the prompt");
    assert_eq!((request.breakpoints(), server.most_breakpoints()), (3, 3));
    assert!(request.body.to_string().contains("gitStatus"));
    assert!(used(&server).cache_write > 15_000, "{:?}", used(&server));
}

#[test]
fn a_breakpoint_that_is_refused_is_left_out_from_then_on() {
    let server = ModelServer::answering(|request| match request.breakpoints() {
        4.. => Answer::error(400, TOO_MANY),
        _ => Answer::from(long_answer(request.number).as_str())
            .usage(Usage { cache_write: 5_000, ..Usage::default() }),
    });
    let Some(real) = Real::new(&server) else { return };
    real.work_and_ask("claude", 1);
    let before = server.request_count();
    let ran = finish(real.asking("claude", "Prompt 2", &["--json"]).spawn().unwrap());
    assert_eq!(ran.code, 0, "{ran}");
    assert!(ran.stderr.contains("refused a cache breakpoint; asking again without it"), "{ran}");
    let asked = server.requests().split_off(before);
    let breakpoints: Vec<usize> = asked.iter().map(|request| request.breakpoints()).collect();
    let (last, refused) = breakpoints.split_last().unwrap();
    assert!(!refused.is_empty() && refused.iter().all(|count| *count == 4) && *last == 3, "{breakpoints:?}");
    assert_eq!(ours(&asked[0]).concat(), ours(asked.last().unwrap()).concat(), "nothing else is different");
    // The turn is stored once, as if nothing had been refused, and was shown as it is stored.
    let events = real.events();
    let told: Vec<&str> = events.iter().filter_map(|event| event["kind"].as_str()).collect();
    let turn = ["UserMessage", "Init", "Init", "AssistantText", "Complete"];
    assert!(told.ends_with(&turn), "{told:?}");
    assert_eq!(events.last().unwrap()["data"]["outcome"], "done");
    let shown: Vec<Value> = ran.json_lines().into_iter().filter(|line| line.get("data").is_some()).collect();
    let shown: Vec<&Value> = shown.iter().map(|line| &line["data"]).collect();
    let stored: Vec<&Value> =
        events[events.len() - turn.len()..].iter().map(|event| &event["data"]).collect();
    assert_eq!(shown, stored);

    let before = server.request_count();
    real.work_and_ask("claude", 3);
    assert_eq!(server.request_count(), before + 1, "it is remembered");
    assert_eq!(server.requests().pop().unwrap().breakpoints(), 3);
}

#[test]
fn a_slow_reader_sees_a_repeated_turn_once() {
    let server = ModelServer::answering(|request| match request.breakpoints() {
        4.. => Answer::error(400, TOO_MANY),
        _ => Answer::from(long_answer(request.number).as_str())
            .usage(Usage { cache_write: 5_000, ..Usage::default() }),
    });
    let Some(real) = Real::new(&server) else { return };
    real.work_and_ask("claude", 1);
    // Almost as much as a pipe holds: what comes after the prompt is not shown before somebody reads.
    let prompt = "word ".repeat(13_050);
    let child = real.asking("claude", &prompt, &["--json"]).spawn().unwrap();
    let began = std::time::Instant::now();
    while server.requests().last().is_none_or(|request| request.breakpoints() != 3 || request.number < 3)
        && began.elapsed() < Duration::from_secs(60)
    {
        std::thread::sleep(Duration::from_millis(50));
    }
    // The second start has printed its answer by now.
    std::thread::sleep(Duration::from_secs(2));
    let ran = finish(child);
    assert_eq!(ran.code, 0, "{ran}");
    let kinds = |lines: &[Value]| -> Vec<String> {
        lines.iter().filter_map(|line| Some(line["kind"].as_str()?.to_owned())).collect()
    };
    let turn = ["UserMessage", "Init", "Init", "AssistantText", "Complete"];
    assert_eq!(kinds(&ran.json_lines()), turn);
    assert!(kinds(&real.events()).ends_with(&turn.map(str::to_owned)));
}

#[test]
fn our_breakpoint_lives_as_long_as_those_of_the_program() {
    let server = caching();
    let Some(real) = Real::new(&server) else { return };
    let ask = |number: usize, one_hour: &str| {
        let prompt = format!("Prompt {number}");
        let mut command = real.asking("claude", &prompt, &[]);
        let ran = finish(command.env("ENABLE_PROMPT_CACHING_1H", one_hour).spawn().unwrap());
        assert_eq!(ran.code, 0, "{ran}");
        ran
    };
    let mark = || {
        let request = server.requests().pop().unwrap();
        let messages = request.body["messages"].as_array().unwrap().iter();
        let blocks = messages.flat_map(|message| message["content"].as_array().into_iter().flatten());
        let ours = |block: &&Value| block["text"].as_str().is_some_and(|text| text.contains("## Assistant"));
        blocks.filter(ours).find_map(|block| block.get("cache_control").cloned())
    };
    ask(1, "1");
    ask(2, "1");
    assert_eq!(mark(), Some(json!({"type": "ephemeral", "ttl": "1h"})));
    assert!(server.served().iter().all(|served| served.status == 200));
    // The provider changes its mind, as it does when a subscription is used up.
    let ran = ask(3, "0");
    assert!(ran.stderr.contains("asking again without it"), "{ran}");
    assert_eq!(mark(), None);
    ask(4, "0");
    assert_eq!(mark(), Some(json!({"type": "ephemeral"})));
    assert_eq!(server.served().last().unwrap().status, 200);
}

#[test]
fn no_turn_of_claude_has_more_than_four_breakpoints() {
    // A picture of one pixel.
    let png =
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    let server = ModelServer::answering(|request| {
        let prompt = request.user_texts().join("\n");
        let results = request.tool_results().len();
        let bash = |command: &str| json!({"command": command, "description": "d"});
        let path = |name: &str| json!({"file_path": prompt.split("in ").last().unwrap_or("").trim().to_owned() + name});
        if prompt.contains("You have a small task") {
            return Answer::from("Small.");
        }
        match prompt.lines().rev().find(|line| line.starts_with("Case ")).unwrap_or("") {
            case if case.contains("loop") && results < 7 => Answer::new().text("On.").tool("Bash", bash("echo on")),
            case if case.contains("picture") && results < 2 => {
                Answer::new().tool("Read", path("/dot.png")).tool("Bash", bash("echo beside"))
            }
            case if case.contains("subagent") && results < 1 => Answer::new().tool(
                "Task",
                json!({"description": "small", "prompt": "You have a small task", "subagent_type": "general-purpose"}),
            ),
            _ => Answer::from(long_answer(request.number).as_str()),
        }
    })
    .with_cache(Cache::new(&Clock::new()));
    let Some(real) = Real::new(&server) else { return };
    let real = real.in_git();
    let write = format!("printf {png} | base64 -d > dot.png");
    assert!(
        Command::new("sh").args(["-c", &write]).current_dir(real.home.project()).status().unwrap().success()
    );
    let project = real.home.project();
    let ask = |case: &str, permission: &str| {
        let prompt = format!("Case {case} in {}", project.display());
        let ran = real.run(&["run", "-s", "work", "-a", "claude", "--permission", permission, &prompt]);
        assert_eq!(ran.code, 0, "{case}: {ran}");
    };
    ask("first", "read");
    let mut before = server.request_count();
    for (case, permission, least) in [
        ("plain", "read", 1),
        ("plain", "edit", 1),
        ("plain", "all", 1),
        ("loop", "all", 8),
        ("picture", "all", 2),
        ("subagent", "all", 3),
    ] {
        ask(case, permission);
        let requests = server.requests().split_off(before);
        assert!(requests.len() >= least, "{case}: {} requests", requests.len());
        assert!(requests.iter().any(|request| request.breakpoints() == 4), "{case}: ours is missing");
        before += requests.len();
    }
    assert_eq!(server.most_breakpoints(), 4);
    assert!(server.served().iter().all(|served| served.status == 200));
}

#[test]
fn a_turn_that_goes_on_after_a_compaction_has_four_breakpoints_too() {
    let server = ModelServer::answering(|request| {
        let said = request.user_texts().join("\n");
        let results = request.tool_results().len();
        match () {
            () if said.contains(azureal_core::SUMMARY_PROMPT) => {
                Answer::from("Goal: work. Done: a lot. Open: the last step. All of it is in the files.")
            }
            () if said.contains("Go on with the work") => Answer::from("The last step is done."),
            () if said.contains("Work long") && results < 6 => {
                let words = format!("{}: {}", results, "many words ".repeat(900));
                Answer::new().text(&words).tool("Bash", json!({"command": "echo on", "description": "d"}))
            }
            () => Answer::from(long_answer(request.number).as_str()),
        }
    })
    .with_cache(Cache::new(&Clock::new()));
    let Some(real) = Real::new(&server) else { return };
    let real = real.in_git();
    let config = real.home.home().join(".config/azureal");
    fs::create_dir_all(&config).unwrap();
    fs::write(config.join("azufig.toml"), "[compaction]\nthreshold_characters = 80000\n").unwrap();
    for number in 1..=2 {
        real.work_and_ask("claude", number);
    }
    let ran = real.run(&["run", "-s", "work", "-a", "claude", "--permission", "all", "Work long"]);
    assert_eq!(ran.code, 0, "{ran}");
    let requests = server.requests();
    let goes_on =
        |request: &Request| request.user_texts().iter().any(|text| text.contains("Go on with the work"));
    let resumed = requests.iter().find(|request| goes_on(request)).unwrap();
    assert_eq!(resumed.breakpoints(), 4, "the opening after the compaction is sealed");
    assert_eq!(server.most_breakpoints(), 4);
    assert!(server.served().iter().all(|served| served.status == 200));
}

#[test]
fn nothing_before_the_history_changes_between_two_runs_of_codex() {
    let server = caching();
    let Some(real) = Real::new(&server) else { return };
    let real = real.in_git();
    for number in 1..=4 {
        real.work_and_ask("codex", number);
    }
    let requests = server.requests();
    let before: Vec<(Value, Value, Vec<&str>)> = requests[1..]
        .iter()
        .map(|request| {
            let texts = request.user_texts();
            let ours = texts.iter().position(|text| text.starts_with("<azureal-session-context>")).unwrap();
            (request.body["instructions"].clone(), request.body["tools"].clone(), texts[..ours].to_vec())
        })
        .collect();
    assert_eq!(before[0], before[1]);
    assert_eq!(before[1], before[2]);
    // So everything up to the end of the history before this turn is read again.
    let turns: Vec<Usage> = server.served().iter().filter_map(|served| served.usage).collect();
    assert!(turns[3].cache_read >= turns[2].whole_input() - 200, "{turns:?}");
    let keys: Vec<&Value> = requests.iter().map(|request| &request.body["prompt_cache_key"]).collect();
    assert!(keys.windows(2).all(|pair| pair[0] != pair[1]), "Codex has a way to keep its key now: {keys:?}");
}

#[test]
fn two_agents_in_turns_find_their_own_part_in_the_cache() {
    let server = caching();
    let Some(real) = Real::new(&server) else { return };
    let real = real.in_git();
    for number in 1..=3 {
        real.work_and_ask("claude", number);
    }
    for (number, agent) in [(4, "codex"), (5, "claude"), (6, "codex"), (7, "claude")] {
        real.work_and_ask(agent, number);
    }
    let served = server.served();
    let of = |api: Api| -> Vec<Usage> {
        let of_api = served.iter().filter(|served| served.request.api == api);
        of_api.filter_map(|served| served.usage).collect()
    };
    let (claude, codex) = (of(Api::Messages), of(Api::Responses));
    // Claude comes back after a turn of Codex: its history up to its own last turn is there, the rest is written.
    assert!(claude[3].cache_read > claude[2].cache_read, "{claude:?}");
    assert!((10_000..14_500).contains(&claude[4].cache_write), "two turns are new: {claude:?}");
    assert!(codex[1].cache_read >= codex[0].whole_input() - 200, "{codex:?}");
}

#[test]
fn a_cache_that_has_expired_costs_a_turn_and_breaks_nothing() {
    let clock = Clock::new();
    let server = ModelServer::answering(|request| Answer::from(long_answer(request.number).as_str()))
        .with_cache(Cache::new(&clock));
    let Some(real) = Real::new(&server) else { return };
    let real = real.in_git();
    for number in 1..=4 {
        real.work_and_ask("claude", number);
    }
    clock.advance(Duration::from_secs(301));
    real.work_and_ask("claude", 5);
    assert_eq!(used(&server).cache_read, 0);
    real.work_and_ask("claude", 6);
    assert!(used(&server).cache_read > 25_000, "{:?}", used(&server));
}
