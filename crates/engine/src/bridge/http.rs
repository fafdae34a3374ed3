//! One HTTP request whose response is a stream.
//!
//! As much of HTTP/1.1 as that takes: plain, to a loopback address, one request per connection. Servers elsewhere need TLS,
//! and come with the client that brings it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use azureal_core::bridge::{AnsweredBy, BridgeEnd, HttpExchange};
use azureal_core::event::Outcome;

use super::lines::{Received, read_line};
use super::protocol::{Protocol, Step};

/// The time limit of connecting.
const CONNECT: Duration = Duration::from_secs(10);
/// The longest line of a head, in bytes.
const LONGEST_LINE: u64 = 16 << 10;
/// The most lines of a head.
const MOST_HEADERS: usize = 100;
/// The bytes that are read of an error response.
const ERROR_BODY: u64 = 64 << 10;
/// Headers that belong to the connection.
const RESERVED: [&str; 5] = ["connection", "content-length", "content-type", "host", "transfer-encoding"];

/// The conversation: all that arrives is recorded, and the end of the response is the end of the turn.
#[derive(Default)]
pub(crate) struct Http {
    is_finished: bool,
}

impl Http {
    fn finish(&mut self, end: BridgeEnd) -> Vec<Step> {
        if std::mem::replace(&mut self.is_finished, true) { Vec::new() } else { vec![Step::Finish(end)] }
    }
}

impl Protocol for Http {
    fn open(&mut self) -> Vec<Step> {
        Vec::new()
    }

    fn receive(&mut self, _: &str) -> Vec<Step> {
        Vec::new()
    }

    fn closed(&mut self, error: Option<String>) -> Vec<Step> {
        self.finish(match error {
            None => BridgeEnd::new(Outcome::Done),
            Some(why) => BridgeEnd::failed(why),
        })
    }

    fn answer(&mut self, _: &str, _: &str) -> Vec<Step> {
        Vec::new()
    }

    fn refuse(&mut self, _: &str, _: AnsweredBy) -> Vec<Step> {
        Vec::new()
    }

    fn cancel(&mut self) -> Vec<Step> {
        // The connection closes with the process, which stops the server.
        self.finish(BridgeEnd::new(Outcome::Cancelled))
    }
}

/// Sends the request and delivers each message of the response, until it ends or the receiver is gone.
pub(crate) fn exchange(
    exchange: &HttpExchange,
    limit: u64,
    deliver: &mut dyn FnMut(Received) -> bool,
) -> Result<(), String> {
    let target = Target::of(&exchange.url)?;
    let head = request_head(&target, &exchange.headers)?;
    let body = exchange.body.to_string();
    let mut stream = target.connect()?;
    let text = |error: io::Error| format!("{}: {error}", exchange.url);
    let length = format!("Content-Length: {}\r\n\r\n", body.len());
    for part in [&head, &length, &body] {
        stream.write_all(part.as_bytes()).map_err(text)?;
    }
    let mut reader = BufReader::new(stream);
    let response = Response::read(&mut reader).map_err(text)?;
    let mut body = BufReader::new(Body { framing: response.framing, reader });
    if !(200..300).contains(&response.status) {
        let mut found = Vec::new();
        body.take(ERROR_BODY).read_to_end(&mut found).map_err(text)?;
        let shown: String = String::from_utf8_lossy(&found).trim().chars().take(300).collect();
        if !found.is_empty() {
            deliver(Received::Message(found));
        }
        let separator = if shown.is_empty() { "" } else { ": " };
        return Err(format!("{} answered with status {}{separator}{shown}", exchange.url, response.status));
    }
    read_stream(&mut body, response.kind, limit, deliver).map_err(text)
}

/// The format of messages in the body of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Server-sent events: the data of each is a message.
    Events,
    /// Each line is a message.
    Lines,
    /// The whole is one message.
    Document,
}

