//! The codecs by themselves, run a given number of times: what a counter of instructions is put around.
//!
//! Each [`Case`] is set up once and then repeated, so that the difference between two runs of different length is that of the
//! repetitions alone.

use std::cell::RefCell;
use std::hint::black_box;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use anyhow::anyhow;
use bytes::{Bytes, BytesMut};
use clap::{Args, ValueEnum};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use yonder_protocol::limits::{DATA_FRAME_BYTES, HEARTBEAT, HEARTBEAT_TIMEOUT, INITIAL_WINDOW};
use yonder_protocol::link::budget::Budget;
use yonder_protocol::link::frame::{Control, Decoder, Open, put_data_header};
use yonder_protocol::link::lane::{EARLY_WINDOW, Event, Lane, LaneConfig, Side, StreamId};
use yonder_transport::websocket::{Masking, WebSocketStream};

/// Payload of a large and of a small piece.
const LARGE: usize = 256 * 1024;
const SMALL: usize = 64;

/// What is repeated.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Case {
    /// The header of a DATA frame is written.
    FrameEncode,
    /// A DATA frame of 64 bytes is read.
    FrameDecode,
    /// A CREDIT frame is written and read.
    CreditBoth,
    /// One lane sends 64 bytes and another receives and consumes them.
    LaneSmall,
    /// The same with 256 KiB.
    LaneLarge,
    /// A WebSocket client sends 64 bytes masked at random and a server unmasks them.
    WebsocketSmall,
    /// The same with 256 KiB.
    WebsocketLarge,
    /// The same with the key zero.
    WebsocketLargeZero,
}

/// What to run.
#[derive(Args, Clone, Debug)]
pub(crate) struct CodecArguments {
    /// Which case.
    #[arg(long)]
    pub(crate) case: Case,
    /// How often.
    #[arg(long)]
    pub(crate) rounds: u32,
}

/// Runs the case.
pub(crate) fn run(arguments: &CodecArguments) -> anyhow::Result<()> {
    let rounds = arguments.rounds;
    match arguments.case {
        Case::FrameEncode => frame_encode(rounds),
        Case::FrameDecode => frame_decode(rounds)?,
        Case::CreditBoth => credit_both(rounds)?,
        Case::LaneSmall => lane(rounds, SMALL)?,
        Case::LaneLarge => lane(rounds, LARGE)?,
        Case::WebsocketSmall => websocket(rounds, SMALL, Masking::Random)?,
        Case::WebsocketLarge => websocket(rounds, LARGE, Masking::Random)?,
        Case::WebsocketLargeZero => websocket(rounds, LARGE, Masking::Zero)?,
    }
    Ok(())
}

fn frame_encode(rounds: u32) {
    let mut out = BytesMut::with_capacity(SMALL);
    for round in 0..rounds {
        out.clear();
        put_data_header(&mut out, black_box(round), 64);
        black_box(&out);
    }
}

fn frame_decode(rounds: u32) -> anyhow::Result<()> {
    let mut frame = BytesMut::new();
    put_data_header(&mut frame, 1, 64);
    frame.extend_from_slice(&[7; SMALL]);
    let frame = frame.freeze();
    let mut decoder = Decoder::new(data_max());
    for _ in 0..rounds {
        let mut input = black_box(&frame).clone();
        while let Some(item) = decoder.next(&mut input)? {
            black_box(&item);
        }
    }
    Ok(())
}

fn credit_both(rounds: u32) -> anyhow::Result<()> {
    let mut out = BytesMut::with_capacity(4096);
    let mut decoder = Decoder::new(data_max());
    for round in 0..rounds {
        out.reserve(SMALL);
        Control::Credit {
            stream: 1,
            bytes: black_box(round),
        }
        .encode(&mut out);
        let mut input = out.split().freeze();
        while let Some(item) = decoder.next(&mut input)? {
            black_box(&item);
        }
    }
    Ok(())
}

