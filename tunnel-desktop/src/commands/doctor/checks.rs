//! The checks themselves.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use http::Method;
use http::header::DATE;
use tokio::time::timeout;
use yonder_browser::{Browser, BrowserConfig, Profile, find_executable};
use yonder_protocol::limits;
use yonder_protocol::link::{Role, SessionName};
use yonder_transport::VERSION_HEADER;
use yonder_transport::carrier::Connect;
use yonder_transport::client::Connected;
use yonder_transport::connect::Connector;
use yonder_transport::link::{Link, LinkPhase};
use yonder_transport::ssh::SshConnector;

use super::Finding;
use crate::way::Way;
use crate::{attach, files_limit};

/// Clocks that differ by more make certificates fail and logs of the two halves hard to read together.
const SKEW_MAX: Duration = Duration::from_secs(30);

/// Limit of one request to the server half.
const REQUEST_LIMIT: Duration = limits::HANDSHAKE_TIMEOUT;

/// Limit of getting a link, over every carrier in turn.
const LINK_LIMIT: Duration = Duration::from_secs(30);

/// Limit of waiting for the first figure of the link's round trip.
const MEASURE_LIMIT: Duration = Duration::from_secs(2);

/// How many files this process may open.
pub(super) fn files_limit() -> Finding {
    const WHAT: &str = "open files";
    match files_limit::ceiling() {
        Some(limit) if limit < files_limit::WANTED => Finding::warn(
            WHAT,
            format!(
                "at most {limit}; {} tunnels at once need {}",
                limits::TUNNELS_PER_LINK,
                files_limit::WANTED
            ),
            "raise the hard limit of this user (ulimit -Hn, LimitNOFILE=)",
        ),
        Some(limit) => Finding::ok(WHAT, format!("up to {limit}")),
        None => Finding::ok(WHAT, "without limit"),
    }
}

/// Starts Chromium for a moment.
pub(super) async fn chromium(executable: Option<&Path>, sandbox: bool) -> Finding {
    const WHAT: &str = "chromium";
    let found = match find_executable(executable) {
        Ok(found) => found,
        Err(error) => return Finding::fail(WHAT, error.to_string(), ""),
    };
    let config = BrowserConfig {
        executable: Some(found.clone()),
        headless: true,
        sandbox,
        // Nothing is loaded, so nothing ever connects to this port.
        proxy: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
        profile: Profile::Temporary,
        window: (1280, 800),
    };
    match Browser::launch(config).await {
        Err(error) => {
            let error = anyhow::Error::new(error);
            Finding::fail(WHAT, format!("{}: {error:#}", found.display()), "")
        }
        Ok(browser) => {
            let version = browser.version().to_owned();
            browser.close().await;
            let found = found.display();
            if sandbox {
                Finding::ok(WHAT, format!("{version} at {found}, with its sandbox"))
            } else {
                Finding::warn(
                    WHAT,
                    format!("{version} at {found}, without its sandbox"),
                    "a page that breaks into Chromium has this user's rights; use --no-sandbox only where it must be",
                )
            }
        }
    }
}

/// The way to the server half, each step only where the one before it succeeded.
pub(super) async fn server(way: &Way) -> Vec<Finding> {
    match way {
        Way::Http(connector) => http_server(connector).await,
        Way::Ssh(connector) => ssh_server(connector).await,
    }
}

/// The same where `ssh` is the way: it has its own address, encryption and login.
async fn ssh_server(connector: &Arc<SshConnector>) -> Vec<Finding> {
    let asked = Instant::now();
    if let Err(error) = connector.prepare().await {
        let what = if error.is_refused() {
            "login"
        } else {
            "server half"
        };
        return vec![Finding::fail(what, error.to_string(), "")];
    }
    let took = asked.elapsed().as_millis();
    let answered = format!(
        "{} logs in and answers within {took} ms",
        connector.address()
    );
    vec![
        Finding::ok("server half", answered),
        version(connector.far_version().as_deref()),
        link(connector.clone()).await,
    ]
}

async fn http_server(connector: &Arc<Connector>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let asked = Instant::now();
    let answer = match connector
        .request(Method::GET, "status", None, REQUEST_LIMIT)
        .await
    {
        Ok(answer) => answer,
        Err(error) => {
            let what = if error.is_refused() {
                "token"
            } else {
                "server half"
            };
            return vec![Finding::fail(what, error.to_string(), "")];
        }
    };
    let took = asked.elapsed();
    let address = connector.address();
    findings.push(Finding::ok(
        "server half",
        format!("{address} answers within {} ms", took.as_millis()),
    ));
    findings.push(encryption(address.is_secure(), address.is_loopback()));
    findings.push(Finding::ok("token", "accepted"));
    let header = |name: &str| {
        answer
            .headers()
            .get(name)
            .and_then(|value| value.to_str().ok())
    };
    findings.push(version(header(VERSION_HEADER.as_str())));
    findings.extend(clock(header(DATE.as_str()), SystemTime::now(), took));
    findings.push(link(connector.clone()).await);
    findings
}

