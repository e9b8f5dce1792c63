//! One accepted connection: handshake, requests one after the other, and the limits that end it.

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use yonder_protocol::limits::HANDSHAKE_TIMEOUT;
use yonder_transport::tune_carrier_socket;

use super::activity::{Activity, Expired, RequestGuard, Watched};
use super::stream::ServerStream;
use super::tls::ServerTls;
use crate::http::Api;
use crate::http::answer::Body;

/// Bytes that hyper reads or writes at once, and thereby also the longest request head.
const BUFFER_BYTES: usize = 128 * 1024;

/// Header fields of one request: twice what clients behind several proxies were seen to send.
const HEADERS_MAX: usize = 100;

/// What closing an idle connection may take.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);

/// Serves `tcp` until its peer leaves, a limit is passed, or `close` is cancelled and the request under way is answered.
pub(crate) async fn serve(
    tcp: TcpStream,
    tls: Option<&ServerTls>,
    api: Arc<Api>,
    close: CancellationToken,
) {
    tune_carrier_socket(&tcp);
    let activity = Activity::new();
    let stream = match timeout(HANDSHAKE_TIMEOUT, ServerStream::accept(tcp, tls)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "a TLS handshake failed"),
        Err(_) => return tracing::debug!("a TLS handshake did not finish in time"),
    };
    let io = TokioIo::new(Watched::new(stream, activity.clone()));
    let service = service_fn(|request: Request<Incoming>| {
        let guard = activity.request();
        let (api, activity) = (&api, &activity);
        async move {
            let response = api.answer(request, activity).await;
            Ok::<_, Infallible>(response.map(|body| Counted {
                body,
                _guard: guard,
            }))
        }
    });
    let connection = http1::Builder::new()
        // Limits of time are `Activity`'s: hyper's for heads would also end idle connections.
        .header_read_timeout(None)
        .max_buf_size(BUFFER_BYTES)
        .max_headers(HEADERS_MAX)
        .serve_connection(io, service)
        .with_upgrades();
    let mut connection = pin!(connection);
    let end = tokio::select! {
        end = connection.as_mut() => end,
        expired = activity.expired() => match expired {
            Expired::Idle => {
                connection.as_mut().graceful_shutdown();
                timeout(CLOSE_LIMIT, connection.as_mut()).await.unwrap_or(Ok(()))
            }
            Expired::Stalled => return tracing::debug!("a client stalled within a request"),
        },
        () = close.cancelled() => {
            connection.as_mut().graceful_shutdown();
            // Past the grace period the server drops this future.
            connection.await
        }
    };
    if let Err(error) = end {
        // Clients come and go; only the curious want to know.
        tracing::debug!(%error, "a connection ended early");
    }
}

/// A body whose request counts as under way until it is sent or dropped.
struct Counted {
    body: Body,
    _guard: RequestGuard,
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
