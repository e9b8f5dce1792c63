//! The two byte queues of one carrier: what is read ahead and what is being written.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::AsyncWrite;
use tokio_util::io::poll_read_buf;

use crate::carrier::{Carrier, CarrierIo, CarrierKind};

/// Most bytes of one read. System calls dominate the cost of relaying.
const READ_BYTES_MAX: usize = 256 * 1024;

/// Bytes of one read on a quiet carrier.
const READ_BYTES_LEAST: usize = 16 * 1024;

/// Full buffers that are kept until what was read into them is consumed, to be used again: more than a reader in step
/// with the carrier needs, 2 MiB of a busy link.
const BUFFERS_RETIRED: usize = 8;

/// Segments of one vectored write.
const WRITE_SEGMENTS: usize = 64;

/// A carrier with its buffers.
pub(crate) struct Wire {
    io: Box<dyn CarrierIo>,
    pub(crate) kind: CarrierKind,
    pub(crate) description: String,
    inbound: BytesMut,
    /// Buffers that were full, oldest first.
    retired: VecDeque<BytesMut>,
    read_bytes: usize,
    /// Whether a buffer was filled since the last [`Self::trim`].
    busy: bool,
    outbound: VecDeque<Bytes>,
    unflushed: bool,
}

impl Wire {
    pub(crate) fn new(carrier: Carrier) -> Self {
        Self {
            io: carrier.io,
            kind: carrier.kind,
            description: carrier.description,
            inbound: BytesMut::new(),
            retired: VecDeque::new(),
            read_bytes: READ_BYTES_LEAST,
            busy: false,
            outbound: VecDeque::new(),
            unflushed: false,
        }
    }

    /// The carrier's stream and what was read ahead of it, for the greeting.
    pub(crate) fn greeting_parts(&mut self) -> (&mut dyn CarrierIo, &mut BytesMut) {
        (&mut *self.io, &mut self.inbound)
    }

    /// Reads what is there, at most [`READ_BYTES_MAX`]; `None` at the carrier's end.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        if !self.inbound.is_empty() {
            return Poll::Ready(Ok(Some(self.inbound.split().freeze())));
        }
        if self.inbound.capacity() < self.read_bytes / 4 {
            self.next_buffer();
        }
        let room = self.inbound.capacity();
        let read = ready!(poll_read_buf(
            Pin::new(&mut *self.io),
            cx,
            &mut self.inbound
        ))?;
        if read == 0 {
            return Poll::Ready(Ok(None));
        }
        if read >= room {
            // There was more than fits: a larger buffer saves system calls.
            self.read_bytes = (self.read_bytes * 2).min(READ_BYTES_MAX);
        }
        Poll::Ready(Ok(Some(self.inbound.split().freeze())))
    }

    /// Makes room for the next read: in a buffer whose bytes are all consumed by now, or in a new one. Fresh pages cost
    /// about as much as the copy into them.
    fn next_buffer(&mut self) {
        self.busy = true;
        let full = std::mem::take(&mut self.inbound);
        if self.retired.len() == BUFFERS_RETIRED {
            self.retired.pop_front();
        }
        self.retired.push_back(full);
        let free = self
            .retired
            .iter_mut()
            .position(|buffer| buffer.try_reclaim(self.read_bytes));
        self.inbound = free
            .and_then(|index| self.retired.remove(index))
            .unwrap_or_else(|| BytesMut::with_capacity(self.read_bytes));
    }

    /// Gives memory back when the carrier was quiet since the last call; meant to be called every few seconds.
    pub(crate) fn trim(&mut self) {
        if !std::mem::take(&mut self.busy) {
            self.read_bytes = READ_BYTES_LEAST;
            self.retired = VecDeque::new();
            if self.inbound.is_empty() {
                self.inbound = BytesMut::new();
            }
        }
    }

    /// Queues bytes to be written.
    pub(crate) fn queue(&mut self, bytes: impl IntoIterator<Item = Bytes>) {
        self.outbound.extend(bytes);
    }

    /// Writes until nothing is queued. Returns whether anything was written.
    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.outbound.is_empty() {
            let mut slices = [IoSlice::new(&[]); WRITE_SEGMENTS];
            let mut count = 0;
            for (slice, segment) in slices.iter_mut().zip(&self.outbound) {
                *slice = IoSlice::new(segment);
                count += 1;
            }
            let slices = slices.get(..count).unwrap_or_default();
            let mut written = ready!(Pin::new(&mut *self.io).poll_write_vectored(cx, slices))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.unflushed = true;
            while let Some(front) = self.outbound.front_mut() {
                if front.len() > written {
                    front.advance(written);
                    break;
                }
                written -= front.len();
                self.outbound.pop_front();
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Flushes what was written since the last time.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.unflushed {
            ready!(Pin::new(&mut *self.io).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Says the carrier's own goodbye.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_shutdown(Pin::new(&mut *self.io), cx)
    }
}
