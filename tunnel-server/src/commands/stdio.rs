//! `stdio`: the far end of `ssh://`. It carries one link between its standard input and output and the server half that
//! runs on the state directory, and starts one in the background where none does.
//!
//! The server half must be another process than this one, which ends with its `ssh`: a link goes on over the next `ssh`,
//! and agents on this host reach the browser through that server half as through any other.

mod ends;
mod find;

use std::io;
use std::path::Path;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;
use yonder_transport::VERSION;
use yonder_transport::carrier::Carrier;
use yonder_transport::ssh::preamble::Preamble;

use crate::config::Common;
use crate::exit::{CommandResult, Exit, Failure};

/// How long the desktop half may take from our greeting to its first byte: a browser may start meanwhile.
const FIRST_BYTE_LIMIT: Duration = Duration::from_mins(1);

/// Silence after which the desktop half is taken for gone: several of a link's heartbeats.
const SILENCE_LIMIT: Duration = Duration::from_mins(3);

/// How long bytes may wait for a reader: longer than a link waits for an answer before it takes its carrier for dead.
const STALL_LIMIT: Duration = Duration::from_mins(1);

/// What handing over the desktop half's last bytes may take.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);

/// Bytes moved at once: as many as the link's own reads take.
const PIECE_BYTES: usize = 256 * 1024;

pub(super) async fn run(common: &Common, config: Option<&Path>) -> CommandResult {
    let unusable = |error: io::Error| {
        Failure::failed(format!("cannot use standard input and output: {error}"))
    };
    let mut input = ends::input().map_err(unusable)?;
    let mut output = ends::output().map_err(unusable)?;
    let client = match find::server_half(common, config).await {
        Ok(client) => client,
        Err(failure) => {
            let problem = failure.to_string();
            greet(&mut output, &Preamble::Failed { problem }).await?;
            return Err(failure);
        }
    };
    let ready = Preamble::Ready {
        version: VERSION.to_owned(),
    };
    greet(&mut output, &ready).await?;
    let mut first = BytesMut::with_capacity(PIECE_BYTES);
    let read = timeout(FIRST_BYTE_LIMIT, input.read_buf(&mut first))
        .await
        .map_err(|_| {
            Failure::new(
                Exit::Unreachable,
                anyhow::anyhow!(
                    "nothing came on standard input within {} s; this command is started by tunnel-desktop, through ssh",
                    FIRST_BYTE_LIMIT.as_secs()
                ),
            )
        })?;
    match read {
        Ok(0) => return Ok(()),
        Ok(_) => {}
        Err(error) => return Err(unusable(error)),
    }
    let carrier = client.carrier().await?;
    if let Err(error) = relay(first, &mut input, &mut output, carrier).await {
        // Either side may go at any moment; the link goes on over the next carrier.
        tracing::debug!(%error, "the carrier broke");
    }
    Ok(())
}

/// Says how it stands, in the one line that the desktop half waits for.
async fn greet(output: &mut ends::Output, preamble: &Preamble) -> CommandResult {
    let greeted = timeout(STALL_LIMIT, async {
        output.write_all(&preamble.encode()).await?;
        output.flush().await
    });
    greeted
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        .map_err(|error| Failure::failed(format!("cannot write to standard output: {error}")))
}

/// Moves bytes both ways, beginning with `first`, until one side is gone.
async fn relay(
    first: BytesMut,
    input: &mut ends::Input,
    output: &mut ends::Output,
    carrier: Carrier,
) -> io::Result<()> {
    let (mut from_server, mut to_server) = tokio::io::split(carrier.io);
    let upload = async {
        write(&mut to_server, &first).await?;
        drop(first);
        pump(input, &mut to_server).await?;
        // The goodbye among the last bytes has to arrive, or the link waits for us in vain.
        timeout(CLOSE_LIMIT, to_server.shutdown())
            .await
            .unwrap_or(Ok(()))
    };
    // The end of either direction is the end of the carrier.
    tokio::select! {
        end = upload => end,
        end = pump(&mut from_server, output) => end,
    }
}

/// Copies until `from` ends.
async fn pump(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
) -> io::Result<()> {
    let mut piece = BytesMut::with_capacity(PIECE_BYTES);
    loop {
        piece.clear();
        let read = timeout(SILENCE_LIMIT, from.read_buf(&mut piece))
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
        if read == 0 {
            return Ok(());
        }
        write(to, &piece).await?;
    }
}

async fn write(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    timeout(STALL_LIMIT, async {
        to.write_all(bytes).await?;
        to.flush().await
    })
    .await
    .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}
