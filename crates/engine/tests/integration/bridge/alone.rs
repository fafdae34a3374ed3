//! A bridge alone, without azureal: its limits hold by itself.

use super::*;

/// Names a run after a folder, which no other test has.
fn run_of(folder: &Path) -> String {
    format!("alone-{}", folder.file_name().unwrap().to_str().unwrap().trim_start_matches('.'))
}

fn task(run: &str, script: &str, limits: BridgeLimits) -> BridgeTask {
    BridgeTask {
        run: run.to_owned(),
        marker: RUN_MARKER.to_owned(),
        program: Some(AgentProgram {
            path: CHILD.into(),
            args: vec!["agent".into(), script.into()],
            env: Vec::new(),
        }),
        control: None,
        limits,
        exchange: Exchange::JsonRpc(JsonRpcExchange {
            prompt: json!([{ "type": "text", "text": "hi" }]),
            policy: PermissionPolicy { otherwise: Consent::Ask, ..PermissionPolicy::default() },
            ..JsonRpcExchange::default()
        }),
    }
}

fn start_bridge(folder: &Path, stdout: File, task: &BridgeTask) -> azureal_process::Child {
    let marker = Marker::new(RUN_MARKER, task.run.clone()).unwrap();
    let mut spawn = Spawn::new(CHILD, folder, own_environment().clone(), stdout, marker);
    spawn.args = vec!["__bridge".into()];
    spawn.stdin = serde_json::to_vec(task).unwrap();
    spawn.stderr = Stream::File(File::create(folder.join("err")).unwrap());
    spawn.start().unwrap()
}

/// Runs a bridge alone, and returns what it wrote.
fn bridge_alone(script: &str, limits: BridgeLimits) -> (Vec<BridgeLine>, BridgeEnd) {
    let folder = tempfile::tempdir().unwrap();
    let run = run_of(folder.path());
    let task = BridgeTask { control: Some(folder.path().join("s")), ..task(&run, script, limits) };
    let output = folder.path().join("out");
    let child = start_bridge(folder.path(), File::create(&output).unwrap(), &task);
    assert!(child.wait_timeout(PATIENCE).is_some(), "{script} does not end");
    assert_eq!(processes(&run), [], "{script}");
    assert!(!folder.path().join("s").exists(), "the socket is removed");
    let text = fs::read_to_string(&output).unwrap();
    let mut lines: Vec<BridgeLine> =
        text.lines().map(|line| BridgeLine::read(line.as_bytes()).unwrap()).collect();
    let Some(BridgeLine::End(end)) = lines.pop() else { panic!("{text}") };
    (lines, end)
}

#[test]
fn every_limit_of_a_bridge_holds_without_azureal() {
    let limits = BridgeLimits::default();
    let (lines, end) = bridge_alone("flood", BridgeLimits { messages: 100, ..limits });
    assert_eq!(end.reason.as_deref(), Some("the agent sent more than 100 messages"));
    assert!(lines.len() < 110, "{}", lines.len());

    let (lines, end) = bridge_alone("flood", BridgeLimits { output_bytes: 1 << 20, ..limits });
    assert_eq!(end.reason.as_deref(), Some("the agent printed more than 1048576 bytes"));
    let written: usize = lines.iter().map(|line| serde_json::to_string(line).unwrap().len()).sum();
    assert!(written < 1_100_000, "{written}");

    let (lines, end) = bridge_alone("garbage", BridgeLimits { message_bytes: 100_000, ..limits });
    assert_eq!(end.outcome, Outcome::Done);
    let too_long = lines.iter().find_map(|line| match line {
        BridgeLine::Unreadable(found) if found.why == "is too long" => Some((found.bytes, found.text.len())),
        _ => None,
    });
    assert_eq!(too_long, Some((3 << 20, 2048)));

    let (_, end) = bridge_alone("stubborn", BridgeLimits { turn_ms: 300, ..limits });
    assert_eq!(end.outcome, Outcome::Timeout);

    let (lines, end) = bridge_alone("ask", BridgeLimits { question_ms: 100, ..limits });
    assert_eq!(end.outcome, Outcome::Done);
    let answered = lines.iter().find_map(|line| match line {
        BridgeLine::Answer(answered) => Some((answered.by, answered.allowed)),
        _ => None,
    });
    assert_eq!(answered, Some((AnsweredBy::Timeout, false)));
}

#[test]
fn an_agent_whose_output_cannot_be_kept_is_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let run = run_of(folder.path());
    let task = BridgeTask { control: None, ..task(&run, "wait", BridgeLimits::default()) };
    let full = File::options().write(true).open("/dev/full").unwrap();
    let child = start_bridge(folder.path(), full, &task);
    assert_eq!(child.wait_timeout(PATIENCE), Some(azureal_process::Exit::Code(1)));
    assert_eq!(processes(&run), []);
}

#[test]
fn a_task_that_cannot_be_read_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out");
    for stdin in ["", "{\"run\":\"a\"", "[]"] {
        let marker = Marker::new(RUN_MARKER, run_of(folder.path())).unwrap();
        let mut spawn = Spawn::new(
            CHILD,
            folder.path(),
            own_environment().clone(),
            File::create(&output).unwrap(),
            marker,
        );
        spawn.args = vec!["__bridge".into()];
        spawn.stdin = stdin.into();
        assert_eq!(spawn.start().unwrap().wait(), azureal_process::Exit::Code(1));
        let text = fs::read(&output).unwrap();
        let Ok(BridgeLine::End(end)) = BridgeLine::read(&text) else { panic!("{stdin}") };
        assert!(end.reason.unwrap().starts_with("the task of the bridge cannot be read: "), "{stdin}");
    }
}
