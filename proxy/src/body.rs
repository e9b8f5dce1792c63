//! Where a message body ends (RFC 9112, section 6), without touching its bytes.
//!
//! A [`Body`] is shown the bytes as they come and says how many of them belong to the message. They
//! are forwarded as they are: chunk boundaries, extensions and trailers included.

mod chunked;

pub(crate) use chunked::{Chunked, InvalidChunk};

/// How the end of a body is told.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Framing {
    /// No body.
    Empty,
    /// As many bytes as `Content-Length` says.
    Length(u64),
    /// Chunks, then trailers.
    Chunked,
    /// Everything until the connection ends; responses only.
    UntilClose,
}

/// The part of a body that is still to come.
#[derive(Debug)]
pub(crate) enum Body {
    /// Bytes to come.
    Length(u64),
    /// Chunks to come.
    Chunked(Chunked),
    /// Whatever comes.
    UntilClose,
}

impl Body {
    /// A body of which nothing has come yet.
    pub(crate) fn new(framing: Framing) -> Self {
        match framing {
            Framing::Empty => Self::Length(0),
            Framing::Length(length) => Self::Length(length),
            Framing::Chunked => Self::Chunked(Chunked::default()),
            Framing::UntilClose => Self::UntilClose,
        }
    }

    /// Whether all of it has come. One that lasts until the connection ends never has.
    pub(crate) fn is_done(&self) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunked(chunks) => chunks.is_done(),
            Self::UntilClose => false,
        }
    }

    /// How many of the first `bytes` belong to the body; they count as come.
    pub(crate) fn accept(&mut self, bytes: &[u8]) -> Result<usize, InvalidChunk> {
        match self {
            Self::Length(left) => Ok(take(left, bytes.len())),
            Self::Chunked(chunks) => chunks.accept(bytes),
            Self::UntilClose => Ok(bytes.len()),
        }
    }
}

/// Takes as much of `available` as `left` allows.
fn take(left: &mut u64, available: usize) -> usize {
    let count = usize::try_from(*left).map_or(available, |left| left.min(available));
    *left -= count as u64;
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_ends_where_it_says() {
        let mut body = Body::new(Framing::Length(5));
        assert_eq!(body.accept(b"abc"), Ok(3));
        assert!(!body.is_done());
        assert_eq!(body.accept(b"defg"), Ok(2));
        assert!(body.is_done());
        assert_eq!(body.accept(b"g"), Ok(0));
    }

    #[test]
    fn no_body_is_done_at_once() {
        assert!(Body::new(Framing::Empty).is_done());
        assert!(!Body::new(Framing::UntilClose).is_done());
    }
}
