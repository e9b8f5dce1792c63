//! `/link`: hands carriers to the hub, whether they come as a WebSocket upgrade or as plain requests.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Body as HttpBody;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use yonder_protocol::limits::HANDSHAKE_TIMEOUT;
use yonder_transport::carrier::{Carrier, CarrierKind};
use yonder_transport::poll::{PollConfig, PollServer};
use yonder_transport::websocket::{WebSocketStream, echo_asked, upgrade_response};

use super::answer::{self, Body};
use super::request::drain;
use crate::hub::Hub;
use crate::server::activity::Watched;
use crate::server::stream::ServerStream;

/// The server's end of all carriers.
#[derive(Debug)]
pub(crate) struct LinkRoute {
    hub: Arc<Hub>,
    poll: PollServer,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl LinkRoute {
    /// Carriers go to `hub`, in tasks of `tasks` that end with `stop`.
    pub(crate) fn new(hub: Arc<Hub>, tasks: TaskTracker, stop: CancellationToken) -> Self {
        let (poll, opened) = PollServer::new(PollConfig::default());
        let route = Self {
            hub,
            poll,
            tasks,
            stop,
        };
        route
            .tasks
            .spawn(route.stop.clone().run_until_cancelled_owned(hand_over(
                opened,
                route.hub.clone(),
                route.tasks.clone(),
                route.stop.clone(),
            )));
        route
    }

    /// Answers one request.
    pub(crate) async fn answer<B>(&self, mut request: Request<B>) -> Response<Body>
    where
        B: HttpBody<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        if PollServer::is_for_poll(&request) {
            return self.poll.handle(request).await.map(BodyExt::boxed);
        }
        match upgrade_response(&request) {
            Ok(response) => {
                let upgrade = hyper::upgrade::on(&mut request);
                let echo = echo_asked(request.headers());
                let serve = serve_upgraded(self.hub.clone(), upgrade, echo);
                self.tasks
                    .spawn(self.stop.clone().run_until_cancelled_owned(serve));
                response.map(|()| answer::empty())
            }
            Err(error) => {
                drain(request.into_body()).await;
                let (head, ()) = error.response().into_parts();
                let mut response =
                    answer::refusal(head.status, "upgrade_required", &error.to_string());
                response.headers_mut().extend(head.headers);
                response
            }
        }
    }
}

/// Gives each carrier of requests a task.
async fn hand_over(
    mut opened: mpsc::Receiver<Carrier>,
    hub: Arc<Hub>,
    tasks: TaskTracker,
    stop: CancellationToken,
) {
    while let Some(carrier) = opened.recv().await {
        let hub = hub.clone();
        tasks.spawn(
            stop.clone()
                .run_until_cancelled_owned(async move { hub.serve_carrier(carrier).await }),
        );
    }
}

/// Serves the carrier that an answered upgrade becomes, after its first `echo` bytes were sent back.
async fn serve_upgraded(hub: Arc<Hub>, upgrade: OnUpgrade, echo: usize) {
    let upgraded = match timeout(HANDSHAKE_TIMEOUT, upgrade).await {
        Ok(Ok(upgraded)) => upgraded,
        Ok(Err(error)) => return tracing::debug!(%error, "a client left during the upgrade"),
        Err(_) => return tracing::debug!("an upgrade did not finish in time"),
    };
    // The connection itself rather than hyper's wrapping: no boxed I/O on the path of the bytes.
    let carrier = match upgraded.downcast::<TokioIo<Watched<ServerStream>>>() {
        Ok(parts) => {
            let stream = parts.io.into_inner().into_inner();
            let description = match stream.protection() {
                Some(tls) => format!("websocket over {tls}"),
                None => "websocket".to_owned(),
            };
            let websocket = WebSocketStream::server(stream, parts.read_buf);
            proven(websocket, echo, description).await
        }
        Err(upgraded) => {
            let websocket = WebSocketStream::server(TokioIo::new(upgraded), Bytes::new());
            proven(websocket, echo, "websocket".to_owned()).await
        }
    };
    match carrier {
        Ok(carrier) => hub.serve_carrier(carrier).await,
        Err(error) => tracing::debug!(%error, "a client left before its WebSocket was proven"),
    }
}

/// The carrier of `websocket` once its first `echo` bytes went back.
async fn proven<T>(
    mut websocket: WebSocketStream<T>,
    echo: usize,
    description: String,
) -> io::Result<Carrier>
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    timeout(HANDSHAKE_TIMEOUT, websocket.echo(echo)).await??;
    Ok(Carrier::new(websocket, CarrierKind::WebSocket, description))
}
