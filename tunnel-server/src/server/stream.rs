//! An accepted connection, plain or TLS, as one type.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use rustls::ProtocolVersion;
use tokio::io::{AsyncRead, AsyncWrite, BufReader, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use yonder_transport::tls::READ_BUFFER_BYTES;

use super::tls::ServerTls;

/// Plaintext that TLS takes at once: a batch of the link, so that it leaves in one system call.
const TLS_WRITE_BYTES: usize = 512 * 1024;

/// An accepted connection.
#[derive(Debug)]
pub(crate) enum ServerStream {
    Plain(TcpStream),
    /// With a buffer under the records, which would otherwise be read 4 KiB at a time.
    Tls(Box<TlsStream<BufReader<TcpStream>>>),
}

impl ServerStream {
    /// Shakes hands, where TLS is asked for. There is no time limit in here.
    pub(crate) async fn accept(tcp: TcpStream, tls: Option<&ServerTls>) -> io::Result<Self> {
        let Some(tls) = tls else {
            return Ok(Self::Plain(tcp));
        };
        let buffered = BufReader::with_capacity(READ_BUFFER_BYTES, tcp);
        let stream = TlsAcceptor::from(tls.config.clone())
            .accept_with(buffered, |session| {
                session.set_buffer_limit(Some(TLS_WRITE_BYTES));
            })
            .await?;
        Ok(Self::Tls(Box::new(stream)))
    }

    /// The version of TLS in words, if there is any.
    pub(crate) fn protection(&self) -> Option<&'static str> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(stream) => Some(match stream.get_ref().1.protocol_version() {
                Some(ProtocolVersion::TLSv1_3) => "TLS 1.3",
                Some(ProtocolVersion::TLSv1_2) => "TLS 1.2",
                _ => "TLS",
            }),
        }
    }
}

impl AsyncRead for ServerStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for ServerStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
