//! A bound on the memory that a server's replies take.
//!
//! The drivers of both servers read a whole reply before they return it, and allocate the size in its header. So the
//! stream below them counts the announced bytes since the last request, and a share for each part, because a part of
//! a few bytes becomes a value of a hundred. A size that the server computes, such as that of a page, binds only an
//! honest server.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tracing::warn;

/// The largest reply, in bytes: a page of events up to 64 MiB and one more event of 64 MiB, with room to spare.
pub(crate) const LARGEST_REPLY: usize = 192 << 20;
/// The memory that a part of a reply takes beside its bytes.
pub(crate) const PER_PART: usize = 128;

/// Reads the headers in a server's stream.
pub(crate) trait Framing: Unpin {
    /// Takes the next bytes of the stream; returns the memory that the parts announced in them will take.
    fn announced(&mut self, bytes: &[u8]) -> usize;

    /// Returns whether the stream is between two replies.
    fn is_between(&self) -> bool;
}

/// Whether a server has sent too much. Drivers do not pass on the error of a stream, so it is recorded here.
#[derive(Debug, Clone, Default)]
pub(crate) struct Overflow(Arc<AtomicBool>);

impl Overflow {
    /// Returns whether a server has sent too much since the last time.
    pub(crate) fn take(&self) -> bool {
        self.0.swap(false, Ordering::AcqRel)
    }
}

/// The error of a server that has sent too much.
pub(crate) fn too_large() -> String {
    format!("a reply is larger than the {} MiB that azureal accepts", LARGEST_REPLY >> 20)
}

/// A stream that ends with an error once a reply is too large.
pub(crate) struct Bounded<S, F> {
    pub(crate) stream: S,
    framing: F,
    /// The memory announced since the last request.
    announced: usize,
    overflow: Overflow,
}

impl<S, F> Bounded<S, F> {
    pub(crate) fn new(stream: S, framing: F, overflow: Overflow) -> Self {
        Self { stream, framing, announced: 0, overflow }
    }
}

impl<S: AsyncRead + Unpin, F: Framing> AsyncRead for Bounded<S, F> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let announced = self.framing.announced(buffer.filled().get(before..).unwrap_or_default());
        self.announced = self.announced.saturating_add(announced);
        if self.announced > LARGEST_REPLY {
            warn!(announced = self.announced, "closes a connection: the reply is too large");
            self.overflow.0.store(true, Ordering::Release);
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, too_large())));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin, F: Framing> AsyncWrite for Bounded<S, F> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes))?;
        // In the middle of a reply the request of another caller is no reason to accept more of it.
        if self.framing.is_between() {
            self.announced = 0;
        }
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
