//! Being asked to stop: the first interrupt or termination ends in order, the second at once.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::failure::Exit;

/// Watches the process's signals from its creation to the end of the process or its drop.
#[derive(Debug)]
pub(crate) struct StopSignal {
    asked: CancellationToken,
    /// Holds the one watching task.
    _watch: JoinSet<()>,
}

impl StopSignal {
    /// Begins to watch. From here on the signals no longer end the process by themselves.
    ///
    /// # Errors
    /// If the system has no room for a handler.
    pub(crate) fn new() -> io::Result<Self> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let asked = CancellationToken::new();
        let tell = asked.clone();
        let mut watch = JoinSet::new();
        watch.spawn(async move {
            either(&mut interrupt, &mut terminate, &mut hangup).await;
            tell.cancel();
            either(&mut interrupt, &mut terminate, &mut hangup).await;
            // At once, whatever is still closing.
            std::process::exit(Exit::Failed as i32);
        });
        Ok(Self {
            asked,
            _watch: watch,
        })
    }

    /// Resolves once somebody asked. Cancel safe.
    pub(crate) async fn asked(&self) {
        self.asked.cancelled().await;
    }
}

async fn either(interrupt: &mut Signal, terminate: &mut Signal, hangup: &mut Signal) {
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
}
