//! The model server as a client sees it that speaks plain HTTP.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use azureal_testkit::model_server::{Answer, Api, Cache, Clock, Gate, ModelServer, StreamPosition, Usage};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(20);
const APIS: [&str; 4] = [
    "/v1/messages?beta=true",
    "/v1/responses",
    "/v1/chat/completions",
    "/v1beta/models/some-model:streamGenerateContent?alt=sse",
];

/// The APIs whose caches the server knows.
const CACHING: [&str; 2] = [APIS[0], APIS[1]];

/// What came back until the server closed.
struct Response {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Response {
    fn parse(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, head, body: bytes[end + 4..].to_vec() }
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Returns the events of a stream, and whether it came to its end.
    fn events(&self) -> (Vec<Value>, bool) {
        assert!(self.head.contains("text/event-stream"), "{}", self.head);
        let mut text = Vec::new();
        let mut rest = self.body.as_slice();
        let ended = loop {
            let Some(line) = rest.windows(2).position(|window| window == b"\r\n") else { break false };
            let size = usize::from_str_radix(std::str::from_utf8(&rest[..line]).unwrap(), 16).unwrap();
            if size == 0 {
                break true;
            }
            text.extend_from_slice(&rest[line + 2..line + 2 + size]);
            rest = &rest[line + 2 + size + 2..];
        };
        let text = String::from_utf8(text).unwrap();
        let events = text.split_terminator("\n\n").filter(|event| *event != "data: [DONE]").map(|event| {
            let (name, data) =
                event.split_once('\n').map_or((None, event), |(name, data)| (Some(name), data));
            let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
            assert_eq!(data["type"].as_str(), name.map(|name| name.strip_prefix("event: ").unwrap()));
            data
        });
        (events.collect(), ended)
    }

