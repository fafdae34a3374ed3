//! As much of HTTP/1.1 as a test needs: requests with a known or chunked body, whole and chunked responses.

use std::io::{self, BufRead, BufReader, Error, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// What a line of a head may have at most; a client that sends more is not one of ours.
const LONGEST_LINE: u64 = 64 * 1024;
/// What a body may have at most: several times of what any agent accepts as a prompt.
const LONGEST_BODY: u64 = 256 * 1024 * 1024;
/// How often a wait looks whether the client is still there.
pub(super) const LOOK: Duration = Duration::from_millis(20);

/// One connection of a client.
pub(super) struct Connection {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
}

/// A request as it came over the line.
pub(super) struct Message {
    pub(super) method: String,
    pub(super) target: String,
    /// Names in lower case.
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Message {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }
}

fn header<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

impl Connection {
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        // Every event is a write of its own, and none may wait for the next one.
        stream.set_nodelay(true)?;
        Ok(Self { reader: BufReader::new(stream.try_clone()?), writer: stream })
    }

    /// Reads the next request; nothing when the client has closed.
    pub(super) fn read(&mut self) -> io::Result<Option<Message>> {
        let first = self.line()?;
        if first.is_empty() {
            return Ok(None);
        }
        let mut words = first.split(' ');
        let (Some(method), Some(target)) = (words.next(), words.next()) else {
            return Err(invalid("no request line"));
        };
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').ok_or_else(|| invalid("no header"))?;
            headers.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
        if header(&headers, "expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue")) {
            self.writer.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let body = match header(&headers, "transfer-encoding") {
            Some(coding) if coding.eq_ignore_ascii_case("chunked") => self.chunked_body()?,
            Some(_) => return Err(invalid("unknown transfer-encoding")),
            None => {
                let length = header(&headers, "content-length").unwrap_or("0");
                self.bytes(length.parse().map_err(|_| invalid("content-length"))?)?
            }
        };
        Ok(Some(Message { method: method.into(), target: target.into(), headers, body }))
    }

    /// Reads a line without its end; an empty one also stands for the end of the connection.
    fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        self.reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line)?;
        if line.len() as u64 == LONGEST_LINE {
            return Err(invalid("line too long"));
        }
        String::from_utf8(line.trim_ascii_end().to_vec()).map_err(|_| invalid("line is not UTF-8"))
    }

    fn bytes(&mut self, length: u64) -> io::Result<Vec<u8>> {
        if length > LONGEST_BODY {
            return Err(invalid("body too long"));
        }
        let mut bytes = Vec::new();
        self.reader.by_ref().take(length).read_to_end(&mut bytes)?;
        if (bytes.len() as u64) < length { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(bytes) }
    }

    fn chunked_body(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.line()?;
            let size = line.split(';').next().unwrap_or("").trim();
            let size = u64::from_str_radix(size, 16).map_err(|_| invalid("chunk size"))?;
            body.extend(self.bytes(size)?);
            if body.len() as u64 > LONGEST_BODY {
                return Err(invalid("body too long"));
            }
            // The end of the chunk; after the last one come trailers, if any, and an empty line.
            while !self.line()?.is_empty() {}
            if size == 0 {
                return Ok(body);
            }
        }
    }

    /// Sends a head. Without a length, the body goes in chunks.
    pub(super) fn head(
        &mut self,
        status: u16,
        content_type: &str,
        length: Option<usize>,
        headers: &[(String, String)],
    ) -> io::Result<()> {
        let reason = reason(status);
        let mut head = format!("HTTP/1.1 {status} {reason}\r\ncontent-type: {content_type}\r\n");
        match length {
            Some(length) => head.push_str(&format!("content-length: {length}\r\n")),
            None => head.push_str("transfer-encoding: chunked\r\ncache-control: no-cache\r\n"),
        }
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        self.writer.write_all(head.as_bytes())
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writer.write_all(bytes)
    }

    /// Sends a part of a body that goes in chunks; an empty part is its end.
    pub(super) fn chunk(&mut self, part: &[u8]) -> io::Result<()> {
        let mut bytes = format!("{:x}\r\n", part.len()).into_bytes();
        bytes.extend_from_slice(part);
        bytes.extend_from_slice(b"\r\n");
        self.writer.write_all(&bytes)
    }

    /// Waits, and is an error as soon as the client has gone or the server stops, which shuts the connection down.
    pub(super) fn pause(&mut self, time: Duration) -> io::Result<()> {
        self.wait_until(Some(Instant::now() + time))
    }

    /// Waits until the client goes or the server stops.
    pub(super) fn stall(&mut self) -> io::Result<()> {
        self.wait_until(None)
    }

    /// Is an error if the client has gone or the server stops.
    pub(super) fn look(&mut self) -> io::Result<()> {
        self.wait(Duration::from_millis(1))
    }

    fn wait_until(&mut self, end: Option<Instant>) -> io::Result<()> {
        loop {
            let left = end.map_or(LOOK, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(());
            }
            self.wait(left.min(LOOK))?;
        }
    }

    fn wait(&mut self, time: Duration) -> io::Result<()> {
        // A peek is a wait that the end of the connection ends at once, ours by `shutdown` included.
        self.writer.set_read_timeout(Some(time))?;
        let looked = self.writer.peek(&mut [0]);
        self.writer.set_read_timeout(None)?;
        match looked {
            Ok(0) => Err(ErrorKind::ConnectionAborted.into()),
            Ok(_) => {
                // The next request is already there, so that the peek did not wait.
                thread::sleep(time);
                Ok(())
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub(super) fn close(&self) {
        // The client may have been quicker.
        let _ = self.writer.shutdown(Shutdown::Both);
    }
}

fn invalid(what: &'static str) -> Error {
    Error::new(ErrorKind::InvalidData, what)
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        413 => "Content Too Large",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        _ => "Scripted",
    }
}
