//! `tunnel-desktop proxy`: the server's network for any program that can use an HTTP proxy.

use anyhow::Context as _;
use yonder_protocol::link::Role;
use yonder_proxy::{Challenge, Proxy, ProxyConfig};

use crate::attach::{self, Attach};
use crate::cli::ProxyArgs;
use crate::console::Console;
use crate::failure::Failure;
use crate::settings::Settings;
use crate::stop::StopSignal;

/// Serves the proxy until stopped.
///
/// # Errors
/// If the server half cannot be reached or refuses, or the address is taken.
pub(crate) async fn run(
    args: ProxyArgs,
    settings: &Settings,
    console: &Console,
) -> Result<(), Failure> {
    let way = settings.way(args.server.as_deref(), &args.access)?;
    let session = settings.session(args.session)?;
    let stop = StopSignal::new().context("could not watch for signals")?;
    let (links, tunnels) = attach::links();
    if !args.listen.ip().is_loopback() {
        tracing::warn!(
            address = %args.listen,
            "the proxy is open to the network; its password and all plain requests cross it unencrypted"
        );
    }
    let config = ProxyConfig::new(Challenge::Always).listen(args.listen);
    let proxy = Proxy::start(config, tunnels).await.with_context(|| {
        format!(
            "could not listen on {}; choose another --listen address",
            args.listen
        )
    })?;
    let attach = Attach::new(&way, Role::Tunnels, session.clone(), console);
    let (mut attachment, _) = tokio::select! {
        attached = attach.start(links) => attached?,
        () = stop.asked() => return Ok(()),
    };
    let credential = proxy.add_session(session.as_str());
    let line = format!(
        "proxy http://{}:{}@{}",
        credential.username(),
        credential.password().expose(),
        proxy.local_addr()
    );
    let end = match console.output(&line) {
        Ok(()) => tokio::select! {
            end = attachment.ended() => end,
            () = stop.asked() => Ok(()),
        },
        Err(error) => Err(Failure::failed(format!(
            "could not write to standard output: {error}"
        ))),
    };
    tokio::join!(attachment.close(), proxy.close());
    end
}
