//! The model of a conversation with coding agents.
//!
//! The other crates build on this one. It holds the types of a conversation, the two traits for databases and other
//! programs, and the pure functions between them. It does no input or output and reads neither clock nor environment.
//!
//! - [`Event`] is a fact; the log of events is the single source of truth.
//! - [`Message`] is a view of the log; [`fold()`] and [`events_of_message`] convert between the two.
//! - [`build_context`] renders the context for the next agent, [`build_context_prompt`] puts it in front of a
//!   prompt and [`strip_context`] removes it.
//! - [`system_message`] builds the beginning of a session: a prompt, and the output of its [`ContextCommand`]s.
//! - [`compact_event`] reduces an event to the part that is stored.
//! - [`boundary()`] chooses the events that a summary covers, [`Digest`] is the summary that needs no model, [`Ledger`] has the
//!   files, commands and failures beside every summary,
//!   [`compact_context`] and [`AutoCompactStore`] do the same for a conversation and a [`Transport`] of the caller.
//! - [`Redactor`] masks secrets in text that leaves azureal.
//! - [`agent::Agent`] is a program that answers prompts, described without running it.
//! - [`bridge`] is the protocol between azureal and an agent that does not answer one prompt and exit.
//! - [`SessionStore`] is a database; [`ContextStore`] is one conversation; [`SessionContext`] turns a session of any
//!   database into a conversation. A database may offer more: [`Leases`], so that one machine at a time runs a turn
//!   in a session, [`CrashNotes`] for recovery, and a [`Watch`] for changes by others.

pub mod agent;
mod auto_compact;
mod block;
mod boundary;
pub mod bridge;
mod compact_context;
mod compact_event;
mod context;
mod context_command;
mod context_frame;
mod context_store;
mod control_sequences;
mod crash_notes;
mod decision;
mod defuse;
pub mod detail;
pub mod diff;
mod digest;
pub mod event;
pub mod fold;
mod json;
mod lease;
mod ledger;
mod message;
mod opening;
mod operation;
mod originals;
mod pages;
mod pairs;
mod phrase;
mod prompts;
mod redact;
mod search_index;
mod session;
mod session_check;
mod session_context;
mod session_snapshot;
mod session_store;
mod store_error;
mod system_message;
mod tombstone;
mod tool;
mod transport;
mod turn_index;
mod usage;
mod visible;
mod watch;

pub use async_trait::async_trait;
pub use auto_compact::AutoCompactStore;
pub use block::{Block, Image, MediaType, OutputPart, ToolOutput, UnknownMediaType};
pub use boundary::{Boundary, Keep, Threshold, boundary};
pub use compact_context::{CompactContext, CompactError, KEEP_RECENT, SUMMARY_PROMPT, compact_context};
pub use compact_event::compact_event;
pub use context::{Context, ContextBuilder, STOP_NOTES, build_context, render_event, rendered_chars};
pub use context_command::{ContextCommand, OnFailure};
pub use context_frame::{ContextFrame, build_context_prompt, strip_context, wrap_context};
pub use context_store::{ContextStore, Laid, MemoryContextStore, SessionInfo, SessionKey};
pub use control_sequences::without_control_sequences;
pub use crash_notes::{CrashNotes, LASTING_MARKS, Mark, NewMark};
pub use digest::Digest;
pub use event::{Event, EventError};
pub use fold::{Fold, events_of_message, fold};
pub use json::{AsRawJson, Json};
pub use lease::{Holder, LeaseId, Leases, NewLease, Taken};
pub use ledger::{Ledger, LedgerCache, LedgerKey, read_ledger};
pub use message::{Message, Role, UnknownRole};
pub use opening::OpeningLimits;
pub use operation::Operation;
pub use originals::{
    LARGEST_ORIGINAL_HEADER, NewOriginal, ORIGINAL_PIECE, OpenOriginal, Original, OriginalReader, Originals,
};
pub use pages::{EventRange, EventSource, PAGE_EVENTS, each_page};
pub use phrase::{counted, duration_text, elapsed_text, io_error_text};
pub use prompts::{Carried, PROMPT_KINDS, prompt_text};
pub use redact::{RedactError, Redactor, check_pattern};
pub use search_index::{
    IndexCondition, IndexHit, IndexKind, IndexPart, IndexPhrase, IndexQuery, IndexState, IndexedEvent,
    SearchIndex, TOKENS_VERSION,
};
pub use session::{
    Compaction, Counts, NewSession, NotASessionNumber, PREVIEW_CHARS, Seq, SessionId, SessionRecord,
    TIMESTAMP_FORMAT, Tally, Tokens, TurnTotals, normal_timestamp,
};
pub use session_check::{LogCheck, SessionProblem, check_sessions, shared_uuids};
pub use session_context::{
    SessionContext, read_beginning, read_context, read_context_for, read_context_under, read_history,
    read_opening_text, read_record_chars, read_rendered_through,
};
pub use session_snapshot::SessionSnapshot;
pub use session_store::{
    Appended, Damage, LARGEST_EVENT, LONGEST_ENTRY, ListOrder, ListQuery, NameFilter, NewEvent, NewHistory,
    NewTurn, Page, SessionStore, StoredEvent, WorktreeFilter, append_events, check_name,
};
pub use store_error::StoreError;
pub use system_message::{Beginning, context_block, context_error_block, has_context, system_message};
pub use tombstone::Tombstone;
pub use tool::Tool;
pub use transport::{StubTransport, Transport, TransportError};
pub use turn_index::TurnIndex;
pub use usage::{TurnUsage, TurnUsages, USAGE_KINDS};
pub use uuid::Uuid;
pub use visible::{
    acts_on_terminal, ascii_json, quoted, to_visible_json, visible, visible_json, visible_line,
};
pub use watch::Watch;
