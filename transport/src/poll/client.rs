//! The client's end: one task that keeps an upload and a poll going.

use std::io::{self, IoSlice};
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::header::HeaderValue;
use http::{HeaderMap, HeaderName, Method, Request, Response, StatusCode};
use http_body_util::Full;
use tokio::io::{
    AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadBuf, ReadHalf,
    WriteHalf,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use yonder_protocol::limits::HANDSHAKE_TIMEOUT;

use super::{
    ACCEPTED, ANSWER_BYTES_MAX, CARRIER, CLOSED, DIRECTION, DOWN, HOLD, OPEN, PIPE_BYTES, SEQUENCE,
    UP,
};
use crate::carrier::{Carrier, CarrierKind, ConnectError};
use crate::http_client::{HttpClient, HttpConnection, PROBLEM_BYTES_MAX, retry_after};
use crate::{LINK_ROUTE, VERSION_HEADER};

/// Bodies of uploads: the first, and the bounds between which success and failure move the size. Firewalls were seen to
/// refuse more than 128 KiB, so the start is well below.
const CHUNK_START: usize = 64 * 1024;
const CHUNK_MIN: usize = 4 * 1024;
const CHUNK_MAX: usize = 512 * 1024;

/// How long an idle poll is held, in seconds: at first, and longest. Some proxies cut every answer at 15 s; all that
/// were tried allow 25 s otherwise.
const HOLD_START: u64 = 10;
const HOLD_STEP: u64 = 5;
const HOLD_MAX: u64 = 25;
const HOLD_MIN: u64 = 5;

/// An answer that fails this quickly was not cut by a time limit.
const CUT_AFTER_MIN: Duration = Duration::from_secs(3);

/// What an answer may take beyond the time that the server holds it.
const ANSWER_MARGIN: Duration = Duration::from_secs(10);

/// What an upload may take: 512 KiB at 17 KiB/s.
const UPLOAD_LIMIT: Duration = Duration::from_secs(30);

/// Pauses before a request is repeated: the first, doubled each time up to the last.
const PAUSE_START: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// How long one request is repeated before the carrier is given up; the link then looks for another.
const REPEAT_FOR: Duration = Duration::from_secs(10);

/// Opens a carrier of requests; `reason` tells the person why it is one.
pub(crate) async fn open(client: &Arc<HttpClient>, reason: &str) -> Result<Carrier, ConnectError> {
    let mut connection = client.open().await?;
    let request = post(client, OPEN, Bytes::new(), []);
    let answer = connection
        .exchange(request, PROBLEM_BYTES_MAX, HANDSHAKE_TIMEOUT)
        .await
        .map_err(|error| client.broken(&error))?;
    client.judge(&answer)?;
    let id = answer
        .headers()
        .get(CARRIER)
        .filter(|_| answer.status() == StatusCode::OK)
        .and_then(|id| id.to_str().ok())
        .ok_or_else(|| ConnectError::Protocol {
            server: client.address().to_string(),
            problem: format!(
                "it did not open a carrier of requests (status {}); update the older of the two halves",
                answer.status().as_u16()
            ),
        })?
        .to_owned();
    let description = format!("HTTP requests over {} ({reason})", connection.protection);
    let stream = PollStream::start(Arc::clone(client), id, connection);
    Ok(Carrier::new(stream, CarrierKind::Poll, description))
}

/// The link's side of a carrier of requests. Dropping it ends the requests at once.
#[derive(Debug)]
struct PollStream {
    pipe: DuplexStream,
    requests: JoinSet<()>,
    failure: Arc<OnceLock<String>>,
}

impl PollStream {
    fn start(client: Arc<HttpClient>, id: String, connection: HttpConnection) -> Self {
        let (near, far) = tokio::io::duplex(PIPE_BYTES);
        let failure = Arc::new(OnceLock::new());
        let mut requests = JoinSet::new();
        let outcome = Arc::clone(&failure);
        requests.spawn(async move {
            let (reader, writer) = tokio::io::split(far);
            let up = Direction::new(Arc::clone(&client), id.clone(), Some(connection));
            let down = Direction::new(client, id, None);
            let end = tokio::select! {
                end = upload(up, reader) => end,
                end = poll(down, writer) => end,
            };
            if let Err(problem) = end {
                tracing::debug!(%problem, "a carrier of requests failed");
                // Nobody else sets it.
                let _ = outcome.set(problem);
            }
        });
        Self {
            pipe: near,
            requests,
            failure,
        }
    }

    fn failure(&self, otherwise: io::Error) -> io::Error {
        match self.failure.get() {
            Some(problem) => io::Error::new(io::ErrorKind::ConnectionAborted, problem.clone()),
            None => otherwise,
        }
    }
}

impl AsyncRead for PollStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let room = buf.remaining();
        ready!(Pin::new(&mut this.pipe).poll_read(cx, buf))?;
        if room > 0 && buf.filled().len() == before && this.failure.get().is_some() {
            return Poll::Ready(Err(this.failure(io::ErrorKind::ConnectionAborted.into())));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for PollStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.pipe).poll_write(cx, buf));
        Poll::Ready(written.map_err(|error| this.failure(error)))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.pipe).poll_write_vectored(cx, bufs));
        Poll::Ready(written.map_err(|error| this.failure(error)))
    }

    fn is_write_vectored(&self) -> bool {
        self.pipe.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().pipe).poll_flush(cx)
    }

    /// Ends writing and waits until the server has what was written, or cannot be told.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.pipe).poll_shutdown(cx))?;
        while ready!(this.requests.poll_join_next(cx)).is_some() {}
        Poll::Ready(match this.failure.get() {
            Some(_) => Err(this.failure(io::ErrorKind::ConnectionAborted.into())),
            None => Ok(()),
        })
    }
}

