//! A store on two PostgreSQL hosts, in network namespaces: one is a standby, and one more address drops packets.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::root;

const FIRST: &str = "azureal-first";
const SECOND: &str = "azureal-second";
const MACHINE: &str = "azureal-machine";
const SILENT: &str = "azureal-silent";
/// The namespaces, in the order of their addresses: two hosts, the machine, and a host that drops packets.
const NAMES: [&str; 4] = [FIRST, SECOND, MACHINE, SILENT];
const BRIDGE: &str = "azureal-br";
const NETWORK: &str = "10.213.77";
const USER: &str = "postgres";
/// The longest time of a command beside a silent host.
const LONGEST: Duration = Duration::from_secs(3);

/// An agent that answers once it is released.
const AGENT: &str = r#"#!/bin/sh
[ "$1" = --version ] && echo 2.1.197 && exit
cat > /dev/null
touch "$HOME/running"
while [ ! -e "$HOME/release" ]; do sleep 0.1; done
echo '{"type":"assistant","message":{"id":"n","role":"assistant","content":[{"type":"text","text":"Whole."}]}}'
echo '{"type":"result","subtype":"success","is_error":false,"duration_ms":1,"result":"Whole."}'
"#;

pub(super) fn run() -> Result<()> {
    let bin = postgres()?;
    done(Command::new(env!("CARGO")).args(["build", "--package", "azureal-cli"]))?;
    let folder = PathBuf::from(format!("/tmp/azureal-servers-{}", std::process::id()));
    let network = Network { folder: folder.clone(), bin };
    network.start()?;
    let at = |host: usize| format!("{NETWORK}.{host}:5432");
    let url = |hosts: &str| {
        format!(
            "postgres://tester:pw@{hosts}/postgres?target_session_attrs=read-write&project=ns&sslmode=disable"
        )
    };

    let beside_silent = url(&format!("{},{}", at(4), at(1)));
    for (name, command) in [("run", &["run", "-a", "offline", "Hello"][..]), ("list", &["list"])] {
        let began = Instant::now();
        network.azureal(&beside_silent, command)?;
        let took = began.elapsed();
        println!("  {name} beside a silent host: {:.1} s", took.as_secs_f64());
        ensure!(took <= LONGEST, "`{name}` took {took:?}");
    }

    let both = url(&format!("{},{}", at(1), at(2)));
    let turn = network.begin(&both)?;
    network.set_link(FIRST, "down")?;
    network.postgres(SECOND, &["pg_ctl", "-w", "-D", "second", "promote"])?;
    let (ended, took) = network.end(turn)?;
    println!("  a failover in the middle of a turn: stored after {:.1} s", took.as_secs_f64());
    ensure!(ended.status.success(), "{}", text(&ended));
    ensure!(network.answers(&both)? == 1, "the turn of the failover is not stored once");

    let turn = network.begin(&url(&at(2)))?;
    network.set_link(SECOND, "down")?;
    let (ended, took) = network.end(turn)?;
    println!("  an outage at the end of a turn: given up after {:.1} s", took.as_secs_f64());
    ensure!(!ended.status.success(), "{}", text(&ended));
    network.set_link(SECOND, "up")?;
    done(Command::new("ip").args(["-n", SECOND, "addr", "add", &format!("{NETWORK}.22/24"), "dev", "eth0"]))?;
    let renamed = url(&at(22));
    let said = network.azureal(&renamed, &["list"])?;
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    let run = said.split("--recover ").nth(1).and_then(|rest| rest.split('`').next());
    let run = run.with_context(|| format!("no turn is named: {said}"))?;
    ensure!(network.answers(&renamed)? == 1, "a turn was stored under an address that nobody confirmed");
    network.azureal(&renamed, &["list", "--recover", run])?;
    ensure!(network.answers(&renamed)? == 2, "the turn of the outage is not stored once");
    Ok(())
}

/// The namespaces and servers, removed when it is dropped.
struct Network {
    folder: PathBuf,
    bin: PathBuf,
}

impl Drop for Network {
    fn drop(&mut self) {
        for (host, data) in [(FIRST, "first"), (SECOND, "second")] {
            drop(self.postgres(host, &["pg_ctl", "-D", data, "-m", "immediate", "stop"]));
        }
        for name in NAMES {
            drop(Command::new("ip").args(["netns", "del", name]).stderr(Stdio::null()).status());
        }
        drop(Command::new("ip").args(["link", "del", BRIDGE]).stderr(Stdio::null()).status());
        drop(fs::remove_dir_all(&self.folder));
    }
}

