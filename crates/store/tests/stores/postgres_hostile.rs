//! A PostgreSQL server that sends without end is left, with an error that says so, before the memory is full.

use std::io::Write;
use std::net::TcpStream;

use crate::hostile::{HostileServer, passes_alone, receive};
use azureal_store::core::StoreError;
use azureal_store::postgres::{PostgresAddress, PostgresOptions, PostgresStore};
use futures_executor::block_on;

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
    [&[kind], length.as_slice(), body].concat()
}

/// Lets a client in who need not say who they are.
fn let_in(client: &mut TcpStream) -> std::io::Result<()> {
    receive(client)?;
    client.write_all(&[message(b'R', &[0; 4]), message(b'Z', b"I")].concat())
}

/// The body of a notice.
const NOTICE: &[u8] = b"SNOTICE\0C00000\0Mx\0\0";

/// Waits for the first request.
fn wait(_: &mut TcpStream) -> std::io::Result<()> {
    Ok(())
}

#[test]
fn a_server_that_sends_without_end_is_left_before_the_memory_is_full() {
    let test = "postgres_hostile::a_server_that_sends_without_end_is_left_before_the_memory_is_full";
    if passes_alone(test) {
        return;
    }
    let column = [b"version\0".as_slice(), &[0; 6], &[0, 0, 0, 23], &[0, 4], &[0xff; 4], &[0, 1]].concat();
    let described = [
        message(b'1', b""),
        message(b'2', b""),
        message(b't', &[0, 0]),
        message(b'T', &[[0, 1].as_slice(), &column].concat()),
    ];
    let many = |part: Vec<u8>| move |_| part.repeat((1 << 16) / part.len());
    let servers = [
        (
            "a message of two gigabytes",
            HostileServer::start(let_in, vec![b'D', 0x77, 0, 0, 0], |_| vec![0; 1 << 16]),
        ),
        (
            "empty rows",
            HostileServer::start(
                let_in,
                described.concat(),
                many(message(b'D', &[0, 1, 0xff, 0xff, 0xff, 0xff])),
            ),
        ),
        ("notices", HostileServer::start(let_in, Vec::new(), many(message(b'N', NOTICE)))),
        (
            "settings",
            HostileServer::start(let_in, Vec::new(), |number| {
                let each = |part| message(b'S', format!("{number}.{part}\0\0").as_bytes());
                (0..1000).flat_map(each).collect()
            }),
        ),
        (
            "notices after the login",
            HostileServer::start(wait, message(b'R', &[0; 4]), many(message(b'N', NOTICE))),
        ),
    ];
    for (what, server) in servers {
        let url = format!("postgres://u:p@127.0.0.1:{}/d?sslmode=disable", server.port);
        let address: PostgresAddress = url.parse().unwrap();
        let error = block_on(PostgresStore::open(&address, PostgresOptions::default())).err().unwrap();
        server.check(what);
        match &error {
            StoreError::Other { source, .. } => {
                assert!(source.to_string().contains("larger than the 192 MiB"), "{what}: {error:?}");
            }
            // A busy machine does not get as far as the limit within the time that an answer may take.
            StoreError::Unreachable { .. } => {}
            _ => panic!("{what}: {error:?}"),
        }
    }
}
