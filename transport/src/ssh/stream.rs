//! The carrier's bytes: standard input and output of a running `ssh`, which ends with it.

use std::future::Future as _;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::time::{Sleep, sleep, timeout};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::errors::Errors;

/// How long an `ssh` whose output ended may take to say why.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// How long an `ssh` whose carrier is not needed any more may take to end by itself, which it does when the far end has.
const END_LIMIT: Duration = Duration::from_secs(2);

/// A running `ssh`.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    errors: Errors,
    /// Reads standard error.
    reader: AbortOnDropHandle<()>,
}

impl Process {
    /// Watches `child`, whose standard error is piped.
    pub(super) fn new(mut child: Child) -> Self {
        let errors = Errors::default();
        let output = child.stderr.take();
        let kept = errors.clone();
        let reader = AbortOnDropHandle::new(TaskTracker::new().spawn(async move {
            if let Some(output) = output {
                kept.collect(output).await;
            }
        }));
        Self {
            child,
            errors,
            reader,
        }
    }

    pub(super) fn errors(&self) -> &Errors {
        &self.errors
    }

    /// Whether it has ended already.
    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// How it ended, if it does soon; then all of its errors are there.
    pub(super) async fn ending(&mut self) -> Option<std::process::ExitStatus> {
        let status = timeout(END_LIMIT, self.child.wait()).await.ok()?.ok();
        // A master of shared connections that stays behind keeps standard error open.
        let _ = timeout(LAST_WORDS, &mut self.reader).await;
        status
    }

    /// Ends it: in order if it can, by force otherwise.
    async fn end(mut self) {
        if timeout(END_LIMIT, self.child.wait()).await.is_ok() {
            return;
        }
        // Fails only if it ended meanwhile.
        let _ = self.child.kill().await;
    }
}

/// An `ssh` that carries a link. Dropped, it is ended in a task of its tracker.
#[derive(Debug)]
pub(super) struct SshStream {
    process: Option<Process>,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    /// Bytes of the link that were read together with the preamble.
    early: Bytes,
    /// Runs from the end of the output on, until `ssh` said why.
    ending: Option<Pin<Box<Sleep>>>,
    tasks: TaskTracker,
}

impl SshStream {
    /// The link's bytes behind the preamble, `early` among them.
    pub(super) fn new(
        process: Process,
        stdin: ChildStdin,
        stdout: ChildStdout,
        early: Bytes,
        tasks: TaskTracker,
    ) -> Self {
        Self {
            process: Some(process),
            stdin: Some(stdin),
            stdout,
            early,
            ending: None,
            tasks,
        }
    }

    /// Whether `ssh` ended before the link began.
    pub(super) fn has_ended(&mut self) -> bool {
        self.process.as_mut().is_none_or(Process::has_ended)
    }

    /// Waits a moment for `ssh` to end, and makes an error of what it said.
    fn poll_ending(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let limit = self
            .ending
            .get_or_insert_with(|| Box::pin(sleep(LAST_WORDS)));
        let waited = limit.as_mut().poll(cx);
        let Some(process) = &mut self.process else {
            return Poll::Ready(io::ErrorKind::UnexpectedEof.into());
        };
        let status = match pin!(process.child.wait()).poll(cx) {
            Poll::Ready(status) => status.ok(),
            Poll::Pending if waited.is_pending() => return Poll::Pending,
            Poll::Pending => None,
        };
        let text = match (process.errors.last(), status) {
            (Some(line), _) => format!("ssh ended: {line}"),
            (None, Some(status)) => format!("ssh ended ({status})"),
            (None, None) => "the far end closed the connection".to_owned(),
        };
        Poll::Ready(io::Error::new(io::ErrorKind::ConnectionReset, text))
    }
}

impl AsyncRead for SshStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        if !self.early.is_empty() {
            let count = self.early.len().min(buf.remaining());
            buf.put_slice(self.early.get(..count).unwrap_or_default());
            self.early.advance(count);
            return Poll::Ready(Ok(()));
        }
        if self.ending.is_none() {
            let before = buf.filled().len();
            ready!(Pin::new(&mut self.stdout).poll_read(cx, buf))?;
            if buf.filled().len() > before {
                return Poll::Ready(Ok(()));
            }
        }
        self.poll_ending(cx).map(Err)
    }
}

impl AsyncWrite for SshStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.stdin {
            Some(stdin) => Pin::new(stdin).poll_write(cx, buf),
            None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.stdin {
            Some(stdin) => Pin::new(stdin).poll_write_vectored(cx, bufs),
            None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stdin
            .as_ref()
            .is_some_and(AsyncWrite::is_write_vectored)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stdin {
            Some(stdin) => Pin::new(stdin).poll_flush(cx),
            None => Poll::Ready(Ok(())),
        }
    }

    /// Closes the far end's input, and waits until it and `ssh` have ended: what was written is delivered then.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stdin = None;
        match &mut self.process {
            Some(process) => pin!(process.child.wait()).poll(cx).map_ok(drop),
            None => Poll::Ready(Ok(())),
        }
    }
}

impl Drop for SshStream {
    fn drop(&mut self) {
        // The far end sees the end of its input.
        self.stdin = None;
        let Some(mut process) = self.process.take() else {
            return;
        };
        if process.has_ended() {
            return;
        }
        // Without a runtime the process is killed as it is dropped.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            self.tasks.spawn_on(process.end(), &runtime);
        }
    }
}
