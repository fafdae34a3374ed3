//! A proxy between a client and a server that cuts connections on request.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// The direction of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
}

/// The position of a cut: after so many bytes in one direction, counted from when the cut was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// The direction that is counted.
    pub direction: Direction,
    /// The number of bytes that still pass.
    pub after: usize,
}

/// Forwards bytes between clients and one server, and cuts a connection on request.
///
/// A cut ends the connection both ways, once: a new connection is forwarded. Bytes from before the cut arrive.
/// A silent proxy accepts connections and bytes, and forwards none.
#[derive(Debug)]
pub struct CuttingProxy {
    port: u16,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    cut: Option<Cut>,
    to_server: usize,
    to_client: usize,
    /// The direction of the last bytes.
    last: Option<Direction>,
    round_trips: usize,
    cuts: usize,
    is_silent: bool,
    swallows_answers: bool,
}

impl CuttingProxy {
    /// Starts a proxy in front of a port of this machine.
    pub fn start(server: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)) else { continue };
                for socket in [&client, &server] {
                    socket.set_nodelay(true).unwrap();
                }
                for (direction, from, to) in [
                    (Direction::ToServer, client.try_clone().unwrap(), server.try_clone().unwrap()),
                    (Direction::ToClient, server, client),
                ] {
                    let state = Arc::clone(&shared);
                    thread::spawn(move || pass_on(direction, from, to, &state));
                }
            }
        });
        Self { port, state }
    }

    /// Returns the port to connect to instead of the server's.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Counts again from now on, and cuts at this place, if there is one, when it is reached.
    pub fn arm(&self, cut: Option<Cut>) {
        let mut state = self.state.lock().unwrap();
        let State { cuts, is_silent, swallows_answers, .. } = *state;
        *state = State { cut, cuts, is_silent, swallows_answers, ..State::default() };
    }

    /// Forwards nothing from now on, on no connection, and keeps them all open. What was sent meanwhile is lost.
    pub fn set_silent(&self, is_silent: bool) {
        self.state.lock().unwrap().is_silent = is_silent;
    }

    /// Forwards requests and no answers from now on: the server does what it is asked, and nobody hears of it.
    pub fn set_swallows_answers(&self, swallows_answers: bool) {
        self.state.lock().unwrap().swallows_answers = swallows_answers;
    }

    /// Returns the bytes that have gone to the server and to the client since it was armed.
    pub fn passed(&self) -> (usize, usize) {
        let state = self.state.lock().unwrap();
        (state.to_server, state.to_client)
    }

    /// Returns the number of round trips since it was armed: how often the client has sent data, at first or after it
    /// received data. Meaningful with one connection.
    pub fn round_trips(&self) -> usize {
        self.state.lock().unwrap().round_trips
    }

    /// Returns the number of connections that it has cut.
    pub fn cuts(&self) -> usize {
        self.state.lock().unwrap().cuts
    }
}

impl State {
    /// Counts bytes to forward; returns how many may pass, and whether to cut there.
    fn pass(&mut self, direction: Direction, count: usize) -> (usize, bool) {
        let passed = match direction {
            Direction::ToServer => &mut self.to_server,
            Direction::ToClient => &mut self.to_client,
        };
        let before = *passed;
        *passed += count;
        if direction == Direction::ToServer && self.last != Some(Direction::ToServer) {
            self.round_trips += 1;
        }
        self.last = Some(direction);
        match self.cut {
            Some(cut) if cut.direction == direction && before + count > cut.after => {
                self.cut = None;
                self.cuts += 1;
                (cut.after.saturating_sub(before), true)
            }
            _ => (count, false),
        }
    }
}

fn pass_on(direction: Direction, mut from: TcpStream, mut to: TcpStream, state: &Mutex<State>) {
    let mut buffer = [0; 1 << 16];
    loop {
        let count = match from.read(&mut buffer) {
            Ok(count) if count > 0 => count,
            _ => break,
        };
        let (passed, is_cut) = {
            let mut state = state.lock().unwrap();
            if state.is_silent || (state.swallows_answers && direction == Direction::ToClient) {
                continue;
            }
            state.pass(direction, count)
        };
        if to.write_all(&buffer[..passed]).is_err() || is_cut {
            break;
        }
    }
    for socket in [&from, &to] {
        // The other thread may have been faster.
        drop(socket.shutdown(Shutdown::Both));
    }
}
