//! One client connection from its first byte to its last: requests are read, judged and served one after
//! the other.

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::debug;
use yonder_protocol::{Target, TunnelError, TunnelErrorCode};

use crate::answer::{Answer, PRIMED, Style};
use crate::body::Framing;
use crate::client::{Client, Gone};
use crate::config::{Challenge, ProxyConfig};
use crate::credential::{Session, Sessions};
use crate::dial::{Dial, DialMode, tunnel_error};
use crate::exchange::{End, Fault, exchange};
use crate::head::HeadScan;
use crate::head::request::{BadRequest, Kind, Request, parse};
use crate::limits::{DIAL_DEADLINE, LINGER, REUSE_UNSAFE_IDLE};
use crate::pool::{Pool, Upstream};
use crate::reach::Reach;
use crate::relay::{RelayEnd, Settle, relay};

/// What the connections of a proxy and its handle share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) config: ProxyConfig,
    pub(crate) sessions: Sessions,
    pub(crate) reach: Reach,
    /// Requests answered with 403 for want of a credential.
    pub(crate) unauthenticated: watch::Sender<u64>,
    /// Wakes the task that looks through the pool.
    pub(crate) sweep: Notify,
}

/// What the connections of a proxy share.
#[derive(Debug)]
pub(crate) struct Shared<D: Dial> {
    pub(crate) core: Arc<Core>,
    pub(crate) dial: D,
    pub(crate) pool: Pool<D::Stream>,
}

/// Serves one client connection until it ends or `stop` is cancelled, which cuts it.
pub(crate) async fn serve<D: Dial>(
    shared: Arc<Shared<D>>,
    socket: TcpStream,
    stop: CancellationToken,
) {
    let mut connection = Connection {
        shared: &shared,
        client: Client::new(socket),
        session: None,
        upstream: None,
        joined: None,
        head: Vec::new(),
    };
    let next = stop
        .run_until_cancelled(connection.run())
        .await
        .unwrap_or(Next::Reset);
    let Connection {
        client,
        upstream,
        joined,
        ..
    } = connection;
    if let Some(upstream) = upstream {
        shared.pool.put(upstream);
    }
    match next {
        // The loop goes on until something else is next.
        Next::Again | Next::Drop => drop(client),
        Next::Close(limit) => {
            stop.run_until_cancelled(client.close(limit)).await;
        }
        Next::Reset => client.reset(),
        Next::Join => {
            if let Some(upstream) = joined {
                stop.run_until_cancelled(join(&shared, upstream, client))
                    .await;
            }
        }
    }
}

/// Has the dialler relay a raw pipe for as long as its session lasts.
async fn join<D: Dial>(shared: &Shared<D>, upstream: Upstream<D::Stream>, client: Client) {
    let Upstream {
        stream,
        session,
        target,
        ..
    } = upstream;
    let joined = shared.dial.join(stream, client.socket);
    if let Some(Err(error)) = session.removed.run_until_cancelled(joined).await {
        debug!(%target, %error, "tunnel failed");
    }
}

/// What becomes of a client connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Next {
    /// It may bring another request.
    Again,
    /// It ends after an answer; input that still comes is discarded for at most this long.
    Close(Duration),
    /// The client is gone or has what it wanted.
    Drop,
    /// The client is to see that something broke.
    Reset,
    /// It is a raw pipe from here on, which the dialler relays.
    Join,
}

/// A request that may be served, or what to answer in its place.
enum Verdict {
    Serve(Request, Arc<Session>),
    Primed { close: bool },
    Refuse { answer: Answer, style: Style },
}

struct Connection<'a, D: Dial> {
    shared: &'a Shared<D>,
    client: Client,
    /// Whose request was served last.
    session: Option<Arc<Session>>,
    /// The connection that served the last request, if it can serve another.
    upstream: Option<Upstream<D::Stream>>,
    /// The raw pipe that the dialler is to relay.
    joined: Option<Upstream<D::Stream>>,
    /// The head for the target; kept for its allocation.
    head: Vec<u8>,
}

