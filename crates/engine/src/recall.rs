//! Recall in a turn: the server with which the agent looks things up in the stored sessions.
//!
//! The server of a store in a file opens the file. A store on a server has an address and a password, which an agent is not
//! told. There this process answers, which has the store open: it listens on a Unix socket in the folder of the control
//! channels, of mode 0700 and outside of every worktree, and the agent's server only passes messages on.
//!
//! One connection is one message and its answer. The socket exists as long as the run. The process that stores the turn
//! removes one that is left.

use std::fmt;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use azureal_core::SessionId;
use azureal_core::agent::RecallServer;
use tracing::debug;

use crate::bridge::{Channel, ControlFolderError};
use crate::engine::EngineOptions;

/// The time limit of a peer to send its message, and to read the answer.
const PEER: Duration = Duration::from_secs(5);

/// How the agent of a turn looks things up in the stored sessions.
#[derive(Clone)]
pub struct Recall {
    /// The server that the agent starts. The engine adds the session of the turn, or the socket.
    pub server: RecallServer,
    /// Answers in this process the messages that the server passes on; `None` if the server opens the store itself.
    pub answers: Option<AnswerRecall>,
}

/// Answers the messages of one connection until its input ends. The session is that of the turn.
pub type AnswerRecall =
    Arc<dyn Fn(SessionId, &mut dyn BufRead, &mut dyn Write) -> io::Result<()> + Send + Sync>;

impl fmt::Debug for Recall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recall").field("server", &self.server).finish_non_exhaustive()
    }
}

/// The reason why there is no recall in a turn.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecallError {
    #[error("no folder is known for its socket")]
    NoFolder,
    #[error(transparent)]
    Folder(#[from] ControlFolderError),
    #[error("the path of its socket is no text")]
    NotText,
    #[error("its socket: {0}")]
    Socket(#[from] io::Error),
}

/// The recall of one run.
pub(crate) struct OpenRecall {
    /// The server that the agent starts.
    pub(crate) server: RecallServer,
    /// Removed with the run.
    _socket: Option<RecallSocket>,
}

impl Recall {
    /// Opens the recall of a run.
    pub(crate) fn open(
        &self,
        run: &str,
        session: SessionId,
        engine: &EngineOptions,
    ) -> Result<OpenRecall, RecallError> {
        let mut server = self.server.clone();
        let Some(answers) = &self.answers else {
            server.args.extend(["--current".to_owned(), session.to_string()]);
            return Ok(OpenRecall { server, _socket: None });
        };
        let host = engine.spools.bridges().ok_or(RecallError::NoFolder)?;
        let path = host.prepare(run, Channel::Recall, &[&engine.directory, engine.spools.folder()])?;
        server.args.extend(["--relay".to_owned(), path.to_str().ok_or(RecallError::NotText)?.to_owned()]);
        let socket = RecallSocket::open(path, session, Arc::clone(answers))?;
        Ok(OpenRecall { server, _socket: Some(socket) })
    }
}

/// The socket of a run. Dropped, it is removed, and no further connection is answered.
struct RecallSocket {
    path: PathBuf,
    is_closed: Arc<AtomicBool>,
}

impl RecallSocket {
    fn open(path: PathBuf, session: SessionId, answers: AnswerRecall) -> io::Result<Self> {
        let listener = UnixListener::bind(&path)?;
        let is_closed = Arc::new(AtomicBool::new(false));
        let socket = Self { path, is_closed: Arc::clone(&is_closed) };
        fs::set_permissions(&socket.path, fs::Permissions::from_mode(0o600))?;
        thread::Builder::new().name("recall".to_owned()).spawn(move || {
            // One after the other: an agent loads the store no more than a user does.
            for stream in listener.incoming() {
                if is_closed.load(Ordering::SeqCst) {
                    return;
                }
                match stream {
                    Ok(stream) => {
                        // The peer that went away is its own affair.
                        if let Err(error) = answer(&stream, session, &answers) {
                            debug!(%session, %error, "ignored: a message to the recall of a turn");
                        }
                    }
                    // No more descriptors, for a moment.
                    Err(_) => thread::sleep(Duration::from_millis(100)),
                }
            }
        })?;
        Ok(socket)
    }
}

impl Drop for RecallSocket {
    fn drop(&mut self) {
        self.is_closed.store(true, Ordering::SeqCst);
        // Wakes the thread that waits for a connection. It is not joined: it may be in the middle of a search.
        drop(UnixStream::connect(&self.path));
        drop(fs::remove_file(&self.path));
    }
}

fn answer(stream: &UnixStream, session: SessionId, answers: &AnswerRecall) -> io::Result<()> {
    stream.set_read_timeout(Some(PEER))?;
    stream.set_write_timeout(Some(PEER))?;
    if !is_of_this_user(stream) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    answers(session, &mut BufReader::new(stream), &mut &*stream)
}

#[cfg(target_os = "linux")]
fn is_of_this_user(stream: &UnixStream) -> bool {
    rustix::net::sockopt::socket_peercred(stream).is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}

/// This system does not identify a peer; the folder excludes other users.
#[cfg(not(target_os = "linux"))]
fn is_of_this_user(_: &UnixStream) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::Shutdown;
    use std::path::Path;

    use super::*;

    fn ask(path: &Path, line: &str) -> String {
        let mut stream = UnixStream::connect(path).unwrap();
        stream.write_all(line.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn each_connection_is_answered_for_the_session_of_the_turn_and_the_socket_goes_with_the_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let answers: AnswerRecall = Arc::new(|session, input, output| {
            let mut line = String::new();
            input.read_line(&mut line)?;
            write!(output, "{session}: {line}")
        });
        let session = SessionId::new(7).unwrap();
        let socket = RecallSocket::open(path.clone(), session, answers).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        for line in ["one\n", "two\n"] {
            assert_eq!(ask(&path, line), format!("{session}: {line}"));
        }
        drop(socket);
        assert!(!path.exists());
        assert!(UnixStream::connect(&path).is_err());
    }
}
