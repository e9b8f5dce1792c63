//! A server half reduced to its link: both carriers on one port, greeted by an acceptor.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::task::TaskTracker;
use yonder_transport::acceptor::{Accepted, Acceptor, NewLink};
use yonder_transport::carrier::{Carrier, CarrierKind};
use yonder_transport::link::LinkConfig;
use yonder_transport::poll::{PollConfig, PollServer};
use yonder_transport::websocket::{WebSocketStream, upgrade_response};
use yonder_transport::{VERSION, VERSION_HEADER};

/// Links that nobody took yet: a client whose first carrier was cut may leave some.
const WAITING: usize = 64;

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) acceptor: Arc<Acceptor>,
    pub(crate) links: mpsc::Receiver<NewLink>,
    _tasks: JoinSet<()>,
}

struct State {
    polls: PollServer,
    acceptor: Arc<Acceptor>,
    links: mpsc::Sender<NewLink>,
    carriers: TaskTracker,
}

impl Server {
    pub(crate) async fn start(config: LinkConfig) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = Arc::new(Acceptor::new(config));
        let (polls, mut polled) = PollServer::new(PollConfig::default());
        let (sender, links) = mpsc::channel(WAITING);
        let state = Arc::new(State {
            polls,
            acceptor: Arc::clone(&acceptor),
            links: sender,
            carriers: TaskTracker::new(),
        });
        let mut tasks = JoinSet::new();
        let shared = Arc::clone(&state);
        tasks.spawn(async move {
            while let Some(carrier) = polled.recv().await {
                shared.greet(carrier);
            }
        });
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (tcp, _) = listener.accept().await.unwrap();
                connections.spawn(Arc::clone(&state).serve(tcp));
                while connections.try_join_next().is_some() {}
            }
        });
        Self {
            address,
            acceptor,
            links,
            _tasks: tasks,
        }
    }
}

impl State {
    async fn serve(self: Arc<Self>, tcp: TcpStream) {
        let service = service_fn(|request| {
            let state = Arc::clone(&self);
            async move { Ok::<_, Infallible>(state.answer(request).await) }
        });
        // Connections break in these tests on purpose.
        let _ = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(tcp), service)
            .with_upgrades()
            .await;
    }

    async fn answer(self: Arc<Self>, mut request: Request<Incoming>) -> Response<Full<Bytes>> {
        let mut response = if PollServer::is_for_poll(&request) {
            self.polls.handle(request).await
        } else {
            match upgrade_response(&request) {
                Ok(response) => {
                    let upgrade = hyper::upgrade::on(&mut request);
                    let state = Arc::clone(&self);
                    self.carriers.spawn(async move {
                        if let Ok(upgraded) = upgrade.await {
                            let io = WebSocketStream::server(TokioIo::new(upgraded), Bytes::new());
                            state.greet(Carrier::new(io, CarrierKind::WebSocket, "WebSocket"));
                        }
                    });
                    response.map(|()| Full::default())
                }
                Err(error) => error.response().map(|()| Full::from(error.to_string())),
            }
        };
        let version = HeaderValue::from_static(VERSION);
        response.headers_mut().insert(VERSION_HEADER, version);
        response
    }

    fn greet(self: &Arc<Self>, carrier: Carrier) {
        let state = Arc::clone(self);
        self.carriers.spawn(async move {
            // One that fails was cut within its greeting.
            if let Ok(Accepted::New(new)) = state.acceptor.accept(carrier).await {
                // A test that is over takes none.
                let _ = state.links.send(new).await;
            }
        });
    }
}
