//! Real database servers for tests: found on the machine, with a folder and a port of their own.
//!
//! Nothing of the machine's own servers is used or touched. A server is gone when the test is, also when the test
//! is killed: a small script that starts it ends it as soon as nobody holds the other end of its pipe.

mod keeper;
mod postgres;
mod proxy;
mod redis;

pub use postgres::PostgresServer;
pub use proxy::{Cut, CuttingProxy, Direction};
pub use redis::RedisServer;

use std::net::{Ipv4Addr, TcpListener};

/// Returns a port that nobody listens at.
fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

/// Reports a test as skipped for a reason that nobody can miss; fails where nothing may be skipped.
fn skip(why: &str) {
    assert!(
        std::env::var_os("AZUREAL_REQUIRE_TOOLS").is_none(),
        "{why}, and this run may skip nothing: `cargo xtask test --install` installs what is missing"
    );
    eprintln!("\n*** SKIPPED: {why}, so this test was not run (`cargo xtask test --install`) ***\n");
}
