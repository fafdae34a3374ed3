//! One conversation, any agent: the library behind the program `azureal`, for front ends of any kind.
//!
//! A [`Workspace`] is an opened project: its configuration, its store of sessions and the agents that run turns in them. The library
//! never prints, asks or exits. Directory and environment are arguments, notices and open questions are values, and every [`Error`] has
//! a kind, a message, a hint and its source. `examples/chat.rs` is a whole front end in 150 lines.
//!
//! # Open a project
//!
//! [`Workspace::open`] finds the project around a directory and opens its store. It writes nothing: the store is created with the first
//! session.
//!
//! ```
//! use azureal::{Environment, Options, Workspace, block_on, config::trust};
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let directory = folder.path();
//! // All that the library and the processes that it starts see of the environment.
//! let environment = Environment::new(std::env::vars_os());
//! # let environment = Environment::new([("HOME".into(), directory.join("home").into())]);
//! let workspace = Workspace::open(directory, &environment, &Options::default())?;
//! for notice in workspace.notices() {
//!     eprintln!("warning: {notice}");
//! }
//!
//! // Files that came with the project have no effect before the user has seen them.
//! let mut config = workspace.load_config()?;
//! if let Some(required) = trust::required(&config) {
//!     eprintln!("{}", required.content);
//!     let user_agrees = false;
//!     if user_agrees {
//!         trust::approve(&mut config)?;
//!     }
//! }
//!
//! // Before the first turn: stores the turns of programs that were killed.
//! for found in block_on(workspace.recover())? {
//!     eprintln!("{found}");
//! }
//! # Ok::<(), azureal::Error>(())
//! ```
//!
//! [`Options::store`] names another store: a file, `postgres://…`, `redis://…`, or `memory:`, which is gone with the workspace.
//! [`Environment::with_own_program`] and [`child_main`] let the library start the front end again as one of its own children: the built-in
//! agent `offline`, or the bridge to an agent that is no program of its own.
//!
//! # Sessions
//!
//! A session is a conversation: a log of [`Event`]s, which is only ever appended to, and a [`SessionRecord`] with its name, counts and
//! costs. [`Workspace::store`] is a [`SessionStore`], with all calls of the database.
//!
//! ```
//! use azureal::{ContextStore, Environment, Message, Options, Page, Seq, SessionContext, Workspace};
//!
//! # azureal::block_on(async {
//! # let folder = tempfile::tempdir().unwrap();
//! # let directory = folder.path();
//! let options = Options { store: Some("memory:".into()), ..Options::default() };
//! let workspace = Workspace::open(directory, &Environment::default(), &options)?;
//!
//! // A conversation of messages, without any agent.
//! let session = SessionContext::open(workspace.store.clone(), "greeting")?;
//! session.append(Message::user("Hello")).await?;
//! assert_eq!(session.get_history().await?, [Message::user("Hello")]);
//!
//! // By number, UUID or name.
//! let record = workspace.find_session("greeting").await?;
//! assert_eq!((record.id.to_string().as_str(), record.counts.messages), ("S1", 1));
//! let error = workspace.find_session("greting").await.unwrap_err();
//! assert_eq!((error.kind(), error.hint()), ("not_found", Some("did you mean S1 greeting?")));
//!
//! // The events, page by page.
//! let events = workspace.store.read(record.id, Page::After(Seq::START, 100)).await?;
//! assert_eq!(events[0].kind, "UserMessage");
//!
//! // Those of this worktree, the last active one first.
//! let created = workspace.create_session("fix-login").await?;
//! assert_eq!(workspace.list_sessions().await?[0].id, created);
//! # Ok::<(), azureal::Error>(())
//! # }).unwrap();
//! ```
//!
//! Every call is `async` and blocks no executor. A front end without an executor uses [`block_on`].
//!
//! # Turns
//!
//! [`Workspace::submit`] runs a turn: the agent first receives the history of the session, whichever agents wrote it. The
//! [`TurnHandle`] returns at once. It streams [`TurnEvent`]s, and has the result. Turns of several sessions run at the same time.
//!
//! ```
//! use std::sync::Arc;
//!
//! use azureal::{AgentOutput, Environment, Event, Options, Outcome, Prompt, TurnEvent, TurnSettings, Workspace, block_on};
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let directory = folder.path();
//! # let claude = r#"[ "$1" = --version ] && echo 2.1.197 && exit
//! # cat > /dev/null
//! # echo '{"type":"assistant","message":{"id":"m","role":"assistant","content":[{"type":"text","text":"Fixed."}]}}'
//! # echo '{"type":"result","subtype":"success","is_error":false,"duration_ms":1,"result":"Fixed."}'"#;
//! # azureal_testkit::programs::script(&directory.join("bin/claude"), claude);
//! # let path = format!("{}:/usr/bin:/bin", directory.join("bin").display());
//! # let environment = Environment::new([("PATH".into(), path.into()), ("HOME".into(), directory.join("home").into())]);
//! let workspace = Workspace::open(directory, &environment, &Options::default())?;
//! let config = Arc::new(workspace.load_config()?);
//!
//! let prompt = Prompt::new(workspace.new_session("fix-login"), "Why does the login test fail?");
//! // Settings that are `None` are as configured, or as in the turn before.
//! let settings = TurnSettings { agent: Some("claude".into()), ..TurnSettings::default() };
//! let mut turn = workspace.submit(&config, prompt, settings)?;
//! while let Some(event) = turn.next_event() {
//!     match event {
//!         TurnEvent::Accepted(accepted) => println!("{} answers in {}", accepted.agent, accepted.record.id),
//!         TurnEvent::Notice(text) => println!("{text}"),
//!         TurnEvent::Output(output) => match *output {
//!             AgentOutput::Delta(text) => print!("{text}"),
//!             AgentOutput::Event(Event::AssistantText(said)) => println!("{}", said.text),
//!             AgentOutput::Event(Event::ToolCall(call)) => println!("{}", call.tool_name),
//!             _ => {}
//!         },
//!         _ => {}
//!     }
//! }
//! // The turn is stored by now, however it ended.
//! let finished = turn.result()?;
//! assert_eq!(finished.complete.ending(), Outcome::Done);
//!
//! // A turn that could not begin is an error.
//! let prompt = Prompt::new(finished.session, "And now?");
//! let settings = TurnSettings { agent: Some("nobody".into()), ..TurnSettings::default() };
//! let error = azureal::Error::from(workspace.submit(&config, prompt, settings)?.result().unwrap_err());
//! assert!(error.message().contains("nobody"), "{error}");
//! # Ok::<(), azureal::Error>(())
//! ```
//!
//! A permission question of an agent comes as [`AgentOutput::Question`]. [`Began::control`] has the open questions and takes the
//! answers; without an answer nothing is allowed.
//!
//! # Cancel a turn, or send the next prompt
//!
//! [`TurnHandle::cancel`] stops a turn, and what came until then is stored. [`TurnHandle::stage`] does the same, then sends another prompt
//! in the session. [`TurnControls`] do both from another thread, and [`Engine::turn`] finds those of a session.
//!
//! ```
//! # use std::sync::Arc;
//! # use azureal::{Environment, Options, Outcome, Prompt, TurnEvent, TurnSettings, Workspace, block_on};
//! # let folder = tempfile::tempdir().unwrap();
//! # let directory = folder.path();
//! # let claude = r#"[ "$1" = --version ] && echo 2.1.197 && exit
//! # grep -q Shorter || sleep 60
//! # echo '{"type":"result","subtype":"success","is_error":false,"duration_ms":1,"result":"Yes."}'"#;
//! # azureal_testkit::programs::script(&directory.join("bin/claude"), claude);
//! # let path = format!("{}:/usr/bin:/bin", directory.join("bin").display());
//! # let environment = Environment::new([("PATH".into(), path.into()), ("HOME".into(), directory.join("home").into())]);
//! # let workspace = Workspace::open(directory, &environment, &Options::default())?;
//! # let config = Arc::new(workspace.load_config()?);
//! let session = block_on(workspace.create_session("design"))?;
//! let submit = |text| workspace.submit(&config, Prompt::new(session, text), TurnSettings::default());
//!
//! let turn = submit("Explain the design")?;
//! let controls = workspace.engine()?.turn(session).expect("it was just submitted");
//! controls.cancel();
//! assert_eq!(turn.result()?.complete.ending(), Outcome::Cancelled);
//! // Not any more: it can be submitted instead.
//! assert!(!controls.stage("Shorter"));
//!
//! let mut turn = submit("Explain the design")?;
//! let mut endings = Vec::new();
//! while let Some(event) = turn.next_event() {
//!     match event {
//!         TurnEvent::Began(_) if endings.is_empty() => assert!(turn.stage("Shorter")),
//!         TurnEvent::Stored(finished) => endings.push(finished.complete.ending()),
//!         _ => {}
//!     }
//! }
//! assert_eq!(endings, [Outcome::Cancelled, Outcome::Done]);
//! # Ok::<(), azureal::Error>(())
//! ```
//!
//! # From async code
//!
//! A [`TurnHandle`] is a `Stream` of its events, and the store has a thread of its own. So one thread can run many turns.
//!
//! ```
//! use azureal::{TurnEvent, TurnHandle};
//! use futures_util::StreamExt;
//!
//! async fn collect(mut turn: TurnHandle) -> Result<Vec<TurnEvent>, azureal::Error> {
//!     let mut events = Vec::new();
//!     while let Some(event) = turn.next().await {
//!         events.push(event);
//!     }
//!     // Does not block after the last event.
//!     turn.result()?;
//!     Ok(events)
//! }
//! ```
//!
//! # Export and import
//!
//! [`exchange`] writes sessions in formats for people and for other programs, and reads them back. [`json`] has the public JSON shapes: of a
//! session, of an event, and of a running turn ([`json::TurnLines`]).
//!
//! ```
//! use azureal::exchange::{ExportFormat, ExportOptions, export};
//! # use azureal::{ContextStore, Environment, Message, Options, SessionContext, Workspace};
//! # azureal::block_on(async {
//! # let folder = tempfile::tempdir().unwrap();
//! # let options = Options { store: Some("memory:".into()), ..Options::default() };
//! # let workspace = Workspace::open(folder.path(), &Environment::default(), &options)?;
//! # SessionContext::open(workspace.store.clone(), "greeting")?.append(Message::user("Hello")).await?;
//!
//! let record = workspace.find_session("greeting").await?;
//! let mut document = Vec::new();
//! let redactor = workspace.redactor()?;
//! let options = ExportOptions { redactor: Some(redactor), ..ExportOptions::new(ExportFormat::Markdown) };
//! let exported = export(&*workspace.store, &record, options, &mut document).await?;
//! assert_eq!((exported.damaged.count(), exported.masked), (0, 0));
//! assert!(String::from_utf8_lossy(&document).contains("Hello"));
//! # Ok::<(), azureal::Error>(())
//! # }).unwrap();
//! ```
//!
//! # The output of turns
//!
//! Stored events are short. The output of each turn as the agent printed it is kept beside them. [`Workspace::finish_originals`] compresses it: call it after
//! a turn, when the user has the answer. [`Workspace::full_history`] returns the events of a session in their full form, for [`ExportOptions::events`](exchange::ExportOptions::events)
//! or [`each_page`](core::each_page). [`Workspace::full_events`] finds the lines behind an event.
//!
//! # More
//!
//! [`follow`] shows what other processes add to a session. [`config`] is the configuration, [`agents`] are the agents of this machine,
//! [`meter`] is the context usage. The names that most front ends need are here; all of them are in [`core`] (the model: events, messages,
//! and what a store promises), [`engine`] (turns) and [`store`] (the databases).

