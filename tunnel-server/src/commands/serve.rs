//! `serve`: runs the server half until a signal.

use std::io::{self, Write as _};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::print;
use crate::config::{Common, Serve};
use crate::exit::{CommandResult, Failure};
use crate::server::Server;

pub(super) async fn run(common: &Common, serve: &Serve) -> CommandResult {
    raise_descriptor_limit();
    // Before anything is announced: a signal right after the first line must already find us listening for it.
    let signals = Signals::new()
        .map_err(|error| Failure::failed(format!("cannot listen for signals: {error}")))?;
    let server = Server::start(common, serve).await?;
    if let Some(pin) = server.pin() {
        let _told = writeln!(
            io::stderr(),
            "TLS key: desktops that do not know its authority trust it with --pin {pin}"
        );
    }
    print(&format!("listening on {}", server.url()))?;
    until(server, signals, std::future::pending()).await;
    Ok(())
}

/// Runs `server` until a signal comes or `over` ends; a second signal stops at once.
pub(super) async fn until(server: Server, mut signals: Signals, over: impl Future<Output = ()>) {
    let stop = CancellationToken::new();
    let mut run = std::pin::pin!(server.run(stop.clone()));
    tokio::select! {
        () = run.as_mut() => return,
        () = signals.next() => {}
        () = over => {}
    }
    stop.cancel();
    tokio::select! {
        () = run => {}
        () = signals.next() => tracing::info!("stopping at once"),
    }
}

/// The signals that stop a server.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next one. Cancel safe.
    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Lets the process have as many descriptors as the administrator allows: the usual first limit of 1,024 would end at
/// a quarter of the tunnels that one desktop may open.
pub(super) fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
}
