//! `doctor`: looks at what the server half needs, and says what to do about what is missing.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::time::timeout;
use yonder_protocol::limits;
use yonder_transport::VERSION;

use super::print;
use crate::cli::{DoctorOptions, ServeOptions, ServerOptions};
use crate::client::{Client, QUICK};
use crate::config::{Common, Layers, Serve};
use crate::exit::{CommandResult, Exit, Failure};
use crate::server::listen::ListenAddress;
use crate::server::presence::Presence;
use crate::server::tls::ServerTls;
use crate::token::TokenError;

/// Descriptors that a server half needs beside its tunnels.
const DESCRIPTORS_BESIDE: u64 = 256;

/// What resolving `localhost` may take: it needs no network.
const RESOLVE_LIMIT: Duration = Duration::from_secs(5);

/// Permission bits of group and others.
const FOREIGN_WRITE: u32 = 0o022;

/// What a check found.
enum Finding {
    Fine(String),
    Doubtful(String),
    Failed(String),
}
use Finding::{Doubtful, Failed, Fine};

/// What `/status` says, as far as it matters here.
#[derive(Deserialize)]
struct RunningStatus {
    version: String,
}

pub(super) async fn run(common: &Common, layers: &Layers, options: DoctorOptions) -> CommandResult {
    let serve = layers.serve(ServeOptions::default(), &common.state_dir);
    let mut findings = vec![
        ("state directory", state_directory(common)),
        ("token", token(common)),
        ("configuration", configuration(&serve)),
        ("open files", descriptors()),
        ("localhost", localhost().await),
    ];
    if let Ok(serve) = &serve {
        findings.push(("TLS", tls(common, serve)));
    }
    let server = options.server.or_environment()?;
    // With a server at hand its port is rightly taken.
    if let (Ok(serve), None, None) = (
        &serve,
        &server.server,
        Presence::of_running(&common.state_dir),
    ) {
        findings.push(("port", port(serve)));
    }
    findings.push(("server half", running(common, server).await));
    let mut failed = 0_usize;
    for (what, finding) in &findings {
        let (mark, text) = match finding {
            Fine(text) => ("ok  ", text),
            Doubtful(text) => ("warn", text),
            Failed(text) => {
                failed += 1;
                ("fail", text)
            }
        };
        print(&format!("{mark}  {what}: {text}"))?;
    }
    match failed {
        0 => Ok(()),
        1 => Err(Failure::failed("one check failed")),
        _ => Err(Failure::failed(format!("{failed} checks failed"))),
    }
}

fn state_directory(common: &Common) -> Finding {
    let path = common.state_dir.path();
    let shown = path.display();
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Fine(format!(
            "{shown} does not exist yet; the first start creates it"
        )),
        Err(error) => Failed(format!("{shown}: {error}; name another with --state-dir")),
        Ok(metadata) if !metadata.is_dir() => Failed(format!(
            "{shown} is not a directory; name another with --state-dir"
        )),
        Ok(metadata) if metadata.permissions().mode() & FOREIGN_WRITE != 0 => Doubtful(format!(
            "{shown} may be written to by other users; run: chmod 700 {shown}"
        )),
        Ok(_) => match tempfile::tempfile_in(path) {
            Ok(_) => Fine(shown.to_string()),
            Err(error) => Failed(format!(
                "{shown} cannot be written to: {error}; let its owner run the server, or name another with --state-dir"
            )),
        },
    }
}

fn token(common: &Common) -> Finding {
    match common.token.read() {
        Ok(_) => Fine(common.token.path().map_or_else(
            || "comes from the environment".to_owned(),
            |path| path.display().to_string(),
        )),
        Err(error @ TokenError::Missing { .. }) => Doubtful(error.to_string()),
        Err(error) => Failed(format!("{:#}", anyhow::Error::from(error))),
    }
}

fn configuration(serve: &Result<Serve, Failure>) -> Finding {
    match serve {
        Ok(_) => Fine("options of `serve` go together".to_owned()),
        Err(failure) => Failed(failure.to_string()),
    }
}

