//! The commands, one file each: what it takes, and what it does.

use crate::failure::Failure;
use crate::output::Output;

pub(crate) mod agents;
mod around;
pub(crate) mod backup;
pub(crate) mod cancel;
pub(crate) mod compact;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod context;
pub(crate) mod copy;
pub(crate) mod demo;
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod export;
pub(crate) mod fork;
pub(crate) mod help;
pub(crate) mod import;
mod import_native;
pub(crate) mod list;
pub(crate) mod mcp;
pub(crate) mod open;
pub(crate) mod original;
mod previewed;
pub(crate) mod ps;
pub(crate) mod purge;
pub(crate) mod rename;
pub(crate) mod restore;
pub(crate) mod rm;
pub(crate) mod run;
pub(crate) mod search;
pub(crate) mod show;
pub(crate) mod stats;
pub(crate) mod tokens;
pub(crate) mod trust;
pub(crate) mod undo;

/// Whether a command prints through the user's pager.
#[derive(Debug, clap::Args)]
pub(crate) struct Paging {
    /// Print without a pager
    ///
    /// On a terminal the output goes through `$AZUREAL_PAGER`, else `$PAGER`, else `less`. A pager that is empty or missing is
    /// none.
    #[arg(long)]
    no_pager: bool,
}

impl Paging {
    /// Starts the pager, if one is wanted.
    pub(crate) fn begin(&self, out: &mut Output) -> Result<(), Failure> {
        if self.no_pager { Ok(()) } else { out.begin_pager() }
    }
}

/// The session that a command changes.
#[derive(Debug, clap::Args)]
pub(crate) struct SessionArg {
    /// The session: its number (S3) or its whole name
    #[arg(value_name = "SESSION")]
    pub(crate) session: String,
}

/// The session that a command reads.
#[derive(Debug, clap::Args)]
pub(crate) struct SessionToRead {
    /// The session: its number (S3), its name, or a unique prefix of it; the last one of this worktree by default
    #[arg(value_name = "SESSION")]
    pub(crate) session: Option<String>,
}
