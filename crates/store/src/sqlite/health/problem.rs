//! Problems in the file of a store.

use std::fmt;

use azureal_core::{SessionId, SessionProblem, counted};

/// The longest gap that is filled, in events. A longer one is more likely a wrong number than so many lost events.
pub(super) const LONGEST_GAP: u64 = 100_000;

/// The most findings of SQLite that a message names.
const NAMED: usize = 3;

/// Something that is wrong in the file of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreProblem {
    /// SQLite cannot use the file.
    Unusable(String),
    /// SQLite cannot use the file, and no row of it can be read.
    WithoutRows {
        /// The reason.
        why: String,
        /// Whether it is a store all the same.
        is_ours: bool,
    },
    /// SQLite's own check found damage.
    Structure(Vec<String>),
    /// A session is not as it should be.
    Session(SessionId, SessionProblem),
    /// Events of a session have no place in it: their `seq` is not a number from 1 on.
    WithoutPlace {
        /// The session.
        session: SessionId,
        /// The number of events.
        events: u64,
    },
    /// Kind or length of events of a session have a wrong type, or the kind is not that of the data.
    EventCells {
        /// The session.
        session: SessionId,
        /// The number of events.
        events: u64,
    },
    /// Summaries of a session cannot be used.
    Summaries {
        /// The session.
        session: SessionId,
        /// The number of summaries.
        summaries: u64,
    },
    /// Events or summaries belong to a session that is not there.
    Orphans {
        /// The number of the session, as it is stored.
        session: String,
        /// The number of events.
        events: u64,
        /// The number of summaries.
        summaries: u64,
    },
    /// Rows of sessions have a number that no session can have.
    Numbers {
        /// The number of rows.
        rows: u64,
    },
    /// Rows of the table `meta` are not text.
    Meta {
        /// The number of rows.
        rows: u64,
    },
    /// SQLite has noted a last number of a session that none can have, so no session can be created.
    LastNumber {
        /// The number.
        number: i64,
    },
}

impl StoreProblem {
    /// Returns a name that stays the same between versions.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Unusable(_) | Self::WithoutRows { .. } | Self::Structure(_) => "integrity",
            Self::Session(_, problem) => match problem {
                SessionProblem::Undecodable { .. } => "undecodable_event",
                SessionProblem::Gap { .. } => "gap",
                SessionProblem::SharedPlace { .. } => "duplicate_seq",
                SessionProblem::Counts { .. } => "counts",
                SessionProblem::Values { .. } => "row_type",
                SessionProblem::Summary { .. } => "summary",
                SessionProblem::NoUuid => "no_uuid",
                SessionProblem::SharedUuid { .. } => "duplicate_uuid",
                _ => "session",
            },
            Self::WithoutPlace { .. }
            | Self::EventCells { .. }
            | Self::Numbers { .. }
            | Self::Meta { .. }
            | Self::LastNumber { .. } => "row_type",
            Self::Summaries { .. } => "summary",
            Self::Orphans { .. } => "orphan_events",
        }
    }

    /// Returns whether the file as a whole is damaged.
    pub(super) fn is_of_structure(&self) -> bool {
        self.kind() == "integrity"
    }

    /// Returns the session, if the problem is one of a single session that is there.
    pub fn session(&self) -> Option<SessionId> {
        match self {
            Self::Session(session, _)
            | Self::WithoutPlace { session, .. }
            | Self::EventCells { session, .. }
            | Self::Summaries { session, .. } => Some(*session),
            _ => None,
        }
    }

    /// Returns what a repair does about it; `None` if nothing.
    pub fn repair(&self) -> Option<String> {
        Some(match self {
            Self::WithoutRows { is_ours: false, .. } => return None,
            Self::WithoutRows { .. } => {
                "puts an empty store in its place, and keeps the damaged file".to_owned()
            }
            Self::Structure(found) if is_of_indexes(found) => "writes the indexes again".to_owned(),
            Self::Unusable(_) | Self::Structure(_) => {
                "moves every row that can be read to a new file, and keeps the damaged one".to_owned()
            }
            Self::Session(_, problem) => match problem {
                SessionProblem::Undecodable { .. } => {
                    "sets the row aside, and puts an error in its place".to_owned()
                }
                SessionProblem::Gap { after, next } if next.0.saturating_sub(after.0) > LONGEST_GAP => {
                    return None;
                }
                SessionProblem::Gap { .. } => "puts a note in the place of each missing event".to_owned(),
                SessionProblem::SharedPlace { .. } => {
                    "gives an event the number that it had, if its neighbours show it; else sets the second row aside"
                        .to_owned()
                }
                SessionProblem::Counts { .. } => "counts the events again".to_owned(),
                SessionProblem::Values { .. } => {
                    "sets the row aside, and writes the values that are read now".to_owned()
                }
                SessionProblem::Summary { .. } => "sets the summary aside".to_owned(),
                SessionProblem::NoUuid | SessionProblem::SharedUuid { .. } => {
                    "gives the session a new UUID".to_owned()
                }
                _ => return None,
            },
            Self::WithoutPlace { .. } => {
                "gives them the numbers that they had, if their neighbours show them; else sets the rows aside"
                    .to_owned()
            }
            Self::Numbers { .. } | Self::Meta { .. } => "sets the rows aside".to_owned(),
            Self::LastNumber { .. } => "sets the row aside, and writes the highest number in use".to_owned(),
            Self::EventCells { .. } => "writes kind and length again".to_owned(),
            Self::Summaries { .. } => "sets the summaries aside".to_owned(),
            Self::Orphans { session, events, .. } => match (session.parse::<u32>(), events) {
                (Ok(1..), 1..) => format!("puts them into a session S{session}"),
                _ => "sets the rows aside".to_owned(),
            },
        })
    }
}