impl Network {
    fn start(&self) -> Result<()> {
        let ip = |arguments: &str| done(Command::new("ip").args(arguments.split(' ')));
        ip(&format!("link add {BRIDGE} type bridge"))?;
        ip(&format!("link set {BRIDGE} up"))?;
        for (place, name) in NAMES.iter().enumerate() {
            ip(&format!("netns add {name}"))?;
            ip(&format!("link add azureal-v{place} type veth peer name eth0 netns {name}"))?;
            ip(&format!("link set azureal-v{place} master {BRIDGE} up"))?;
            ip(&format!("-n {name} addr add {NETWORK}.{}/24 dev eth0", place + 1))?;
            self.set_link(name, "up")?;
            ip(&format!("-n {name} link set lo up"))?;
        }
        // It takes what the machine sends, and no answer leaves it.
        ip(&format!("-n {SILENT} route add blackhole {NETWORK}.3/32"))?;

        for folder in ["", "home/bin", "project"] {
            fs::create_dir_all(self.folder.join(folder))?;
        }
        fs::set_permissions(&self.folder, fs::Permissions::from_mode(0o777))?;
        let agent = self.folder.join("home/bin/claude");
        fs::write(&agent, AGENT)?;
        fs::set_permissions(&agent, fs::Permissions::from_mode(0o755))?;
        done(Command::new("git").args(["init", "--quiet"]).arg(self.folder.join("project")))?;
        fs::write(self.folder.join("password"), "pw")?;
        let init = ["initdb", "-N", "--no-locale", "-E", "UTF8", "-A", "scram-sha-256", "-U", "tester"];
        self.postgres(FIRST, &[&init[..], &["--pwfile", "password", "-D", "first"]].concat())?;
        let access = format!(
            "\nhost all all {NETWORK}.0/24 scram-sha-256\nhost replication all {NETWORK}.0/24 scram-sha-256\n"
        );
        let rules = self.folder.join("first/pg_hba.conf");
        fs::write(&rules, fs::read_to_string(&rules)? + &access)?;
        // Both hosts have one file system, so no sockets in it.
        let options = "-c listen_addresses=* -c unix_socket_directories= -c fsync=off";
        let start = |host: &str, data| {
            self.postgres(
                host,
                &["pg_ctl", "-w", "-D", data, "-l", &format!("{data}.log"), "-o", options, "start"],
            )
        };
        start(FIRST, "first")?;
        let first = format!("host={NETWORK}.1 user=tester password=pw");
        self.postgres(SECOND, &["pg_basebackup", "-d", &first, "-D", "second", "-R", "-X", "stream"])?;
        start(SECOND, "second")
    }

    /// Runs a program of PostgreSQL on a host.
    fn postgres(&self, host: &str, command: &[&str]) -> Result<()> {
        let (program, arguments) = command.split_first().context("a program")?;
        let mut run = Command::new("ip");
        run.args(["netns", "exec", host, "runuser", "-u", USER, "--"]);
        run.arg(self.bin.join(program)).args(arguments).current_dir(&self.folder);
        // A server that is started would keep a pipe open.
        done(run.stdout(Stdio::null()))
    }

    fn set_link(&self, host: &str, state: &str) -> Result<()> {
        done(Command::new("ip").args(["-n", host, "link", "set", "eth0", state]))
    }

    /// Prepares azureal on the machine, whose home and user are like those of many machines.
    fn command(&self, store: &str, arguments: &[&str]) -> Result<Command> {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", MACHINE]).arg(root()?.join("target/debug/azureal"));
        command.args(arguments).current_dir(self.folder.join("project")).env_clear();
        let home = self.folder.join("home");
        command.env("PATH", format!("{}:/usr/bin:/bin", home.join("bin").display())).env("HOME", home);
        command.env("USER", "ubuntu").env("AZUREAL_STORE", store).stdin(Stdio::null());
        Ok(command)
    }

    fn azureal(&self, store: &str, arguments: &[&str]) -> Result<Output> {
        let output = self.command(store, arguments)?.output()?;
        ensure!(output.status.success(), "{arguments:?}: {}", text(&output));
        Ok(output)
    }

    /// Begins a turn, and waits until its agent runs.
    fn begin(&self, store: &str) -> Result<Child> {
        for flag in ["running", "release"] {
            drop(fs::remove_file(self.folder.join("home").join(flag)));
        }
        let mut command = self.command(store, &["run", "-s", "work", "-a", "claude", "Go"])?;
        let turn = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let began = Instant::now();
        while !self.folder.join("home/running").exists() {
            ensure!(began.elapsed() < Duration::from_secs(30), "the agent does not run");
            thread::sleep(Duration::from_millis(50));
        }
        Ok(turn)
    }

    /// Lets the agent of a turn end, and waits for azureal.
    fn end(&self, turn: Child) -> Result<(Output, Duration)> {
        let began = Instant::now();
        fs::write(self.folder.join("home/release"), "")?;
        Ok((turn.wait_with_output()?, began.elapsed()))
    }

    /// Returns the number of answers in the session.
    fn answers(&self, store: &str) -> Result<usize> {
        let shown = self.azureal(store, &["show", "work", "--json"])?;
        Ok(String::from_utf8_lossy(&shown.stdout).matches("Whole.").count())
    }
}

fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned()).concat()
}

fn done(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

/// Returns the folder of PostgreSQL's programs.
fn postgres() -> Result<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .context("PostgreSQL is missing")?
        .map(|entry| Ok(entry?.path().join("bin")))
        .collect::<Result<_>>()?;
    found.retain(|bin: &PathBuf| has_programs(bin));
    found.sort();
    match found.pop() {
        Some(bin) => Ok(bin),
        None => bail!("PostgreSQL is missing"),
    }
}

fn has_programs(bin: &Path) -> bool {
    ["initdb", "pg_ctl", "pg_basebackup"].iter().all(|name| bin.join(name).is_file())
}
