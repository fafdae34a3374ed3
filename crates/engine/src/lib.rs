//! Runs turns.
//!
//! - [`TurnMachine`] decides: what can happen to the turns of a session, as inputs in and effects out.
//! - [`Slots`] knows which turns run in a worktree, and which one is looked at.
//! - [`Lease`] lets one process of a machine at a time run a turn in a session, [`SessionLease`] one of all machines.
//! - [`Spools`] keeps what an agent prints until it is in the store, and says whose it is.
//!
//! - [`run_commands`] runs context commands; [`Briefing`] is what a turn tells besides the history, gathered anew for
//!   each.
//! - [`Driver`] performs what a turn decides; [`Watcher`] shows a run while it goes on; [`ingest`] stores it, once;
//!   [`recover`] does so for those whose azureal died, from the agent's own record if the spool is gone.
//! - [`compact`] lays a summary over the older part of a session.

mod bridge;
pub mod clock;
mod compact;
mod context_commands;
mod drive;
mod gather;
mod git_status;
mod growth;
mod header;
mod ingest;
mod launch;
mod lease;
mod original_run;
mod output_limit;
mod own_record;
mod private;
mod recover;
mod session_lease;
mod slots;
mod spool;
mod turn_machine;
mod turn_parser;
mod watch;

pub use bridge::{
    BridgeHost, Control, ControlError, ControlFolderError, OpenQuestion, Refusal,
    SUBCOMMAND as BRIDGE_SUBCOMMAND, bridge_main,
};
pub use compact::{
    CompactNotice, CompactSetup, CompactionError, DIGEST, Summarised, Summariser, compact, summarise,
};
pub use context_commands::{
    CONTEXT_MARKER, CommandEnd, CommandProgress, CommandRun, CommandStop, CommandsEnded, OUTPUT_BYTES,
    run_commands,
};
pub use drive::{Controls, Driver, Notice, RUN_MARKER, Setup};
pub use gather::{AutoCompaction, Briefing, Keeping, end_commands};
pub use growth::added_chars;
pub use header::{SpooledEnding, SpooledProcess, SpooledTurn};
pub use ingest::{Destination, IngestError, Ingested, ingest};
pub use launch::LaunchError;
pub use lease::{Lease, Leased, this_process};
pub use original_run::{OriginalRun, look_at_original, recover_original};
pub use output_limit::OutputLimit;
pub use own_record::{Homes, Noted};
pub use recover::{Recovered, recover};
pub use session_lease::{LeaseError, SessionLease, SessionLeased, lease_session};
pub use slots::Slots;
pub use spool::{FoundSpool, Spool, SpoolError, Spools};
pub use turn_machine::{Effect, Input, Sent, TurnMachine};
pub use watch::Watcher;
