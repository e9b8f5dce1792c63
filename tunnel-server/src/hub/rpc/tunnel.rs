//! One tunnel of the attachment RPC: a target's socket, read and written in bounded chunks.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::RpcError;
use super::attachment::Place;
use crate::metrics::Metrics;

/// How long a read waits for bytes: below the shortest answer limit of reverse proxies (15 s).
const READ_HOLD: Duration = Duration::from_secs(10);

/// What a read answered.
#[derive(Clone, Debug)]
pub(super) struct Read {
    pub(super) data: Bytes,
    pub(super) eof: bool,
}

struct Reading {
    half: OwnedReadHalf,
    /// The newest numbered read, in case its answer was lost.
    last: Option<(u64, Read)>,
    eof: bool,
}

struct Writing {
    /// Gone once this direction was ended.
    half: Option<OwnedWriteHalf>,
    last: Option<u64>,
}

pub(super) struct Tunnel {
    reading: Mutex<Reading>,
    writing: Mutex<Writing>,
    closed: CancellationToken,
    metrics: Arc<Metrics>,
    _place: Place,
}

impl Tunnel {
    pub(super) fn new(socket: TcpStream, place: Place, metrics: Arc<Metrics>) -> Self {
        metrics.tunnels_opened.inc();
        metrics.tunnels_open.inc();
        let (read, write) = socket.into_split();
        Self {
            reading: Mutex::new(Reading {
                half: read,
                last: None,
                eof: false,
            }),
            writing: Mutex::new(Writing {
                half: Some(write),
                last: None,
            }),
            closed: CancellationToken::new(),
            metrics,
            _place: place,
        }
    }

    /// Ends what waits on the tunnel; the socket is closed with the last of it.
    pub(super) fn close(&self) {
        self.closed.cancel();
    }

    /// Up to `max` bytes, or none when none came within [`READ_HOLD`]. Cancel safe: what a dropped read did not
    /// answer, the next one does.
    pub(super) async fn read(
        &self,
        max: usize,
        sequence: Option<u64>,
        metrics: &Metrics,
    ) -> Result<Read, RpcError> {
        let Ok(mut reading) = self.reading.try_lock() else {
            return Err(RpcError::unavailable(
                "a read of this tunnel is under way; wait for its answer",
            ));
        };
        if let Some(sequence) = sequence {
            let last = reading.last.as_ref().map_or(0, |(number, _)| *number);
            match &reading.last {
                Some((number, read)) if *number == sequence => return Ok(read.clone()),
                _ => check_next(sequence, last)?,
            }
        }
        let waited = tokio::select! {
            waited = timeout(READ_HOLD, take(&mut reading, max)) => waited,
            () = self.closed.cancelled() => return Err(closed()),
        };
        let read = match waited {
            Ok(read) => read.map_err(|error| broken(&error))?,
            Err(_) => Read {
                data: Bytes::new(),
                eof: false,
            },
        };
        metrics.bytes_from_targets.inc_by(read.data.len() as u64);
        if let Some(sequence) = sequence {
            reading.last = Some((sequence, read.clone()));
        }
        Ok(read)
    }

    /// Writes all of `data`, and ends this direction after it when `end`. Not cancel safe: close the tunnel then.
    pub(super) async fn write(
        &self,
        mut data: Bytes,
        end: bool,
        sequence: Option<u64>,
        metrics: &Metrics,
    ) -> Result<(), RpcError> {
        let mut writing = self.writing.lock().await;
        if let Some(sequence) = sequence {
            if writing.last == Some(sequence) {
                return Ok(());
            }
            check_next(sequence, writing.last.unwrap_or(0))?;
        }
        let Some(half) = writing.half.as_mut() else {
            return Err(RpcError::unavailable(
                "this direction of the tunnel was ended",
            ));
        };
        let bytes = data.len() as u64;
        let written = async {
            half.write_all_buf(&mut data).await?;
            if end {
                half.shutdown().await?;
            }
            io::Result::Ok(())
        };
        tokio::select! {
            written = written => written.map_err(|error| broken(&error))?,
            () = self.closed.cancelled() => return Err(closed()),
        }
        metrics.bytes_to_targets.inc_by(bytes);
        if end {
            writing.half = None;
        }
        writing.last = sequence.or(writing.last);
        Ok(())
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.metrics.tunnels_open.dec();
    }
}

/// Waits until there are bytes or the end. Cancel safe: bytes leave the socket only when they are answered.
async fn take(reading: &mut Reading, max: usize) -> io::Result<Read> {
    loop {
        if reading.eof {
            return Ok(Read {
                data: Bytes::new(),
                eof: true,
            });
        }
        reading.half.readable().await?;
        let mut buffer = BytesMut::with_capacity(max);
        match reading.half.try_read_buf(&mut buffer) {
            Ok(0) => reading.eof = true,
            Ok(_) => {
                return Ok(Read {
                    data: buffer.freeze(),
                    eof: false,
                });
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

fn check_next(sequence: u64, last: u64) -> Result<(), RpcError> {
    if sequence == last + 1 {
        Ok(())
    } else {
        Err(RpcError::unavailable(format!(
            "sequence {sequence} does not follow {last}; close the tunnel and open another"
        )))
    }
}

fn broken(error: &io::Error) -> RpcError {
    RpcError::unavailable(format!("the target broke off the connection: {error}"))
}

fn closed() -> RpcError {
    RpcError::unavailable("the tunnel was closed")
}
