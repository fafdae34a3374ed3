//! The way back of a copy: it takes the place of a store, of which nothing is lost.
//!
//! Others may write to the store meanwhile. So its content is replaced only if a copy of it was made that has all of it: whether it was
//! changed since is checked under the lock that the replacement holds.

use std::cell::Cell;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use azureal_core::{SessionId, StoreError, Uuid};
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use tracing::warn;

use super::super::codec::Codec;
use super::super::error::Fault;
use super::super::file::{StoreFile, publish};
use super::super::folders::{COMPANIONS, with_suffix};
use super::super::{connection, error, schema, tombstones, values};
use super::backup::{ExistingCopy, back_up_open, check_copy, copy_pages, copy_pages_if, write_copy};
use super::repair::upgrade;
use super::salvage::greatest_number;
use super::{Progress, open_file, swap};

/// The key of the note of a restore.
const RESTORED: &str = "restored";
/// A store with a write-ahead log that is changed while it is copied is copied again, so many times.
const COPIES: usize = 20;
/// Tombstones are read in pages of this size.
const PAGE: usize = 1_000;

/// A copy that is about to take the place of a store: complete, checked, of the newest version, and private.
pub struct Restoring {
    target: StoreFile,
    temporary: PathBuf,
    /// `None` once it has taken the place.
    content: Option<Connection>,
    /// Whether the kept file is one that this restore has written.
    has_kept: Cell<bool>,
}

/// Prepares a restore. Changes nothing; the copy itself is never changed: an older one is upgraded on the way.
///
/// The transaction that replaces the store notes what the caller does next, for [`restored`].
pub fn restoring(
    copy: &Path,
    store: &Path,
    note: &str,
    progress: Progress<'_>,
) -> Result<Restoring, StoreError> {
    let target = StoreFile::new(store.to_owned(), None);
    target.make_folder()?;
    target.remove_leftovers();
    let (temporary, file) = target.create_unfinished().map_err(|error| error::from_io(store, error))?;
    let mut restoring = Restoring { target, temporary, content: None, has_kept: Cell::new(false) };
    write_copy(&restoring.target, &open_file(copy)?.0, &restoring.temporary, &file, progress)?;
    check_copy(&restoring.target, &restoring.temporary, progress)?;
    let mut codec = Codec::new().map_err(|error| error::from_io(store, error))?;
    let mut content = connection::open(&restoring.temporary)?;
    let columns = schema::prepare(&restoring.temporary, &content)?;
    upgrade(&restoring.temporary, &mut content, columns, &mut codec).map_err(|fault| fault.at(store))?;
    content
        .execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?1, ?2)", [RESTORED, note])
        .map_err(|error| error::from_sqlite(store, error))?;
    restoring.content = Some(content);
    Ok(restoring)
}

impl Restoring {
    /// Replaces the content of the store, in one transaction, and keeps what it was in the file `kept`. The store keeps its names, and
    /// processes that have it open continue with the new content. Returns whether there was a store.
    ///
    /// What follows from the former content stays true: the store keeps its id and its tombstones, gives no number again, and a session
    /// that it had otherwise gets a new generation. Sessions of the copy that were deleted since are revived.
    pub fn replace(&mut self, kept: &Path, progress: Progress<'_>) -> Result<bool, StoreError> {
        let Some(mut content) = self.content.take() else { return Ok(false) };
        let store = self.target.path();
        if !self.target.exists() {
            connection::close(content).map_err(|error| error::from_sqlite(store, error))?;
            let io = |error| error::from_io(store, error);
            File::open(&self.temporary).and_then(|file| file.sync_all()).map_err(io)?;
            if publish(&self.temporary, store).map_err(io)? {
                return Ok(false);
            }
            content = connection::open(&self.temporary)?;
        }
        let replaced = self.replace_content(&content, kept, progress);
        self.content = Some(content);
        if replaced.is_err() {
            // The store is as it was.
            self.remove_kept(kept);
        }
        replaced.map(|()| true)
    }

    /// Takes the place of a store that cannot be used. Its file is kept as it is, under another name, with what SQLite keeps beside it.
    /// At each moment, there is a file under the name of the store: nobody creates another one meanwhile.
    pub fn replace_unusable(&mut self, kept: &Path, second_name: Option<&Path>) -> Result<(), StoreError> {
        let Some(content) = self.content.take() else { return Ok(()) };
        let store = self.target.path();
        keep_readable_facts(store, &content).map_err(|fault| fault.at(store))?;
        connection::close(content).map_err(|error| error::from_sqlite(store, error))?;
        let file = StoreFile::new(store.to_owned(), second_name.map(Path::to_owned));
        File::open(&self.temporary)
            .and_then(|temporary| temporary.sync_all())
            .and_then(|()| swap(&file, &self.temporary, kept))
            .map_err(|error| error::from_io(store, error))
    }

    /// Removes the kept file, if it is a copy of ours. Another file of that name may be the only one with its sessions.
    fn remove_kept(&self, kept: &Path) {
        if self.has_kept.take() {
            drop(fs::remove_file(kept));
        }
    }

