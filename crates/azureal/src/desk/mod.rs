//! The desk of an interface: performs its requests on threads of its own, and sends it news.
//!
//! An interface is a loop over a state: it names no store, starts no process and never waits. [`Request`] is all that it asks for, [`News`]
//! all that it learns.
//!
//! ```
//! use std::sync::{Arc, mpsc};
//!
//! use azureal::desk::{Desk, News, PaneId, Request, TurnNews};
//! use azureal::{Environment, Options, Workspace};
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let directory = folder.path();
//! # let claude = r#"[ "$1" = --version ] && echo 2.1.197 && exit
//! # cat > /dev/null
//! # echo '{"type":"result","subtype":"success","is_error":false,"duration_ms":1,"result":"Fixed."}'"#;
//! # azureal_testkit::programs::script(&directory.join("bin/claude"), claude);
//! # let path = format!("{}:/usr/bin:/bin", directory.join("bin").display());
//! # let environment = Environment::new([("PATH".into(), path.into()), ("HOME".into(), directory.join("home").into())]);
//! let workspace = Workspace::open(directory, &environment, &Options::default())?;
//! let config = Arc::new(workspace.load_config()?);
//!
//! // The news of all threads of the desk come one after the other.
//! let (sender, news) = mpsc::channel();
//! let desk = Desk::new(workspace, config, move |news| sender.send(news).unwrap_or_default());
//!
//! // A conversation that has no session yet. The turn creates it.
//! let (pane, prompt) = (PaneId(1), "Why does the login test fail?".to_owned());
//! desk.perform(Request::Send { pane, prompt, agent: Some("claude".into()), model: None });
//! let mut events = 0;
//! for news in news {
//!     let News::Turn { news, .. } = news else { continue };
//!     match *news {
//!         TurnNews::Output(outputs) => events += outputs.len(),
//!         TurnNews::Stored { session, .. } => assert_eq!(session.to_string(), "S1"),
//!         // Always the last one.
//!         TurnNews::Over { error, .. } => {
//!             assert!(error.is_none());
//!             break;
//!         }
//!         _ => {}
//!     }
//! }
//! assert!(events > 0);
//!
//! // Agents that still run continue without the interface.
//! desk.leave();
//! # Ok::<(), azureal::Error>(())
//! ```

mod agents;
mod changes;
mod clipboard;
mod compaction;
#[cfg(target_os = "linux")]
mod creation;
mod file_changes;
mod following;
mod highlight;
mod hub;
mod keep;
mod kept;
mod lease;
mod news;
mod outbox;
mod pane;
mod paths;
mod patience;
mod questions;
mod reading;
mod request;
mod running;
mod search;
mod search_all;
mod shared;
mod terminal;
mod turn;

pub use azureal_snapshots::Diff;
pub use file_changes::{FileChanges, UndoQuestion};
pub use kept::{Draft, Kept, Offer};
pub use news::{AgentLine, News, NextAgent, Opened, SearchNews, SessionLine, TurnNews};
pub use request::{EditPurpose, PaneId, ReadWith, Request};

use std::collections::HashMap;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use azureal_core::SessionId;

use self::highlight::{Code, Highlights};
use self::hub::{Hub, HubMessage};
use self::pane::{PaneMessage, PaneThread};
use self::paths::Paths;
use self::search_all::Searches;
use self::shared::Shared;
use crate::config::{Config, trust};
use crate::error::Error;
use crate::workspace::Workspace;

/// Performs the requests of an interface.
///
/// Dropped, it [leaves](Self::leave).
pub struct Desk {
    shared: Arc<Shared>,
    panes: Mutex<HashMap<PaneId, Sender<PaneMessage>>>,
}

impl Desk {
    /// Creates a desk. `send` receives all news, one after the other, from any thread. It must return soon, and must not call the desk.
    ///
    /// The first one is [`News::Restored`]. Interrupted turns are stored in the background. Open the workspace without
    /// [`Options::may_block`](crate::Options::may_block).
    pub fn new(
        workspace: impl Into<Arc<Workspace>>,
        config: Arc<Config>,
        send: impl Fn(News) + Send + Sync + 'static,
    ) -> Self {
        let (hub, inbox) = std::sync::mpsc::channel();
        let shared = Arc::new(Shared::new(workspace.into(), config, hub, send));
        shared.restore();
        if let Some(required) = trust::required(&shared.config()) {
            shared.outbox.send(News::TrustRequired { content: required.content });
        }
        Hub::start(Arc::clone(&shared), inbox);
        Self { shared, panes: Mutex::default() }
    }

