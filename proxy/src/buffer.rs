//! A block of bytes between a reader and a writer, held only while it carries data.
//!
//! Thousands of tunnels are idle at any time. A block is taken from the thread's spare ones for the
//! duration of a read and given back when nothing came, so an idle direction owns no memory.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

use crate::limits::{BLOCK_BYTES, SPARE_BLOCKS};

thread_local! {
    static SPARE: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// Up to [`BLOCK_BYTES`] bytes, filled at the end and consumed from the start.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    /// `BLOCK_BYTES` long, or empty while there is no data.
    block: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Buffer {
    /// The bytes not consumed yet.
    pub(crate) fn filled(&self) -> &[u8] {
        &self.block[self.start..self.end]
    }

    /// Whether there is nothing to consume.
    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Whether nothing more fits.
    pub(crate) fn is_full(&self) -> bool {
        self.end - self.start == BLOCK_BYTES
    }

    /// Drops the first `count` bytes, which must be there.
    pub(crate) fn consume(&mut self, count: usize) {
        debug_assert!(count <= self.end - self.start);
        self.start += count;
        if self.is_empty() {
            self.release();
        }
    }

    /// Appends `bytes`, which must fit.
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        self.make_room();
        self.block[self.end..self.end + bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
        if self.is_empty() {
            self.release();
        }
    }

    /// Reads once from `reader`. `Ok(0)` is its end, or a full buffer.
    pub(crate) fn poll_fill<R: AsyncRead + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        reader: &mut R,
    ) -> Poll<io::Result<usize>> {
        self.make_room();
        let mut room = ReadBuf::new(&mut self.block[self.end..]);
        let outcome = Pin::new(reader).poll_read(cx, &mut room);
        let count = room.filled().len();
        self.end += count;
        if self.is_empty() {
            self.release();
        }
        ready!(outcome)?;
        Poll::Ready(Ok(count))
    }

    /// Takes a block if there is none, and moves the bytes to its start when they have reached the end.
    fn make_room(&mut self) {
        if self.block.is_empty() {
            self.block = SPARE
                .with_borrow_mut(Vec::pop)
                .unwrap_or_else(|| vec![0; BLOCK_BYTES].into_boxed_slice());
        } else if self.end == BLOCK_BYTES && self.start > 0 {
            self.block.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
    }

    fn release(&mut self) {
        self.start = 0;
        self.end = 0;
        let block = std::mem::take(&mut self.block);
        if block.is_empty() {
            return;
        }
        // The thread may be ending, with its spare blocks gone already; then the block is freed.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < SPARE_BLOCKS {
                spare.push(block);
            }
        });
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test]
    async fn bytes_come_out_in_order_and_an_empty_buffer_holds_no_block() {
        let mut buffer = Buffer::default();
        let bytes = vec![7; BLOCK_BYTES + 10];
        let mut reader = bytes.as_slice();
        let count = poll_fn(|cx| buffer.poll_fill(cx, &mut reader))
            .await
            .unwrap();
        assert_eq!(count, BLOCK_BYTES);
        assert!(buffer.is_full());
        buffer.consume(BLOCK_BYTES - 1);
        let count = poll_fn(|cx| buffer.poll_fill(cx, &mut reader))
            .await
            .unwrap();
        assert_eq!(count, 10);
        assert_eq!(buffer.filled(), [7; 11]);
        buffer.consume(11);
        assert!(buffer.block.is_empty());
        buffer.extend(b"abc");
        assert_eq!(buffer.filled(), b"abc");
    }

    #[tokio::test]
    async fn a_read_that_waits_keeps_no_block() {
        let mut buffer = Buffer::default();
        let (mut reader, _writer) = tokio::io::duplex(8);
        let pending = poll_fn(|cx| Poll::Ready(buffer.poll_fill(cx, &mut reader).is_pending()));
        assert!(pending.await);
        assert!(buffer.block.is_empty());
    }
}
