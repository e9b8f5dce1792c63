//! Messages of calls.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::FutureExt as _;
use tokio::io::{AsyncRead, ReadBuf};
use yonder_protocol::call::{Command, Notice, Outcome};
use yonder_transport::message::{read_message, write_message};

/// Bytes that come in pieces of one length.
struct Pieces<'a> {
    rest: &'a [u8],
    length: usize,
}

impl AsyncRead for Pieces<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let length = self.length.min(self.rest.len()).min(buffer.remaining());
        let (piece, rest) = self.rest.split_at(length);
        buffer.put_slice(piece);
        self.rest = rest;
        Poll::Ready(Ok(()))
    }
}

/// Reads `input` as each kind of message. The first byte chooses how it is cut into pieces, which must not matter; and what
/// was read must be read again from what it is written as.
pub fn call_message(input: &[u8]) {
    let Some((&cut, rest)) = input.split_first() else {
        return;
    };
    let pieces = |length| Pieces { rest, length };
    macro_rules! read_as {
        ($kind:ty) => {
            let whole = read_message::<_, $kind>(&mut pieces(usize::MAX)).now_or_never();
            let cut = read_message::<_, $kind>(&mut pieces(usize::from(cut) + 1)).now_or_never();
            let (whole, cut) = (whole.map(Result::ok), cut.map(Result::ok));
            assert_eq!(format!("{whole:?}"), format!("{cut:?}"), "the cut matters");
            if let Some(Some((head, files))) = whole {
                let mut wire = Vec::new();
                let written = write_message(&mut wire, &head, &files).now_or_never();
                assert!(written.is_some_and(|written| written.is_ok()));
                let mut again = Pieces {
                    rest: &wire,
                    length: usize::MAX,
                };
                let again = read_message::<_, $kind>(&mut again).now_or_never();
                let again = again.and_then(Result::ok);
                assert_eq!(format!("{:?}", Some((head, files))), format!("{again:?}"));
            }
        };
    }
    read_as!(Command);
    read_as!(Notice);
    read_as!(Outcome);
}