    fn replace_content(
        &self,
        content: &Connection,
        kept: &Path,
        progress: Progress<'_>,
    ) -> Result<(), StoreError> {
        let store = self.target.path();
        let sqlite = |error| error::from_sqlite(store, error);
        self.target.check_companions()?;
        let path = self.target.real_path()?;
        let (watch, mut old) = (connection::open(&path)?, connection::open(&path)?);
        let keep = |source: &Connection| {
            // Under the lock once more: a newer azureal may have upgraded the file.
            schema::check_versions(source).map_err(|fault| fault.at(store))?;
            self.remove_kept(kept);
            back_up_open(source, kept, ExistingCopy::Keep, check_copy, progress)?;
            self.has_kept.set(true);
            let former = connection::open(kept)?;
            keep_facts(&former, content).map_err(|fault| fault.at(store))?;
            connection::close(former).map_err(sqlite)
        };
        if uses_log(&old).map_err(sqlite)? {
            self.replace_beside_readers(content, &watch, &mut old, &keep, progress)?;
        } else {
            let seen = data_version(&old).map_err(sqlite)?;
            keep(&watch)?;
            // In this mode a connection keeps the lock that it has: nobody else reads or writes until it is left. It begins once the lock is
            // held: a connection that waits for it would keep out the holder.
            old.execute_batch("BEGIN EXCLUSIVE; PRAGMA locking_mode = EXCLUSIVE; COMMIT;").map_err(sqlite)?;
            if data_version(&old).map_err(sqlite)? != seen {
                keep(&old)?;
            }
            copy_pages(content, &mut old, progress).map_err(sqlite)?;
            // The lock goes with the next use. The journal stays in that mode: it is removed with a change of its own mode.
            old.execute_batch(
                "PRAGMA locking_mode = NORMAL; SELECT 1 FROM sqlite_schema;
                 PRAGMA journal_mode = PERSIST; PRAGMA journal_mode = DELETE;",
            )
            .map_err(sqlite)?;
        }
        connection::close(old).map_err(sqlite)?;
        connection::close(watch).map_err(sqlite)
    }

    /// Replaces the content of a store with a write-ahead log, whose lock keeps out writers only, so that `watch` still sees changes.
    fn replace_beside_readers(
        &self,
        content: &Connection,
        watch: &Connection,
        old: &mut Connection,
        keep: &dyn Fn(&Connection) -> Result<(), StoreError>,
        progress: Progress<'_>,
    ) -> Result<(), StoreError> {
        let store = self.target.path();
        let sqlite = |error| error::from_sqlite(store, error);
        for _ in 0..COPIES {
            let seen = data_version(watch).map_err(sqlite)?;
            keep(watch)?;
            let is_unchanged = || Ok(data_version(watch)? == seen);
            if copy_pages_if(content, old, is_unchanged, progress).map_err(sqlite)? {
                return Ok(());
            }
        }
        let why = "it is changed again and again while it is copied";
        Err(StoreError::Other { place: store.display().to_string(), source: why.into() })
    }
}

fn uses_log(connection: &Connection) -> rusqlite::Result<bool> {
    connection.pragma_query_value(None, "journal_mode", |row| Ok(row.get::<_, String>(0)? == "wal"))
}

/// Returns a number that is another one once somebody else has changed the file.
fn data_version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "data_version", |row| row.get(0))
}

impl Drop for Restoring {
    fn drop(&mut self) {
        drop(self.content.take());
        for suffix in [""].iter().chain(&COMPANIONS) {
            drop(fs::remove_file(with_suffix(&self.temporary, suffix)));
        }
    }
}

/// Takes over to the new content what stays true of the former one.
fn keep_facts(former: &Connection, new: &Connection) -> Result<(), Fault> {
    let transaction = new.unchecked_transaction()?;
    keep_id(former, &transaction)?;
    keep_tombstones(former, &transaction)?;
    keep_numbers(former, &transaction)?;
    renew_generations(former, &transaction)?;
    transaction.commit()?;
    Ok(())
}

/// Takes over what can be read of it from a store that cannot be used.
fn keep_readable_facts(store: &Path, new: &Connection) -> Result<(), Fault> {
    let transaction = new.unchecked_transaction()?;
    let former = connection::open_foreign(store)
        .and_then(|former| connection::check_foreign(store, &former).map(|()| former));
    let mut are_numbers_kept = false;
    if let Ok(former) = former {
        // Each for itself: another table may be the damaged one.
        for (what, kept) in [
            ("id", keep_id(&former, &transaction)),
            ("tombstones", keep_tombstones(&former, &transaction)),
            ("generations", renew_generations(&former, &transaction)),
        ] {
            if let Err(error) = kept {
                warn!(%error, "the {what} of the damaged store cannot be read");
            }
        }
        are_numbers_kept = keep_numbers(&former, &transaction).is_ok();
    }
    if !are_numbers_kept && let Some(last) = greatest_number(&File::open(store)?)? {
        keep_number(last, &transaction)?;
    }
    transaction.commit()?;
    Ok(())
}

