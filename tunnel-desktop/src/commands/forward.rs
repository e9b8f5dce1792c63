//! `tunnel-desktop forward`: local ports whose connections go to targets seen from the server.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use yonder_protocol::link::Role;
use yonder_protocol::{Target, limits};
use yonder_proxy::DialMode;
use yonder_transport::relay::relay;

use super::forward_spec::ForwardSpec;
use crate::attach::{self, Attach};
use crate::cli::ForwardArgs;
use crate::console::Console;
use crate::failure::Failure;
use crate::settings::Settings;
use crate::stop::StopSignal;
use crate::tunnels::Tunnels;

/// Pause after a failed accept: with no file descriptors left, the next one fails as well.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Forwards until stopped.
///
/// # Errors
/// If a forward is malformed, a local port is taken, or the server half cannot be reached or refuses.
pub(crate) async fn run(
    args: ForwardArgs,
    settings: &Settings,
    console: &Console,
) -> Result<(), Failure> {
    let (server, specs) = split_words(&args.words, |word| settings.names_server(word))?;
    let way = settings.way(server, &args.access)?;
    let session = settings.session(None)?;
    let stop = StopSignal::new().context("could not watch for signals")?;
    let mut listeners = Vec::with_capacity(specs.len());
    for spec in specs {
        let listener = bind(&spec).await?;
        listeners.push((listener, spec.target));
    }
    let (links, tunnels) = attach::links();
    let attach = Attach::new(&way, Role::Tunnels, session, console);
    let (mut attachment, _) = tokio::select! {
        attached = attach.start(links) => attached?,
        () = stop.asked() => return Ok(()),
    };
    let mut forwards = JoinSet::new();
    let end = match start(listeners, &tunnels, console, &mut forwards) {
        Ok(()) => tokio::select! {
            end = attachment.ended() => end,
            () = stop.asked() => Ok(()),
        },
        Err(error) => Err(error.into()),
    };
    // Dropping the tasks closes their sockets; the link then tells the server half.
    forwards.shutdown().await;
    attachment.close().await;
    end
}

/// Starts to accept on every listener and says so.
fn start(
    listeners: Vec<(TcpListener, Target)>,
    tunnels: &Tunnels,
    console: &Console,
    forwards: &mut JoinSet<()>,
) -> anyhow::Result<()> {
    for (listener, target) in listeners {
        let local = listener
            .local_addr()
            .context("could not read the address of a local port")?;
        console
            .output(&format!("forwarding {local} to {target}"))
            .context("could not write to standard output")?;
        forwards.spawn(accept(listener, target, tunnels.clone()));
    }
    Ok(())
}

/// The server, where the first word names one, and the forwards.
fn split_words(
    words: &[String],
    names_server: impl Fn(&str) -> bool,
) -> Result<(Option<&str>, Vec<ForwardSpec>), Failure> {
    let (server, specs) = match words.split_first() {
        Some((first, rest)) if names_server(first) => (Some(first.as_str()), rest),
        _ => (None, words),
    };
    if specs.is_empty() {
        return Err(Failure::usage(
            "nothing to forward; add [ADDR:]PORT[:HOST:PORT] behind the server",
        ));
    }
    let specs = specs
        .iter()
        .map(|text| {
            text.parse()
                .map_err(|error| Failure::usage(format!("{text:?} is not a forward: {error}")))
        })
        .collect::<Result<_, _>>()?;
    Ok((server, specs))
}

async fn bind(spec: &ForwardSpec) -> Result<TcpListener, Failure> {
    let listener = TcpListener::bind(spec.listen).await.with_context(|| {
        format!(
            "could not listen on {}; choose another local port, or 0 for a free one",
            spec.listen
        )
    })?;
    if !spec.listen.ip().is_loopback() {
        tracing::warn!(
            address = %spec.listen,
            "this forward is open to the network: whoever reaches this machine reaches the target"
        );
    }
    Ok(listener)
}

/// Takes connections for one forward until dropped, and owns them.
async fn accept(listener: TcpListener, target: Target, tunnels: Tunnels) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((socket, _)) if connections.len() >= limits::TUNNELS_PER_LINK => {
                    tracing::warn!(%target, "refused a connection: {} are open, as many as may be", connections.len());
                    // Should this fail, the client sees an end instead of a reset.
                    let _ = socket.set_zero_linger();
                }
                Ok((socket, _)) => {
                    connections.spawn(forward(socket, target.clone(), tunnels.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "could not accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Serves one connection. Whatever goes wrong, the client sees it as a reset, which is what it would see without us.
async fn forward(socket: TcpStream, target: Target, tunnels: Tunnels) {
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, "could not set TCP_NODELAY");
    }
    // Without waiting for the verdict: the client's first bytes ride with the open.
    let failed = match tunnels.open(&target, DialMode::Optimistic).await {
        Ok(tunnel) => match relay(tunnel, socket, "the client", Arc::new(())).await {
            Ok(()) => return,
            Err(error) => error.to_string(),
        },
        Err(error) => {
            // Should this fail as well, the socket is gone already.
            let _ = socket.set_zero_linger();
            error.to_string()
        }
    };
    tracing::warn!(%target, error = failed, "a forwarded connection failed");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|&word| word.to_owned()).collect()
    }

    #[test]
    fn the_server_may_be_left_out() {
        let known = |word: &str| word.contains("://") || word == "work";
        let given = words(&["http://h", "80", "81"]);
        let (server, specs) = split_words(&given, known).unwrap();
        assert_eq!((server, specs.len()), (Some("http://h"), 2));
        let given = words(&["8080"]);
        assert_eq!(split_words(&given, known).unwrap().0, None);
        assert!(split_words(&words(&["work"]), known).is_err());
        let error = split_words(&words(&["play", "80"]), known).unwrap_err();
        assert!(error.to_string().contains("\"play\""), "{error}");
    }
}
