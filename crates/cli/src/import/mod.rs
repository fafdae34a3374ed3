//! Sessions on their way in, one file per format.
//!
//! What a file is, is told by its content, never by its name. A file is only ever read: databases are read
//! from a private copy, because opening one in place can leave companions beside it. Whatever cannot be
//! taken over is reported, and what azureal has no form for is kept as text.

mod arrive;
mod axio;
mod axio_database;
mod azureal;
mod blocks;
mod cllm;
mod database;
mod lookup;
mod recognise;
mod stored;
mod texts;
mod verify;

use std::path::Path;

use azureal_core::{Compaction, Tokens, TurnTotals};
use clap::ValueEnum;

pub(crate) use arrive::{Outcome, arrive, diverged};
pub(crate) use azureal_exchange::identity::{self, SessionIdentity as Identity};
pub(crate) use recognise::look_into;
pub(crate) use stored::SourceStore;
pub(crate) use verify::{verify, verify_record};

use crate::failure::Failure;
use database::Database;
use recognise::Content;
use texts::Texts;

/// What a file is taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Find out from the content
    Auto,
    /// Another store of azureal, or of the program whose format it shares (`.azs`)
    Azs,
    /// What `azureal export --format json` wrote
    Json,
    /// A conversation of cllm (`~/.cllm/conversations/*.json`)
    Cllm,
    /// A list of messages of axio as JSON, or its SQLite database
    Axio,
}

/// A session on its way in.
pub(crate) struct Arrival {
    /// Where it is from, for people.
    pub(crate) source: String,
    identity: Identity,
    /// Its name there; after its arrival, its name here.
    pub(crate) name: Option<String>,
    /// The worktree it belonged to, in azureal's own formats.
    worktree: Option<String>,
    /// When it was made, as its source says it.
    created_at: Option<String>,
    texts: Texts,
    /// Summaries. The place of each counts the events that can be read, as they are numbered here.
    compactions: Vec<Compaction>,
    tokens: Tokens,
    /// How its last turn ended, how long its turns took and what they cost.
    totals: TurnTotals,
    /// What the import changed on purpose.
    pub(crate) notices: Vec<String>,
    /// What could not be taken over as it was.
    pub(crate) problems: Vec<String>,
}

/// The sessions of one file.
pub(crate) enum Source {
    One(Option<Box<Arrival>>),
    Stored(stored::Source),
    Axio(Box<axio_database::Source>),
}

impl Source {
    /// Opens a file.
    pub(crate) async fn open(path: &Path, format: Format) -> Result<Self, Failure> {
        let one = |arrival: Arrival| Ok(Self::One(Some(Box::new(arrival))));
        let axio = |source| Self::Axio(Box::new(source));
        match (Content::read(path)?, format) {
            (Content::Database, _) => {
                let database = Database::copy_of(path)?;
                match format {
                    Format::Azs => stored::Source::open(database).await.map(Self::Stored),
                    Format::Axio => axio_database::Source::open(database).map(axio),
                    Format::Auto if database.is_azs() => {
                        stored::Source::open(database).await.map(Self::Stored)
                    }
                    Format::Auto if database.is_axio() => axio_database::Source::open(database).map(axio),
                    Format::Auto | Format::Json | Format::Cllm => Err(recognise::unknown(path)),
                }
            }
            (Content::Text(text), Format::Auto) => match recognise::of_text(path, &text)?.format {
                Format::Json => one(azureal::read(path, &text)?),
                Format::Cllm => one(cllm::read(path, &text)?),
                Format::Axio => one(axio::read(path, &text)?),
                Format::Auto | Format::Azs => Err(recognise::unknown(path)),
            },
            (Content::Text(text), Format::Json) => one(azureal::read(path, &text)?),
            (Content::Text(text), Format::Cllm) => one(cllm::read(path, &text)?),
            (Content::Text(text), Format::Axio) => one(axio::read(path, &text)?),
            (Content::Text(_), Format::Azs) => Err(recognise::unknown(path)),
        }
    }

    /// Reads the next session. One that cannot be read is an error, and the next may still be readable.
    pub(crate) async fn next(&mut self) -> Option<Result<Arrival, Failure>> {
        match self {
            Self::One(arrival) => arrival.take().map(|arrival| Ok(*arrival)),
            Self::Stored(source) => source.next().await,
            Self::Axio(source) => source.next(),
        }
    }
}