pub mod agents;
pub mod backup;
pub mod changes;
mod child;
pub mod config;
pub mod desk;
pub mod doctor;
mod environment;
pub mod error;
pub mod exchange;
pub mod follow;
mod git_config;
mod git_folder;
pub mod json;
pub mod meter;
pub mod native;
pub mod opened;
mod project;
pub mod purge;
mod recall;
pub mod search;
mod server_folder;
mod server_store;
mod session_changes;
pub mod sessions;
mod since;
pub mod stats;
pub mod turns;
pub mod undo;
mod undo_note;
mod workspace;

pub use azureal_core as core;
pub use azureal_engine as engine;
pub use azureal_store as store;
pub use azureal_transcript as transcript;

pub use azureal_core::agent::{AgentOutput, Permission};
pub use azureal_core::event::Outcome;
pub use azureal_core::{
    ContextStore, Event, ListQuery, Message, NewSession, Page, Role, Seq, SessionContext, SessionId,
    SessionRecord, SessionStore, StoreError, StoredEvent, visible, visible_line,
};
pub use azureal_engine::{
    Accepted, Began, Busy, Engine, FinishedTurn, Recovered, SessionTarget, TurnControls, TurnError,
    TurnEvent, TurnHandle,
};
pub use futures_executor::block_on;

pub use child::child_main;
pub use config::Config;
pub use config::trust::TrustRequired;
pub use environment::Environment;
pub use error::{Category, Error};
pub use git_folder::StoreLayout;
pub use project::{Project, SharedName};
pub use recall::RecallService;
pub use server_folder::WaitingTurns;
pub use server_store::ProjectNameRequired;
pub use session_changes::Forked;
pub use since::parse_since;
pub use turns::{ContextSettings, Prompt, TurnSettings};
pub use workspace::{Notice, Options, StoreChoice, Workspace, store_folders};
