//! The proof that a fresh WebSocket carries what a link will send: an echo of one large message.
//!
//! Middleboxes were seen to grant the upgrade and then to pass no frame, or small ones only. So before a path is trusted,
//! the client sends [`PROOF_BYTES`] and the server sends them back. The client announces it with the header
//! [`PROOF_HEADER`] of the upgrade, whose value is the count.

use std::io;

use http::{HeaderMap, HeaderName};
use rand::Rng as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::WebSocketStream;

/// Announces how many bytes the client wants back.
pub(crate) const PROOF_HEADER: HeaderName = HeaderName::from_static("yonder-echo");

/// Bytes of the proof: the length of a full message of bulk data, far above what fits into one segment or buffer of a
/// middlebox.
pub(crate) const PROOF_BYTES: usize = 64 * 1024;

/// How many bytes the upgrade with `headers` asks to have sent back before the link begins; zero when it asks for none.
/// More than the proof needs counts as none: the link's greeting then fails, as for any client that breaks the protocol.
pub fn echo_asked(headers: &HeaderMap) -> usize {
    headers
        .get(PROOF_HEADER)
        .and_then(|value| value.to_str().ok()?.parse().ok())
        .filter(|&bytes: &usize| bytes <= PROOF_BYTES)
        .unwrap_or(0)
}

impl<T: AsyncRead + AsyncWrite + Unpin> WebSocketStream<T> {
    /// The server's part of the proof: greets, then sends the first `bytes` bytes back. Give it a deadline.
    ///
    /// # Errors
    /// The stream ended or failed before.
    pub async fn echo(&mut self, bytes: usize) -> io::Result<()> {
        self.flush().await?;
        if bytes == 0 {
            return Ok(());
        }
        let mut proof = vec![0; bytes];
        self.read_exact(&mut proof).await?;
        self.write_all(&proof).await?;
        self.flush().await
    }

    /// The client's part: sends the announced bytes and waits until they have come back. Give it a deadline.
    ///
    /// # Errors
    /// The stream ended or failed, or other bytes came back.
    pub(crate) async fn prove(&mut self) -> io::Result<()> {
        let mut proof = vec![0; PROOF_BYTES];
        // Bytes that no middlebox can compress or hold in a cache.
        rand::rng().fill_bytes(&mut proof);
        self.write_all(&proof).await?;
        self.flush().await?;
        let mut echo = vec![0; PROOF_BYTES];
        self.read_exact(&mut echo).await?;
        if echo == proof {
            Ok(())
        } else {
            Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a message was changed on the way",
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::HeaderValue;

    use super::super::Masking;
    use super::*;

    #[tokio::test]
    async fn the_proof_passes_and_the_stream_goes_on() {
        let (near, far) = tokio::io::duplex(10_000);
        let mut client = WebSocketStream::client(near, Bytes::new(), Masking::Random);
        let mut server = WebSocketStream::server(far, Bytes::new());
        let serve = async {
            server.echo(PROOF_BYTES).await.expect("echoes");
            server.read_u8().await.expect("reads")
        };
        let ask = async {
            client.greeted().await.expect("greeted");
            client.prove().await.expect("proven");
            client.write_u8(7).await.expect("writes");
            client.flush().await.expect("flushes");
        };
        let (got, ()) = tokio::join!(serve, ask);
        assert_eq!(got, 7);
    }

    #[test]
    fn only_sensible_counts_are_echoed() {
        for (value, bytes) in [
            ("65536", 65536),
            ("1", 1),
            ("65537", 0),
            ("-1", 0),
            ("x", 0),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(PROOF_HEADER, HeaderValue::from_static(value));
            assert_eq!(echo_asked(&headers), bytes, "{value}");
        }
        assert_eq!(echo_asked(&HeaderMap::new()), 0);
    }
}
