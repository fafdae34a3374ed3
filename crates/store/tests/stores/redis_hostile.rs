//! A Redis server that sends without end is left, with an error that says so, before the memory is full.

use std::net::TcpStream;

use crate::hostile::{HostileServer, passes_alone};
use azureal_store::core::StoreError;
use azureal_store::redis::{RedisAddress, RedisOptions, RedisStore};
use futures_executor::block_on;

/// Waits for the first request.
fn wait(_: &mut TcpStream) -> std::io::Result<()> {
    Ok(())
}

#[test]
fn a_server_that_sends_without_end_is_left_before_the_memory_is_full() {
    let test = "redis_hostile::a_server_that_sends_without_end_is_left_before_the_memory_is_full";
    if passes_alone(test) {
        return;
    }
    // What the driver cannot read, or nobody asked for, it refuses by itself.
    let servers = [
        ("a text of three gigabytes", "$3000000000\r\n", "x", true),
        ("a list of two billion", "*2000000000\r\n", ":1\r\n", true),
        ("a line without end", "+", "x", true),
        ("lists of lists", "", "*1000\r\n", false),
        ("values that nobody asked for", "", "+OK\r\n", false),
    ];
    for (what, begin, repeat, is_ours) in servers {
        let server = HostileServer::start(wait, begin.into(), move |_| repeat.repeat(1 << 14).into_bytes());
        let address: RedisAddress = format!("redis://127.0.0.1:{}", server.port).parse().unwrap();
        let error = block_on(RedisStore::open(&address, RedisOptions::default())).err().unwrap();
        server.check(what);
        let is_clear = matches!(&error, StoreError::Other { source, .. }
            if source.to_string().contains("larger than the 192 MiB"));
        assert!(is_clear || !is_ours, "{what}: {error:?}");
    }
}
