//! `background`: the server half that `stdio` starts where none runs. It is an ordinary one on a loopback port that the
//! system picks, and ends when nobody uses it any more.
//!
//! Links outlive the `ssh` that carries them, so what holds them has to outlive it too.

use std::time::Duration;

use super::serve::{Signals, raise_descriptor_limit, until};
use crate::cli::{BackgroundOptions, ServeOptions};
use crate::config::{Common, Layers, Serve, TlsMode};
use crate::exit::{CommandResult, Failure};
use crate::server::Server;

/// Nobody needs to know the port: those of this user read it in the state directory.
const LISTEN: &str = "127.0.0.1:0";

pub(super) async fn run(
    common: &Common,
    layers: &Layers,
    options: &BackgroundOptions,
) -> CommandResult {
    // Otherwise the end of the login ends us. Fails where we lead a session already.
    let _leading = rustix::process::setsid();
    raise_descriptor_limit();
    let signals = Signals::new()
        .map_err(|error| Failure::failed(format!("cannot listen for signals: {error}")))?;
    // What the configuration says about egress and times holds here too; what it says about the network does not.
    let serve = Serve {
        listen: LISTEN.to_owned(),
        tls: TlsMode::Off,
        plaintext: false,
        path_prefix: String::new(),
        background: true,
        ..layers.serve(ServeOptions::default(), &common.state_dir)?
    };
    let server = Server::start(common, &serve).await?;
    tracing::info!(url = server.url(), "serving desktops that come through ssh");
    let usage = server.usage();
    // A link that waits for its desktop counts as use.
    let unused = usage.ended(Duration::from_secs(options.unused));
    until(server, signals, unused).await;
    Ok(())
}
