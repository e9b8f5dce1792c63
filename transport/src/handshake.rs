//! The greeting on a new carrier, from both ends. Each has one limit over all of it.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use yonder_protocol::link::RefusalCode;
use yonder_protocol::link::hello::{
    Answer, Hello, InvalidGreeting, Refusal, Welcome, take_message,
};

use crate::carrier::Carrier;
use crate::wire::Wire;

/// Why a greeting failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The carrier broke.
    #[error("the carrier broke during the greeting: {0}")]
    Io(#[from] io::Error),
    /// The other end said what is no greeting of this version.
    #[error(transparent)]
    Greeting(#[from] InvalidGreeting),
    /// The server half refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// No answer in time.
    #[error("the other half did not greet within {} s", .0.as_secs())]
    TimedOut(Duration),
}

/// Greets the server half and reads its answer.
pub(crate) async fn greet(
    carrier: Carrier,
    hello: &Hello,
    limit: Duration,
) -> Result<(Wire, Welcome), HandshakeError> {
    let mut wire = Wire::new(carrier);
    let message = timeout(limit, async {
        let (io, _) = wire.greeting_parts();
        io.write_all(&hello.encode()).await?;
        io.flush().await?;
        read_message(&mut wire).await
    })
    .await
    .map_err(|_| HandshakeError::TimedOut(limit))??;
    match Answer::decode(message)? {
        Answer::Welcome(welcome) => Ok((wire, welcome)),
        Answer::Refused(refusal) => Err(refusal.into()),
    }
}

/// Reads the client's greeting; one that cannot be read is refused.
pub(crate) async fn read_hello(
    carrier: Carrier,
    limit: Duration,
) -> Result<(Wire, Hello), HandshakeError> {
    let mut wire = Wire::new(carrier);
    let read = timeout(limit, read_message(&mut wire))
        .await
        .map_err(|_| HandshakeError::TimedOut(limit))?;
    match read.and_then(|message| Ok(Hello::decode(message)?)) {
        Ok(hello) => Ok((wire, hello)),
        Err(HandshakeError::Greeting(error)) => {
            let code = match error {
                InvalidGreeting::Version(_) => RefusalCode::Version,
                _ => RefusalCode::Malformed,
            };
            refuse(&mut wire, Refusal::new(code, error.to_string())).await;
            Err(error.into())
        }
        Err(error) => Err(error),
    }
}

/// Tells the client no, as far as its carrier takes it.
pub(crate) async fn refuse(wire: &mut Wire, refusal: Refusal) {
    let (io, _) = wire.greeting_parts();
    let message = Answer::Refused(refusal).encode();
    let told = timeout(REFUSE_LIMIT, async {
        io.write_all(&message).await?;
        io.shutdown().await
    });
    if let Ok(Err(error)) = told.await {
        tracing::debug!(%error, "a refusal was not delivered");
    }
}

/// How long a refusal may take: it is a courtesy.
const REFUSE_LIMIT: Duration = Duration::from_secs(1);

async fn read_message(wire: &mut Wire) -> Result<Bytes, HandshakeError> {
    let (io, buffer) = wire.greeting_parts();
    loop {
        if let Some(message) = take_message(buffer)? {
            return Ok(message);
        }
        if io.read_buf(buffer).await? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
    }
}
