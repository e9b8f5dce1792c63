//! What uses a stream of the link: a request and an answer of known bytes, at once, each half checking what it gets.

use std::io;

use bytes::{Buf as _, BufMut as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use yonder_protocol::{Target, TunnelError, TunnelErrorCode};
use yonder_transport::link::Link;
use yonder_transport::stream::Stream;

/// A stream's first bytes: what it is to be known by, and how many bytes each direction has behind them.
const HEAD_BYTES: usize = 20;

/// What one stream moves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Talk {
    pub(crate) key: u64,
    pub(crate) up: usize,
    pub(crate) down: usize,
}

/// How a stream failed: with the link, or in a way that no network explains.
pub(crate) type Outcome = Result<(), TunnelError>;

/// The bytes of one direction.
fn pattern(key: u64, length: usize) -> impl Iterator<Item = u8> {
    (0..length as u64).map(move |at| {
        let mixed = (key ^ (at / 8)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ (mixed >> 29)).to_le_bytes()[(at % 8) as usize]
    })
}

/// Opens a stream and has the talk on it.
pub(crate) async fn ask(link: Link, talk: Talk) -> Outcome {
    // Calls travel on the main lane, tunnels on any.
    let stream = if talk.key.is_multiple_of(3) {
        link.open_call()?
    } else {
        link.open_tunnel(&Target::new("localhost", 80).unwrap())?
    };
    let mut head = Vec::with_capacity(HEAD_BYTES);
    head.put_u64(talk.key);
    head.put_u64(talk.up as u64);
    head.put_u32(u32::try_from(talk.down).unwrap());
    converse(stream, &head, (talk.key, talk.up), (!talk.key, talk.down)).await
}

/// The other half's part in the talk.
pub(crate) async fn answer(mut stream: Stream) -> Outcome {
    let mut head = [0; HEAD_BYTES];
    explain(stream.read_exact(&mut head).await.map(|_| ()))?;
    let mut head = &head[..];
    let key = head.get_u64();
    let up = usize::try_from(head.get_u64()).unwrap();
    let down = head.get_u32() as usize;
    converse(stream, &[], (!key, down), (key, up)).await
}

/// Writes `head` and the bytes of one key, and reads those of another to their end.
async fn converse(
    stream: Stream,
    head: &[u8],
    (write_key, write): (u64, usize),
    (read_key, read): (u64, usize),
) -> Outcome {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let send = async {
        writer.write_all(head).await?;
        let bytes: Vec<u8> = pattern(write_key, write).collect();
        for piece in bytes.chunks(30_000) {
            writer.write_all(piece).await?;
        }
        writer.shutdown().await
    };
    let receive = async {
        let mut expected = pattern(read_key, read);
        let mut buffer = vec![0; 20_000];
        let mut got = 0;
        loop {
            let length = reader.read(&mut buffer).await?;
            if length == 0 {
                assert_eq!(got, read, "the end came early");
                return Ok(());
            }
            for &byte in &buffer[..length] {
                assert_eq!(Some(byte), expected.next(), "lost, repeated or altered");
            }
            got += length;
        }
    };
    let (sent, received) = tokio::join!(send, receive);
    explain(sent.and(received))
}

/// Only the end of the link may end a stream.
fn explain(result: io::Result<()>) -> Outcome {
    let Err(error) = result else {
        return Ok(());
    };
    let reason = error.get_ref().and_then(|inner| inner.downcast_ref());
    let reason: &TunnelError = reason.unwrap_or_else(|| panic!("{error}"));
    assert_eq!(reason.code, TunnelErrorCode::LinkDown, "{reason}");
    Err(reason.clone())
}
