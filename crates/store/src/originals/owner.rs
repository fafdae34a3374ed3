//! The session that a folder of originals belongs to, by the headers of its files.
//!
//! The folder is named by the UUID of the session. The headers name the session by other means, so a session whose UUID was damaged can
//! be found again.

use std::io;
use std::path::Path;

use azureal_core::{Json, Seq, Uuid};
use azureal_files::Folder;

use super::name::PackedName;
use super::pack::Unpacker;
use super::{found, open_in};

/// The originals of one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnedOriginals {
    /// The name of their folder.
    pub(crate) uuid: Uuid,
    /// The last events of the turns.
    pub(crate) ends: Vec<Seq>,
    pub(crate) owner: Owner,
}

/// A session, as a header names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Owner {
    /// By its number: azureal ran the turn.
    Session(u64),
    /// By the file that it was imported from.
    Import { agent: String, file: String },
}

/// Returns the originals in a folder whose owner can be told. What cannot be read is left out.
pub(crate) fn owned_originals(path: &Path) -> io::Result<Vec<OwnedOriginals>> {
    let Some(folder) = found(Folder::open(path))? else { return Ok(Vec::new()) };
    let mut owned = Vec::new();
    for name in folder.names()? {
        if let Some(uuid) = name.to_str().and_then(|name| name.parse::<Uuid>().ok())
            && let Ok(Some(inner)) = open_in(&folder, &name)
            && let Ok(Some((owner, ends))) = owner_of(&inner)
        {
            owned.push(OwnedOriginals { uuid, ends, owner });
        }
    }
    Ok(owned)
}

fn owner_of(folder: &Folder) -> io::Result<Option<(Owner, Vec<Seq>)>> {
    let (mut owner, mut ends) = (None, Vec::new());
    for file in folder.names()? {
        let Some(name) = PackedName::parse(&file).filter(|name| name.first != Seq::START) else { continue };
        ends.push(name.last);
        if owner.is_none() {
            owner =
                Unpacker::new(folder.open_shared_file(&file)?)?.header().ok().as_deref().and_then(named_in);
        }
    }
    Ok(owner.map(|owner| (owner, ends)))
}

fn named_in(header: &str) -> Option<Owner> {
    if let Some(turn) = turn_in(header) {
        return turn.session.map(Owner::Session);
    }
    let imported = part_of(header, "imported")?;
    Some(Owner::Import { agent: imported.string_field("agent")?, file: imported.string_field("file")? })
}

/// A turn that azureal ran, as a header names it.
pub(super) struct NamedTurn {
    pub(super) run: Option<String>,
    /// The number of its session.
    pub(super) session: Option<u64>,
    /// When that session was created.
    pub(super) session_made: Option<String>,
}

/// Returns the turn that a header names; `None` for an original of an import.
pub(super) fn turn_in(header: &str) -> Option<NamedTurn> {
    let turn = part_of(header, "turn")?;
    let session = turn.fields().get("session").and_then(|session| session.get().parse().ok());
    Some(NamedTurn {
        run: turn.string_field("run"),
        session,
        session_made: turn.string_field("session_made"),
    })
}

fn part_of(header: &str, name: &str) -> Option<Json> {
    let first: Json = header.lines().next()?.parse().ok()?;
    first.fields().get(name)?.get().parse().ok()
}