    /// Returns the text that came in deltas.
    fn streamed_text(&self) -> String {
        let (events, _) = self.events();
        let text = |event: &Value| {
            let delta = &event["delta"];
            let chunk = &event["choices"][0]["delta"]["content"];
            let part = &event["candidates"][0]["content"]["parts"][0]["text"];
            [&delta["text"], delta, chunk, part].into_iter().find_map(Value::as_str).map(str::to_owned)
        };
        events.iter().filter_map(text).collect()
    }
}

fn connect(server: &ModelServer) -> TcpStream {
    let stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
}

fn send(stream: &mut TcpStream, method: &str, path: &str, headers: &str, body: &str) {
    let length = body.len();
    let request = format!("{method} {path} HTTP/1.1\r\n{headers}content-length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).unwrap();
}

fn receive(mut stream: TcpStream) -> Response {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    Response::parse(&bytes)
}

fn call(server: &ModelServer, method: &str, path: &str, body: &str) -> Response {
    let mut stream = connect(server);
    send(&mut stream, method, path, "connection: close\r\nx-api-key: secret\r\n", body);
    receive(stream)
}

fn ask(server: &ModelServer, path: &str, stream: bool) -> Response {
    let body = json!({
        "model": "some-model", "stream": stream, "messages": [{"role": "user", "content": "Hello"}],
        "input": [{"type": "message", "role": "user", "content": "Hello"}],
        "contents": [{"role": "user", "parts": [{"text": "Hello"}]}],
    });
    // The Gemini API says it in the path.
    let path = if stream { path.to_owned() } else { path.replace(":streamGenerate", ":generate") };
    call(server, "POST", &path, &body.to_string())
}

fn kinds(events: &[Value]) -> Vec<&str> {
    let mut kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    kinds.dedup();
    kinds
}

#[test]
fn an_answer_is_streamed_by_the_messages_api() {
    let server = ModelServer::scripted([Answer::new()
        .thinking("Hm.")
        .text("Let me look.")
        .tool("Bash", json!({"command": "ls -l"}))
        .usage(Usage { input: 7, output: 3, cache_read: 2, ..Usage::default() })]);
    let (events, ended) = ask(&server, APIS[0], true).events();
    assert!(ended);
    let block = ["content_block_start", "content_block_delta", "content_block_stop"];
    let blocks = block.repeat(3);
    let expected =
        [&["message_start", "ping"], blocks.as_slice(), &["message_delta", "message_stop"]].concat();
    assert_eq!(kinds(&events), expected);
    let input: String = events.iter().filter_map(|event| event["delta"]["partial_json"].as_str()).collect();
    assert_eq!(input, r#"{"command":"ls -l"}"#);
    assert_eq!(events[0]["message"]["model"], "some-model");
    let last = &events[events.len() - 2];
    assert_eq!(last["delta"]["stop_reason"], "tool_use");
    assert_eq!(last["usage"]["output_tokens"], 3);
    assert_eq!(last["usage"]["cache_read_input_tokens"], 2);
}

#[test]
fn an_answer_is_streamed_by_the_responses_api() {
    let server = ModelServer::scripted([Answer::new()
        .text("Let me look.")
        .tool("exec_command", json!({"cmd": "ls"}))
        .custom_tool("apply_patch", "*** Begin Patch\n")]);
    let (events, ended) = ask(&server, APIS[1], true).events();
    assert!(ended);
    let done: Vec<&Value> =
        events.iter().filter(|event| event["type"] == "response.output_item.done").collect();
    assert_eq!(done[0]["item"]["content"][0]["text"], "Let me look.");
    assert_eq!(done[1]["item"]["arguments"], r#"{"cmd":"ls"}"#);
    assert_eq!(done[2]["item"]["input"], "*** Begin Patch\n");
    let last = &events[events.len() - 1];
    assert_eq!(last["type"], "response.completed");
    assert_eq!(last["response"]["usage"]["total_tokens"], 120);
    assert_eq!(last["response"]["output"].as_array().unwrap().len(), 3);
}

#[test]
fn an_answer_is_streamed_by_the_chat_completions_api() {
    let answer = Answer::new()
        .thinking("Hm.")
        .text("Let me look.")
        .tool("read", json!({"path": "a b"}))
        .tool("list", json!({}))
        .usage(Usage { input: 7, output: 3, cache_read: 2, reasoning: 1, ..Usage::default() });
    let server = ModelServer::always(answer);
    let (events, ended) = ask(&server, APIS[2], true).events();
    assert!(ended);
    let deltas: Vec<&Value> = events.iter().map(|event| &event["choices"][0]["delta"]).collect();
    assert_eq!(deltas[0]["role"], "assistant");
    assert_eq!(deltas[1]["reasoning_content"], "Hm.");
    let calls: Vec<&Value> =
        deltas.iter().flat_map(|delta| delta["tool_calls"].as_array()).flatten().collect();
    let arguments = |index: u64| -> String {
        let of_call = calls.iter().filter(|call| call["index"] == index);
        of_call.filter_map(|call| call["function"]["arguments"].as_str()).collect()
    };
    assert_eq!((arguments(0), arguments(1)), (r#"{"path":"a b"}"#.into(), "{}".into()));
    let [.., finish, last] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(finish["choices"][0]["finish_reason"], "tool_calls");
    assert_eq!(last["choices"], json!([]));

    let whole = ask(&server, APIS[2], false).json();
    assert_eq!(whole["usage"], last["usage"]);
    assert_eq!((&whole["usage"]["prompt_tokens"], &whole["usage"]["total_tokens"]), (&json!(9), &json!(12)));
    let message = &whole["choices"][0]["message"];
    assert_eq!((&message["content"], &message["reasoning_content"]), (&json!("Let me look."), &json!("Hm.")));
    assert_eq!(message["tool_calls"][1]["function"], json!({"name": "list", "arguments": "{}"}));
}

#[test]
fn an_answer_is_streamed_by_the_gemini_api() {
    let answer = Answer::new()
        .thinking("Hm.")
        .text("Let me look.")
        .tool("read", json!({"path": "a"}))
        .usage(Usage { input: 7, output: 3, cache_read: 2, reasoning: 1, ..Usage::default() });
    let server = ModelServer::always(answer);
    let response = ask(&server, APIS[3], true);
    assert_eq!(response.streamed_text(), "Hm.Let me look.");
    let (events, ended) = response.events();
    assert!(ended);
    let parts = |event: &Value| event["candidates"][0]["content"]["parts"].clone();
    assert_eq!(parts(&events[0]), json!([{"text": "Hm.", "thought": true}]));
    let [.., called, last] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(parts(called)[0]["functionCall"]["args"], json!({"path": "a"}));
    assert_eq!(last["candidates"][0]["finishReason"], "STOP");
    let used = json!({"promptTokenCount": 9, "cachedContentTokenCount": 2, "candidatesTokenCount": 2,
        "thoughtsTokenCount": 1, "totalTokenCount": 12});
    assert_eq!(last["usageMetadata"], used);

    let whole = ask(&server, APIS[3], false).json();
    assert_eq!(parts(&whole)[1], json!({"text": "Let me look."}));
    assert_eq!(parts(&whole)[2]["functionCall"]["name"], "read");
    assert_eq!(whole["modelVersion"], "some-model");
    let counted =
        call(&server, "POST", "/v1beta/models/some-model:countTokens", r#"{"contents": []}"#).json();
    assert!(counted["totalTokens"].as_u64().unwrap() > 0, "{counted}");
}

#[test]
fn an_answer_that_is_not_streamed_comes_whole() {
    let server = ModelServer::always(Answer::new().text_in(["Hel", "lo"]));
    let message = ask(&server, APIS[0], false).json();
    assert_eq!(message["content"], json!([{"type": "text", "text": "Hello"}]));
    assert_eq!(message["stop_reason"], "end_turn");
    let response = ask(&server, APIS[1], false).json();
    assert_eq!(response["output"][0]["content"][0]["text"], "Hello");
}

#[test]
fn answers_are_given_in_order_and_then_refused() {
    let server = ModelServer::scripted(["one", "two", "more", "still more"]);
    for path in APIS {
        assert_eq!(ask(&server, path, true).status, 200);
    }
    let over = ask(&server, APIS[0], true);
    assert_eq!(over.status, 400);
    assert!(over.json()["error"]["message"].as_str().unwrap().contains("no answer left"));
    server.push("three");
    assert_eq!(ask(&server, APIS[1], true).streamed_text(), "three");
}

#[test]
fn a_function_answers_by_the_request() {
    let server = ModelServer::answering(|request| {
        Answer::from(format!("{} was number {}", request.prompt().unwrap(), request.number).as_str())
    });
    for (path, number) in APIS.into_iter().zip(1..) {
        assert_eq!(ask(&server, path, true).streamed_text(), format!("Hello was number {number}"));
    }
}

#[test]
fn an_error_has_the_form_of_its_api() {
    let refuses = Answer::error(429, "slow down").retry_after(Duration::from_secs(3));
    let server = ModelServer::scripted([
        refuses.clone(),
        refuses.clone(),
        Answer::error(503, "").body(json!({"mine": true})),
    ]);
    let messages = ask(&server, APIS[0], true);
    assert_eq!(messages.status, 429);
    assert!(messages.head.contains("retry-after: 3"), "{}", messages.head);
    assert_eq!(messages.json()["error"], json!({"type": "rate_limit_error", "message": "slow down"}));
    assert_eq!(ask(&server, APIS[1], true).json()["error"]["code"], "rate_limit_exceeded");
    assert_eq!(ask(&server, APIS[1], true).json(), json!({"mine": true}));
    server.push(refuses.clone());
    assert_eq!(ask(&server, APIS[2], true).json()["error"]["code"], "rate_limit_exceeded");
    server.push(refuses);
    assert_eq!(ask(&server, APIS[3], true).json()["error"]["status"], "RESOURCE_EXHAUSTED");
}

#[test]
fn a_stream_is_cut_where_the_answer_says() {
    let four = Answer::new().text("one two three four").text("five");
    let server = ModelServer::answering(move |request| {
        let before_any_block = match request.api {
            Api::Messages | Api::Responses => 2,
            Api::Chat => 1,
            _ => 0,
        };
        let place = match request.number {
            1..=4 => StreamPosition::Events(before_any_block),
            5..=8 => StreamPosition::InBlock(0),
            9..=12 => StreamPosition::AfterBlock(0),
            _ => StreamPosition::Events(1000),
        };
        four.clone().cut(place)
    });
    for expected in ["", "one two ", "one two three four", "one two three fourfive"] {
        for path in APIS {
            let cut = ask(&server, path, true);
            assert!(!cut.events().1, "{path}: the stream came to its end");
            assert_eq!(cut.streamed_text(), expected, "{path}");
        }
    }
}

#[test]
fn an_error_may_come_in_the_stream() {
    let broken =
        Answer::new().text("one two").error_in_stream(StreamPosition::InBlock(0), "overloaded", "no");
    let server = ModelServer::always(broken);
    let (events, _) = ask(&server, APIS[0], true).events();
    assert_eq!(events.last().unwrap()["error"]["type"], "overloaded");
    let (events, _) = ask(&server, APIS[1], true).events();
    assert_eq!(events.last().unwrap()["response"]["error"]["code"], "overloaded");
    for (path, field) in [(APIS[2], "type"), (APIS[3], "status")] {
        let (events, _) = ask(&server, path, true).events();
        assert_eq!(events.last().unwrap()["error"][field], "overloaded", "{path}");
    }
}

#[test]
fn a_stall_ends_with_the_server() {
    let gate = Gate::new();
    let server =
        ModelServer::always(Answer::new().text("one two").stall(StreamPosition::InBlock(0)).hold(&gate));
    let mut waiting = connect(&server);
    send(&mut waiting, "POST", APIS[0], "", r#"{"stream": true}"#);
    gate.wait_until_reached(LIMIT);
    let idle = connect(&server);
    let start = Instant::now();
    drop(server);
    assert!(start.elapsed() < LIMIT / 4, "{:?}", start.elapsed());
    let stalled = receive(waiting);
    assert_eq!((stalled.streamed_text().as_str(), stalled.events().1), ("one ", false));
    drop(idle);
}

#[test]
fn a_stream_waits_at_a_gate_until_it_is_opened() {
    let gate = Gate::new();
    let server = ModelServer::always(Answer::new().text("before ").hold(&gate).text("after"));
    thread::scope(|scope| {
        let asking = scope.spawn(|| ask(&server, APIS[0], true));
        gate.wait_until_reached(LIMIT);
        assert!(!asking.is_finished());
        gate.open();
        assert_eq!(asking.join().unwrap().streamed_text(), "before after");
    });
}

#[test]
fn delays_delay() {
    let step = Duration::from_millis(10);
    let server = ModelServer::always(
        Answer::new().delay(5 * step).pause(5 * step).text_in(["a", "b"]).pace(step).pause(5 * step),
    );
    let start = Instant::now();
    let (events, ended) = ask(&server, APIS[0], true).events();
    assert!(ended);
    let least = 15 * step + step * u32::try_from(events.len() - 1).unwrap();
    assert!(start.elapsed() >= least, "{:?} of {least:?}", start.elapsed());
}

#[test]
fn probes_are_answered_and_kept_apart() {
    let server = ModelServer::scripted(["one"]);
    assert_eq!(call(&server, "HEAD", "/", "").status, 200);
    assert_eq!(call(&server, "GET", "/v1/models?client_version=1", "").json()["data"], json!([]));
    assert_eq!(call(&server, "GET", "/nowhere", "").status, 404);
    assert_eq!(call(&server, "CONNECT", "api.example.com:443", "").status, 404);
    let count = call(&server, "POST", "/v1/messages/count_tokens", r#"{"messages": []}"#);
    assert!(count.json()["input_tokens"].as_u64().unwrap() > 0);
    assert_eq!(server.request_count(), 0);

    ask(&server, APIS[0], true);
    assert_eq!(server.requests().len(), 1);
    assert_eq!(server.all_requests().len(), 6);
    let request = &server.requests()[0];
    assert_eq!((request.number, request.model(), request.prompt()), (1, Some("some-model"), Some("Hello")));
    assert_eq!(request.header("x-api-key"), None);
    assert!(!format!("{:?}", server.all_requests()).contains("secret"));
}

#[test]
fn a_connection_serves_several_requests_and_chunked_bodies() {
    let server = ModelServer::always("fine");
    let mut stream = connect(&server);
    send(&mut stream, "POST", APIS[0], "", r#"{"model": "a"}"#);
    let chunked = "POST /v1/messages HTTP/1.1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n\
        6\r\n{\"mode\r\n8;x=y\r\nl\": \"b\"}\r\n0\r\ntrailer: t\r\n\r\n";
    stream.write_all(chunked.as_bytes()).unwrap();
    let mut both = String::new();
    stream.read_to_string(&mut both).unwrap();
    assert_eq!(both.matches("HTTP/1.1 200 OK").count(), 2);
    let requests = server.requests();
    let models: Vec<_> = requests.iter().map(|request| request.model()).collect();
    assert_eq!(models, [Some("a"), Some("b")]);
}

#[test]
fn many_clients_are_served_at_once() {
    let gate = Gate::new();
    let server = ModelServer::always(Answer::new().hold(&gate).text("together"));
    thread::scope(|scope| {
        let asking: Vec<_> = (0..8).map(|_| scope.spawn(|| ask(&server, APIS[0], true))).collect();
        server.wait_for_requests(8, LIMIT);
        gate.open();
        for asking in asking {
            assert_eq!(asking.join().unwrap().streamed_text(), "together");
        }
    });
}

#[test]
fn a_panic_of_the_function_reaches_the_test() {
    let server = ModelServer::answering(|_| panic!("not what I expected"));
    let mut stream = connect(&server);
    send(&mut stream, "POST", APIS[0], "", "{}");
    let mut nothing = Vec::new();
    stream.read_to_end(&mut nothing).unwrap();
    assert!(nothing.is_empty());
    let panic = catch_unwind(AssertUnwindSafe(|| drop(server))).unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"not what I expected"));
}

#[test]
fn waiting_for_requests_that_do_not_come_says_how_many_came() {
    let server = ModelServer::always("one");
    let waiting = || server.wait_for_requests(1, Duration::from_millis(10));
    let panic = catch_unwind(AssertUnwindSafe(waiting)).unwrap_err();
    let message = panic.downcast_ref::<String>().unwrap();
    assert_eq!(message, "0 of 1 requests arrived within 10ms");
}

/// Asks with a prompt of 1,280 tokens, for either API, and this many breakpoints.
fn ask_cached(server: &ModelServer, path: &str, stream: bool, breakpoints: usize) -> Response {
    let text = "abcd".repeat(1_280);
    let mut content = vec![json!({"type": "text", "text": text})];
    content.resize(breakpoints.max(1), json!({"type": "text", "text": "abcd"}));
    for block in &mut content[..breakpoints] {
        block["cache_control"] = json!({"type": "ephemeral"});
    }
    let body = json!({
        "model": "some-model", "stream": stream, "messages": [{"role": "user", "content": content}],
        "input": [{"type": "message", "role": "user", "content": text}],
    });
    call(server, "POST", path, &body.to_string())
}

#[test]
fn a_server_with_a_cache_reports_what_it_has_measured() {
    let clock = Clock::new();
    let stated = Usage { input: 1, output: 7, cache_read: 2, reasoning: 3, ..Usage::default() };
    let server = ModelServer::always(Answer::from("Hello").usage(stated)).with_cache(Cache::new(&clock));
    let written = json!({
        "input_tokens": 0, "cache_creation_input_tokens": 1_280, "cache_read_input_tokens": 0,
        "cache_creation": {"ephemeral_5m_input_tokens": 1_280, "ephemeral_1h_input_tokens": 0}, "output_tokens": 7,
    });
    let read = json!({
        "input_tokens": 0, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 1_280,
        "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0}, "output_tokens": 7,
    });
    assert_eq!(ask_cached(&server, APIS[0], false, 1).json()["usage"], written);
    let (events, _) = ask_cached(&server, APIS[0], true, 1).events();
    assert_eq!(events[0]["message"]["usage"]["cache_read_input_tokens"], 1_280);
    assert_eq!(events[events.len() - 2]["usage"], read);

    let used = |cached: u64| {
        json!({
            "input_tokens": 1_280, "input_tokens_details": {"cached_tokens": cached}, "output_tokens": 7,
            "output_tokens_details": {"reasoning_tokens": 3}, "total_tokens": 1_287,
        })
    };
    assert_eq!(ask_cached(&server, APIS[1], false, 0).json()["usage"], used(0));
    let (events, _) = ask_cached(&server, APIS[1], true, 0).events();
    assert_eq!(events.last().unwrap()["response"]["usage"], used(1_280));

    // Half a second later it would all be gone, but the clock of the test is the only one.
    clock.advance(Duration::from_millis(299_500));
    assert_eq!(ask_cached(&server, APIS[0], false, 1).json()["usage"], read);
    assert_eq!(ask_cached(&server, APIS[1], false, 0).json()["usage"], used(1_280));
    clock.advance(Duration::from_secs(300));
    assert_eq!(ask_cached(&server, APIS[0], false, 1).json()["usage"], written);
    assert_eq!(ask_cached(&server, APIS[1], false, 0).json()["usage"], used(0));

    let served = server.served();
    let read: Vec<u64> = served.iter().map(|served| served.usage.unwrap().cache_read).collect();
    assert_eq!(read, [0, 1_280, 0, 1_280, 1_280, 1_280, 0, 0]);
    let all: Usage = served.iter().filter_map(|served| served.usage).sum();
    assert_eq!((all.output, all.whole_input()), (8 * 7, 8 * 1_280));
    assert_eq!(all.weighted_input(), 1_280.0 * (4.0 * 0.1 + 2.0 * 1.25 + 2.0));
    assert_eq!(server.most_breakpoints(), 1);
}

#[test]
fn a_request_with_five_breakpoints_is_refused_and_uses_up_no_answer() {
    let server = ModelServer::scripted(["Hello"]).with_cache(Cache::new(&Clock::new()));
    let refused = ask_cached(&server, APIS[0], true, 5);
    assert_eq!(refused.status, 400);
    let message = "A maximum of 4 blocks with cache_control may be provided. Found 5.";
    let error = json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}});
    assert_eq!(refused.json(), error);
    assert_eq!(ask_cached(&server, APIS[0], true, 4).streamed_text(), "Hello");

    let served: Vec<_> =
        server.served().iter().map(|served| (served.status, served.usage.is_some())).collect();
    assert_eq!(served, [(400, false), (200, true)]);
    assert_eq!(server.served()[1].request.breakpoints(), 4);
    assert_eq!(server.most_breakpoints(), 5);

    let without_cache = ModelServer::scripted(["Hello"]);
    assert_eq!(ask_cached(&without_cache, APIS[0], true, 5).streamed_text(), "Hello");
    assert_eq!(without_cache.served()[0].usage, Some(Usage::default()));
    assert_eq!(without_cache.most_breakpoints(), 5);
}

#[test]
fn requests_at_the_same_time_do_not_share_a_cache_entry() {
    for path in CACHING {
        let both = Barrier::new(2);
        let server = ModelServer::answering(move |request| {
            if request.number <= 2 {
                both.wait();
            }
            Answer::from("Hello")
        })
        .with_cache(Cache::new(&Clock::new()));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| ask_cached(&server, path, true, 1));
            }
        });
        ask_cached(&server, path, true, 1);
        let read: Vec<u64> = server.served().iter().map(|served| served.usage.unwrap().cache_read).collect();
        assert_eq!(read, [0, 0, 1_280], "{path}");
    }
}

#[test]
fn an_error_writes_no_cache_entry() {
    for path in CACHING {
        let server =
            ModelServer::scripted([Answer::error(500, "out of order"), "Hello".into(), "Hello".into()])
                .with_cache(Cache::new(&Clock::new()));
        for _ in 0..3 {
            ask_cached(&server, path, false, 1);
        }
        let served = server.served();
        let read: Vec<_> = served.iter().map(|served| served.usage.map(|usage| usage.cache_read)).collect();
        assert_eq!(read, [None, Some(0), Some(1_280)], "{path}");
    }
}

#[test]
fn tokens_are_counted_as_they_are_charged() {
    let server = ModelServer::always("Hello").with_cache(Cache::new(&Clock::new()));
    let body = json!({"tools": [{"name": "a"}], "system": "Be kind.", "messages": [
        {"role": "user", "content": "abcde"}]});
    let count = call(&server, "POST", "/v1/messages/count_tokens", &body.to_string());
    assert_eq!(count.json(), json!({"input_tokens": 3 + 2 + 2}));
    let used = call(&server, "POST", "/v1/messages", &body.to_string());
    assert_eq!(used.json()["usage"]["input_tokens"], 7);
}
