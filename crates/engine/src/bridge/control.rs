//! The control channel of a bridge: open questions, answers, cancel.
//!
//! A Unix socket in a folder of mode 0700 outside of the worktree, named after the run. Its path is in no environment and
//! on no command line. One connection is one request and one response, a line of JSON each.
//!
//! An agent must not be able to allow itself anything:
//!
//! - An answer carries the nonce of its question. The nonce is random, in no file, and only this channel gives it out.
//! - The bridge refuses every peer that descends from itself, whatever that one knows. It adopts the processes whose
//!   parents have ended, so a process of the agent cannot leave the family by forking twice.
//! - A front end shows the question as this channel returns it. The line in the spool only says that there is one.
//!
//! The system tells the peer's process on Linux alone. Elsewhere the second rule does not hold, and a program of the same
//! user that finds the socket can answer.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};
use std::{fs, thread};

use azureal_core::bridge::Question;
use azureal_process::ProcessIdentity;
use serde::{Deserialize, Serialize};

use super::run::BridgeInput;

/// The time limit of a peer to send its request, and to read the response.
const PEER: Duration = Duration::from_secs(2);
/// The time that the end of a bridge waits until its last response is read.
const LAST_RESPONSE: Duration = Duration::from_millis(500);
/// The time that a front end waits for the response.
const WAIT: Duration = Duration::from_secs(10);
/// The longest request, in bytes.
const LARGEST_REQUEST: u64 = 16 << 10;
/// The longest response, in bytes: sixteen questions of a MiB each, with every byte escaped.
const LARGEST_RESPONSE: u64 = 128 << 20;
/// The longest path of a socket that all systems take, in bytes.
const LONGEST_PATH: usize = 103;

/// A question that is open, with what its answer must carry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenQuestion {
    /// The question.
    pub question: Question,
    /// Proves that an answer is to this very question.
    pub nonce: String,
}

/// A request to a bridge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    /// Lists the open questions.
    Questions,
    /// Answers one.
    Answer { question: String, nonce: String, option: String },
    /// Ends the run.
    Cancel,
}

/// The response of a bridge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Response {
    Done,
    Questions(Vec<OpenQuestion>),
    Refused(Refusal),
}

/// The reason why a bridge refuses a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// No question of this name is open: it may have been answered meanwhile.
    #[error("no such question is open")]
    NoSuchQuestion,
    /// The nonce is not that of the question.
    #[error("the answer does not carry the nonce of its question")]
    WrongNonce,
    /// The question has no option of this name.
    #[error("the question has no such option")]
    NoSuchOption,
    /// The peer is a process of the agent, or cannot be distinguished from one.
    #[error("a process of the agent may not use the control channel")]
    FromTheAgent,
    /// The request cannot be read.
    #[error("the request cannot be read")]
    Unreadable,
    /// The run has ended.
    #[error("the run has ended")]
    Ended,
}

/// The reason why a run cannot be controlled.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The run has no control channel: it has ended, or its agent is not behind a bridge.
    #[error("the run has no control channel")]
    Closed,
    /// The bridge refuses.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The channel cannot be used.
    #[error("{}: {source}", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// The control channel of one run, for a front end.
#[derive(Debug, Clone)]
pub struct Control {
    socket: PathBuf,
}

impl Control {
    pub(crate) fn new(socket: PathBuf) -> Self {
        Self { socket }
    }

    /// Returns the open questions, the oldest first.
    pub fn questions(&self) -> Result<Vec<OpenQuestion>, ControlError> {
        match self.request(&Request::Questions)? {
            Response::Questions(questions) => Ok(questions),
            Response::Refused(why) => Err(why.into()),
            Response::Done => Err(Refusal::Unreadable.into()),
        }
    }

    /// Answers a question with one of its options.
    ///
    /// # Errors
    ///
    /// The question is not open any more, or has no such option.
    pub fn answer(&self, question: &OpenQuestion, option: &str) -> Result<(), ControlError> {
        self.done(&Request::Answer {
            question: question.question.id.clone(),
            nonce: question.nonce.clone(),
            option: option.to_owned(),
        })
    }

    /// Asks the bridge to end the run: the agent is asked to stop, then stopped.
    pub fn cancel(&self) -> Result<(), ControlError> {
        self.done(&Request::Cancel)
    }

    fn done(&self, request: &Request) -> Result<(), ControlError> {
        match self.request(request)? {
            Response::Done => Ok(()),
            Response::Refused(why) => Err(why.into()),
            Response::Questions(_) => Err(Refusal::Unreadable.into()),
        }
    }

    fn request(&self, request: &Request) -> Result<Response, ControlError> {
        let at = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => ControlError::Closed,
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Refusal::Ended.into(),
            _ => ControlError::Io { path: self.socket.clone(), source },
        };
        let mut stream = UnixStream::connect(&self.socket).map_err(at)?;
        let text = serde_json::to_string(request).map_err(|error| at(error.into()))?;
        stream.set_read_timeout(Some(WAIT)).map_err(at)?;
        stream.set_write_timeout(Some(WAIT)).map_err(at)?;
        // A bridge that refuses us may have answered and closed before it has read this.
        drop(stream.write_all(format!("{text}\n").as_bytes()));
        let mut line = Vec::new();
        BufReader::new(stream.take(LARGEST_RESPONSE)).read_until(b'\n', &mut line).map_err(at)?;
        if line.is_empty() {
            return Err(Refusal::Ended.into());
        }
        serde_json::from_slice(&line).map_err(|error| at(error.into()))
    }
}