fn read_stream(
    body: &mut impl BufRead,
    kind: Kind,
    limit: u64,
    deliver: &mut dyn FnMut(Received) -> bool,
) -> io::Result<()> {
    let mut deliver = |message: Received| message.is_blank() || deliver(message);
    let mut message = Received::new();
    if kind == Kind::Document {
        loop {
            let piece = body.fill_buf()?;
            let length = piece.len();
            if length == 0 {
                deliver(message);
                return Ok(());
            }
            message.push(piece, limit);
            body.consume(length);
        }
    }
    while let Some(line) = read_line(body, limit)? {
        if kind == Kind::Lines {
            if !deliver(line) {
                return Ok(());
            }
            continue;
        }
        let bytes = match line {
            Received::Message(mut bytes) => {
                if bytes.last() == Some(&b'\r') {
                    bytes.pop();
                }
                bytes
            }
            too_long @ Received::TooLong { .. } => {
                if !deliver(too_long) {
                    return Ok(());
                }
                continue;
            }
        };
        if bytes.is_empty() {
            if !deliver(std::mem::replace(&mut message, Received::new())) {
                return Ok(());
            }
        } else if let Some(data) = bytes.strip_prefix(b"data:") {
            if message != Received::new() {
                message.push(b"\n", limit);
            }
            message.push(data.strip_prefix(b" ").unwrap_or(data), limit);
        }
    }
    // An event that its empty line did not end was cut off, and counts as what arrived.
    deliver(message);
    Ok(())
}

/// The parts of a URL.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    authority: String,
    host: String,
    port: u16,
    path: String,
}

impl Target {
    fn of(url: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("`{url}`: {why}");
        if url.bytes().any(|byte| !byte.is_ascii_graphic()) {
            return Err(wrong("a URL has visible ASCII characters only"));
        }
        let Some(rest) = url.strip_prefix("http://") else {
            return Err(wrong("only `http://` and a loopback address are supported"));
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let path = path.split('#').next().unwrap_or_default();
        if authority.contains('@') {
            return Err(wrong("a user name does not belong there"));
        }
        let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, port)) => (host, port.strip_prefix(':')),
            None => match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        let port = port.map_or(Ok(80), str::parse).map_err(|_| wrong("the port is no number"))?;
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        if host.is_empty() {
            return Err(wrong("the host is missing"));
        }
        Ok(Self { authority: authority.to_owned(), host: host.to_owned(), port, path })
    }

    fn connect(&self) -> Result<TcpStream, String> {
        let text = |error: io::Error| format!("`{}`: {error}", self.authority);
        let addresses: Vec<SocketAddr> =
            (self.host.as_str(), self.port).to_socket_addrs().map_err(text)?.collect();
        let mut last = format!("`{}` is no loopback address", self.authority);
        // Whatever a name stands for: a request without TLS does not leave the machine.
        for address in addresses.iter().filter(|address| address.ip().is_loopback()) {
            match TcpStream::connect_timeout(address, CONNECT) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = text(error),
            }
        }
        Err(last)
    }
}

fn request_head(target: &Target, headers: &[(String, String)]) -> Result<String, String> {
    let mut head = format!(
        "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
         Accept: text/event-stream, application/x-ndjson, application/json\r\nConnection: close\r\n",
        target.path, target.authority
    );
    for (name, value) in headers {
        let is_name = !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.!#$%&'*+^`|~".contains(&byte));
        let is_ours = RESERVED.iter().any(|reserved| name.eq_ignore_ascii_case(reserved));
        // The value is not shown: it may be a key.
        if !is_name || is_ours || value.bytes().any(|byte| byte < b' ' && byte != b'\t' || byte == 0x7f) {
            return Err(format!("the header `{name}` cannot be sent"));
        }
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    Ok(head)
}

/// The head of a response.
struct Response {
    status: u16,
    kind: Kind,
    framing: Framing,
}

/// The end of a body.
enum Framing {
    /// After so many bytes.
    Length(u64),
    /// With a chunk of length 0; so much is left of the current chunk, `None` before the first.
    Chunked(Option<u64>),
    /// With the connection.
    Close,
    /// It has ended.
    Ended,
}

fn malformed(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the response is no HTTP: {why}"))
}

fn cut_off() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the response was cut off")
}

