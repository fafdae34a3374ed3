//! Runs turns.
//!
//! - [`Engine`] is the service: a [`TurnRequest`] in, a [`TurnHandle`] out, which streams [`TurnEvent`]s and has the result.
//! - [`TurnMachine`] decides: what can happen to the turns of a session, as inputs in and effects out.
//! - [`Slots`] knows which turns run in a worktree, and which one is the active one.
//! - [`Lease`] lets one process of a machine at a time run a turn in a session, [`SessionLease`] one of all machines.
//! - [`Spools`] keeps the output of an agent until it is in the store.
//! - [`run_commands`] runs context commands; [`Briefing`] is what a turn sends besides the history, gathered again for each.
//! - [`FullEvents`] finds the full form of stored events in the originals of their turns.
//! - [`Watcher`] reads the output of a run while it grows; [`recover`] stores turns whose azureal died, from the agent's own
//!   transcript if the spool is gone.

mod bridge;
mod cancel;
mod changes;
pub mod clock;
mod compact;
mod context_commands;
mod drive;
mod engine;
mod find_spools;
mod first_commands;
mod full_events;
mod full_history;
mod gather;
mod git_status;
mod growth;
mod handle;
mod header;
mod ingest;
mod inspect_spools;
mod launch;
mod lease;
mod ledger_cache;
mod opened;
mod original_run;
mod output_limit;
mod own_record;
mod prepare;
mod recall;
mod recover;
mod request;
mod respool;
mod session_lease;
mod settle;
mod slots;
mod spool;
mod start;
mod summary_note;
mod transcripts;
mod turn_event;
mod turn_machine;
mod turn_parser;
mod watch;
mod whole_outputs;

pub use bridge::{
    BridgeHost, Control, ControlError, ControlFolderError, OpenQuestion, Refusal,
    SUBCOMMAND as BRIDGE_SUBCOMMAND, bridge_main,
};
pub use cancel::{CancelNoted, CancelResult, cancel_running};
pub use changes::{ChangeRecorder, RecordChanges, SpooledSnapshot, snapshot_owner, stored_changes};
pub use compact::{CompactionError, DIGEST, Summarised};
pub use context_commands::{
    CONTEXT_MARKER, CommandEnd, CommandProgress, CommandRun, CommandStop, CommandsEnded, OUTPUT_BYTES,
    run_commands,
};
pub use engine::{Engine, EngineOptions, RunningTurn};
pub use find_spools::{FoundSpool, FoundTurn, OrphanSpool, SpoolOwner, SpooledRun};
pub use full_events::{FullEvent, FullEvents, OriginalLines, each_line, missing_bytes};
pub use full_history::{FullHistory, FullHistoryGaps};
pub use gather::GatherError;
pub use growth::added_chars;
pub use handle::{TurnControls, TurnHandle};
pub use header::{ImportedRecord, SpooledEnding, SpooledProcess, SpooledTurn, StoredTurn};
pub use ingest::{IngestError, Ingested};
pub use inspect_spools::SpoolState;
pub use launch::{LaunchError, RUN_MARKER, StopError, without_withheld};
pub use lease::{Lease, Leased, this_process};
pub use opened::{FoundNote, OpenedNote, OpenedSession, OpenedSessions};
pub use output_limit::OutputLimit;
pub use own_record::Noted;
pub use recall::{AnswerRecall, Recall};
pub use recover::{Recovered, recover};
pub use request::{
    Briefing, CompactionOptions, Keeping, LearnCache, PlanError, SessionTarget, Summariser, TurnOptions,
    TurnPlan, TurnRequest, TurnStart,
};
pub use session_lease::{LeaseError, SessionLease, SessionLeased, lease_session};
pub use slots::Slots;
pub use spool::{Spool, SpoolError, Spools};
pub use transcripts::{Transcript, transcripts_of};
pub use turn_event::{
    Accepted, Began, Busy, BusyPlace, FinishedTurn, OriginalRunEvent, TurnError, TurnEvent,
};
pub use turn_machine::{Effect, Input, Sent, TurnMachine};
pub use watch::Watcher;
pub use whole_outputs::{OutputScan, WholeOutputs};
