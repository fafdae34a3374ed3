//! The originals of turns in PostgreSQL: uploaded once and whole, masked, bounded, and kept here until they are there.

use std::borrow::Cow;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use azureal_store::core::{
    Event, NewOriginal, NewSession, NewTurn, Originals, Seq, SessionId, SessionStore, StoreError,
};
use azureal_store::postgres::{Mask, PostgresAddress, PostgresOptions, PostgresStore};
use azureal_testkit::servers::{Cut, CuttingProxy, Direction, PostgresServer};
use tempfile::TempDir;

use crate::scratch::wait;

/// A machine with files of its own.
struct Machine {
    folder: TempDir,
    store: PostgresStore,
}

impl Machine {
    fn new(url: &str, mask: Option<Mask>) -> Self {
        Self::with(url, mask, PostgresOptions::default())
    }

    fn with(url: &str, mask: Option<Mask>, options: PostgresOptions) -> Self {
        let folder = tempfile::Builder::new().permissions(Permissions::from_mode(0o700)).tempdir().unwrap();
        let address: PostgresAddress = url.parse().unwrap();
        let store = wait(PostgresStore::open(&address, options)).unwrap();
        let store = store.with_originals(folder.path().join("originals"), true, mask);
        Self { folder, store }
    }

    fn session(&self) -> SessionId {
        let id = wait(self.store.create(NewSession::default())).unwrap();
        let events = ["one", "two", "three"].map(Event::user);
        wait(self.store.append(id, NewTurn::verbatim(events))).unwrap();
        id
    }

    fn put(&self, id: SessionId, run: &str, output: &[u8]) {
        self.put_with(id, run, output, None);
    }

    fn put_with(&self, id: SessionId, run: &str, output: &[u8], more: Option<&[u8]>) {
        let file = |kind: &str, content: &[u8]| {
            let path = self.folder.path().join(format!("{run}.{kind}"));
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
            path
        };
        let (header, output) = (file("turn", b"{\"prompt\":\"secret\"}\n"), file("jsonl", output));
        let more = more.map(|more| file("more", more));
        let new = NewOriginal { run: run.to_owned(), first: Seq(1), last: Seq(2), header, output, more };
        wait(self.store.put(id, new)).unwrap();
    }

    fn finish(&self) -> Result<(), StoreError> {
        wait(self.store.finish())
    }

    fn runs(&self, id: SessionId) -> Vec<String> {
        wait(Originals::list(&self.store, id)).unwrap().into_iter().map(|original| original.run).collect()
    }

    fn read(&self, id: SessionId, run: &str) -> Result<(String, Vec<u8>), StoreError> {
        let mut open = wait(self.store.open(id, run))?.unwrap();
        let mut output = Vec::new();
        while let Some(piece) = wait(open.output.next())? {
            output.extend(piece);
        }
        Ok((open.header, output))
    }

    /// The files of originals here.
    fn files(&self) -> usize {
        fn count(folder: &Path) -> usize {
            let entries = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
            entries.map(|path| if path.is_dir() { count(&path) } else { 1 }).sum()
        }
        count(&self.folder.path().join("originals"))
    }
}

fn url(server: &PostgresServer, project: &str) -> String {
    format!("{}?project={project}", server.url())
}

/// Bytes that do not compress.
fn noise(length: usize) -> Vec<u8> {
    let mut state: u64 = 88_172_645_463_325_252;
    let mut noise = Vec::with_capacity(length);
    while noise.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        noise.extend_from_slice(&state.to_le_bytes());
    }
    noise.truncate(length);
    noise
}

#[test]
fn an_upload_is_masked_and_the_file_before_it_is_not() {
    let Some(server) = PostgresServer::shared() else { return };
    let mask: Mask = Arc::new(|line| Cow::Owned(line.replace("secret", "***")));
    let machine = Machine::new(&url(server, "masked uploads"), Some(mask));
    let id = machine.session();
    machine.put_with(
        id,
        "a",
        b"{\"secret\":1}\nother \xff secret\n\n",
        Some(b"{\"whole\":\"secret\"}\nlast"),
    );
    let output = b"{\"secret\":1}\nother \xff secret\n\n{\"whole\":\"secret\"}\nlast";
    let local = ("{\"prompt\":\"secret\"}\n".to_owned(), output.to_vec());
    assert_eq!(machine.read(id, "a").unwrap(), local);
    machine.finish().unwrap();
    let uploaded = "{\"***\":1}\nother \u{fffd} ***\n\n{\"whole\":\"***\"}\nlast".to_owned().into_bytes();
    // The header has the length of the output before it was masked.
    let header = "{\"prompt\":\"***\"}\n{\"masked\":{\"bytes\":52}}\n".to_owned();
    assert_eq!(machine.read(id, "a").unwrap(), (header, uploaded));
    assert_eq!(machine.files(), 0);
}

