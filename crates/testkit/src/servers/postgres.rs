//! A PostgreSQL server for tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;

use super::keeper::{Keeper, as_servant, servants_folder};
use super::{free_port, hand_over, skip};
use crate::until::until_or;

/// The user that owns everything, and its password.
pub(super) const USER: &str = "tester";
/// A password that cannot appear elsewhere by chance.
pub(super) const PASSWORD: &str = "hunter2-sesame";

/// A PostgreSQL server with its own folder and port, stopped when it is dropped or the test ends.
///
/// ```no_run
/// use azureal_testkit::servers::PostgresServer;
///
/// # fn test() {
/// let Some(mut server) = PostgresServer::start() else { return };
/// println!("{}", server.url());
/// server.kill();
/// server.start_again();
/// # }
/// ```
#[derive(Debug)]
pub struct PostgresServer {
    keeper: Keeper,
    bin: PathBuf,
    port: u16,
}

impl PostgresServer {
    /// Starts a server. `None` means that the test has been reported as skipped, and should return.
    ///
    /// # Panics
    ///
    /// If PostgreSQL is missing where `AZUREAL_REQUIRE_TOOLS` is set, or is there and does not start.
    pub fn start() -> Option<Self> {
        Self::start_with(&[], &[])
    }

    /// Starts a server with more settings, and these files in its folder.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    pub fn start_with(settings: &[(&str, &str)], files: &[(&str, &str)]) -> Option<Self> {
        let Some(bin) = find() else {
            skip("PostgreSQL (initdb, postgres) is missing");
            return None;
        };
        let folder = match servants_folder("azureal-postgres-") {
            Ok(folder) => folder,
            Err(error) => {
                skip(&format!("there is no folder for PostgreSQL ({error})"));
                return None;
            }
        };
        let data = folder.join("data");
        fs::write(folder.join("password"), PASSWORD).unwrap();
        hand_over(&folder, &folder.join("password"));
        let mut initdb = as_servant(&folder, bin.join("initdb"));
        initdb.args([
            "--no-sync",
            "--no-locale",
            "--encoding=UTF8",
            "--auth=scram-sha-256",
            "--username",
            USER,
        ]);
        initdb.arg("--pwfile").arg(folder.join("password")).arg("--pgdata").arg(&data);
        let made = initdb.stdin(Stdio::null()).output().unwrap();
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        for (name, text) in files {
            let path = data.join(name);
            fs::write(&path, text).unwrap();
            hand_over(&folder, &path);
        }
        let port = free_port();
        let mut command = vec![bin.join("postgres").display().to_string(), "-D".to_owned()];
        command.push(data.display().to_string());
        let sockets = folder.display().to_string();
        let port_text = port.to_string();
        let ours = [
            ("port", port_text.as_str()),
            ("listen_addresses", "127.0.0.1"),
            ("unix_socket_directories", &sockets),
            ("max_connections", "200"),
        ];
        for (name, value) in ours.iter().chain(settings) {
            command.extend(["-c".to_owned(), format!("{name}={value}")]);
        }
        let mut server = Self { keeper: Keeper::new(folder, &command), bin, port };
        server.start_again();
        Some(server)
    }

    /// Returns one server that all tests of a program share, started at first use.
    ///
    /// It does not sync to disk: these tests are about answers, not about crashes.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    pub fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<PostgresServer>> = OnceLock::new();
        let shared = SHARED.get_or_init(|| Self::start_with(&[("fsync", "off")], &[])).as_ref();
        if shared.is_none() {
            skip("PostgreSQL is missing");
        }
        shared
    }

    /// Returns the URL of its database, password included.
    pub fn url(&self) -> String {
        self.url_at(self.port)
    }

    /// Returns the URL of its database by way of another port, where a proxy listens.
    pub fn url_at(&self, port: u16) -> String {
        format!("postgres://{USER}:{PASSWORD}@127.0.0.1:{port}/postgres")
    }

    /// Returns the URL without the password.
    pub fn url_without_password(&self) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/postgres", self.port)
    }

    /// Returns the password.
    pub fn password(&self) -> &'static str {
        PASSWORD
    }

    /// Returns the port that it listens at.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the folder of its socket.
    pub fn socket_folder(&self) -> &Path {
        self.keeper.folder()
    }

    /// Ends the server at once, as `pg_ctl stop --mode=immediate` does: what is not on the disk is lost.
    pub fn kill(&mut self) {
        self.keeper.kill();
    }

    /// Starts the server after a [`kill`](Self::kill), and waits until it takes connections.
    ///
    /// # Panics
    ///
    /// If it does not.
    pub fn start_again(&mut self) {
        self.keeper.start();
        until_or(|| self.answers().then_some(()), || format!("the start of PostgreSQL: {}", self.log()));
    }

    /// Returns the log of the server.
    pub fn log(&self) -> String {
        fs::read_to_string(self.keeper.folder().join("log")).unwrap_or_default()
    }

    /// Runs statements with PostgreSQL's own client, and returns what it prints.
    ///
    /// # Panics
    ///
    /// If a statement fails.
    pub fn sql(&self, statements: &str) -> String {
        let mut psql = as_servant(self.keeper.folder(), self.bin.join("psql"));
        psql.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1"]);
        psql.args(["--dbname", &self.url(), "--command", statements]);
        let output = psql.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{statements}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn answers(&self) -> bool {
        let mut ready = as_servant(self.keeper.folder(), self.bin.join("pg_isready"));
        ready.args(["--quiet", "--host=127.0.0.1", &format!("--port={}", self.port)]);
        ready.stdin(Stdio::null()).status().is_ok_and(|status| status.success())
    }
}

/// Finds the folder of PostgreSQL's programs: the one that is named, on the path, or where systems put them.
fn find() -> Option<PathBuf> {
    let named = std::env::var_os("AZUREAL_POSTGRES_BIN").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).collect::<Vec<_>>();
    let mut installed: Vec<PathBuf> = ["/usr/lib/postgresql", "/opt/homebrew/opt", "/usr/local/opt"]
        .iter()
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .collect();
    // The newest first, by the number in its path.
    installed.sort_by_key(|bin| {
        let digits: String = bin.display().to_string().chars().filter(char::is_ascii_digit).collect();
        std::cmp::Reverse(digits.parse::<u64>().unwrap_or(0))
    });
    let has_all = |bin: &PathBuf| ["initdb", "postgres", "psql"].iter().all(|name| bin.join(name).is_file());
    named.into_iter().chain(on_path).chain(installed).find(has_all)
}