fn head_line(reader: &mut impl BufRead) -> io::Result<String> {
    match read_line(reader, LONGEST_LINE)? {
        Some(Received::Message(bytes)) => {
            Ok(String::from_utf8_lossy(&bytes).trim_end_matches('\r').to_owned())
        }
        Some(Received::TooLong { .. }) => Err(malformed("a line of its head is too long")),
        None => Err(cut_off()),
    }
}

impl Response {
    fn read(reader: &mut impl BufRead) -> io::Result<Self> {
        // A response with a status below 200 announces another one.
        for _ in 0..MOST_HEADERS {
            let response = Self::read_one(reader)?;
            if response.status >= 200 {
                return Ok(response);
            }
        }
        Err(malformed("too many responses"))
    }

    fn read_one(reader: &mut impl BufRead) -> io::Result<Self> {
        let line = head_line(reader)?;
        let status = line
            .strip_prefix("HTTP/1.")
            .and_then(|rest| rest.split(' ').nth(1)?.parse().ok())
            .filter(|status| (100..600).contains(status))
            .ok_or_else(|| malformed("no status"))?;
        let (mut length, mut is_chunked, mut kind) = (None, false, Kind::Lines);
        for _ in 0..MOST_HEADERS {
            let line = head_line(reader)?;
            if line.is_empty() {
                let framing = match (is_chunked, length) {
                    (true, _) => Framing::Chunked(None),
                    (false, Some(length)) => Framing::Length(length),
                    (false, None) if status == 204 || status < 200 => Framing::Ended,
                    (false, None) => Framing::Close,
                };
                return Ok(Self { status, kind, framing });
            }
            let (name, value) = line.split_once(':').ok_or_else(|| malformed("a header without a colon"))?;
            let (name, value) = (name.to_ascii_lowercase(), value.trim().to_ascii_lowercase());
            match name.as_str() {
                "content-length" => {
                    length = Some(value.parse().map_err(|_| malformed("its length is no number"))?);
                }
                "transfer-encoding" if value == "chunked" => is_chunked = true,
                "transfer-encoding" | "content-encoding" if value != "identity" => {
                    return Err(malformed("it has an encoding that was not asked for"));
                }
                "content-type" => {
                    kind = match value.split(';').next().unwrap_or_default().trim() {
                        "text/event-stream" => Kind::Events,
                        "application/json" => Kind::Document,
                        _ => Kind::Lines,
                    };
                }
                _ => {}
            }
        }
        Err(malformed("too many headers"))
    }
}

/// Reads a body, to its end and no further.
struct Body<R> {
    framing: Framing,
    reader: R,
}

impl<R: BufRead> Body<R> {
    /// Reads at most `left` bytes; the end of the connection is an error.
    fn read_known(&mut self, into: &mut [u8], left: u64) -> io::Result<usize> {
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(into.len());
        match self.reader.read(into.get_mut(..most).unwrap_or_default())? {
            0 if most > 0 => Err(cut_off()),
            read => Ok(read),
        }
    }

    /// Reads the length of the next chunk; what stands after the last one is skipped.
    fn next_chunk(&mut self, is_first: bool) -> io::Result<u64> {
        if !is_first && !head_line(&mut self.reader)?.is_empty() {
            return Err(malformed("a chunk is longer than it says"));
        }
        let line = head_line(&mut self.reader)?;
        let length = line.split(';').next().unwrap_or_default().trim();
        // Not by `from_str_radix` alone, which takes a sign.
        let is_number = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_hexdigit());
        let length = u64::from_str_radix(length, 16).ok().filter(|_| is_number);
        let length = length.ok_or_else(|| malformed("a chunk without a length"))?;
        if length == 0 {
            for _ in 0..MOST_HEADERS {
                if head_line(&mut self.reader)?.is_empty() {
                    break;
                }
            }
        }
        Ok(length)
    }
}