#[test]
fn another_machine_has_what_is_uploaded_and_no_more() {
    let Some(server) = PostgresServer::shared() else { return };
    let store = url(server, "two machines");
    let (here, there) = (Machine::new(&store, None), Machine::new(&store, None));
    let id = here.session();
    let output = noise((5 << 20) + 17);
    here.put(id, "a", &output);
    assert_eq!((here.runs(id).len(), there.runs(id).len()), (1, 0));
    here.finish().unwrap();
    here.put(id, "b", b"later");
    assert_eq!((here.runs(id).len(), there.runs(id).len()), (2, 1));
    assert!(there.read(id, "a").unwrap().1 == output);
    assert!(wait(there.store.open(id, "b")).unwrap().is_none());
    let pieces = "SELECT array_agg(octet_length(data) ORDER BY piece) FROM azureal.original_pieces
                  WHERE project = 'two machines'";
    let sizes = server.sql(pieces);
    assert!(sizes.starts_with("{1048576,1048576,1048576,1048576,1048576,"), "{sizes}");
    // What the other one deletes, or forks, is that of the server.
    assert!(wait(Originals::delete(&there.store, id)).unwrap() > 5 << 20);
    assert_eq!(here.runs(id), ["b"]);
    wait(SessionStore::delete(&there.store, id)).unwrap();
    here.finish().unwrap();
    assert_eq!(here.files(), 2, "a file is not deleted because a server does not know its session");
}

#[test]
fn an_original_that_is_too_large_stays_on_its_machine() {
    let Some(server) = PostgresServer::shared() else { return };
    let store = url(server, "large originals");
    let (here, there) = (Machine::new(&store, None), Machine::new(&store, None));
    let id = here.session();
    let large = noise(64 << 20);
    here.put(id, "large", &large);
    here.put(id, "small", b"small");
    here.finish().unwrap();
    here.finish().unwrap();
    assert_eq!(
        (here.runs(id), there.runs(id)),
        (vec!["large".into(), "small".into()], vec!["small".to_owned()])
    );
    assert!(here.read(id, "large").unwrap().1 == large);
    let fork = wait(here.store.fork(id, Seq::END, NewSession::default())).unwrap();
    assert_eq!(here.runs(fork), ["large", "small"]);
    assert!(wait(Originals::delete(&here.store, id)).unwrap() > 64 << 20);
    wait(SessionStore::delete(&here.store, fork)).unwrap();
    assert_eq!(here.files(), 0);
}

#[test]
fn an_upload_that_is_cut_anywhere_is_there_whole_and_once() {
    let Some(server) = PostgresServer::start_with(&[("fsync", "off")], &[]) else { return };
    let proxy = CuttingProxy::start(server.port());
    let through = format!("{}?sslmode=disable", server.url_at(proxy.port()));
    let options =
        PostgresOptions { connections: 1, retry_budget: Duration::ZERO, ..PostgresOptions::default() };
    let direct = Machine::new(&server.url(), None);
    let output = noise(1_200_000);
    let count = "SELECT count(*) FROM azureal.original_pieces";
    let (mut failed, mut succeeded) = (0, 0);
    let cuts =
        [0, 1, 50, 400, 2_000, 500_000, 1_048_576, 1_049_600, 1_100_000, 1_200_000, 1_201_000, 1_205_000];
    for direction in [Direction::ToServer, Direction::ToClient] {
        for after in cuts.into_iter().chain((0..1_200).step_by(60)) {
            let id = direct.session();
            let machine = Machine::with(&through, None, options);
            machine.put(id, "a", &output);
            proxy.arm(Some(Cut { direction, after }));
            let cut = machine.finish();
            proxy.arm(None);
            match &cut {
                Ok(()) => succeeded += 1,
                Err(_) => {
                    failed += 1;
                    assert!(machine.files() > 0, "it is lost: {after}");
                }
            }
            assert!(machine.read(id, "a").or_else(|_| machine.read(id, "a")).unwrap().1 == output);
            until_finished(&machine);
            assert_eq!((direct.runs(id), machine.files()), (vec!["a".to_owned()], 0), "{after}");
            assert!(direct.read(id, "a").unwrap().1 == output);
            assert_eq!(server.sql(count), "2", "{after}");
            wait(SessionStore::delete(&direct.store, id)).unwrap();
            assert_eq!(server.sql(count), "0");
        }
    }
    assert!(failed > 20 && succeeded > 5, "{failed} failed, {succeeded} did not");
}

