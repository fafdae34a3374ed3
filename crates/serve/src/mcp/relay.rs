//! Passing messages on to the process that runs the turn.
//!
//! For a store on a server the agent's own server does not open the store: it would need an address and a password, which an agent must not have. The process that
//! runs the turn has the store open and listens on a socket. One connection is one message and its answer, so nothing waits between the calls of an agent.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::{answer_all, failure, success, tool_result};

/// The time that an answer may take: a search may build the index first.
const ANSWER: Duration = Duration::from_secs(120);
/// The time to send a message.
const SEND: Duration = Duration::from_secs(5);
/// The longest answer, in bytes: several times the longest text, with every character escaped.
const LONGEST: u64 = 1 << 20;

/// Passes each message on to this socket until the input ends. A message that nobody answers is answered with an error, so that the agent continues without recall.
///
/// # Errors
///
/// The input cannot be read, or the output not be written.
pub fn relay(socket: &Path, input: impl BufRead, output: impl Write) -> io::Result<()> {
    answer_all(input, output, |message| {
        // A notification has no answer.
        let id = message.get("id").filter(|id| !id.is_null())?;
        Some(pass_on(socket, message).unwrap_or_else(|error| unanswered(id, message, &error)))
    })
}

fn pass_on(socket: &Path, message: &Value) -> io::Result<Value> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.set_write_timeout(Some(SEND))?;
    stream.write_all(format!("{message}\n").as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    let mut line = Vec::new();
    BufReader::new(stream.take(LONGEST)).read_until(b'\n', &mut line)?;
    if !line.ends_with(b"\n") {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_slice(&line)?)
}

fn unanswered(id: &Value, message: &Value, error: &io::Error) -> Value {
    let why = match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            format!("azureal did not answer within {} s; continue without recall", ANSWER.as_secs())
        }
        _ => "azureal, which reads the store, is no longer running; continue without recall".to_owned(),
    };
    match message.get("method").and_then(Value::as_str) {
        // A result, so that the model sees it.
        Some("tools/call") => success(id, &tool_result(&why, true)),
        _ => failure(id, -32000, &why),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use serde_json::json;

    use super::*;

    fn relayed(socket: &Path, messages: &[Value]) -> Vec<Value> {
        let input: String = messages.iter().map(|message| format!("{message}\n")).collect();
        let mut output = Vec::new();
        relay(socket, input.as_bytes(), &mut output).unwrap();
        let lines = String::from_utf8(output).unwrap();
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn call() -> Value {
        json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "list_sessions"}})
    }

    #[test]
    fn a_message_is_passed_on_and_a_notification_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        let answering = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut message = String::new();
            stream.read_to_string(&mut message).unwrap();
            stream.write_all(b"{\"id\":7}\n").unwrap();
            message
        });
        let notification = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(relayed(&socket, &[notification, call()]), [json!({"id": 7})]);
        assert_eq!(answering.join().unwrap(), format!("{}\n", call()));
    }

    #[test]
    fn where_nobody_answers_the_model_reads_why() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        // A peer that goes away, one that sends too much, and no peer at all.
        for answer in [Some(Vec::new()), Some(b"{\"id\":7".repeat(1 << 20)), None] {
            let answering = answer.map(|answer| {
                let listener = UnixListener::bind(&socket).unwrap();
                thread::spawn(move || {
                    let (mut stream, _) = listener.accept().unwrap();
                    // The relay closes before it has read everything.
                    drop(stream.write_all(&answer));
                })
            });
            let answers = relayed(&socket, &[call()]);
            assert_eq!(answers[0]["result"]["isError"], true, "{answers:?}");
            let text = answers[0]["result"]["content"][0]["text"].as_str().unwrap();
            assert!(text.ends_with("is no longer running; continue without recall"), "{text}");
            if let Some(answering) = answering {
                answering.join().unwrap();
                std::fs::remove_file(&socket).unwrap();
            }
        }
        let answers = relayed(&socket, &[json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})]);
        assert_eq!(answers[0]["error"]["code"], -32000, "{answers:?}");
    }
}
