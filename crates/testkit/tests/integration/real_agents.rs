//! The real agents in front of our model server: that the server says what they understand, and that the homes keep
//! them apart from the rest of the machine.

use std::fs::{self, File};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use azureal_testkit::model_server::{
    Answer, Cache, CacheKeys, Clock, Gate, ModelServer, Request, StreamPosition, Usage,
};
use azureal_testkit::real_agents::{AgentHome, Agents, assert_nobody_else_was_asked};
use azureal_testkit::until;
use serde_json::{Value, json};

/// Many times of what a run takes; only a run that hangs gets there.
const LIMIT: Duration = Duration::from_secs(60);

const CLAUDE: [&str; 10] = [
    "-p",
    "--verbose",
    "--output-format",
    "stream-json",
    "--input-format",
    "stream-json",
    "--include-partial-messages",
    "--permission-mode",
    "bypassPermissions",
    "--no-session-persistence",
];
const CODEX: [&str; 5] =
    ["exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-"];

/// What a program did.
struct Run {
    status: ExitStatus,
    lines: Vec<Value>,
    stderr: String,
}

impl Run {
    fn of(&self, kind: &str) -> Vec<&Value> {
        self.lines.iter().filter(|line| line["type"] == kind).collect()
    }

    /// Returns what Claude says at the end.
    #[track_caller]
    fn result(&self) -> &Value {
        let results = self.of("result");
        let [result] = results[..] else { panic!("{} results\n{}", results.len(), self.stderr) };
        result
    }

    /// Returns the items that Codex has completed.
    fn items(&self) -> Vec<&Value> {
        self.of("item.completed").into_iter().map(|line| &line["item"]).collect()
    }

    /// Returns the text that came in deltas.
    fn streamed_text(&self) -> String {
        let deltas = self.of("stream_event").into_iter().map(|line| &line["event"]["delta"]["text"]);
        deltas.filter_map(Value::as_str).collect()
    }
}

fn run_claude(home: &AgentHome, prompt: &str) -> Run {
    let line = json!({"type": "user", "message": {"role": "user", "content": prompt}});
    run(home, home.command("claude").args(CLAUDE), &format!("{line}\n"))
}

fn run_codex(home: &AgentHome, prompt: &str) -> Run {
    run(home, home.command("codex").args(CODEX), prompt)
}

/// Runs a program to its end. It writes to a file, as Claude Code loses what a pipe does not take at once.
fn run(home: &AgentHome, command: &mut Command, input: &str) -> Run {
    let [stdout, stderr] = ["stdout", "stderr"].map(|name| home.home().join(name));
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(File::create(&stdout).unwrap())
        .stderr(File::create(&stderr).unwrap())
        .spawn()
        .unwrap();
    let start = Instant::now();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    // A program that ends without reading everything is judged by what it says.
    let writer = thread::spawn(move || stdin.write_all(input.as_bytes()));
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > LIMIT {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("still running after {LIMIT:?}:\n{}", fs::read_to_string(&stdout).unwrap());
        }
        thread::sleep(Duration::from_millis(5));
    };
    let _ = writer.join().unwrap();
    let stdout = fs::read_to_string(stdout).unwrap();
    let stderr = fs::read_to_string(stderr).unwrap();
    let lines = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    Run { status, lines, stderr }
}

/// A prompt of so many characters, with everything that is easily damaged on the way.
fn long_prompt(characters: usize) -> String {
    let pattern = "Grüße \"quoted\" \\ back\tslash 日本 🦀 e\u{301} \u{2028} end  \r\n";
    let prompt: String = pattern.chars().cycle().take(characters - 1).collect();
    prompt + "\n"
}

#[track_caller]
fn assert_prompt(request: &Request, prompt: &str) {
    let arrived = request.prompt().unwrap();
    // Not by `assert_eq`, which would print both.
    let same = arrived.bytes().zip(prompt.bytes()).take_while(|(arrived, sent)| arrived == sent).count();
    assert!(
        arrived == prompt,
        "of {} bytes {} arrived, the first {same} of them unchanged",
        prompt.len(),
        arrived.len()
    );
}

