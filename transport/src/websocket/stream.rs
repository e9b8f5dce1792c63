//! [`WebSocketStream`]: a byte stream through the frames of an upgraded connection.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::decoder::{Decoder, WebSocketError};
use super::frame::{HEADER_BYTES_MAX, Header, MESSAGE_BYTES_MAX, Opcode, apply_mask};

/// Slices that one vectored write passes on; a batch of more goes out in several writes.
const SLICES_MAX: usize = 128;

/// Payload bytes that one write masks at a time. Masking needs a copy, which should stay within the nearest cache.
const MASKED_BYTES_MAX: usize = 64 * 1024;

/// Close code for an orderly end (RFC 6455, section 7.4.1).
const CLOSE_NORMAL: u16 = 1000;

/// Bytes read at a time while only the first frame is awaited.
const GREETING_BYTES: usize = 512;

/// How a client masks what it sends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Masking {
    /// With the key zero, which changes no byte: where nothing between the halves can see the frames, that is on TLS and
    /// on loopback.
    Zero,
    /// With a fresh random key for each frame, so that nobody can choose the bytes an intermediary sees (RFC 6455,
    /// section 10.3).
    Random,
}

impl Masking {
    fn key(self) -> [u8; 4] {
        match self {
            Self::Zero => [0; 4],
            Self::Random => rand::random(),
        }
    }
}

/// How reading ended.
#[derive(Clone, Copy, Debug)]
enum ReadEnd {
    Open,
    Closed,
    Failed(WebSocketError),
}

/// A byte stream in the binary messages of a WebSocket.
///
/// * Each write becomes one message of at most [`MESSAGE_BYTES_MAX`] bytes; nothing is copied or kept unless masked at
///   random. When the connection takes only a part of a message, the bytes of the next write continue it, as the
///   `AsyncWrite` contract has the caller offer the rest again.
/// * Reads unwrap frames within the caller's buffer and hand out parts of a frame as they come.
/// * A ping is answered between two messages; a close is answered and ends reading; `shutdown` sends a close.
/// * An error of kind `InvalidData` holds the [`WebSocketError`].
///
/// The two directions may be polled from different tasks.
#[derive(Debug)]
pub struct WebSocketStream<T> {
    io: T,
    decoder: Decoder,
    /// Received, not yet unwrapped: what came behind the HTTP head.
    raw: Bytes,
    /// Received and unwrapped while the first frame was awaited.
    early: BytesMut,
    read_end: ReadEnd,
    /// Whether reading owes the connection a flush, for an answer it wrote.
    answer_unflushed: bool,

    /// `None` on servers.
    masking: Option<Masking>,
    /// Whole small frames that go out before the next message.
    control: BytesMut,
    /// The header of the message under way, and how much of it has gone out.
    header: [u8; HEADER_BYTES_MAX],
    header_length: usize,
    header_sent: usize,
    /// Payload bytes that the message under way has had and still owes, and its key.
    done: u64,
    left: u64,
    key: [u8; 4],
    scratch: Vec<u8>,
    close_sent: bool,
    /// Whether a writer waits for the connection. Its wake-up must not be taken by a reader that answers a ping.
    writer_waiting: bool,
}

impl<T: AsyncRead + AsyncWrite + Unpin> WebSocketStream<T> {
    /// The server's end of `io`, whose upgrade has been answered; `received` came behind the client's request head.
    ///
    /// The first read, write or flush sends an empty message, from which the client learns that frames pass. It waits a
    /// few seconds for that, so begin at once.
    pub fn server(io: T, received: Bytes) -> Self {
        let mut stream = Self::new(io, received, None);
        stream.queue(Opcode::Binary, &[]);
        stream
    }

    /// The client's end of `io`, whose upgrade was granted; `received` came behind the server's answer.
    pub fn client(io: T, received: Bytes, masking: Masking) -> Self {
        Self::new(io, received, Some(masking))
    }

    fn new(io: T, raw: Bytes, masking: Option<Masking>) -> Self {
        Self {
            io,
            decoder: Decoder::new(masking.is_none()),
            raw,
            early: BytesMut::new(),
            read_end: ReadEnd::Open,
            answer_unflushed: false,
            masking,
            control: BytesMut::new(),
            header: [0; HEADER_BYTES_MAX],
            header_length: 0,
            header_sent: 0,
            done: 0,
            left: 0,
            key: [0; 4],
            scratch: Vec::new(),
            close_sent: false,
            writer_waiting: false,
        }
    }