/// A transaction whose connection was cut may still be there for a moment.
fn until_finished(machine: &Machine) {
    azureal_testkit::until("it is uploaded", || machine.finish().ok());
}

#[test]
fn an_original_whose_session_was_deleted_meanwhile_leaves_nothing_on_the_server() {
    let Some(server) = PostgresServer::shared() else { return };
    let store = url(server, "deleted meanwhile");
    let (here, there) = (Machine::new(&store, None), Machine::new(&store, None));
    for _ in 0..8 {
        let id = here.session();
        here.put(id, "a", &noise(3 << 20));
        std::thread::scope(|scope| {
            let uploads = scope.spawn(|| here.finish());
            wait(SessionStore::delete(&there.store, id)).unwrap();
            uploads.join().unwrap().unwrap();
        });
        here.finish().unwrap();
        let rows = "SELECT (SELECT count(*) FROM azureal.originals WHERE project = 'deleted meanwhile')
                    + (SELECT count(*) FROM azureal.original_pieces WHERE project = 'deleted meanwhile')";
        assert_eq!(server.sql(rows), "0");
    }
}

#[test]
fn damaged_originals_are_errors() {
    let Some(server) = PostgresServer::shared() else { return };
    let machine = Machine::new(&url(server, "damaged originals"), None);
    let output = noise((2 << 20) + 5);
    let damages = [
        ("DELETE FROM azureal.original_pieces WHERE piece = 1 AND", "piece 1 of the original a is missing"),
        ("UPDATE azureal.original_pieces SET data = data || data WHERE piece = 1 AND", "has the wrong size"),
        ("UPDATE azureal.original_pieces SET data = set_byte(data, 500, 7) WHERE piece = 0 AND", ""),
        ("UPDATE azureal.originals SET bytes = 1 << 40 WHERE", "has an impossible size"),
        ("UPDATE azureal.originals SET bytes = 0 WHERE", "has an impossible size"),
        ("UPDATE azureal.originals SET bytes = bytes - 1 WHERE", "has the wrong size"),
    ];
    for (damage, why) in damages {
        let id = machine.session();
        machine.put(id, "a", &output);
        machine.finish().unwrap();
        let damage = damage.replace("1 << 40", "1099511627776");
        server.sql(&format!("{damage} project = 'damaged originals' AND session = {}", id.number()));
        let error = machine.read(id, "a").unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn a_role_lets_only_its_own_originals_expire() {
    let Some(server) = PostgresServer::shared() else { return };
    let schema = "expiring";
    let store = format!("{}&schema={schema}", url(server, "expiring"));
    let owner = Machine::new(&store, None);
    server.sql(&format!(
        "CREATE ROLE expirer LOGIN PASSWORD '{}'; GRANT USAGE ON SCHEMA {schema} TO expirer;
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO expirer;
         GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO expirer",
        server.password()
    ));
    let other = Machine::new(&store.replace("tester:", "expirer:"), None);
    let id = owner.session();
    owner.put(id, "owners", b"output");
    owner.finish().unwrap();
    other.put(id, "others", b"output");
    other.finish().unwrap();
    server.sql(&format!("UPDATE {schema}.originals SET stored_at = stored_at - interval '10 days'"));
    wait(other.store.expire(11)).unwrap();
    assert_eq!(owner.runs(id), ["others", "owners"]);
    fs::remove_file(other.folder.path().join("originals/expired")).unwrap();
    wait(other.store.expire(9)).unwrap();
    assert_eq!(owner.runs(id), ["owners"]);
    assert_eq!(server.sql(&format!("SELECT count(*) FROM {schema}.original_pieces")), "1");
}

#[test]
fn a_store_that_takes_no_new_originals_reads_and_deletes_those_that_are_there() {
    let Some(server) = PostgresServer::shared() else { return };
    let store = url(server, "takes none");
    let here = Machine::new(&store, None);
    let id = here.session();
    here.put(id, "a", b"uploaded");
    here.finish().unwrap();
    here.put(id, "b", b"still here");
    let Machine { folder, store } = here;
    let store = store.with_originals(folder.path().join("originals"), false, None);
    let here = Machine { folder, store };
    here.put(id, "c", b"new");
    here.finish().unwrap();
    assert_eq!(here.runs(id), ["a", "b"]);
    assert_eq!(here.read(id, "b").unwrap().1, b"still here");
    assert_eq!(here.files(), 2, "it was not uploaded");
    wait(SessionStore::delete(&here.store, id)).unwrap();
    assert_eq!(here.files(), 0);
}