impl<D: Dial> Connection<'_, D> {
    async fn run(&mut self) -> Next {
        loop {
            let length = match self.read_head().await {
                Ok(length) => length,
                Err(next) => return next,
            };
            let verdict = self.judge(length);
            self.client.input.consume(length);
            let next = match verdict {
                Verdict::Serve(request, session) => self.serve(&request, session).await,
                Verdict::Primed { close } => match self.client.write(PRIMED).await {
                    Ok(()) if !close => Next::Again,
                    Ok(()) => Next::Close(LINGER),
                    Err(Gone) => Next::Drop,
                },
                Verdict::Refuse { answer, style } => self.answer(&answer, style).await,
            };
            if next != Next::Again {
                return next;
            }
        }
    }

    /// Waits for a request and reads its head; the length of it.
    async fn read_head(&mut self) -> Result<usize, Next> {
        if self.client.input.is_empty() {
            self.wait_for_input().await?;
        }
        let mut scan = HeadScan::default();
        let mut deadline = None;
        loop {
            // A client may end a body with one line end too many (RFC 9112, section 2.2).
            while self.client.input.filled().starts_with(b"\r\n") {
                self.client.input.consume(2);
                scan = HeadScan::default();
            }
            let bytes = self.client.input.filled();
            let found = if bytes == b"\r" {
                Ok(None)
            } else {
                scan.advance(bytes)
            };
            match found {
                Ok(Some(length)) => return Ok(length),
                Ok(None) => {}
                Err(error) => {
                    return Err(self
                        .answer(&Answer::invalid_head(error), Style::UNKNOWN)
                        .await);
                }
            }
            let deadline = *deadline
                .get_or_insert_with(|| Instant::now() + self.shared.core.config.head_timeout);
            match timeout_at(deadline, poll_fn(|cx| self.client.poll_fill(cx))).await {
                Ok(Ok(count)) if count > 0 => {}
                Ok(_) => return Err(Next::Drop),
                Err(_) => return Err(self.answer(&Answer::head_timeout(), Style::UNKNOWN).await),
            }
        }
    }

    /// Waits for the first byte of a request. Lets go of the connection to the target when that one ends.
    async fn wait_for_input(&mut self) -> Result<(), Next> {
        let deadline = Instant::now() + self.shared.core.config.idle_timeout;
        let removed = async {
            match &self.session {
                Some(session) => session.removed.cancelled().await,
                None => pending().await,
            }
        };
        let mut removed = pin!(removed);
        let client = &mut self.client;
        let upstream = &mut self.upstream;
        let input = poll_fn(|cx| {
            if let Some(idle) = upstream
                && idle.poll_stale(cx).is_ready()
            {
                *upstream = None;
            }
            if let Poll::Ready(filled) = client.poll_fill(cx) {
                return Poll::Ready(filled.is_ok_and(|count| count > 0));
            }
            ready!(removed.as_mut().poll(cx));
            Poll::Ready(false)
        });
        match timeout_at(deadline, input).await {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(Next::Drop),
        }
    }

    /// Decides what becomes of the request whose head is the first `length` bytes of the input.
    fn judge(&mut self, length: usize) -> Verdict {
        let core = &self.shared.core;
        let head = &self.client.input.filled()[..length];
        let parsed = match parse(head, &mut self.head) {
            Ok(parsed) => parsed,
            Err(error) => {
                let answer = match error {
                    BadRequest::TooManyFields => Answer::head_too_large(),
                    error => Answer::bad_request(&error),
                };
                return Verdict::Refuse {
                    answer,
                    style: Style::UNKNOWN,
                };
            }
        };
        let request = parsed.request;
        let style = style(&request);
        let priming = request.is_priming();
        let Some(session) = parsed
            .credential
            .and_then(|value| core.sessions.authenticate(value))
        else {
            let challenged = match core.config.challenge {
                Challenge::Always => true,
                Challenge::PrimingHostOnly => priming && request.kind == Kind::Forward,
            };
            if challenged {
                let answer = Answer::authenticate(&core.config.realm);
                return Verdict::Refuse { answer, style };
            }
            // A browser tries https:// at the priming host before it was primed; that is no lost credential.
            if !priming {
                core.unauthenticated.send_modify(|count| *count += 1);
            }
            return Verdict::Refuse {
                answer: Answer::unauthenticated(),
                style: Style {
                    close: true,
                    ..style
                },
            };
        };
        if !priming {
            return Verdict::Serve(request, session);
        }
        if request.kind == Kind::Forward {
            return Verdict::Primed { close: style.close };
        }
        let error = TunnelError::new(
            TunnelErrorCode::NameNotFound,
            "this name is the proxy's own",
        );
        Verdict::Refuse {
            answer: Answer::tunnel(&request.target, &error),
            style,
        }
    }

    /// Serves a request for as long as its session lasts.
    async fn serve(&mut self, request: &Request, session: Arc<Session>) -> Next {
        self.session = Some(Arc::clone(&session));
        let served = async {
            match request.kind {
                Kind::Tunnel => self.tunnel(request, &session).await,
                Kind::Forward => self.forward(request, &session).await,
            }
        };
        session
            .removed
            .run_until_cancelled(served)
            .await
            .unwrap_or(Next::Reset)
    }

    /// Serves `CONNECT`.
    async fn tunnel(&mut self, request: &Request, session: &Arc<Session>) -> Next {
        let reach = &self.shared.core.reach;
        let target = &request.target;
        let mode = if reach.is_reachable(target) {
            DialMode::Optimistic
        } else {
            DialMode::Verdict
        };
        let stream = match self.dial(session, target, mode).await {
            Ok(stream) => stream,
            Err(Undialled::ClientGone) => return Next::Drop,
            Err(Undialled::Failed(error)) => return self.unreachable(request, &error).await,
        };
        if mode == DialMode::Verdict {
            reach.answered(target);
        }
        let mut upstream = Upstream::new(stream, Arc::clone(session), target.clone());
        upstream
            .input
            .extend(b"HTTP/1.1 200 Connection Established\r\n\r\n");
        self.pipe(upstream, mode == DialMode::Optimistic).await
    }

    /// Relays until the pipe ends. `unproven` says that the target may still turn out to be unreachable.
    async fn pipe(&mut self, mut upstream: Upstream<D::Stream>, mut unproven: bool) -> Next {
        let reach = &self.shared.core.reach;
        let target = upstream.target.clone();
        let settle = self.shared.dial.joins().then_some(if unproven {
            Settle::Answered
        } else {
            Settle::AtOnce
        });
        let answered = || {
            if std::mem::take(&mut unproven) {
                reach.answered(&target);
            }
        };
        match relay(&mut self.client, &mut upstream, settle, answered).await {
            RelayEnd::Settled => {
                self.joined = Some(upstream);
                Next::Join
            }
            RelayEnd::Finished | RelayEnd::ClientGone => Next::Drop,
            RelayEnd::Failed(error) => {
                debug!(%target, %error, "tunnel failed");
                if unproven {
                    reach.failed(&target, &tunnel_error(&error));
                }
                Next::Reset
            }
        }
    }

    /// Serves anything else than `CONNECT`.
    async fn forward(&mut self, request: &Request, session: &Arc<Session>) -> Next {
        let reach = &self.shared.core.reach;
        let target = &request.target;
        let mut fresh = false;
        loop {
            let mut upstream = match self.upstream_for(request, session, fresh).await {
                Ok(upstream) => upstream,
                Err(Undialled::ClientGone) => return Next::Drop,
                Err(Undialled::Failed(error)) => return self.unreachable(request, &error).await,
            };
            let end = exchange(&mut self.client, &mut upstream, &self.head, request).await;
            if let End::Unanswered { fault, silent } = end {
                let closed = matches!(fault, Fault::Closed | Fault::Io(_));
                if upstream.reused && silent && closed && request.repeatable {
                    // The target closed an idle connection at the moment it was used again.
                    fresh = true;
                    continue;
                }
                return self
                    .unanswered(request, fault, !upstream.reused && silent)
                    .await;
            }
            if !upstream.reused && !matches!(end, End::ClientGone) {
                reach.answered(target);
            }
            return match end {
                End::Complete {
                    client_open,
                    upstream_open,
                } => {
                    if upstream_open && upstream.input.is_empty() {
                        upstream.reused = true;
                        upstream.bound |= request.bound;
                        upstream.used = Instant::now();
                        self.upstream = Some(upstream);
                    }
                    if client_open {
                        Next::Again
                    } else {
                        Next::Close(LINGER)
                    }
                }
                End::Switched => self.pipe(upstream, false).await,
                End::ClientGone => Next::Drop,
                End::BrokenOff | End::Unanswered { .. } => Next::Reset,
            };
        }
    }

    /// A connection for `request`: the one of the last request, an idle one, or a new one if `fresh` or
    /// there is none.
    async fn upstream_for(
        &mut self,
        request: &Request,
        session: &Arc<Session>,
        fresh: bool,
    ) -> Result<Upstream<D::Stream>, Undialled> {
        let shared = self.shared;
        let target = &request.target;
        // A request that must not be sent twice is not risked on a connection that the target may be about
        // to close.
        let since = if request.repeatable {
            None
        } else {
            Instant::now().checked_sub(REUSE_UNSAFE_IDLE)
        };
        if let Some(mut own) = self.upstream.take() {
            let stale = poll_fn(|cx| Poll::Ready(own.poll_stale(cx).is_ready())).await;
            let recent = since.is_none_or(|since| own.used >= since);
            if !stale && !fresh && recent && own.serves(session, target) {
                return Ok(own);
            }
            if !stale {
                shared.pool.put(own);
            }
        }
        if !fresh && let Some(idle) = shared.pool.take(session, target, since).await {
            return Ok(idle);
        }
        // The request rides with the open: a failure still comes before any answer, and is told then.
        let stream = self.dial(session, target, DialMode::Optimistic).await?;
        Ok(Upstream::new(stream, Arc::clone(session), target.clone()))
    }

    /// Dials unless the client goes away first.
    async fn dial(
        &mut self,
        session: &Session,
        target: &Target,
        mode: DialMode,
    ) -> Result<D::Stream, Undialled> {
        let dial = self.shared.dial.dial(&session.name, target, mode);
        let mut dial = pin!(timeout(DIAL_DEADLINE, dial));
        let client = &mut self.client;
        poll_fn(|cx| {
            if let Poll::Ready(dialled) = dial.as_mut().poll(cx) {
                return Poll::Ready(match dialled {
                    Ok(Ok(stream)) => Ok(stream),
                    Ok(Err(error)) => Err(Undialled::Failed(error)),
                    Err(_) => Err(Undialled::Failed(TunnelError::new(
                        TunnelErrorCode::TimedOut,
                        "the connection was not made in time",
                    ))),
                });
            }
            client.poll_gone(cx).map(|Gone| Err(Undialled::ClientGone))
        })
        .await
    }

    /// Tells the client, and remembers, that the target could not be reached.
    async fn unreachable(&mut self, request: &Request, error: &TunnelError) -> Next {
        debug!(target = %request.target, code = ?error.code, "dial failed");
        self.shared.core.reach.failed(&request.target, error);
        self.answer(&Answer::tunnel(&request.target, error), style(request))
            .await
    }

    /// Tells the client why there is no response. `undialled` says that the target was perhaps never reached.
    async fn unanswered(&mut self, request: &Request, fault: Fault, undialled: bool) -> Next {
        let target = &request.target;
        // How much of its body the client still sends is not known any more.
        let style = style(request);
        let answer = match fault {
            Fault::Chunk(error) => Answer::bad_request(&error),
            Fault::Response(error) => Answer::bad_response(target, &error),
            Fault::Closed => Answer::no_response(target),
            Fault::Io(error) => {
                let error = tunnel_error(&error);
                if undialled {
                    return self.unreachable(request, &error).await;
                }
                Answer::tunnel(target, &error)
            }
        };
        debug!(%target, status = answer.status(), "no response");
        self.answer(&answer, style).await
    }

    /// Writes an answer of our own.
    async fn answer(&mut self, answer: &Answer, style: Style) -> Next {
        match self.client.write(&answer.render(style)).await {
            Ok(()) if style.close => Next::Close(LINGER),
            Ok(()) => Next::Again,
            Err(Gone) => Next::Drop,
        }
    }
}

/// How an answer of our own to `request` is written. The connection goes on only when nothing of the request
/// can still be on its way.
fn style(request: &Request) -> Style {
    let bodiless = matches!(request.framing, Framing::Empty | Framing::Length(0));
    Style {
        html: request.wants_html,
        head_only: request.head_only,
        close: request.close || request.kind == Kind::Tunnel || !bodiless || request.upgrade,
    }
}

/// Why there is no connection to the target.
enum Undialled {
    ClientGone,
    Failed(TunnelError),
}