fn lane(rounds: u32, length: usize) -> anyhow::Result<()> {
    let mut client = new_lane(Side::Client)?;
    let mut server = new_lane(Side::Server)?;
    let stream = client.open(Open::call(), Duration::ZERO)?;
    let piece = Bytes::from(vec![7; length]);
    let mut out = Vec::new();
    // The rest of the window follows the opening as credit.
    pass(&mut client, &mut server, stream, &mut out)?;
    pass(&mut server, &mut client, stream, &mut out)?;
    for _ in 0..rounds {
        client.send(stream, piece.clone())?;
        pass(&mut client, &mut server, stream, &mut out)?;
        // Credit and acknowledgements, which the piece causes.
        pass(&mut server, &mut client, stream, &mut out)?;
    }
    Ok(())
}

/// Moves what one lane has to send to the other, which consumes it.
fn pass(
    from: &mut Lane,
    to: &mut Lane,
    stream: StreamId,
    out: &mut Vec<Bytes>,
) -> anyhow::Result<()> {
    let now = Duration::ZERO;
    while from.poll_transmit(out, now) > 0 {
        for segment in out.drain(..) {
            to.receive(segment, now)?;
        }
    }
    while let Some(event) = to.poll_event() {
        if let Event::Data { bytes, .. } = event {
            to.consumed(stream, bytes.len(), now);
        }
    }
    while from.poll_event().is_some() {}
    Ok(())
}

fn new_lane(side: Side) -> anyhow::Result<Lane> {
    let mut lane = Lane::new(
        LaneConfig {
            side,
            data_max: data_max(),
            window: INITIAL_WINDOW,
            peer_data_max: data_max(),
            peer_window: EARLY_WINDOW,
            streams_max: 64,
            heartbeat: HEARTBEAT,
            heartbeat_timeout: HEARTBEAT_TIMEOUT,
            budget: Arc::new(Budget::new(64 * 1024 * 1024)),
        },
        Duration::ZERO,
    );
    lane.carrier_up(0, Duration::ZERO)
        .map_err(|_| anyhow!("a new lane refused its first carrier"))?;
    Ok(lane)
}

fn data_max() -> u32 {
    u32::try_from(DATA_FRAME_BYTES).unwrap_or(u32::MAX)
}

fn websocket(rounds: u32, length: usize, masking: Masking) -> anyhow::Result<()> {
    let (up, down) = (Pipe::default(), Pipe::default());
    let wire = |takes: &Pipe, gives: &Pipe| Wire {
        takes: Rc::clone(takes),
        gives: Rc::clone(gives),
    };
    let mut client = WebSocketStream::client(wire(&down, &up), Bytes::new(), masking);
    let mut server = WebSocketStream::server(wire(&up, &down), Bytes::new());
    let piece = vec![7; length];
    let mut buffer = vec![0; length];
    for _ in 0..rounds {
        let mut sent = 0;
        while sent < length {
            sent += at_once(|context| {
                Pin::new(&mut client).poll_write(context, black_box(&piece[sent..]))
            })?;
        }
        at_once(|context| Pin::new(&mut client).poll_flush(context))?;
        let mut received = 0;
        while received < length {
            let mut into = ReadBuf::new(&mut buffer);
            at_once(|context| Pin::new(&mut server).poll_read(context, &mut into))?;
            received += into.filled().len();
        }
        down.borrow_mut().clear();
    }
    Ok(())
}

/// The result of something that has no reason to wait.
fn at_once<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<io::Result<T>>) -> anyhow::Result<T> {
    match poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Ok(result?),
        Poll::Pending => Err(anyhow!("the codec waits although everything is there")),
    }
}

/// Bytes under way.
type Pipe = Rc<RefCell<BytesMut>>;

/// A connection in memory that never waits.
struct Wire {
    takes: Pipe,
    gives: Pipe,
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut bytes = self.takes.borrow_mut();
        let count = bytes.len().min(into.remaining());
        into.put_slice(&bytes.split_to(count));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.gives.borrow_mut().extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut gives = self.gives.borrow_mut();
        for slice in slices {
            gives.extend_from_slice(slice);
        }
        Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_runs() {
        for &case in Case::value_variants() {
            run(&CodecArguments { case, rounds: 20 }).unwrap();
        }
    }
}
