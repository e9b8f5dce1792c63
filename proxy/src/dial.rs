//! How the proxy gets its outgoing connections. It does not say what they travel over.

use std::future::Future;
use std::io;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use yonder_protocol::{Target, TunnelError, TunnelErrorCode};

/// How much certainty a client of the proxy needs before it is told that a tunnel is open.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DialMode {
    /// Return once the target answered or failed.
    Verdict,
    /// Return at once; data may ride with the open. A failure shows as a reset of the stream.
    Optimistic,
}

/// Opens byte streams to targets.
pub trait Dial: Send + Sync + 'static {
    /// A connection to a target.
    ///
    /// `shutdown` ends the writing half alone. Dropping the stream without it cuts the connection. A
    /// stream that fails yields the [`std::io::Error`] made from a [`TunnelError`], so that the
    /// cause can be shown.
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// Opens a stream to `target` for `session`, the browser session whose credential the request
    /// carried.
    ///
    /// # Cancel safety
    ///
    /// The future is dropped when the client goes away; whatever it has begun must end then.
    fn dial(
        &self,
        session: &str,
        target: &Target,
        mode: DialMode,
    ) -> impl Future<Output = Result<Self::Stream, TunnelError>> + Send;

    /// Whether [`Self::join`] relays better than copying between the two would.
    fn joins(&self) -> bool {
        false
    }

    /// Relays between a client's socket and a stream until both directions ended or one side failed, and closes both: in
    /// order, or with a reset when the other side failed. Called for raw pipes (`CONNECT`, `Upgrade`) once nothing read is
    /// left to pass on, if [`Self::joins`].
    ///
    /// # Cancel safety
    ///
    /// The future is dropped when the session is removed or the proxy closed; both sides must see a reset then.
    fn join(
        &self,
        stream: Self::Stream,
        client: TcpStream,
    ) -> impl Future<Output = Result<(), TunnelError>> + Send {
        drop((stream, client));
        async {
            Err(TunnelError::new(
                TunnelErrorCode::Internal,
                "this dialler does not relay",
            ))
        }
    }
}

/// What a stream's failure says about its tunnel.
pub(crate) fn tunnel_error(error: &io::Error) -> TunnelError {
    if let Some(cause) = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<TunnelError>())
    {
        return cause.clone();
    }
    let code = match error.kind() {
        io::ErrorKind::ConnectionRefused => TunnelErrorCode::Refused,
        io::ErrorKind::TimedOut => TunnelErrorCode::TimedOut,
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => TunnelErrorCode::Reset,
        _ => TunnelErrorCode::Internal,
    };
    TunnelError::new(code, error.to_string())
}
