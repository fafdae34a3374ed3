//! `cargo xtask privileged`: checks that need root and a machine that may be changed. No other command runs them.
//!
//! A check is a row of [`CHECKS`].

mod case;
mod power_loss;
mod servers;

use std::fs;
use std::os::unix::fs::MetadataExt;

use anyhow::{Result, bail, ensure};

/// A check, by its name.
struct Check {
    name: &'static str,
    /// What it shows.
    about: &'static str,
    run: fn() -> Result<()>,
}

const CHECKS: [Check; 3] = [
    Check {
        name: "case",
        about: "snapshots and undos where names that differ by case are one file",
        run: case::run,
    },
    Check {
        name: "power-loss",
        about: "turns on ext4, xfs and btrfs, whose disk is copied when azureal has answered, can be undone",
        run: power_loss::run,
    },
    Check {
        name: "servers",
        about: "two PostgreSQL hosts and a machine in network namespaces: a silent host, a failover, an outage",
        run: servers::run,
    },
];

/// Runs the check with a name, or all of them.
pub(crate) fn run(name: Option<&str>) -> Result<()> {
    ensure!(is_root()?, "`cargo xtask privileged` needs root");
    let chosen: Vec<&Check> =
        CHECKS.iter().filter(|check| name.is_none_or(|name| check.name == name)).collect();
    if chosen.is_empty() {
        let names: Vec<&str> = CHECKS.iter().map(|check| check.name).collect();
        bail!("no such check; there are: {}", names.join(", "));
    }
    for Check { name, about, run } in chosen {
        println!("{name}: {about}");
        run()?;
    }
    Ok(())
}

/// Returns whether this process is root's.
fn is_root() -> Result<bool> {
    Ok(fs::metadata("/proc/self")?.uid() == 0)
}