impl<R: BufRead> Read for Body<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        match self.framing {
            Framing::Ended | Framing::Length(0) => Ok(0),
            Framing::Close => self.reader.read(into),
            Framing::Length(left) => {
                let read = self.read_known(into, left)?;
                self.framing = Framing::Length(left - read as u64);
                Ok(read)
            }
            Framing::Chunked(left @ (None | Some(0))) => match self.next_chunk(left.is_none())? {
                0 => {
                    self.framing = Framing::Ended;
                    Ok(0)
                }
                length => {
                    self.framing = Framing::Chunked(Some(length));
                    self.read(into)
                }
            },
            Framing::Chunked(Some(left)) => {
                let read = self.read_known(into, left)?;
                self.framing = Framing::Chunked(Some(left - read as u64));
                Ok(read)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a response, and returns its messages as text.
    fn read(response: &str) -> Result<Vec<String>, String> {
        let mut reader = BufReader::with_capacity(3, response.as_bytes());
        let response = Response::read(&mut reader).map_err(|error| error.to_string())?;
        let mut body = BufReader::with_capacity(2, Body { framing: response.framing, reader });
        let mut messages = Vec::new();
        let mut take = |message| {
            let Received::Message(bytes) = message else { panic!("{message:?}") };
            messages.push(String::from_utf8(bytes).unwrap());
            true
        };
        read_stream(&mut body, response.kind, 1000, &mut take).map_err(|error| error.to_string())?;
        Ok(messages)
    }

    #[test]
    fn a_stream_is_read_whatever_its_framing() {
        let events = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=x\r\n\
             Transfer-Encoding: chunked\r\n\r\n";
        let chunks = "11\r\nevent: a\ndata: {\"\r\n5;x=y\r\nn\":1}\r\n1\r\n\n\r\n1\r\n\n\r\n\
                      1D\r\n: comment\r\ndata:{\r\ndata:}\r\n\r\n\r\n0\r\nTrailer: x\r\n\r\n";
        assert_eq!(read(&format!("{events}{chunks}")).unwrap(), ["{\"n\":1}", "{\n}"]);
        let length = "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n{}\n\n[1]\nmore";
        assert_eq!(read(length).unwrap(), ["{}", "[1]"]);
        let close = "HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{\n\"a\": 1\n}\n";
        assert_eq!(read(close).unwrap(), ["{\n\"a\": 1\n}\n"]);
        assert_eq!(read("HTTP/1.1 204 No Content\r\n\r\nx").unwrap(), [] as [&str; 0]);
    }

    #[test]
    fn a_response_that_is_cut_or_no_http_is_an_error() {
        for (response, why) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}\n", "the response was cut off"),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", "the response was cut off"),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n+5\r\nab", "without a length"),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc", "longer than it says"),
            ("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n", "not asked for"),
            ("SSH-2.0-x\r\n", "no status"),
            ("HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "without a colon"),
        ] {
            let error = read(response).unwrap_err();
            assert!(error.contains(why), "{response:?}: {error}");
        }
        assert!(read(&format!("HTTP/1.1 200 OK\r\nA: {}\r\n\r\n", "x".repeat(20_000))).is_err());
    }

    #[test]
    fn a_url_leads_to_a_loopback_address_or_nowhere() {
        let target = Target::of("http://127.0.0.1:8080/v1?x=1#f").unwrap();
        assert_eq!((target.port, target.path.as_str()), (8080, "/v1?x=1"));
        let target = Target::of("http://[::1]").unwrap();
        assert_eq!((target.host.as_str(), target.port, target.path.as_str()), ("::1", 80, "/"));
        for url in
            ["https://localhost/", "http://a@b/", "http://a:x/", "http:///x", "http://a/ b", "file:///x"]
        {
            assert!(Target::of(url).is_err(), "{url}");
        }
        let error = Target::of("http://192.0.2.1/").unwrap().connect().unwrap_err();
        assert_eq!(error, "`192.0.2.1` is no loopback address");
    }

    #[test]
    fn a_header_cannot_add_another_one() {
        let target = Target::of("http://localhost").unwrap();
        let head = |name: &str, value: &str| request_head(&target, &[(name.to_owned(), value.to_owned())]);
        assert!(head("Authorization", "Bearer k").unwrap().contains("Authorization: Bearer k\r\n"));
        for (name, value) in [("A", "b\r\nC: d"), ("A b", "c"), ("", "x"), ("Content-Length", "3")] {
            assert!(head(name, value).is_err(), "{name}");
        }
    }
}
