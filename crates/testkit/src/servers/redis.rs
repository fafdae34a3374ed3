//! A Redis server for tests.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::sync::OnceLock;
use std::time::Duration;

use super::keeper::{Keeper, as_servant, servants_folder};
use super::{find, free_port, hand_over, skip};
use crate::until::until_or;

/// A password that cannot appear elsewhere by chance.
const PASSWORD: &str = "hunter2-sesame";
/// The time limit of a server to answer; on a loaded machine the first start is slow.
const LIMIT: Duration = Duration::from_secs(60);

/// A Redis server with its own folder and port, stopped when it is dropped or the test ends.
///
/// ```no_run
/// use azureal_testkit::servers::RedisServer;
///
/// # fn test() {
/// let Some(mut server) = RedisServer::start() else { return };
/// println!("{}", server.url());
/// server.kill();
/// server.start_again();
/// # }
/// ```
#[derive(Debug)]
pub struct RedisServer {
    keeper: Keeper,
    port: u16,
}

impl RedisServer {
    /// Starts a durable server. `None` means that the test has been reported as skipped, and should return.
    ///
    /// # Panics
    ///
    /// If Redis is missing where `AZUREAL_REQUIRE_TOOLS` is set, or is there and does not start.
    pub fn start() -> Option<Self> {
        Self::start_with(&[], &[])
    }

    /// Starts a server with other settings, and these files in its folder.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    pub fn start_with(settings: &[(&str, &str)], files: &[(&str, &str)]) -> Option<Self> {
        let Some(program) = find("redis-server") else {
            skip("Redis (redis-server) is missing");
            return None;
        };
        let folder = match servants_folder("azureal-redis-") {
            Ok(folder) => folder,
            Err(error) => {
                skip(&format!("there is no folder for Redis ({error})"));
                return None;
            }
        };
        let port = free_port();
        let port_text = port.to_string();
        let folder_text = folder.display().to_string();
        let ours = [
            ("port", port_text.as_str()),
            ("bind", "127.0.0.1"),
            ("dir", &folder_text),
            ("requirepass", PASSWORD),
            ("save", "\"\""),
            ("appendonly", "yes"),
            ("appendfsync", "always"),
        ];
        // Of two settings of one name the later counts. In a file, because arguments are visible in the process list.
        let lines = ours.iter().chain(settings).map(|(name, value)| format!("{name} {value}\n"));
        let config = lines.collect::<String>();
        for (name, text) in files.iter().chain(&[("redis.conf", config.as_str())]) {
            let path = folder.join(name);
            fs::write(&path, text).unwrap();
            hand_over(&folder, &path);
        }
        let command = [program.display().to_string(), folder.join("redis.conf").display().to_string()];
        let mut server = Self { keeper: Keeper::killing_with("KILL", folder, &command), port };
        server.start_again();
        Some(server)
    }

    /// Returns one server that all tests of a program share, started at first use.
    ///
    /// It is not durable: these tests are about answers, not about crashes.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    pub fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<RedisServer>> = OnceLock::new();
        let shared = SHARED.get_or_init(|| Self::start_with(&[("appendonly", "no")], &[])).as_ref();
        if shared.is_none() {
            skip("Redis is missing");
        }
        shared
    }

    /// Returns its URL, password included.
    pub fn url(&self) -> String {
        self.url_at(self.port)
    }

    /// Returns its URL by way of another port, where a proxy listens.
    pub fn url_at(&self, port: u16) -> String {
        format!("redis://:{PASSWORD}@127.0.0.1:{port}")
    }

    /// Returns the URL without the password.
    pub fn url_without_password(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Returns the password.
    pub fn password(&self) -> &'static str {
        PASSWORD
    }

    /// Returns the port that it listens at.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the folder of its files.
    pub fn folder(&self) -> &Path {
        self.keeper.folder()
    }

    /// Ends the server at once, with `kill -9`.
    pub fn kill(&mut self) {
        self.keeper.kill();
    }

    /// Starts the server after a [`kill`](Self::kill), and waits until it has read what it kept.
    ///
    /// # Panics
    ///
    /// If it does not.
    pub fn start_again(&mut self) {
        self.keeper.start();
        until_or(|| self.answers().then_some(()), || format!("the start of Redis: {}", self.log()));
    }

    /// Returns the log of the server.
    pub fn log(&self) -> String {
        fs::read_to_string(self.keeper.folder().join("log")).unwrap_or_default()
    }

    /// Runs a command with Redis' own client, and returns what it prints.
    ///
    /// # Panics
    ///
    /// If the client is missing or cannot connect.
    pub fn command(&self, arguments: &[&str]) -> String {
        let mut client = as_servant(self.keeper.folder(), find("redis-cli").unwrap());
        client.env("REDISCLI_AUTH", PASSWORD).args(["-p", &self.port.to_string()]).args(arguments);
        let output = client.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Returns whether it is there and has read what it kept: until then it takes connections and refuses commands.
    fn answers(&self) -> bool {
        let ask = || -> std::io::Result<bool> {
            let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
            server.set_read_timeout(Some(LIMIT))?;
            write!(server, "AUTH {PASSWORD}\r\nPING\r\nQUIT\r\n")?;
            let mut answer = String::new();
            server.read_to_string(&mut answer)?;
            Ok(answer.contains("+PONG"))
        };
        ask().unwrap_or(false)
    }
}