fn encryption(secure: bool, loopback: bool) -> Finding {
    const WHAT: &str = "encryption";
    match (secure, loopback) {
        (true, _) => Finding::ok(WHAT, "TLS, certificate trusted"),
        (false, true) => Finding::ok(WHAT, "none, and none needed on this machine's loopback"),
        (false, false) => Finding::warn(
            WHAT,
            "none: token, pages and keystrokes cross the network readable",
            "serve with --tls-self-signed and connect with --pin, or put the server half behind a TLS proxy",
        ),
    }
}

fn version(theirs: Option<&str>) -> Finding {
    const WHAT: &str = "version";
    const OURS: &str = env!("CARGO_PKG_VERSION");
    match theirs {
        Some(OURS) => Finding::ok(WHAT, format!("{OURS} on both halves")),
        Some(theirs) => Finding::warn(
            WHAT,
            format!("{theirs} on the server, {OURS} here"),
            "install the same release on both",
        ),
        None => Finding::warn(
            WHAT,
            "the server half names none",
            "install the same release on both",
        ),
    }
}

/// Compares the clocks by the answer's `Date`, which has whole seconds and aged by up to `took` on its way.
fn clock(date: Option<&str>, now: SystemTime, took: Duration) -> Option<Finding> {
    const WHAT: &str = "clock";
    let theirs = httpdate::parse_http_date(date?).ok()?;
    let skew = match now.duration_since(theirs) {
        Ok(behind) => behind.saturating_sub(took),
        Err(ahead) => ahead.duration(),
    };
    Some(if skew <= SKEW_MAX {
        Finding::ok(WHAT, "the same on both halves")
    } else {
        Finding::warn(
            WHAT,
            format!("the halves differ by {} s", skew.as_secs()),
            "set both clocks (timedatectl set-ntp true); wrong ones make certificates fail",
        )
    })
}

/// Gets a link, and names its carrier and why it was chosen.
async fn link(connector: Arc<dyn Connect>) -> Finding {
    const WHAT: &str = "link";
    let attempt = attach::connect(connector, Role::Tunnels, SessionName::default());
    match timeout(LINK_LIMIT, attempt).await {
        Err(_) => Finding::fail(
            WHAT,
            format!("none within {} s", LINK_LIMIT.as_secs()),
            "look at the server half's log, and at what stands between the halves",
        ),
        Ok(Err(error)) => Finding::fail(WHAT, error.to_string(), ""),
        Ok(Ok(Connected { link, .. })) => {
            // Where no figure comes in time, the check does without.
            let _ = timeout(MEASURE_LIMIT, measured(&link)).await;
            let status = link.status();
            attach::detach(&link).await;
            let carrier = match status.phase {
                LinkPhase::Up { description, .. } => description,
                LinkPhase::Reconnecting { error, .. } => {
                    return Finding::fail(WHAT, format!("it broke at once: {error}"), "");
                }
                LinkPhase::Closed(reason) => return Finding::fail(WHAT, reason.to_string(), ""),
            };
            let round_trip = status.round_trip.map_or_else(String::new, |time| {
                format!(", round trip {:.1} ms", time.as_secs_f64() * 1e3)
            });
            Finding::ok(WHAT, format!("{carrier}{round_trip}"))
        }
    }
}

/// Waits until the round trip of `link` was measured, which its first ping does.
async fn measured(link: &Link) {
    while link.status().round_trip.is_none() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn clocks_are_compared_with_the_way_taken_into_account() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let date = Some("Sun, 06 Nov 1994 08:49:37 GMT");
        let level = |now, took| clock(date, now, took).unwrap().level;
        let second = Duration::from_secs(1);
        assert_eq!(level(now, second), Level::Ok);
        assert_eq!(level(now + 40 * second, 15 * second), Level::Ok);
        assert_eq!(level(now + 60 * second, second), Level::Warn);
        assert_eq!(level(now - 60 * second, second), Level::Warn);
        assert!(clock(Some("yesterday"), now, second).is_none());
    }

    #[test]
    fn versions_must_be_equal() {
        assert_eq!(version(Some(env!("CARGO_PKG_VERSION"))).level, Level::Ok);
        assert_eq!(version(Some("0.0.1")).level, Level::Warn);
    }
}
