//! A server half in this process, over pipes in memory: what the tests of this crate attach to.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncWriteExt as _, copy_bidirectional, duplex};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::task::TaskTracker;
use yonder_protocol::call::{Command, Notice, Outcome};
use yonder_protocol::link::{OpenKind, Role, SessionName};
use yonder_protocol::operation::types::State;
use yonder_protocol::{Target, TunnelError, TunnelErrorCode};
use yonder_transport::acceptor::{Accepted, Acceptor, NewLink};
use yonder_transport::carrier::{Carrier, CarrierKind, Connect, ConnectError};
use yonder_transport::link::{IncomingStream, Link, LinkConfig};
use yonder_transport::message;

use crate::attach::{self, Attach, Attachment, Fresh};
use crate::cli::LogFormat;
use crate::console::Console;
use crate::tunnels::Tunnels;

/// Room in the pipes that stand for carriers.
const PIPE_BYTES: usize = 256 * 1024;

/// Dials plain sockets for tunnels, and records what is published.
pub(crate) struct TestServer {
    acceptor: Acceptor,
    tasks: TaskTracker,
    /// What the next connects fail with; empty when they succeed.
    failures: Mutex<Vec<ConnectError>>,
    links: mpsc::Sender<Link>,
    states: mpsc::Sender<State>,
}

/// What a test sees of a [`TestServer`].
pub(crate) struct Seen {
    /// Each new link, from the server's end.
    pub(crate) links: mpsc::Receiver<Link>,
    /// Each inventory that was published.
    pub(crate) states: mpsc::Receiver<State>,
}

impl TestServer {
    pub(crate) fn new() -> (Arc<Self>, Seen) {
        let (links, seen_links) = mpsc::channel(64);
        let (states, seen_states) = mpsc::channel(64);
        let server = Arc::new(Self {
            acceptor: Acceptor::new(LinkConfig::server("test-server")),
            tasks: TaskTracker::new(),
            failures: Mutex::default(),
            links,
            states,
        });
        let seen = Seen {
            links: seen_links,
            states: seen_states,
        };
        (server, seen)
    }

    /// Has the next connects fail with `errors`, the last one first.
    pub(crate) fn fail_with(&self, errors: Vec<ConnectError>) {
        *self.failures.lock().unwrap() = errors;
    }

    async fn serve(self: Arc<Self>, carrier: Carrier) {
        let Ok(Accepted::New(NewLink {
            link, mut incoming, ..
        })) = self.acceptor.accept(carrier).await
        else {
            return;
        };
        self.links.send(link.clone()).await.unwrap();
        let mut streams = JoinSet::new();
        while let Some(stream) = incoming.next().await {
            streams.spawn(answer(stream, self.states.clone()));
        }
    }
}

/// The way to a [`TestServer`].
pub(crate) struct Pipe(pub(crate) Arc<TestServer>);

impl Connect for Pipe {
    fn connect(&self) -> Pin<Box<dyn Future<Output = Result<Carrier, ConnectError>> + Send + '_>> {
        Box::pin(async {
            let Self(server) = self;
            let failure = server
                .failures
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop();
            if let Some(error) = failure {
                return Err(error);
            }
            let (near, far) = duplex(PIPE_BYTES);
            let far = Carrier::new(far, CarrierKind::Memory, "memory");
            server.tasks.spawn(Arc::clone(server).serve(far));
            Ok(Carrier::new(near, CarrierKind::Memory, "memory"))
        })
    }
}

async fn answer(IncomingStream { open, mut stream }: IncomingStream, states: mpsc::Sender<State>) {
    match open.kind {
        OpenKind::Tunnel(target) => match dial(&target).await {
            Ok(mut socket) => {
                stream.accept("");
                if copy_bidirectional(&mut stream, &mut socket).await.is_err() {
                    let _ = socket.set_zero_linger();
                    stream.reset(TunnelError::new(TunnelErrorCode::Reset, "reset"));
                }
            }
            Err(error) => {
                stream.reset(TunnelError::new(
                    TunnelErrorCode::Refused,
                    error.to_string(),
                ));
            }
        },
        OpenKind::Call => {
            let (notice, _) = message::read_message::<_, Notice>(&mut stream)
                .await
                .unwrap();
            if let Notice::State { state } = notice {
                states.send(state).await.unwrap();
            }
            let done = Outcome::Success {
                value: serde_json::Value::Null,
                files: Vec::new(),
            };
            message::write_message(&mut stream, &done, &[])
                .await
                .unwrap();
            stream.shutdown().await.unwrap();
        }
        other => panic!("{other:?} is new"),
    }
}

async fn dial(target: &Target) -> io::Result<TcpStream> {
    TcpStream::connect((target.host(), target.port())).await
}

/// Calls `command` over `link`, as the server half does.
pub(crate) async fn call(link: &Link, command: Command) -> (Outcome, Vec<bytes::Bytes>) {
    let mut stream = link.open_call().unwrap();
    message::write_message(&mut stream, &command, &[])
        .await
        .unwrap();
    stream.shutdown().await.unwrap();
    message::read_message(&mut stream).await.unwrap()
}

/// Attaches to `server`.
pub(crate) async fn attached(server: &Arc<TestServer>) -> (Attachment, Fresh, Tunnels) {
    let (links, tunnels) = attach::links();
    let attach = Attach {
        server: "memory".to_owned(),
        connector: Arc::new(Pipe(Arc::clone(server))),
        prompts: false,
        role: Role::Browser,
        session: SessionName::default(),
        console: Console::stderr(LogFormat::Text),
    };
    let (attachment, fresh) = attach.start(links).await.unwrap();
    (attachment, fresh, tunnels)
}