/// Sends what the link writes, until it closes (`Ok`) or the carrier fails.
async fn upload(mut direction: Direction, mut pipe: ReadHalf<DuplexStream>) -> Result<(), String> {
    let mut buffer = BytesMut::new();
    let mut pending = Bytes::new();
    let (mut chunk, mut chunk_max) = (CHUNK_START, CHUNK_MAX);
    let mut closed = false;
    loop {
        if pending.is_empty() && !closed {
            buffer.reserve(chunk);
            let mut room = (&mut buffer).limit(chunk);
            closed = pipe
                .read_buf(&mut room)
                .await
                .map_err(|error| error.to_string())?
                == 0;
            pending = buffer.split().freeze();
        }
        direction.begin();
        let answer = loop {
            let body = pending.slice(..pending.len().min(chunk));
            let last = closed && body.len() == pending.len();
            let flag = last.then_some((CLOSED, HeaderValue::from_static("1")));
            match direction.attempt(UP, body, flag, UPLOAD_LIMIT).await? {
                ControlFlow::Break(answer) => break answer,
                // A narrow limit on bodies may show as a broken connection, too; only the clear word is remembered.
                ControlFlow::Continue(failure) => {
                    chunk = (chunk / 2).max(CHUNK_MIN);
                    if failure.too_large {
                        chunk_max = chunk;
                    }
                }
            }
        };
        if answer.headers().contains_key(CLOSED) {
            // The server half takes no more; what it still has to say comes with the polls, and then their end.
            std::future::pending::<()>().await;
        }
        let accepted = number(answer.headers(), &ACCEPTED)
            .and_then(|accepted| usize::try_from(accepted).ok())
            .filter(|&accepted| accepted <= pending.len())
            .ok_or("the server did not say how much of an upload it took")?;
        if accepted >= chunk {
            chunk = (chunk * 2).min(chunk_max);
        }
        pending.advance(accepted);
        if closed && pending.is_empty() {
            return Ok(());
        }
    }
}

/// Fetches what the server half writes, until it closes (`Ok`) or the carrier fails.
async fn poll(mut direction: Direction, mut pipe: WriteHalf<DuplexStream>) -> Result<(), String> {
    let mut hold = HOLD_START;
    let mut longest = HOLD_MAX;
    loop {
        direction.begin();
        let answer = loop {
            let limit = Duration::from_secs(hold) + ANSWER_MARGIN;
            let asked = Some((HOLD, HeaderValue::from(hold)));
            match direction.attempt(DOWN, Bytes::new(), asked, limit).await? {
                ControlFlow::Break(answer) => break answer,
                ControlFlow::Continue(failure) if failure.after >= CUT_AFTER_MIN => {
                    longest = (failure.after.as_secs() * 2 / 3).clamp(HOLD_MIN, HOLD_MAX);
                    hold = hold.min(longest);
                    tracing::debug!(after = ?failure.after, hold, "a poll was cut on its way");
                }
                ControlFlow::Continue(_) => {}
            }
        };
        if answer.body().is_empty() {
            hold = (hold + HOLD_STEP).min(longest);
        } else if pipe.write_all(answer.body()).await.is_err() {
            // The link has dropped its end.
            return Ok(());
        }
        if answer.headers().contains_key(CLOSED) {
            return Ok(());
        }
    }
}

/// An attempt that may be repeated.
struct Failure {
    after: Duration,
    too_large: bool,
}

