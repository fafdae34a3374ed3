//! The bridge: a child of ours that talks to an agent which does not answer one prompt and exit.
//!
//! Every run of an agent is a child process whose standard output is the spool. For a program that answers one prompt that
//! is the program itself. For an agent that speaks JSON-RPC over pipes, or a model behind HTTP, it is our own program,
//! started with [`SUBCOMMAND`]: it writes each message that arrives as one line before it acts on it. So what an agent
//! said survives the death of azureal, and one parser reads it live, stored and after a crash.
//!
//! | file | holds |
//! |---|---|
//! | `run.rs` | the loop: performs steps, and handles messages, exits, signals, requests and time |
//! | `protocol.rs` | the seam: a protocol is a machine that turns what happens into steps |
//! | `json_rpc.rs` | JSON-RPC over the pipes of a program |
//! | `http.rs` | one HTTP request with a streamed response |
//! | `host.rs` | starting one, and where it is reached |
//! | `control.rs` | the control channel: open questions, answers, cancel |
//! | `lines.rs`, `output.rs` | bounded reading, and the lines of the spool |
//!
//! **Its task** comes on standard input, as [`BridgeTask`]: all of it is there before the bridge starts, so the bridge
//! gives the agent the whole prompt also when azureal has ended. No prompt, key or path is an argument.
//!
//! **Its end.** SIGINT, SIGHUP and a cancel over the control channel ask the agent to stop, by its protocol; after a second
//! the agent and its family are stopped. SIGTERM does so at once. The last line says how the run ended. A bridge without
//! a last line was killed: the process that stores the turn ends the processes that carry the marker of the run.
//!
//! (`docs/decisions/0008-bridge.md` has the reasons.)

mod control;
mod host;
mod http;
mod json_rpc;
mod lines;
mod output;
mod protocol;
mod run;

use std::io::{self, Read};
use std::path::Path;
use std::process::ExitCode;

use azureal_core::bridge::{BridgeEnd, BridgeLine, BridgeTask};
use azureal_core::event::Outcome;
use azureal_process::ChildEnvironment;

pub use control::{Control, ControlError, OpenQuestion, Refusal};
pub(crate) use host::Channel;
pub use host::{BridgeHost, ControlFolderError};

/// The hidden command that our program is started with to be a bridge.
pub const SUBCOMMAND: &str = "__bridge";

/// The largest task, in bytes: a prompt with a long history, every byte of it escaped.
const LARGEST_TASK: u64 = 512 << 20;
/// The bytes that are read from the end of an output to find its last line.
const LAST: u64 = 64 << 10;

/// Is a bridge: reads a task from standard input, performs it, and writes to standard output. The agent starts with these variables:
/// those of this process, which was started with exactly the variables of the turn.
pub fn bridge_main(environment: ChildEnvironment) -> ExitCode {
    match bridge(environment) {
        Ok(Outcome::Done | Outcome::Cancelled) => ExitCode::SUCCESS,
        // The last line has the reason; or the output cannot be written, and there is no way to report it.
        Ok(_) | Err(_) => ExitCode::FAILURE,
    }
}

fn bridge(environment: ChildEnvironment) -> io::Result<Outcome> {
    let (stdout, stderr) = run::own_streams()?;
    let mut text = Vec::new();
    io::stdin().lock().take(LARGEST_TASK + 1).read_to_end(&mut text)?;
    match serde_json::from_slice::<BridgeTask>(&text) {
        Ok(task) => {
            drop(text);
            run::perform(task, environment, stdout, stderr)
        }
        Err(error) => {
            let end = BridgeEnd::failed(format!("the task of the bridge cannot be read: {error}"));
            output::Output::new(stdout).write(&BridgeLine::End(end))?;
            Ok(Outcome::Failed)
        }
    }
}

/// Returns whether a bridge has written its last line.
pub(crate) fn has_ended(output: &Path) -> bool {
    let last = || -> io::Result<Vec<u8>> {
        use std::os::unix::fs::FileExt;
        let file = std::fs::File::open(output)?;
        let length = file.metadata()?.len();
        let read = length.min(LAST);
        let mut last = vec![0; usize::try_from(read).unwrap_or_default()];
        file.read_exact_at(&mut last, length - read)?;
        Ok(last)
    };
    let last = last().unwrap_or_default();
    let Some(last) = last.strip_suffix(b"\n") else { return false };
    let line = last.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    matches!(BridgeLine::read(line), Ok(BridgeLine::End(_)))
}
