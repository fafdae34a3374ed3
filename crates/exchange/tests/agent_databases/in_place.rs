//! The folder of a program stays as it is, whatever state its database is in.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::database::{AGENTS, Home};

/// Returns the files of a folder with their contents. Readers mark their place in the index of the log (`-shm`), which every
/// process can make again; only its name is compared.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            found.extend(files(&entry));
        } else {
            let is_index = entry.to_str().unwrap().ends_with("-shm");
            let content = if is_index { Vec::new() } else { fs::read(&entry).unwrap() };
            found.insert(entry, content);
        }
    }
    found
}

const GROWS: [&str; 2] = [
    "INSERT INTO message (id, session_id, time_created, time_updated, data)
        SELECT 'msg_z', id, 1794850200000, 0, '{\"role\":\"user\"}' FROM session;
    INSERT INTO part (id, message_id, session_id, time_created, time_updated, data)
        SELECT 'prt_z', 'msg_z', id, 0, 0, '{\"type\":\"text\",\"text\":\"And now?\"}' FROM session;",
    "INSERT INTO messages (session_id, role, content_json, created_timestamp)
        SELECT id, 'user', '[{\"type\":\"text\",\"text\":\"And now?\"}]', 1794850200 FROM sessions;",
];

#[test]
fn a_database_that_a_program_writes_is_read_with_its_log() {
    for (agent, sql) in AGENTS.into_iter().zip(GROWS) {
        let recorded = Home::new(agent);
        let writer = recorded.connect();
        writer.execute_batch(sql).unwrap();
        // A transaction that has not ended is not read, and does not block.
        writer.execute_batch("BEGIN IMMEDIATE; CREATE TABLE unfinished (x)").unwrap();
        let before = files(recorded.folder.path());
        assert_eq!(before.len(), 3, "the database, its log and its index");
        assert_eq!(recorded.open().unwrap().sessions(None).count(), 1);
        assert!(recorded.has_no_copies(), "a list needs no copy");
        assert_eq!(recorded.turns().len(), 4, "{agent}");
        assert_eq!(files(recorded.folder.path()), before, "{agent}");
        writer.execute_batch("COMMIT").unwrap();
        assert!(recorded.has_no_copies());
    }
}

#[test]
fn a_database_whose_program_died_is_read_with_its_log() {
    for (agent, sql) in AGENTS.into_iter().zip(GROWS) {
        let (recorded, dead) = (Home::new(agent), Home::new(agent));
        let writer = recorded.connect();
        writer.execute_batch(sql).unwrap();
        for suffix in ["", "-wal"] {
            let with = |file: PathBuf| PathBuf::from(format!("{}{suffix}", file.display()));
            fs::copy(with(recorded.file()), with(dead.file())).unwrap();
        }
        let before = files(dead.folder.path());
        assert_eq!(before.len(), 2, "there is no index");
        assert_eq!(dead.turns().len(), 4, "{agent}");
        assert_eq!(files(dead.folder.path()), before, "{agent}");
        assert!(dead.has_no_copies());
    }
}

#[test]
fn a_database_that_nobody_uses_gets_no_files_beside_it() {
    for agent in AGENTS {
        let recorded = Home::new(agent);
        let before = files(recorded.folder.path());
        assert_eq!(before.len(), 1);
        let home = recorded.open().unwrap();
        assert_eq!(home.sessions(None).count(), 1);
        assert!(recorded.has_no_copies(), "a list needs no copy");
        assert_eq!(recorded.turns().len(), 3);
        assert_eq!(files(recorded.folder.path()), before, "{agent}");
    }
}