#[test]
fn claude_gives_a_plain_answer() {
    let Some(agents) = Agents::find(&["claude"]) else { return };
    let server = ModelServer::scripted([Answer::new().thinking("Hm.").text("Hello from the model.")]);
    let home = AgentHome::new(&agents, &server);
    let run = run_claude(&home, "Say hello\n");

    assert!(run.status.success(), "{}", run.stderr);
    assert_eq!(run.lines[0]["subtype"], "init");
    assert_eq!(run.lines[0]["claude_code_version"], "2.1.197");
    assert_eq!(run.streamed_text(), "Hello from the model.");
    let result = run.result();
    assert_eq!(result["is_error"], false);
    assert_eq!(result["result"], "Hello from the model.");
    assert_eq!(result["usage"]["input_tokens"], 100);

    let requests = server.requests();
    assert_eq!(requests.len(), 1);
    assert_prompt(&requests[0], "Say hello\n");
    assert!(requests[0].tools().contains(&"Bash"));
    assert_eq!(requests[0].header("x-api-key"), None);
    assert_nobody_else_was_asked(&server);
}

#[test]
fn claude_runs_a_tool_and_hands_back_its_result() {
    let Some(agents) = Agents::find(&["claude"]) else { return };
    let server = ModelServer::scripted([
        Answer::new().text("Looking.").tool("Bash", json!({"command": "cat note.txt; echo made > new.txt"})),
        Answer::new().text("It says seventeen."),
    ]);
    let home = AgentHome::new(&agents, &server);
    fs::write(home.project().join("note.txt"), "seventeen\n").unwrap();
    let run = run_claude(&home, "What does the note say?");

    assert_eq!(run.result()["result"], "It says seventeen.", "{}", run.stderr);
    assert_eq!(fs::read_to_string(home.project().join("new.txt")).unwrap(), "made\n");
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[1].tool_results(), ["seventeen"]);
    assert_eq!(requests[1].assistant_texts(), ["Looking."]);
    assert_nobody_else_was_asked(&server);
}

#[test]
fn claude_tries_again_after_a_server_error() {
    let Some(agents) = Agents::find(&["claude"]) else { return };
    let server = ModelServer::scripted([Answer::error(500, "out of order"), Answer::from("Recovered.")]);
    let home = AgentHome::new(&agents, &server);
    let run = run_claude(&home, "Hello");

    assert!(run.status.success(), "{}", run.stderr);
    let retries: Vec<_> =
        run.of("system").into_iter().filter(|line| line["subtype"] == "api_retry").collect();
    assert_eq!(retries.len(), 1);
    assert_eq!(retries[0]["error_status"], 500);
    assert_eq!(run.result()["result"], "Recovered.");
    assert_eq!(server.request_count(), 2);
}

#[test]
fn claude_fails_when_the_key_is_refused() {
    let Some(agents) = Agents::find(&["claude"]) else { return };
    let server = ModelServer::always(Answer::error(401, "invalid x-api-key"));
    let home = AgentHome::new(&agents, &server);
    let run = run_claude(&home, "Hello");

    assert_eq!(run.status.code(), Some(1));
    let result = run.result();
    assert_eq!(result["is_error"], true);
    assert_eq!(result["api_error_status"], 401);
    assert_nobody_else_was_asked(&server);
}