    /// Performs a request. Never blocks.
    ///
    /// Requests for one pane are performed in their order. Those that take long, such as a search, do not hold up the others.
    pub fn perform(&self, request: Request) {
        match request {
            Request::List { all_worktrees, limit } => {
                self.shared.tell_hub(HubMessage::List { all_worktrees, limit });
            }
            Request::Close { pane } => {
                // Here and not in order: no news of the pane may come after this.
                self.shared.outbox.close(pane);
                if let Some(pane) = self.panes().remove(&pane) {
                    pane.send(PaneMessage::Close).ok();
                }
            }
            Request::Keep(kept) => self.shared.keep.put(*kept),
            Request::Open { pane, .. } | Request::Send { pane, .. } | Request::Switch { pane, .. } => {
                self.pane(pane).send(PaneMessage::Request(request)).ok();
            }
            Request::ReadBefore { pane, .. }
            | Request::ReadAfter { pane, .. }
            | Request::ReadFull { pane, .. }
            | Request::FindPrompt { pane, .. }
            | Request::FindText { pane, .. }
            | Request::Cancel { pane }
            | Request::AwaitLease { pane }
            | Request::Answer { pane, .. }
            | Request::Compact { pane }
            | Request::Changes { pane, .. }
            | Request::PlanUndo { pane, .. }
            | Request::Undo { pane, .. }
            | Request::Context { pane } => self.in_pane(pane, request),
            Request::Highlight { pane, block, at, language, code } => {
                if let Some(pane) = self.shared.outbox.opened(pane) {
                    Highlights::find(&self.shared, Code { pane, block, at, language, code });
                }
            }
            Request::CompletePath { prefix } => Paths::complete(&self.shared, prefix),
            Request::Search { text } => Searches::search(&self.shared, text),
            Request::Rename { session, name } => {
                self.apart(move |shared| shared.change(|shared| shared.rename(session, &name)));
            }
            Request::Fork { session, at } => {
                self.apart(move |shared| shared.change(|shared| shared.fork(session, at)));
            }
            Request::Delete { session } => {
                self.apart(move |shared| shared.change(|shared| shared.delete(session)));
            }
            Request::Trust => self.apart(|shared| shared.change(Shared::trust)),
            Request::Agents => self.apart(Shared::find_agents),
            Request::Copy { text } => self.apart(move |shared| {
                let by = clipboard::copy(&text, shared.workspace.environment());
                shared.outbox.send(News::Copied { by, text });
            }),
            Request::Edit { .. }
            | Request::OpenInAgent { .. }
            | Request::Read { .. }
            | Request::ReadChanges { .. } => {
                let error = Error::usage("this request needs the terminal");
                self.shared.outbox.failed_without_pane(error);
            }
        }
    }

    /// Performs a request that [needs the terminal](Request::needs_terminal), and blocks until the program has ended. Any other request is
    /// performed as [`perform`](Self::perform) does.
    pub fn perform_in_terminal(&self, request: Request) {
        let shared = &self.shared;
        match request {
            Request::Edit { text, purpose } => {
                let (text, error) = match purpose {
                    EditPurpose::Prompt => shared.edit(&text),
                    EditPurpose::Look => (None, shared.look_at_text(&text).err()),
                };
                if let Some(error) = error {
                    shared.outbox.failed_without_pane(error);
                }
                shared.outbox.send(News::Edited { text, purpose });
            }
            Request::OpenInAgent { pane } => {
                self.in_terminal(pane, |session| shared.open_in_agent(session));
            }
            Request::Read { pane, at, with } => {
                self.in_terminal(pane, |session| shared.read(session, at, with));
            }
            Request::ReadChanges { pane, of } => {
                self.in_terminal(pane, |session| shared.read_changes(session, of));
            }
            other => self.perform(other),
        }
    }

    /// Starts a program for the session of a pane, and reports what is wrong with it.
    fn in_terminal(&self, pane: PaneId, start: impl FnOnce(SessionId) -> Result<(), Error>) {
        let session =
            self.session_of(pane).ok_or_else(|| Error::usage("this conversation is not stored yet"));
        if let Err(error) = session.and_then(start) {
            self.shared.outbox.send(News::Failed { pane: Some(pane), error, unsent: None });
        }
    }

    /// Returns the session of a pane, after the requests before.
    fn session_of(&self, pane: PaneId) -> Option<SessionId> {
        let pane = self.panes().get(&pane).cloned()?;
        let (sender, session) = std::sync::mpsc::channel();
        pane.send(PaneMessage::Session(sender)).ok()?;
        session.recv().ok()?
    }

    /// Does something on a thread of its own.
    fn apart(&self, work: impl FnOnce(&Arc<Shared>) + Send + 'static) {
        let shared = Arc::clone(&self.shared);
        drop(std::thread::Builder::new().name("azureal-desk".to_owned()).spawn(move || work(&shared)));
    }

    /// Leaves: no news is sent any more, and agents that still run continue in the background. What was to be kept is written.
    ///
    /// The process can end at once. The next azureal that opens the store follows the turns, and stores them when they end.
    pub fn leave(self) {
        drop(self);
    }

    /// Cancels all turns of this desk and leaves when they are stored, at the latest after this time. Returns whether all are stored; one
    /// that is not is stored by the next azureal.
    pub fn stop(self, at_most: Duration) -> bool {
        let deadline = Instant::now() + at_most;
        self.shared.turns.cancel_all();
        self.shared.turns.wait(deadline)
    }

    fn panes(&self) -> MutexGuard<'_, HashMap<PaneId, Sender<PaneMessage>>> {
        self.panes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the thread of a pane; starts it if the pane is new.
    fn pane(&self, id: PaneId) -> Sender<PaneMessage> {
        let mut panes = self.panes();
        let start = || PaneThread::start(&self.shared, self.shared.outbox.open(id));
        panes.entry(id).or_insert_with(start).clone()
    }

    /// Hands a request to the thread of its pane.
    fn in_pane(&self, id: PaneId, request: Request) {
        let pane = self.panes().get(&id).cloned();
        if pane.is_none_or(|pane| pane.send(PaneMessage::Request(request)).is_err()) {
            let error = Error::usage("this conversation is not open");
            self.shared.outbox.send(News::Failed { pane: Some(id), error, unsent: None });
        }
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.shared.outbox.leave();
        self.shared.tell_hub(HubMessage::Leave);
        for (_, pane) in self.panes().drain() {
            pane.send(PaneMessage::Close).ok();
        }
        self.shared.keep.write_now();
    }
}