fn descriptors() -> Finding {
    let needed = limits::TUNNELS_PER_LINK as u64 + DESCRIPTORS_BESIDE;
    match getrlimit(Resource::Nofile).maximum {
        Some(maximum) if maximum < needed => Doubtful(format!(
            "at most {maximum} may be open, too few for the {} tunnels of one desktop; raise `ulimit -Hn` or LimitNOFILE= to \
             {needed} or more",
            limits::TUNNELS_PER_LINK
        )),
        Some(maximum) => Fine(format!("{maximum} may be open")),
        None => Fine("any number may be open".to_owned()),
    }
}

async fn localhost() -> Finding {
    let found = match timeout(RESOLVE_LIMIT, tokio::net::lookup_host(("localhost", 0))).await {
        Ok(Ok(found)) => found.map(|address| address.ip()).collect::<Vec<_>>(),
        Ok(Err(error)) => {
            return Doubtful(format!(
                "the name does not resolve ({error}); tunnels reach it all the same, other programs may not: add it to /etc/hosts"
            ));
        }
        Err(_) => {
            return Doubtful(
                "the name takes long to resolve; look at /etc/hosts and the resolver".to_owned(),
            );
        }
    };
    let odd: Vec<_> = found.iter().filter(|ip| !ip.is_loopback()).collect();
    if !odd.is_empty() {
        return Doubtful(format!("the name resolves to {odd:?}; mend /etc/hosts"));
    }
    let v6 = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await.is_ok();
    let v4 = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.is_ok();
    match (v4, v6) {
        (true, true) => Fine("127.0.0.1 and ::1 are there".to_owned()),
        (true, false) => {
            Fine("127.0.0.1 is there, ::1 is not; programs cannot listen on it".to_owned())
        }
        (false, true) => {
            Doubtful("::1 is there, 127.0.0.1 is not; look at the interface lo".to_owned())
        }
        (false, false) => {
            Failed("neither 127.0.0.1 nor ::1 is there; bring up the interface lo".to_owned())
        }
    }
}

fn tls(common: &Common, serve: &Serve) -> Finding {
    use crate::config::TlsMode;
    match &serve.tls {
        TlsMode::Off => Fine("not used".to_owned()),
        TlsMode::SelfSigned if !common.state_dir.certificate().exists() => {
            Fine("a key of our own; the first start makes it".to_owned())
        }
        mode => match ServerTls::open(mode, &common.state_dir) {
            Ok(Some(tls)) => Fine(format!("certificate and key fit together; pin {}", tls.pin)),
            Ok(None) => Fine("not used".to_owned()),
            Err(error) => Failed(format!("{:#}", anyhow::Error::from(error))),
        },
    }
}

fn port(serve: &Serve) -> Finding {
    match serve.listen.parse::<ListenAddress>() {
        Err(error) => Failed(error.to_string()),
        Ok(address) => match address.bind() {
            Ok(_) => Fine(format!("{address} is free")),
            Err(error) => Failed(format!("{:#}", anyhow::Error::from(error))),
        },
    }
}

async fn running(common: &Common, options: ServerOptions) -> Finding {
    let expected = options.server.is_some() || Presence::of_running(&common.state_dir).is_some();
    let asked = async {
        let client = Client::new(common, options)?;
        let status: RunningStatus = client.get("status", QUICK).await?;
        Ok::<_, Failure>((client, status))
    };
    match asked.await {
        Ok((client, status)) if status.version == VERSION => {
            Fine(format!("{} answers, version {VERSION}", client.address()))
        }
        Ok((client, status)) => Doubtful(format!(
            "{} runs version {}, this is {VERSION}; restart it with this one",
            client.address(),
            status.version
        )),
        Err(failure) if failure.exit() == Exit::Unreachable && !expected => {
            Fine("none runs on this state directory; start it with: tunnel-server".to_owned())
        }
        Err(failure) => Failed(failure.to_string()),
    }
}
