//! The identity of a session, in its own store and in the store that it is imported into.
//!
//! A session is known by its UUID. Older files, files of the original program and conversations of other programs have
//! none; their sessions are known by their origin: `azureal:S3@<creation time>`, `cllm:<id>@<creation time>` and so on.
//!
//! An import sets two marks:
//! - `import:uuid:<UUID>`, or `import:<origin>` for a session without a UUID, is set on the imported session. Its note
//!   holds the number of its events and their hash. Other sessions under the same UUID or origin get `…#2`, `…#3` and so on.
//! - `origin:S<n>` is set on a session that was imported without a UUID. Its note is the origin, so that a copy of `S<n>` is
//!   recognised where the session comes from. If it gets a UUID there later, that replaces the origin (`uuid:<UUID>`), and
//!   copies of `S<n>` have this UUID from then on.
//!
//! Copies of a session that were continued in several places have one UUID and different logs. Each store keeps the UUID for the log
//! that it had first. The others become forks there, with a UUID that follows from the former one and the log. So the former UUID and the log
//! identify a session in all these stores: under which UUID a store has it depends on the order of the imports.

use azureal_core::{SessionId, SessionRecord, SessionStore, StoreError, Uuid};

use crate::import::{Continuation, Counted, ImportNote};

/// The properties that identify a session.
#[derive(Debug, Clone)]
pub(crate) struct SessionIdentity {
    /// `None` in older files and in other programs.
    pub(crate) uuid: Option<Uuid>,
    /// The session that it was forked from.
    pub(crate) forked_from: Option<Uuid>,
    /// Its number or id in its source, with its creation time.
    pub(crate) origin: String,
    /// Whether it was copied from `origin` to the store that it is read from, without a UUID at that time.
    pub(crate) is_copy: bool,
    /// Set for a conversation that was exported from a session and continued in another program.
    pub(crate) continuation: Option<Continuation>,
    /// The UUID that it had before an import made it a fork, because another log had that UUID already.
    pub(crate) former: Option<Uuid>,
    /// What its turns took that another session of its store counts, because both logs begin with them.
    pub(crate) uncounted: Counted,
}

impl SessionIdentity {
    /// Returns the identity of a session without a UUID.
    pub(crate) fn of_origin(origin: String) -> Self {
        Self::new(None, None, origin)
    }

    /// Returns the identity of a session that is no copy.
    pub(crate) fn new(uuid: Option<Uuid>, forked_from: Option<Uuid>, origin: String) -> Self {
        // The user's forks have random UUIDs.
        let former = forked_from.filter(|_| uuid.is_some_and(is_derived));
        let uncounted = Counted::default();
        Self { uuid, forked_from, origin, is_copy: false, continuation: None, former, uncounted }
    }

    /// Returns the identity of a stored session.
    pub(crate) async fn of(store: &dyn SessionStore, record: &SessionRecord) -> Result<Self, StoreError> {
        let origin = origin(&record.id.to_string(), &record.created_at);
        let mut identity = Self::new(record.uuid, record.forked_from, origin);
        if let Some(note) = fork_note(store, record).await? {
            // Earlier versions gave random UUIDs to forks of imports too.
            identity.former = record.forked_from;
            identity.uncounted = note.uncounted;
        }
        let of_record = |mark: &azureal_core::Mark| mark.session == record.id;
        match store.mark(&origin_mark(record.id)).await?.filter(of_record) {
            Some(mark) => match mark.note.strip_prefix(UUID).map(str::parse) {
                Some(uuid) => identity.uuid = uuid.ok().or(record.uuid),
                None => {
                    identity.origin = mark.note;
                    identity.is_copy = true;
                }
            },
            // A copy with the number and time of its origin needs no other mark than that of its import.
            None => {
                let imported = store.mark(&import_mark(&identity.origin, 1)).await?;
                identity.is_copy = imported.as_ref().is_some_and(of_record);
            }
        }
        Ok(identity)
    }

    /// Returns the UUID that identifies the session together with its log, in every store.
    pub(crate) fn lasting_uuid(&self) -> Option<Uuid> {
        self.former.or(self.uuid)
    }
}

/// Returns a UUID that follows from texts: of version 8. `context` is what they are.
pub(crate) fn derived_uuid(context: &str, texts: [&str; 2]) -> Uuid {
    let mut hasher = blake3::Hasher::new_derive_key(context);
    hasher.update(texts[0].as_bytes());
    hasher.update(&[0]);
    hasher.update(texts[1].as_bytes());
    let hash = hasher.finalize();
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(hash.as_bytes()).for_each(|(byte, hashed)| *byte = *hashed);
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Uuid::from_bytes(bytes)
}

/// Says whether a UUID is one that follows from texts.
pub(crate) fn is_derived(uuid: Uuid) -> bool {
    uuid.get_version_num() == 8
}

/// Returns the UUID of a session that an import makes a fork: two stores that take in the same log have it under the same one.
pub(crate) fn fork_uuid(former: Uuid, log_hash: &str) -> Uuid {
    derived_uuid("azureal fork of a session with another log", [&former.to_string(), log_hash])
}

/// Returns the note of the import that made a session a fork; `None` for other sessions, such as a fork that the user created.
pub(crate) async fn fork_note(
    store: &dyn SessionStore,
    record: &SessionRecord,
) -> Result<Option<ImportNote>, StoreError> {
    let Some(key) = record.forked_from.map(uuid_key) else { return Ok(None) };
    for number in 1.. {
        match store.mark(&import_mark(&key, number)).await? {
            None => break,
            Some(mark) if mark.session == record.id => return Ok(Some(ImportNote::of(&mark))),
            Some(_) => {}
        }
    }
    Ok(None)
}

const UUID: &str = "uuid:";

/// Returns the key of the marks of a session with a UUID.
pub(crate) fn uuid_key(uuid: Uuid) -> String {
    format!("{UUID}{uuid}")
}

/// Returns the origin of a session of azureal, stored or exported.
pub(crate) fn origin(id: &str, created: &str) -> String {
    format!("azureal:{id}@{created}")
}

/// Returns the number and the creation time of a session of azureal; `None` for those of other programs.
pub(crate) fn home(origin: &str) -> Option<(SessionId, &str)> {
    let (id, created) = origin.strip_prefix("azureal:")?.split_once('@')?;
    Some((id.parse().ok()?, created))
}

/// Returns the name of the mark with the origin of a session.
pub(crate) fn origin_mark(id: SessionId) -> String {
    format!("origin:{id}")
}

/// Returns the name of the mark of the n-th session that was imported under a key.
pub(crate) fn import_mark(key: &str, number: u64) -> String {
    match number {
        1 => format!("import:{key}"),
        number => format!("import:{key}#{number}"),
    }
}