    /// Waits for the first data frame of the other side, which a server of this crate sends unasked.
    ///
    /// # Errors
    /// The stream ended or failed before. There is no time limit in here.
    ///
    /// Cancel safe.
    pub async fn greeted(&mut self) -> io::Result<()> {
        std::future::poll_fn(|cx| {
            while !self.decoder.seen_data() {
                if !matches!(self.read_end, ReadEnd::Open) {
                    return Poll::Ready(Err(closed()));
                }
                let mut bytes = [0; GREETING_BYTES];
                let mut piece = ReadBuf::new(&mut bytes);
                let payload = ready!(self.poll_unwrap(cx, &mut piece))?;
                if piece.filled().is_empty() && matches!(self.read_end, ReadEnd::Closed) {
                    return Poll::Ready(Err(closed()));
                }
                self.early.extend_from_slice(&piece.filled()[..payload]);
            }
            Poll::Ready(Ok(()))
        })
        .await
    }

    /// Reads once into `buf`, which must have room, and unwraps; the count may be zero although more will come.
    fn poll_unwrap(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<usize>> {
        let before = buf.filled().len();
        if self.raw.is_empty() {
            ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        } else {
            let take = self.raw.len().min(buf.remaining());
            buf.put_slice(&self.raw.split_to(take));
        }
        let received = &mut buf.filled_mut()[before..];
        if received.is_empty() {
            if !self.decoder.at_border() {
                return Poll::Ready(Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the connection ended within a WebSocket frame",
                )));
            }
            self.read_end = ReadEnd::Closed;
            return Poll::Ready(Ok(0));
        }
        let decoded = self.decoder.decode(received);
        buf.set_filled(before + decoded.payload);
        if let Some(error) = decoded.error {
            self.read_end = ReadEnd::Failed(error);
        } else if decoded.closed {
            self.read_end = ReadEnd::Closed;
        }
        Poll::Ready(Ok(decoded.payload))
    }

    /// Sends what reading owes the peer, as far as the connection takes it now and no writer is in between.
    ///
    /// Errors are left for the next write to meet: what has been received can still be read.
    fn answer(&mut self, cx: &mut Context<'_>) {
        if self.writer_waiting || !self.between_messages() {
            return;
        }
        if self.decoder.owes_reply() || !self.control.is_empty() {
            self.answer_unflushed = true;
            if !matches!(self.poll_control(cx), Poll::Ready(Ok(()))) {
                return;
            }
        }
        if self.answer_unflushed && Pin::new(&mut self.io).poll_flush(cx).is_ready() {
            self.answer_unflushed = false;
        }
    }

    fn between_messages(&self) -> bool {
        self.left == 0 && self.header_sent == self.header_length
    }

    /// Appends a control frame, or the greeting, to what goes out between two messages.
    fn queue(&mut self, opcode: Opcode, payload: &[u8]) {
        let mask = self.masking.map(Masking::key);
        let (header, used) = Header {
            last: true,
            opcode,
            mask,
            length: payload.len() as u64,
        }
        .encode();
        self.control.extend_from_slice(&header[..used]);
        let at = self.control.len();
        self.control.extend_from_slice(payload);
        apply_mask(&mut self.control[at..], mask.unwrap_or_default(), 0);
    }

    /// Sends the control frames that are owed. Only between two messages.
    fn poll_control(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            while !self.control.is_empty() {
                let sent = ready!(Pin::new(&mut self.io).poll_write(cx, &self.control))?;
                if sent == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                self.control.advance(sent);
            }
            match self.decoder.take_reply() {
                Some(reply) if !self.close_sent => {
                    self.close_sent = reply.opcode == Opcode::Close;
                    self.queue(reply.opcode, &reply.payload);
                }
                Some(_) => {}
                None => return Poll::Ready(Ok(())),
            }
        }
    }

    /// Begins a message of `length` bytes.
    fn begin(&mut self, length: usize) {
        let mask = self.masking.map(Masking::key);
        self.key = mask.unwrap_or_default();
        self.left = length as u64;
        self.done = 0;
        (self.header, self.header_length) = Header {
            last: true,
            opcode: Opcode::Binary,
            mask,
            length: self.left,
        }
        .encode();
        self.header_sent = 0;
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let offered = bufs
            .iter()
            .fold(0usize, |sum, buf| sum.saturating_add(buf.len()));
        if offered == 0 {
            return Poll::Ready(Ok(0));
        }
        loop {
            if self.between_messages() {
                ready!(self.poll_control(cx))?;
                if self.close_sent {
                    return Poll::Ready(Err(closed()));
                }
                self.begin(offered.min(MESSAGE_BYTES_MAX));
            }
            let sent = if self.key == [0; 4] {
                ready!(self.poll_send_plain(cx, bufs))?
            } else {
                ready!(self.poll_send_masked(cx, bufs))?
            };
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            let of_header = sent.min(self.header_length - self.header_sent);
            self.header_sent += of_header;
            let of_payload = sent - of_header;
            if of_payload > 0 {
                self.done += of_payload as u64;
                self.left -= of_payload as u64;
                return Poll::Ready(Ok(of_payload));
            }
        }
    }

    /// Writes the rest of the header and as much payload as the message still owes, without copying.
    fn poll_send_plain(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        slices[0] = IoSlice::new(&self.header[self.header_sent..self.header_length]);
        let mut used = 1;
        let mut left = usize::try_from(self.left).unwrap_or(usize::MAX);
        for (slot, buf) in slices[1..]
            .iter_mut()
            .zip(bufs.iter().filter(|buf| !buf.is_empty()))
        {
            if left == 0 {
                break;
            }
            let take = buf.len().min(left);
            *slot = IoSlice::new(&buf[..take]);
            left -= take;
            used += 1;
        }
        let first = usize::from(slices[0].is_empty());
        Pin::new(&mut self.io).poll_write_vectored(cx, &slices[first..used])
    }

    /// The same with a mask. The masked copy lives only as long as the call: what the connection does not take is
    /// masked again when the caller offers it again.
    fn poll_send_masked(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.scratch.clear();
        self.scratch
            .extend_from_slice(&self.header[self.header_sent..self.header_length]);
        let at = self.scratch.len();
        let mut left =
            usize::try_from(self.left).map_or(MASKED_BYTES_MAX, |left| left.min(MASKED_BYTES_MAX));
        for buf in bufs {
            let take = buf.len().min(left);
            self.scratch.extend_from_slice(&buf[..take]);
            left -= take;
        }
        apply_mask(&mut self.scratch[at..], self.key, self.done);
        Pin::new(&mut self.io).poll_write(cx, &self.scratch)
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A message cut short cannot be followed by a close frame; the end of the connection says it then.
        if self.between_messages() {
            if !self.close_sent {
                self.close_sent = true;
                self.queue(Opcode::Close, &CLOSE_NORMAL.to_be_bytes());
            }
            ready!(self.poll_control(cx))?;
        }
        ready!(Pin::new(&mut self.io).poll_flush(cx))?;
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the WebSocket is closed")
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for WebSocketStream<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        if !this.early.is_empty() {
            let take = this.early.len().min(buf.remaining());
            buf.put_slice(&this.early.split_to(take));
            return Poll::Ready(Ok(()));
        }
        loop {
            this.answer(cx);
            match this.read_end {
                ReadEnd::Open => {}
                ReadEnd::Closed => return Poll::Ready(Ok(())),
                ReadEnd::Failed(error) => {
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
                }
            }
            if ready!(this.poll_unwrap(cx, buf))? > 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for WebSocketStream<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = this.poll_send(cx, bufs);
        this.writer_waiting = polled.is_pending();
        polled
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let mut polled = Poll::Ready(Ok(()));
        if this.between_messages() {
            polled = this.poll_control(cx);
        }
        if matches!(polled, Poll::Ready(Ok(()))) {
            polled = Pin::new(&mut this.io).poll_flush(cx);
        }
        this.writer_waiting = polled.is_pending();
        polled
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = this.poll_close(cx);
        this.writer_waiting = polled.is_pending();
        polled
    }
}

#[cfg(test)]
mod tests;