/// The socket of a bridge. Dropped, it is removed.
pub(crate) struct ControlSocket {
    path: PathBuf,
    /// Locked while a request is attended to.
    attending: Arc<Mutex<()>>,
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // The process that stores the turn removes one that is left.
        drop(fs::remove_file(&self.path));
        // The process ends now. Who was answered last is to hear of it, unless it does not listen.
        let deadline = Instant::now() + LAST_RESPONSE;
        while matches!(self.attending.try_lock(), Err(TryLockError::WouldBlock)) && Instant::now() < deadline
        {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Returns whether a path can be that of a socket.
pub(crate) fn check_path(path: &Path) -> io::Result<()> {
    if path.as_os_str().len() > LONGEST_PATH {
        let why = format!("a path of more than {LONGEST_PATH} bytes cannot be that of a socket");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    Ok(())
}

/// Opens the socket, and hands each request to the bridge.
pub(crate) fn serve(path: &Path, inputs: SyncSender<BridgeInput>) -> io::Result<ControlSocket> {
    check_path(path)?;
    let this = ProcessIdentity::of(std::process::id())
        .ok_or_else(|| io::Error::other("the system does not show this process"))?;
    let listener = UnixListener::bind(path)?;
    let attending = Arc::new(Mutex::new(()));
    let socket = ControlSocket { path: path.to_owned(), attending: attending.clone() };
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    thread::Builder::new().name("control".to_owned()).spawn(move || {
        // One after the other: a request takes milliseconds, and a peer that stops is left after two seconds.
        for stream in listener.incoming() {
            match stream {
                // The peer that went away is its own affair.
                Ok(stream) => {
                    let _attending = attending.lock().unwrap_or_else(PoisonError::into_inner);
                    drop(attend(stream, &this, &inputs));
                }
                // No more descriptors, for a moment.
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
        }
    })?;
    Ok(socket)
}

fn attend(
    mut stream: UnixStream,
    this: &ProcessIdentity,
    inputs: &SyncSender<BridgeInput>,
) -> io::Result<()> {
    stream.set_read_timeout(Some(PEER))?;
    stream.set_write_timeout(Some(PEER))?;
    let response = if is_allowed(&stream, this) {
        let mut line = Vec::new();
        BufReader::new((&stream).take(LARGEST_REQUEST)).read_until(b'\n', &mut line)?;
        match serde_json::from_slice(&line) {
            Ok(request) => ask(request, inputs),
            Err(_) => Response::Refused(Refusal::Unreadable),
        }
    } else {
        Response::Refused(Refusal::FromTheAgent)
    };
    let text = serde_json::to_string(&response)?;
    stream.write_all(format!("{text}\n").as_bytes())
}

fn ask(request: Request, inputs: &SyncSender<BridgeInput>) -> Response {
    let (reply, replies) = sync_channel(1);
    let ended = Response::Refused(Refusal::Ended);
    if inputs.send(BridgeInput::Control(request, reply)).is_err() {
        return ended;
    }
    replies.recv().unwrap_or(ended)
}

/// Returns whether a peer may use the channel: it is of this user, and no process of the agent.
#[cfg(target_os = "linux")]
fn is_allowed(stream: &UnixStream, this: &ProcessIdentity) -> bool {
    let Ok(peer) = rustix::net::sockopt::socket_peercred(stream) else { return false };
    let pid = u32::try_from(peer.pid.as_raw_nonzero().get()).unwrap_or_default();
    // One that has ended, or lives where it cannot be seen, may have been anybody.
    peer.uid == rustix::process::geteuid() && pid != this.pid && this.is_ancestor_of(pid) == Some(false)
}

/// Returns whether a peer may use the channel. This system does not identify it; the folder excludes other users.
#[cfg(not(target_os = "linux"))]
fn is_allowed(_: &UnixStream, _: &ProcessIdentity) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    #[test]
    fn a_process_of_the_bridge_is_refused_whatever_it_asks() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let (inputs, requests) = sync_channel(1);
        let socket = serve(&path, inputs).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        // This process is the bridge here, so it is one of its own.
        let refused = Control::new(path.clone()).cancel();
        assert!(matches!(refused, Err(ControlError::Refused(Refusal::FromTheAgent))), "{refused:?}");
        assert!(requests.try_recv().is_err());
        drop(socket);
        assert!(matches!(Control::new(path).questions(), Err(ControlError::Closed)));
    }

    #[test]
    fn a_path_that_is_too_long_is_told() {
        let error = check_path(Path::new(&"x".repeat(200))).unwrap_err();
        assert_eq!(error.to_string(), "a path of more than 103 bytes cannot be that of a socket");
    }
}
