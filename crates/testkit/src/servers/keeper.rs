//! Starts, kills and starts again one server, and never leaves it behind.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Takes orders on its standard input, a line each. When there are no more the server is killed and the folder,
/// which is the first argument, removed. The second is the signal that kills it, the others are its command.
const SCRIPT: &str = r#"
folder=$1; signal=$2; shift 2
cd "$folder" || exit 1
server=
finish() { [ -z "$server" ] || { kill -"$signal" "$server"; wait "$server"; server=; } 2>/dev/null; }
while read -r order; do
  case $order in
    start) "$@" >>"$folder/log" 2>&1 & server=$! ;;
    kill) finish ;;
  esac
  echo done
done
finish
cd / && rm -rf "$folder"
"#;

/// A server's folder and the script that supervises the server.
#[derive(Debug)]
pub(super) struct Keeper {
    folder: PathBuf,
    script: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Keeper {
    /// Takes over a folder, in which `command` will run a server that ends at once at a `SIGQUIT`.
    pub(super) fn new(folder: PathBuf, command: &[String]) -> Self {
        Self::killing_with("QUIT", folder, command)
    }

    /// Starts a server that another signal ends at once.
    pub(super) fn killing_with(signal: &str, folder: PathBuf, command: &[String]) -> Self {
        let mut script = as_servant(&folder, "/bin/sh");
        script.args(["-c", SCRIPT, "keeper"]).arg(&folder).arg(signal).args(command);
        let mut script = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let answers = BufReader::new(script.stdout.take().unwrap());
        Self { folder, orders: script.stdin.take(), script, answers }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Starts the server; it may take a while until it answers.
    pub(super) fn start(&mut self) {
        self.order("start");
    }

    /// Kills the server without a clean shutdown, and waits until it is gone.
    pub(super) fn kill(&mut self) {
        self.order("kill");
    }

    fn order(&mut self, order: &str) {
        writeln!(self.orders.as_mut().unwrap(), "{order}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        assert_eq!(answer.trim(), "done", "the server's keeper has gone");
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.orders.take());
        // It has only its own cleanup left, and its exit status does not matter.
        drop(self.script.wait());
    }
}

/// Creates a folder for a server's user.
pub(super) fn servants_folder(prefix: &str) -> std::io::Result<PathBuf> {
    let folder = tempfile::Builder::new().prefix(prefix).tempdir()?.keep();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700))?;
    if let Some((user, group)) = servant(&folder) {
        chown(&folder, Some(user), Some(group))?;
    }
    Ok(folder)
}

/// Returns a command that runs as the user who may run a server in this folder: servers refuse to run as root.
pub(super) fn as_servant(folder: &Path, program: impl AsRef<Path>) -> Command {
    let mut command = Command::new(program.as_ref());
    if let Some((user, group)) = servant(folder) {
        command.uid(user).gid(group);
    }
    // The settings of the person who runs the tests are about other servers.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PG") {
            command.env_remove(name);
        }
    }
    command.current_dir(folder);
    command
}

/// Returns the user and group to become: an unprivileged one if we are root, else our own.
fn servant(folder: &Path) -> Option<(u32, u32)> {
    let owner = std::fs::metadata(folder).unwrap();
    let is_root = std::fs::metadata("/proc/self").map_or(owner.uid() == 0, |me| me.uid() == 0);
    if !is_root {
        return None;
    }
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    ["postgres", "nobody"].iter().find_map(|name| {
        let fields: Vec<&str> = users
            .lines()
            .map(|line| line.split(':').collect())
            .find(|line: &Vec<&str>| line.first() == Some(name))?;
        Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?))
    })
}