#[test]
fn claude_asks_again_without_a_stream_when_one_is_cut() {
    let Some(agents) = Agents::find(&["claude"]) else { return };
    let gate = Gate::new();
    let server = ModelServer::scripted([
        Answer::new().text("Once upon a time there was").cut(StreamPosition::InBlock(0)).hold(&gate),
        Answer::from("Second attempt."),
    ]);
    let home = AgentHome::new(&agents, &server);
    let run = thread::scope(|scope| {
        scope.spawn(|| {
            let stdout = home.home().join("stdout");
            until("the text is shown", || {
                fs::read_to_string(&stdout).is_ok_and(|text| text.contains(r#""text":"a ""#)).then_some(())
            });
            gate.open();
        });
        run_claude(&home, "Tell me a story")
    });

    assert_eq!(run.result()["result"], "Second attempt.", "{}", run.stderr);
    // What was streamed before the cut has been printed and is not taken back.
    assert_eq!(run.streamed_text(), "Once upon a ");
    let streams: Vec<bool> = server.requests().iter().map(|request| request.streams()).collect();
    assert_eq!(streams, [true, false]);
}

#[test]
fn claude_passes_on_a_prompt_of_a_megabyte_unchanged() {
    let Some(agents) = Agents::find(&["claude"]) else { return };
    let server = ModelServer::scripted(["Long."]);
    let home = AgentHome::new(&agents, &server);
    let prompt = long_prompt(1_000_000);
    let run = run_claude(&home, &prompt);

    assert_eq!(run.result()["result"], "Long.", "{}", run.stderr);
    assert_prompt(&server.requests()[0], &prompt);
}

#[test]
fn codex_gives_a_plain_answer() {
    let Some(agents) = Agents::find(&["codex"]) else { return };
    let server = ModelServer::scripted([Answer::new().thinking("**Hm**").text("Hello from the model.")]);
    let home = AgentHome::new(&agents, &server);
    let run = run_codex(&home, "Say hello\n");

    assert!(run.status.success(), "{}", run.stderr);
    assert_eq!(run.lines[0]["type"], "thread.started");
    let items: Vec<_> = run.items().into_iter().map(|item| (&item["type"], &item["text"])).collect();
    assert_eq!(
        items,
        [(&json!("reasoning"), &json!("**Hm**")), (&json!("agent_message"), &json!("Hello from the model.")),]
    );
    assert_eq!(run.of("turn.completed")[0]["usage"]["input_tokens"], 100);
    // A home below the system's temporary directory would be warned of here.
    assert_eq!(run.stderr, "");

    let requests = server.requests();
    assert_eq!(requests.len(), 1);
    assert_prompt(&requests[0], "Say hello\n");
    assert!(requests[0].tools().contains(&"exec_command"));
    assert_eq!(requests[0].header("authorization"), None);
    assert_nobody_else_was_asked(&server);
}

#[test]
fn codex_runs_a_command_and_a_patch_and_hands_back_the_results() {
    let Some(agents) = Agents::find(&["codex"]) else { return };
    let patch = "*** Begin Patch\n*** Add File: new.txt\n+made\n*** End Patch\n";
    let server = ModelServer::scripted([
        Answer::new().text("Looking.").tool("exec_command", json!({"cmd": "cat note.txt"})),
        Answer::new().custom_tool("apply_patch", patch),
        Answer::new().text("It says seventeen."),
    ]);
    let home = AgentHome::new(&agents, &server);
    fs::write(home.project().join("note.txt"), "seventeen\n").unwrap();
    let run = run_codex(&home, "What does the note say?");

    assert!(run.status.success(), "{}", run.stderr);
    let items = run.items();
    let kinds: Vec<_> = items.iter().filter_map(|item| item["type"].as_str()).collect();
    assert_eq!(kinds, ["agent_message", "command_execution", "file_change", "agent_message"]);
    assert_eq!(items[1]["aggregated_output"], "seventeen\n");
    assert_eq!(fs::read_to_string(home.project().join("new.txt")).unwrap(), "made\n");
    let requests = server.requests();
    assert_eq!(requests.len(), 3);
    assert!(requests[1].tool_results()[0].contains("seventeen"));
    assert_eq!(requests[2].tool_results().len(), 2);
    assert_nobody_else_was_asked(&server);
}

#[test]
fn codex_tries_again_after_a_server_error_without_a_word() {
    let Some(agents) = Agents::find(&["codex"]) else { return };
    let server = ModelServer::scripted([Answer::error(500, "out of order"), Answer::from("Recovered.")]);
    let home = AgentHome::new(&agents, &server);
    let run = run_codex(&home, "Hello");

    assert!(run.status.success(), "{}", run.stderr);
    assert_eq!(run.of("error").len(), 0);
    assert_eq!(run.items()[0]["text"], "Recovered.");
    assert_eq!(server.request_count(), 2);
}

#[test]
fn codex_fails_when_the_key_is_refused() {
    let Some(agents) = Agents::find(&["codex"]) else { return };
    let server = ModelServer::always(Answer::error(401, "Incorrect API key provided"));
    let home = AgentHome::new(&agents, &server);
    let run = run_codex(&home, "Hello");

    assert_eq!(run.status.code(), Some(1));
    let failed = run.of("turn.failed")[0]["error"]["message"].as_str().unwrap();
    assert!(failed.contains("401 Unauthorized: Incorrect API key provided"), "{failed}");
    assert_nobody_else_was_asked(&server);
}

#[test]
fn codex_asks_again_when_a_stream_is_cut() {
    let Some(agents) = Agents::find(&["codex"]) else { return };
    let server = ModelServer::scripted([
        Answer::new().text("Once upon a time there was").cut(StreamPosition::InBlock(0)),
        Answer::from("Second attempt."),
    ]);
    let home = AgentHome::new(&agents, &server);
    let run = run_codex(&home, "Tell me a story");

    assert!(run.status.success(), "{}", run.stderr);
    let error = run.of("error")[0]["message"].as_str().unwrap();
    assert!(error.starts_with("Reconnecting... 1/1"), "{error}");
    assert_eq!(run.items().last().unwrap()["text"], "Second attempt.");
    assert_eq!(server.request_count(), 2);
}

/// Returns the usage that was reported for each request.
fn usages(server: &ModelServer) -> Vec<Usage> {
    server.served().iter().map(|served| served.usage.unwrap()).collect()
}

#[test]
fn claude_reads_in_a_tool_loop_what_it_has_written_to_the_cache() {
    let Some(agents) = Agents::find(&["claude"]) else { return };
    let clock = Clock::new();
    let server = ModelServer::answering(|request| match request.tool_results().len() {
        0 | 1 => Answer::new().text("Looking.").tool("Bash", json!({"command": "echo seventeen"})),
        _ => Answer::from("Done."),
    })
    .with_cache(Cache::new(&clock));
    let home = AgentHome::new(&agents, &server);
    let run = run_claude(&home, "Look twice.");
    assert_eq!(run.result()["result"], "Done.", "{}", run.stderr);

    let used = usages(&server);
    assert_eq!(used.len(), 3);
    assert_eq!(used[0].cache_read, 0);
    assert!(used[0].cache_write > 10_000, "{used:?}");
    for pair in used.windows(2) {
        assert_eq!(pair[1].cache_read, pair[0].cache_read + pair[0].cache_write, "{used:?}");
    }
    assert_eq!(server.most_breakpoints(), 3);
    // Claude Code understands the usage.
    let all: Usage = used.iter().copied().sum();
    let told = &run.result()["usage"];
    assert_eq!(told["cache_read_input_tokens"], all.cache_read);
    assert_eq!(told["cache_creation_input_tokens"], all.cache_write);
    assert_eq!(told["input_tokens"], all.input);

    // A process of its own reads the system prompt, until it has expired.
    run_claude(&home, "Look twice.");
    assert!(usages(&server)[3].cache_read > 10_000);
    clock.advance(Duration::from_secs(301));
    run_claude(&home, "Look twice.");
    assert_eq!(usages(&server)[6].cache_read, 0);
}

#[test]
fn claude_passes_on_one_more_breakpoint_but_not_two() {
    let Some(agents) = Agents::find(&["claude"]) else { return };
    let server = ModelServer::always("Hello.").with_cache(Cache::new(&Clock::new()));
    let home = AgentHome::new(&agents, &server);
    let run_marked = |breakpoints: usize| {
        let block = json!({"type": "text", "text": "Hello", "cache_control": {"type": "ephemeral"}});
        let mut content = vec![block; breakpoints];
        content.push(json!({"type": "text", "text": "Go on."}));
        let line = json!({"type": "user", "message": {"role": "user", "content": content}});
        run(&home, home.command("claude").args(CLAUDE), &format!("{line}\n"))
    };
    assert_eq!(run_marked(1).result()["result"], "Hello.");
    assert_eq!(server.most_breakpoints(), 4);
    let refused = run_marked(2);
    assert_eq!(server.most_breakpoints(), 5);
    assert_eq!(refused.result()["is_error"], true);
    let message = refused.result()["result"].as_str().unwrap();
    assert!(
        message.contains("A maximum of 4 blocks with cache_control may be provided. Found 5."),
        "{message}"
    );
}

#[test]
fn codex_reads_from_the_cache_in_a_tool_loop_and_with_a_new_key_only_if_keys_are_shared() {
    let Some(agents) = Agents::find(&["codex"]) else { return };
    for (keys, is_shared) in [(CacheKeys::Separate, false), (CacheKeys::Shared, true)] {
        let server = ModelServer::answering(|request| match request.tool_results().len() {
            0 => Answer::new().tool("exec_command", json!({"cmd": "echo seventeen"})),
            _ => Answer::from("Done."),
        })
        .with_cache(Cache::new(&Clock::new()).keys(keys));
        let home = AgentHome::new(&agents, &server);
        let run = run_codex(&home, "Look.");
        let used = usages(&server);
        assert_eq!(used.len(), 2, "{}", run.stderr);
        assert_eq!(used[0].cache_read, 0);
        // All of the first request but for its last, incomplete step.
        assert_eq!(used[1].cache_read, used[0].input / 128 * 128);
        assert_eq!(run.of("turn.completed")[0]["usage"]["cached_input_tokens"], used[1].cache_read);

        run_codex(&home, "Look.");
        assert_eq!(usages(&server)[2].cache_read > 1_024, is_shared, "{keys:?}");
    }
}

#[test]
fn codex_passes_on_a_prompt_of_900_000_characters_unchanged() {
    let Some(agents) = Agents::find(&["codex"]) else { return };
    let server = ModelServer::scripted(["Long."]);
    let home = AgentHome::new(&agents, &server);
    let prompt = long_prompt(900_000);
    let run = run_codex(&home, &prompt);

    assert_eq!(run.items()[0]["text"], "Long.", "{}", run.stderr);
    assert_prompt(&server.requests()[0], &prompt);
}

/// Has a program run a command with its tool `shell`. The program prints lines of JSON and takes its prompt from its input.
fn runs_a_tool_and_hands_back_its_result(program: &'static str, arguments: &[&str], shell: &'static str) {
    let Some(agents) = Agents::find(&[program]) else { return };
    // By the request: programs also ask for titles and suggestions.
    let server = ModelServer::answering(move |request| {
        if !request.tool_results().is_empty() {
            return Answer::from("Seventeen.");
        }
        let command = "cat note.txt; echo made > new.txt";
        let input = json!({"command": command, "description": "Reads a note", "is_background": false});
        Answer::new().text("Looking.").tool(shell, input)
    });
    let home = AgentHome::new(&agents, &server);
    fs::write(home.project().join("note.txt"), "seventeen\n").unwrap();
    let run = run(&home, home.command(program).args(arguments), "What does the note say?\n");

    assert!(run.status.success(), "{}", run.stderr);
    let printed = run.lines.iter().map(Value::to_string).collect::<Vec<_>>().join("\n");
    assert!(printed.contains("Seventeen."), "{printed}");
    assert_eq!(fs::read_to_string(home.project().join("new.txt")).unwrap(), "made\n");
    let requests = server.requests();
    assert!(
        requests[0].prompt().unwrap().contains("What does the note say?"),
        "{:?}",
        requests[0].user_texts()
    );
    assert!(requests[0].tools().contains(&shell), "{:?}", requests[0].tools());
    assert!(!requests[0].system().is_empty());
    let last = requests.iter().find(|request| !request.tool_results().is_empty()).unwrap();
    assert!(last.tool_results()[0].contains("seventeen"), "{:?}", last.tool_results());
    assert!(last.assistant_texts().contains(&"Looking."), "{:?}", last.assistant_texts());
    assert_nobody_else_was_asked(&server);
}

#[test]
fn gemini_runs_a_tool_and_hands_back_its_result() {
    let arguments = ["-o", "stream-json", "-y", "--skip-trust"];
    runs_a_tool_and_hands_back_its_result("gemini", &arguments, "run_shell_command");
}

#[test]
fn qwen_runs_a_tool_and_hands_back_its_result() {
    let arguments = ["-o", "stream-json", "-y", "--auth-type", "openai"];
    runs_a_tool_and_hands_back_its_result("qwen", &arguments, "run_shell_command");
}

#[test]
fn opencode_runs_a_tool_and_hands_back_its_result() {
    runs_a_tool_and_hands_back_its_result("opencode", &["run", "--format", "json", "--auto"], "bash");
}

#[test]
fn an_agent_that_talks_to_somebody_else_is_found_out() {
    let Some(agents) = Agents::find(&["codex"]) else { return };
    let server = ModelServer::scripted(["Hello."]);
    let home = AgentHome::new(&agents, &server);
    // What the home turns off is turned on again.
    run(&home, home.command("codex").args(["--enable", "plugins"]).args(CODEX), "Hello");

    let panic = catch_unwind(AssertUnwindSafe(|| assert_nobody_else_was_asked(&server))).unwrap_err();
    let message = panic.downcast_ref::<String>().unwrap();
    assert!(message.starts_with("an agent wanted to talk to another host: CONNECT "), "{message}");
}