/// One direction's requests, one after the other.
struct Direction {
    client: Arc<HttpClient>,
    id: String,
    connection: Option<HttpConnection>,
    sequence: u64,
    /// Since when the current request fails, and the pause before its next repetition.
    failing: Option<(Instant, Duration)>,
}

impl Direction {
    fn new(client: Arc<HttpClient>, id: String, connection: Option<HttpConnection>) -> Self {
        Self {
            client,
            id,
            connection,
            sequence: 0,
            failing: None,
        }
    }

    /// Goes on to the next number.
    fn begin(&mut self) {
        self.sequence += 1;
        self.failing = None;
    }

    /// Sends the current request. Breaks with its answer or, after a pause, continues with a failure that allows
    /// another attempt.
    async fn attempt(
        &mut self,
        direction: &'static str,
        body: Bytes,
        extra: Option<(HeaderName, HeaderValue)>,
        limit: Duration,
    ) -> Result<ControlFlow<Response<Bytes>, Failure>, String> {
        let started = Instant::now();
        let fields = [
            Some((DIRECTION, HeaderValue::from_static(direction))),
            Some((SEQUENCE, HeaderValue::from(self.sequence))),
            extra,
        ];
        let request = post(&self.client, &self.id, body, fields.into_iter().flatten());
        let (problem, asked, too_large) = match self.send(request, limit).await {
            Ok(answer) => match verdict(&answer) {
                Verdict::Take => return Ok(ControlFlow::Break(answer)),
                Verdict::Repeat(problem) => {
                    let too_large = answer.status() == StatusCode::PAYLOAD_TOO_LARGE;
                    (problem, retry_after(answer.headers()), too_large)
                }
                Verdict::Over(problem) => return Err(problem),
            },
            Err(problem) => (problem, None, false),
        };
        let after = started.elapsed();
        let (since, pause) = self.failing.unwrap_or((started, PAUSE_START));
        let pause = asked.map_or(pause, |asked| asked.max(pause)).min(PAUSE_MAX);
        // A poll may have been held for long before it failed; what counts is how long repeating has gone on.
        let since = if self.failing.is_none() {
            Instant::now()
        } else {
            since
        };
        if since.elapsed() > REPEAT_FOR {
            return Err(problem);
        }
        tracing::debug!(direction, sequence = self.sequence, %problem, "repeating a request");
        self.failing = Some((since, pause * 2));
        sleep(pause).await;
        Ok(ControlFlow::Continue(Failure { after, too_large }))
    }

    /// Sends `request` on the kept connection, and once more on a fresh one when the kept one proves closed.
    async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
        limit: Duration,
    ) -> Result<Response<Bytes>, String> {
        if let Some(mut kept) = self.connection.take().filter(HttpConnection::is_usable) {
            match kept
                .exchange(request.clone(), ANSWER_BYTES_MAX, limit)
                .await
            {
                Ok(answer) => {
                    self.connection = Some(kept);
                    return Ok(answer);
                }
                Err(error) if error.is_broken() => {
                    tracing::trace!(%error, "a kept connection was closed; opening another");
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        let mut fresh = self
            .client
            .open()
            .await
            .map_err(|error| error.to_string())?;
        let answer = fresh
            .exchange(request, ANSWER_BYTES_MAX, limit)
            .await
            .map_err(|error| error.to_string())?;
        self.connection = Some(fresh);
        Ok(answer)
    }
}

enum Verdict {
    Take,
    Repeat(String),
    Over(String),
}

/// What the answer to a numbered request means.
fn verdict(answer: &Response<Bytes>) -> Verdict {
    let status = answer.status();
    let problem = format!("a request was answered with status {}", status.as_u16());
    match status {
        StatusCode::OK if answer.headers().contains_key(VERSION_HEADER) => Verdict::Take,
        // Whether the server got the request stays open; its number makes the repetition harmless.
        StatusCode::REQUEST_TIMEOUT
        | StatusCode::PAYLOAD_TOO_LARGE
        | StatusCode::TOO_MANY_REQUESTS
        | StatusCode::INTERNAL_SERVER_ERROR
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => Verdict::Repeat(problem),
        _ => Verdict::Over(problem),
    }
}

fn post(
    client: &HttpClient,
    id: &str,
    body: Bytes,
    fields: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
) -> Request<Full<Bytes>> {
    let mut request = client.request(Method::POST, LINK_ROUTE, body);
    let headers = request.headers_mut();
    if let Ok(id) = HeaderValue::try_from(id) {
        headers.insert(CARRIER, id);
    }
    headers.extend(fields);
    request
}

fn number(headers: &HeaderMap, name: &HeaderName) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}
