//! One request and its response, both directions at once.
//!
//! The response is passed on while the request is still being sent, as a target may answer early or
//! converse. Either side that does not read slows the other down: at most one block is held per direction.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use crate::body::{Body, Framing, InvalidChunk};
use crate::client::Client;
use crate::head::request::Request;
use crate::head::response::{Asked, BadResponse, Kind, parse};
use crate::limits::{BLOCKS_PER_TURN, INTERIM_RESPONSES, UPLOAD_STALL};
use crate::pool::Upstream;

/// How an exchange ended.
#[derive(Debug)]
pub(crate) enum End {
    /// The response was passed on whole.
    Complete {
        /// The client may send another request.
        client_open: bool,
        /// The target takes another request on this connection.
        upstream_open: bool,
    },
    /// The target switched protocols; the rest is a raw pipe.
    Switched,
    /// The client went away.
    ClientGone,
    /// No final response was begun, so the client can be told why.
    Unanswered {
        /// Why.
        fault: Fault,
        /// Not a byte came from the target.
        silent: bool,
    },
    /// The response broke off; the client must not take what it has for the whole.
    BrokenOff,
}

/// Why there is no response.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The client's body is malformed.
    Chunk(InvalidChunk),
    /// The target's answer is not understood.
    Response(BadResponse),
    /// The target closed the connection.
    Closed,
    /// The connection failed.
    Io(io::Error),
}

/// Sends `head` and the body that follows it in the client's input, and passes the response back.
pub(crate) async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(
    client: &mut Client,
    upstream: &mut Upstream<S>,
    head: &[u8],
    request: &Request,
) -> End {
    let mut exchange = Exchange {
        client,
        upstream,
        upload: Upload {
            head,
            body: Body::new(request.framing),
            accepted: 0,
            moved: 0,
            dirty: false,
            failure: None,
        },
        download: Download {
            asked: Asked {
                head_only: request.head_only,
                upgrade: request.upgrade,
                http_1_0: request.http_1_0,
                close: request.close,
            },
            head: Vec::new(),
            head_sent: 0,
            accepted: 0,
            interim: 0,
            received: false,
            stage: Stage::Head,
        },
        upload_first: false,
    };
    let end = poll_fn(|cx| exchange.poll(cx)).await;
    if matches!(end, End::Complete { .. }) && !exchange.upload.is_sent() {
        exchange.finish_upload().await;
    }
    end
}

struct Exchange<'a, S> {
    client: &'a mut Client,
    upstream: &'a mut Upstream<S>,
    upload: Upload<'a>,
    download: Download,
    /// Which direction has the first turn; it changes each time.
    upload_first: bool,
}

struct Upload<'a> {
    /// The part of the request head still to be written.
    head: &'a [u8],
    body: Body,
    /// Bytes at the start of the client's input that belong to the body and are to be written.
    accepted: usize,
    /// Bytes of the body written or discarded so far; tells whether the client still sends.
    moved: u64,
    /// Written but not flushed.
    dirty: bool,
    /// Why the target takes no more. The rest of the body is discarded then, so that the client gets to
    /// read the answer.
    failure: Option<io::Error>,
}

impl Upload<'_> {
    /// Whether the whole request was written.
    fn is_sent(&self) -> bool {
        self.head.is_empty() && self.accepted == 0 && self.body.is_done()
    }
}

struct Download {
    asked: Asked,
    /// The head for the client, of which `head_sent` bytes are written.
    head: Vec<u8>,
    head_sent: usize,
    /// Bytes at the start of the target's output that belong to the body and are to be written.
    accepted: usize,
    /// Interim responses so far.
    interim: usize,
    /// Something came from the target.
    received: bool,
    stage: Stage,
}

enum Stage {
    /// Waiting for a head.
    Head,
    /// Passing on the body of the final response.
    Body(BodyStage),
    /// Passing on the head of a 101.
    Switch,
}

