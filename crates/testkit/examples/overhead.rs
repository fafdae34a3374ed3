//! What azureal adds to the time of an agent: `claude -p` and `azureal run -a claude` in turns, before one model server.
//!
//! ```sh
//! cargo build --release && cargo run --release -p azureal-testkit --example overhead -- target/release/azureal 20
//! ```
//!
//! Prints the medians and their difference. Both sides do the same work for the model: one question, one answer.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a tool reads its arguments and prints"
)]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a measurement that cannot go on says so by panicking"
)]

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use azureal_testkit::model_server::ModelServer;
use azureal_testkit::real_agents::{AgentHome, Agents};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let azureal = PathBuf::from(arguments.next().unwrap_or_else(|| "target/release/azureal".to_owned()));
    let azureal = azureal.canonicalize().unwrap();
    let rounds: usize = arguments.next().map_or(20, |rounds| rounds.parse().unwrap());
    let Some(agents) = Agents::find(&["claude"]) else { return };
    let server = ModelServer::always("The answer is 42.");
    let home = AgentHome::new(&agents, &server);
    let bare = || {
        let mut command = home.command("claude");
        command.args(["-p", "What is the answer?"]);
        command
    };
    let ours = |arguments: &[&str]| {
        let mut command = home.command(&azureal);
        command.args(["run", "-a", "claude"]).args(arguments).arg("What is the answer?");
        command
    };
    // Once without counting, so that everything has been read from the disk.
    time(bare());
    time(ours(&[]));
    let mut taken = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..rounds {
        taken[0].push(time(bare()));
        taken[1].push(time(ours(&[])));
        taken[2].push(time(ours(&["-c"])));
    }
    let [bare, new, goes_on] = taken.map(|times| median(times).as_secs_f64() * 1000.0);
    println!("median of {rounds}: claude -p {bare:.0} ms");
    println!("azureal run, a new session {new:.0} ms ({:+.0} ms)", new - bare);
    println!("azureal run -c {goes_on:.0} ms ({:+.0} ms)", goes_on - bare);
}

fn time(mut command: Command) -> Duration {
    let began = Instant::now();
    let output = command.stdin(Stdio::null()).output().unwrap();
    let taken = began.elapsed();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    taken
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
