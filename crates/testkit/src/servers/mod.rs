//! Real database servers for tests: found on the machine, with their own folder and port.
//!
//! The machine's own servers are never used. A server ends with its test, also if the test is killed: a small script
//! starts it, and ends it as soon as the other end of the script's pipe is closed.

mod keeper;
mod pgbouncer;
mod postgres;
mod proxy;
mod redis;

pub use pgbouncer::{PgBouncer, PoolMode};
pub use postgres::PostgresServer;
pub use proxy::{Cut, CuttingProxy, Direction};
pub use redis::RedisServer;

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

/// Returns a free port.
fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

/// Reports a test as skipped, with a clear reason; fails if skipping is not allowed.
pub(crate) fn skip(why: &str) {
    assert!(
        std::env::var_os("AZUREAL_REQUIRE_TOOLS").is_none(),
        "{why}, and this run may skip nothing: `cargo xtask test --install` installs what is missing"
    );
    eprintln!("\n*** SKIPPED: {why}, so this test was not run (`cargo xtask test --install`) ***\n");
}

/// Makes a file readable for the server's user only.
fn hand_over(folder: &Path, file: &Path) {
    let owner = fs::metadata(folder).unwrap();
    fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
    chown(file, Some(owner.uid()), Some(owner.gid())).unwrap();
}

/// Finds a program on the path, or where systems put the programs of servers.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).collect::<Vec<_>>();
    let usual = ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/opt/homebrew/bin"].map(PathBuf::from);
    on_path.into_iter().chain(usual).map(|folder| folder.join(program)).find(|program| program.is_file())
}