struct BodyStage {
    body: Body,
    /// Only the content of chunks is passed on.
    dechunk: bool,
    client_open: bool,
    upstream_open: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Exchange<'_, S> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        self.upload_first = !self.upload_first;
        for upload in [self.upload_first, !self.upload_first] {
            if upload {
                if let Poll::Ready(end) = self.poll_upload_or_gone(cx) {
                    return Poll::Ready(end);
                }
            } else if let Poll::Ready(end) = self.poll_download(cx) {
                return Poll::Ready(end);
            }
        }
        Poll::Pending
    }

    /// Sends the request, then watches the client. Ready only when the exchange ends.
    fn poll_upload_or_gone(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        match ready!(self.poll_upload(cx)) {
            Ok(()) => self.client.poll_gone(cx).map(|_| End::ClientGone),
            Err(UploadEnd::ClientGone) => Poll::Ready(End::ClientGone),
            Err(UploadEnd::Chunk(error)) => Poll::Ready(self.fail(Fault::Chunk(error))),
        }
    }

    /// Ready when the request was written and flushed, or discarded to its end.
    fn poll_upload(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), UploadEnd>> {
        let Self {
            client,
            upstream,
            upload,
            ..
        } = self;
        for _ in 0..BLOCKS_PER_TURN {
            while upload.failure.is_none() && (!upload.head.is_empty() || upload.accepted > 0) {
                let body = &client.input.filled()[..upload.accepted];
                match ready!(poll_write_both(cx, &mut upstream.stream, upload.head, body)) {
                    Ok(count) => {
                        let of_head = count.min(upload.head.len());
                        upload.head = &upload.head[of_head..];
                        let of_body = count - of_head;
                        client.input.consume(of_body);
                        upload.accepted -= of_body;
                        upload.moved += of_body as u64;
                        upload.dirty = true;
                    }
                    Err(error) => upload.failure = Some(error),
                }
            }
            if upload.failure.is_some() {
                upload.head = &[];
                client.input.consume(upload.accepted);
                upload.moved += upload.accepted as u64;
                upload.accepted = 0;
                upload.dirty = false;
            }
            if upload.body.is_done() || client.input.is_empty() {
                if upload.dirty {
                    match ready!(Pin::new(&mut upstream.stream).poll_flush(cx)) {
                        Ok(()) => upload.dirty = false,
                        Err(error) => upload.failure = Some(error),
                    }
                }
                if upload.body.is_done() {
                    return Poll::Ready(Ok(()));
                }
                match ready!(client.poll_fill(cx)) {
                    // The end of the client's side in the middle of a body means that it gave up.
                    Ok(0) | Err(_) => return Poll::Ready(Err(UploadEnd::ClientGone)),
                    Ok(_) => {}
                }
            }
            match upload.body.accept(client.input.filled()) {
                Ok(count) => upload.accepted = count,
                Err(error) => return Poll::Ready(Err(UploadEnd::Chunk(error))),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Passes the response on. Ready when the exchange ends.
    fn poll_download(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        for _ in 0..BLOCKS_PER_TURN {
            while self.download.head_sent < self.download.head.len() || self.download.accepted > 0 {
                if ready!(self.poll_write_client(cx)).is_err() {
                    return Poll::Ready(End::ClientGone);
                }
            }
            let next = match &mut self.download.stage {
                Stage::Switch => return Poll::Ready(End::Switched),
                Stage::Head => self.take_head(),
                Stage::Body(stage) if stage.body.is_done() => {
                    return Poll::Ready(End::Complete {
                        client_open: stage.client_open,
                        upstream_open: stage.upstream_open,
                    });
                }
                Stage::Body(stage) => {
                    let input = &mut self.upstream.input;
                    stage.accept(input).map(|accepted| {
                        self.download.accepted = accepted;
                        accepted > 0 || stage.body.is_done()
                    })
                }
            };
            match next {
                Ok(true) => continue,
                Ok(false) => {}
                Err(fault) => return Poll::Ready(self.fail(fault)),
            }
            let filled = ready!(self.upstream.input.poll_fill(cx, &mut self.upstream.stream));
            match filled {
                Ok(0) if self.upstream.input.is_full() => {
                    return Poll::Ready(self.fail(Fault::Response(BadResponse::TooLong)));
                }
                Ok(0) => return Poll::Ready(self.target_closed()),
                Ok(_) => self.download.received = true,
                Err(error) => {
                    // What failed first tells the cause; what follows may only tell that it failed.
                    let error = self.upload.failure.take().unwrap_or(error);
                    return Poll::Ready(self.fail(Fault::Io(error)));
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Writes some of what is ready for the client.
    fn poll_write_client(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let download = &mut self.download;
        let head = &download.head[download.head_sent..];
        let body = &self.upstream.input.filled()[..download.accepted];
        let count = ready!(poll_write_both(cx, &mut self.client.socket, head, body))?;
        let of_head = count.min(head.len());
        download.head_sent += of_head;
        let of_body = count - of_head;
        self.upstream.input.consume(of_body);
        download.accepted -= of_body;
        self.client.progressed();
        Poll::Ready(Ok(()))
    }

    /// Takes a response head from the target's output, if it has come whole.
    fn take_head(&mut self) -> Result<bool, Fault> {
        let download = &mut self.download;
        if self.upstream.input.is_empty() {
            return Ok(false);
        }
        // A response that overtakes its request leaves the client in the middle of sending; its
        // connection cannot serve another request then.
        let asked = Asked {
            close: download.asked.close || !self.upload.is_sent(),
            ..download.asked
        };
        download.head_sent = 0;
        let response = parse(self.upstream.input.filled(), asked, &mut download.head)
            .map_err(Fault::Response)?;
        let Some(response) = response else {
            return Ok(false);
        };
        self.upstream.input.consume(response.length);
        match response.kind {
            Kind::Interim => {
                download.interim += 1;
                if download.interim > INTERIM_RESPONSES {
                    download.head.clear();
                    return Err(Fault::Response(BadResponse::InterimFlood));
                }
                if download.asked.http_1_0 {
                    download.head.clear();
                }
            }
            Kind::Switch if !self.upload.is_sent() => {
                download.head.clear();
                return Err(Fault::Response(BadResponse::UnaskedUpgrade));
            }
            Kind::Switch => download.stage = Stage::Switch,
            Kind::Final => {
                download.stage = Stage::Body(BodyStage {
                    body: Body::new(response.framing),
                    dechunk: response.framing == Framing::Chunked && download.asked.http_1_0,
                    client_open: !response.close,
                    upstream_open: response.keeps_open
                        && self.upload.is_sent()
                        && self.upload.failure.is_none(),
                });
            }
        }
        Ok(true)
    }

    /// The target has ended its side.
    fn target_closed(&mut self) -> End {
        if let Stage::Body(BodyStage {
            body: Body::UntilClose,
            ..
        }) = self.download.stage
        {
            return End::Complete {
                client_open: false,
                upstream_open: false,
            };
        }
        let fault = self.upload.failure.take().map_or(Fault::Closed, Fault::Io);
        self.fail(fault)
    }

    fn fail(&mut self, fault: Fault) -> End {
        let begun = !matches!(self.download.stage, Stage::Head)
            || self.download.head_sent < self.download.head.len();
        if begun {
            End::BrokenOff
        } else {
            End::Unanswered {
                fault,
                silent: !self.download.received,
            }
        }
    }

    /// Goes on with the request after its response, for as long as the client keeps sending.
    async fn finish_upload(&mut self) {
        loop {
            let before = self.upload.moved;
            match timeout(UPLOAD_STALL, poll_fn(|cx| self.poll_upload(cx))).await {
                Err(_) if self.upload.moved > before => {}
                Ok(_) | Err(_) => return,
            }
        }
    }
}

impl BodyStage {
    /// How many bytes at the start of `input` are to be passed on.
    fn accept(&mut self, input: &mut crate::buffer::Buffer) -> Result<usize, Fault> {
        let accepted = match &mut self.body {
            Body::Chunked(chunks) if self.dechunk => loop {
                if input.is_empty() {
                    break Ok(0);
                }
                match chunks.next(input.filled()) {
                    Ok(piece) => {
                        input.consume(piece.framing);
                        if piece.content > 0 || chunks.is_done() {
                            break Ok(piece.content);
                        }
                    }
                    Err(error) => break Err(error),
                }
            },
            body => body.accept(input.filled()),
        };
        accepted.map_err(|_| Fault::Response(BadResponse::Malformed))
    }
}

/// Why a request was not sent to its end.
enum UploadEnd {
    ClientGone,
    Chunk(InvalidChunk),
}

/// Writes from `first` and then `second` with one system call where the writer can; at least one of them is
/// not empty.
fn poll_write_both<W: AsyncWrite + Unpin>(
    cx: &mut Context<'_>,
    writer: &mut W,
    first: &[u8],
    second: &[u8],
) -> Poll<io::Result<usize>> {
    let writer = Pin::new(writer);
    let written = if first.is_empty() {
        writer.poll_write(cx, second)
    } else if second.is_empty() || !writer.is_write_vectored() {
        writer.poll_write(cx, first)
    } else {
        writer.poll_write_vectored(cx, &[IoSlice::new(first), IoSlice::new(second)])
    };
    match ready!(written) {
        Ok(0) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
        written => Poll::Ready(written),
    }
}