fn keep_id(former: &Connection, new: &Connection) -> rusqlite::Result<()> {
    match schema::store_id(former)? {
        Some(id) => schema::set_store_id(new, id),
        None => Ok(()),
    }
}

fn keep_tombstones(former: &Connection, new: &Connection) -> rusqlite::Result<()> {
    let mut after = None;
    loop {
        let page = tombstones::list(former, after, PAGE)?;
        let Some(last) = page.last() else { return Ok(()) };
        after = Some(last.uuid);
        for tombstone in &page {
            tombstones::keep(new, tombstone)?;
        }
    }
}

/// Sees to it that no number of a session is given again.
fn keep_numbers(former: &Connection, new: &Connection) -> rusqlite::Result<()> {
    // The original program's table has no such counter.
    let counted = "SELECT seq FROM sqlite_sequence WHERE name = 'sessions'";
    let counted = former.query_row(counted, [], |row| values::number(row, 0)).unwrap_or_default();
    let greatest = "SELECT max(id) FROM sessions";
    let greatest = former.query_row(greatest, [], |row| values::number(row, 0))?;
    counted.max(greatest).map_or(Ok(()), |last| keep_number(last, new))
}

fn keep_number(last: i64, new: &Connection) -> rusqlite::Result<()> {
    let known =
        new.execute("UPDATE sqlite_sequence SET seq = max(seq, ?1) WHERE name = 'sessions'", [last])?;
    if known == 0 {
        new.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('sessions', ?1)", [last])?;
    }
    Ok(())
}

/// Gives a new generation to each session whose log is another one than before.
fn renew_generations(former: &Connection, new: &Connection) -> rusqlite::Result<()> {
    const LOGS: &str = "SELECT uuid, generation, (SELECT count(*) FROM events WHERE session_id = sessions.id)
                        FROM sessions WHERE uuid IS NOT NULL";
    // An older file has no generations, and nobody has named one of it.
    let Ok(mut logs) = former.prepare(LOGS) else { return Ok(()) };
    let mut logs = logs.query([])?;
    while let Some(row) = logs.next()? {
        let uuid = values::text(row.get_ref(0)?).unwrap_or_default();
        let (generation, events) = (values::number(row, 1)?.unwrap_or(0), values::number(row, 2)?);
        new.prepare_cached(
            "UPDATE sessions SET generation = max(ifnull(generation, 0), ?2) + 1
             WHERE uuid = ?1 AND (ifnull(generation, 0) <> ?2
               OR (SELECT count(*) FROM events WHERE session_id = sessions.id) IS NOT ?3)",
        )?
        .execute(params![uuid, generation.clamp(0, i64::MAX - 1), events])?;
    }
    Ok(())
}

/// Returns the sessions of a copy that were deleted in the store since, with their names: a restore brings them back.
pub fn deleted_since(copy: &Path, store: &Path) -> Result<Vec<(SessionId, String)>, StoreError> {
    let (copied, columns) = open_file(copy)?;
    if !columns.keep_counts() {
        return Ok(Vec::new());
    }
    let (now, _) = open_file(store)?;
    let find = || -> rusqlite::Result<Vec<(SessionId, String)>> {
        let mut sessions = copied
            .prepare("SELECT id, substr(name, 1, 200), substr(uuid, 1, 100) FROM sessions ORDER BY id")?;
        let mut rows = sessions.query([])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let number = values::number(row, 0)?.and_then(|number| u32::try_from(number).ok());
            let uuid: Option<Uuid> = values::text(row.get_ref(2)?).and_then(|uuid| uuid.parse().ok());
            let (Some(id), Some(uuid)) = (number.and_then(SessionId::new), uuid) else { continue };
            let tombstone = tombstones::get(&now, uuid)?;
            if tombstone.is_some_and(|tombstone| tombstone.revived_at.is_none()) {
                found.push((id, values::text(row.get_ref(1)?).unwrap_or_default()));
            }
        }
        Ok(found)
    };
    find().map_err(|error| error::from_sqlite(copy, error))
}

/// Returns the note of a restore whose caller has not removed it yet.
pub fn restored(store: &Path) -> Result<Option<String>, StoreError> {
    let (connection, _) = open_file(store)?;
    let note = connection
        .query_row("SELECT value FROM meta WHERE key = ?1", [RESTORED], |row| row.get(0))
        .optional()
        .map_err(|error| error::from_sqlite(store, error))?;
    drop(connection::close(connection));
    Ok(note)
}

/// Removes the note of a restore.
pub fn forget_restored(store: &Path) -> Result<(), StoreError> {
    let sqlite = |error| error::from_sqlite(store, error);
    let (connection, _) = open_file(store)?;
    let transaction =
        Transaction::new_unchecked(&connection, TransactionBehavior::Immediate).map_err(sqlite)?;
    schema::check_versions(&transaction).map_err(|fault| fault.at(store))?;
    transaction.execute("DELETE FROM meta WHERE key = ?1", [RESTORED]).map_err(sqlite)?;
    connection::commit(transaction).map_err(sqlite)?;
    connection::close(connection).map_err(sqlite)
}