/// Returns whether only indexes are damaged, by the findings of SQLite. They can be written again.
pub(super) fn is_of_indexes(found: &[String]) -> bool {
    found.iter().all(|line| line.contains("index"))
}

impl fmt::Display for StoreProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unusable(why) => write!(f, "the file cannot be used: {why}"),
            Self::WithoutRows { why, is_ours: true } => {
                write!(f, "no session can be read from the file: {why}")
            }
            Self::WithoutRows { why, .. } => write!(f, "it is no store, or nothing is left of it: {why}"),
            Self::Structure(found) => {
                let (first, rest) = found.split_at(found.len().min(NAMED));
                write!(f, "the file is damaged: {}", first.join("; "))?;
                if rest.is_empty() {
                    Ok(())
                } else {
                    write!(f, "; and {} more findings of SQLite", rest.len())
                }
            }
            Self::Session(session, problem) => write!(f, "{session}: {problem}"),
            Self::WithoutPlace { session, events } => write!(
                f,
                "{session}: {} cannot be shown, because the number is not one from 1 on",
                counted(*events, "event")
            ),
            Self::EventCells { session, events } => {
                write!(f, "{session}: kind or length of {} is wrong", counted(*events, "event"))
            }
            Self::Summaries { session, summaries } => {
                write!(f, "{session}: {} cannot be used", summaries_text(*summaries))
            }
            Self::Orphans { session, events, summaries } => {
                let parts = [
                    Some(counted(*events, "event")).filter(|_| *events > 0),
                    Some(summaries_text(*summaries)).filter(|_| *summaries > 0),
                ];
                let parts: Vec<String> = parts.into_iter().flatten().collect();
                write!(f, "{} of a session that is not there: {session}", parts.join(" and "))
            }
            Self::Numbers { rows } => {
                write!(f, "{} of sessions with a number that none can have", counted(*rows, "row"))
            }
            Self::LastNumber { number } => {
                write!(f, "the last number of a session is {number}, so none can be created")
            }
            Self::Meta { rows } => write!(f, "{} of the table `meta` is no text", counted(*rows, "row")),
        }
    }
}

fn summaries_text(count: u64) -> String {
    if count == 1 { "1 summary".to_owned() } else { format!("{count} summaries") }
}
