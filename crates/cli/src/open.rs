//! Opening the store that is meant, with the questions and notices that go with it.

use std::error::Error;
use std::path::Path;
use std::sync::OnceLock;

use azureal::error::quoted;
use azureal::{Options, ProjectNameRequired, WaitingTurns, Workspace};
use azureal_serve::mcp::answer_relayed;

use crate::confirm::{Answer, ask};
use crate::environment::environment;
use crate::failure::Failure;
use crate::output::{tell, warn};

/// Opens the store that is named, or else the project's. Asks where only the user knows the answer, and warns.
pub(crate) fn open_workspace(store: Option<&Path>) -> Result<Workspace, Failure> {
    // A command does one thing after the other, so nobody is kept waiting.
    open(store, true)
}

/// Opens the same store for an interface, which must not wait for it.
pub(crate) fn open_for_interface(store: Option<&Path>) -> Result<Workspace, Failure> {
    open(store, false)
}

fn open(store: Option<&Path>, may_block: bool) -> Result<Workspace, Failure> {
    let store = store.map(Path::to_owned);
    let mut options = Options { store, may_block, report_wait: Some(tell), ..Options::default() };
    let environment = environment();
    let mut opened = Workspace::open(Path::new("."), &environment, &options);
    if let Err(error) = &opened
        && let Some(required) = error.source().and_then(|source| source.downcast_ref::<ProjectNameRequired>())
    {
        options.former_project_is_ours = match ask(&question(required)) {
            Answer::Yes => Some(true),
            Answer::No => Some(false),
            Answer::Nobody => None,
        };
        if options.former_project_is_ours.is_some() {
            opened = Workspace::open(Path::new("."), &environment, &options);
        }
    }
    if let Ok(workspace) = &opened
        && let Some(waiting) = workspace.waiting_turns()
        && let wanted = wanted(waiting)?
        && !wanted.is_empty()
    {
        options.takes_waiting_turns = wanted;
        opened = Workspace::open(Path::new("."), &environment, &options);
    }
    let notices = match &opened {
        Ok(workspace) => workspace.notices(),
        Err(error) => error.notices(),
    };
    for notice in notices {
        warn(&notice.to_string());
    }
    let mut workspace = opened?;
    workspace.set_recall_service(answer_relayed);
    Ok(workspace)
}

/// The run that `--recover` names.
static RECOVERED_RUN: OnceLock<String> = OnceLock::new();

/// Notes which run the user wants to be recovered, for every store that this process opens.
pub(crate) fn recover_run(run: &str) {
    RECOVERED_RUN.get_or_init(|| run.to_owned());
}

/// Finds out which turns the user wants to be stored, of those that wait under another address of the store.
fn wanted(waiting: &WaitingTurns) -> Result<Vec<String>, Failure> {
    match RECOVERED_RUN.get() {
        Some(run) if waiting.runs.contains(run) => Ok(vec![run.clone()]),
        Some(run) => Err(Failure::usage(format!("no interrupted turn {} waits for this store", quoted(run)))
            .with_hint(format!("those that wait are {}", waiting.runs.join(", ")))),
        None => match ask(&format!("{waiting}.\nStore them there? [y/N] ")) {
            Answer::Yes => Ok(waiting.runs.clone()),
            Answer::No | Answer::Nobody => Ok(Vec::new()),
        },
    }
}

/// Prints what happens to a store after it was opened, when the command ends.
pub(crate) struct LateNotices<'a>(pub(crate) &'a Workspace);

impl Drop for LateNotices<'_> {
    fn drop(&mut self) {
        for notice in self.0.take_notices() {
            warn(&notice.to_string());
        }
    }
}

fn question(required: &ProjectNameRequired) -> String {
    format!(
        "{} has sessions of {}, without the host of the repository; this project is now called {}.\n\
         Are they this project's? [y/N] ",
        required.address,
        quoted(&required.former),
        quoted(&required.project)
    )
}
