//! Starting Chromium: which program, with which flags, and what it means when it does not start.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use std::{env, fs, io};

use command_fds::{CommandFdExt, FdMapping};
use serde::Deserialize;
use tokio::net::unix::pipe;
use tokio::process::Command;

use crate::cdp::{CdpError, Connection, NoParams};
use crate::process::{Process, Tail};
use crate::profile::{Profile, ProfileDirectory};

/// From the start of the program to its first answer. 0.3 s is usual, a cold disk takes seconds.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(20);

/// Where the debugging pipe is in the child: it reads commands from 3 and writes answers to 4.
const CHILD_INPUT: i32 = 3;
const CHILD_OUTPUT: i32 = 4;

/// Names on `PATH`, the best known first.
const NAMES: &[&str] = &[
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "microsoft-edge",
    "microsoft-edge-stable",
    "msedge",
];

/// Programs to prefer over those on `PATH`: Debian's `chromium` there is a script that adds flags of its own.
#[cfg(not(target_os = "macos"))]
const PLACES: &[&str] = &["/usr/lib/chromium/chromium"];
#[cfg(target_os = "macos")]
const PLACES: &[&str] = &[
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
];

/// What Chromium must not do here. `HttpsUpgrades` would try `https` first for names that look public;
/// the others talk to their maker or to devices nearby.
const DISABLED_FEATURES: &str = "HttpsUpgrades,NetworkTimeServiceQuerying,OptimizationHints,\
OptimizationGuideModelDownloading,MediaRouter,DialMediaRouteProvider,Translate,AutofillServerCommunication";

/// How to start a browser.
#[derive(Clone, Debug)]
pub struct BrowserConfig {
    /// The program; `None` looks for one, see [`find_executable`].
    pub executable: Option<PathBuf>,
    /// Without windows on a screen.
    pub headless: bool,
    /// Whether Chromium confines its renderers. Only ever false where that is impossible, as for root.
    pub sandbox: bool,
    /// The one address that Chromium may connect to: an HTTP proxy that wants credentials.
    pub proxy: SocketAddr,
    /// Where cookies and storage are kept.
    pub profile: Profile,
    /// Outer size of windows in CSS pixels.
    pub window: (u32, u32),
}

impl BrowserConfig {
    /// A visible browser with a temporary profile behind `proxy`.
    pub fn new(proxy: SocketAddr) -> Self {
        Self {
            executable: None,
            headless: false,
            sandbox: true,
            proxy,
            profile: Profile::Temporary,
            window: (1280, 800),
        }
    }
}

/// Why no browser runs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// No browser is installed where we look.
    #[error(
        "no Chromium found; install it (Debian, Ubuntu: apt install chromium) or name one with --browser PATH"
    )]
    NotFound,
    /// The program that was named is not there or cannot be run.
    #[error("{} is not a program that can be run; check --browser", path.display())]
    NotExecutable {
        /// As it was named.
        path: PathBuf,
    },
    /// Root and the sandbox exclude each other.
    #[error(
        "Chromium's sandbox does not work for root; run as an ordinary user, or pass --no-sandbox if \
         every page that will be opened is trusted"
    )]
    Root,
    /// The system offers nothing to build a sandbox from.
    #[error(
        "this system gives Chromium no sandbox (unprivileged user namespaces are off); allow them, or pass \
         --no-sandbox if every page that will be opened is trusted"
    )]
    NoSandbox,
    /// There is no screen to show windows on.
    #[error(
        "there is no display for a visible browser; set DISPLAY or WAYLAND_DISPLAY, or pass --headless"
    )]
    NoDisplay,
    /// The profile belongs to a browser that runs.
    #[error("the profile {} is in use by another browser; close that one or name another profile", path.display())]
    ProfileInUse {
        /// The profile's directory.
        path: PathBuf,
    },
    /// The profile directory cannot be created or written.
    #[error("the browser's profile cannot be prepared; check that the directory is writable")]
    Profile(#[source] io::Error),
    /// The program could not be started.
    #[error("{} could not be started", path.display())]
    Spawn {
        /// The program.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// It ended before it answered.
    #[error("Chromium ended while it started ({status}){}", quote(tail))]
    Exited {
        /// How it ended.
        status: String,
        /// The last lines of its error output.
        tail: String,
    },
    /// It runs but does not answer.
    #[error("Chromium did not answer within {} s{}", HANDSHAKE_LIMIT.as_secs(), quote(tail))]
    Silent {
        /// The last lines of its error output.
        tail: String,
    },
    /// It answered something that we do not understand.
    #[error(
        "Chromium's answer at start is not understood: {0}; is it a Chromium of the last two years?"
    )]
    Protocol(String),
}

fn quote(tail: &str) -> String {
    if tail.is_empty() {
        String::new()
    } else {
        format!("; it said:\n{tail}")
    }
}

/// The browser to start: `explicit` if given, else the best one installed.
///
/// # Errors
/// [`LaunchError::NotFound`] or [`LaunchError::NotExecutable`].
pub fn find_executable(explicit: Option<&Path>) -> Result<PathBuf, LaunchError> {
    if let Some(path) = explicit {
        let found = if path.components().count() == 1 {
            on_path(&path.to_string_lossy())
        } else {
            Some(path.to_owned()).filter(|path| is_executable(path))
        };
        return found.ok_or_else(|| LaunchError::NotExecutable {
            path: path.to_owned(),
        });
    }
    let places = PLACES.iter().map(PathBuf::from);
    places
        .filter(|path| is_executable(path))
        .chain(NAMES.iter().filter_map(|name| on_path(name)))
        .next()
        .ok_or(LaunchError::NotFound)
}

fn on_path(name: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?)
        .map(|directory| directory.join(name))
        .find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// A browser that answered.
pub(crate) struct Launched {
    pub(crate) process: Process,
    pub(crate) connection: Connection,
    /// Such as `Chrome/156.0.8078.114`.
    pub(crate) version: String,
}

#[derive(Deserialize)]
struct Version {
    product: String,
}

/// Starts a browser and waits until it answers. Dropping the future ends the browser.
pub(crate) async fn launch(config: &BrowserConfig) -> Result<Launched, LaunchError> {
    let path = find_executable(config.executable.as_deref())?;
    if config.sandbox && cfg!(target_os = "linux") && rustix::process::geteuid().is_root() {
        return Err(LaunchError::Root);
    }
    if !config.headless
        && cfg!(target_os = "linux")
        && env::var_os("DISPLAY").is_none()
        && env::var_os("WAYLAND_DISPLAY").is_none()
    {
        return Err(LaunchError::NoDisplay);
    }
    let profile = ProfileDirectory::prepare(&config.profile).map_err(LaunchError::Profile)?;
    let profile_path = profile.path().to_owned();
    let spawn = |source| LaunchError::Spawn {
        path: path.clone(),
        source,
    };
    let (child_input, ours) = io::pipe().map_err(spawn)?;
    let output = pipe::Sender::from_owned_fd(ours.into()).map_err(spawn)?;
    let (ours, child_output) = io::pipe().map_err(spawn)?;
    let input = pipe::Receiver::from_owned_fd(ours.into()).map_err(spawn)?;

    let mut command = Command::new(&path);
    command
        .args(arguments(config, &profile_path))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        // A group of its own: what the browser leaves behind can be ended with it, and Ctrl+C at our
        // terminal reaches us alone.
        .process_group(0)
        .kill_on_drop(true);
    command
        .as_std_mut()
        .fd_mappings(vec![
            FdMapping {
                parent_fd: child_input.into(),
                child_fd: CHILD_INPUT,
            },
            FdMapping {
                parent_fd: child_output.into(),
                child_fd: CHILD_OUTPUT,
            },
        ])
        .map_err(|error| spawn(io::Error::other(error)))?;
    let child = command.spawn().map_err(spawn)?;
    // Closes our copies of the child's ends, so that the end of either process is seen by the other.
    drop(command);
    let process = Process::watch(child, profile);
    let connection = Connection::open(input, output);
    let root = connection.root();
    let answer = tokio::select! {
        answer = root.call_within::<Version>(HANDSHAKE_LIMIT, "Browser.getVersion", NoParams {}) => answer,
        _ = process.exited() => Err(CdpError::Gone),
    };
    match answer {
        Ok(version) => Ok(Launched {
            process,
            connection,
            version: version.product,
        }),
        Err(CdpError::TimedOut { .. }) => Err(LaunchError::Silent {
            tail: process.tail().text(),
        }),
        Err(CdpError::Gone | CdpError::Detached) => {
            let status = process.end(Duration::ZERO).await;
            let tail = process.tail();
            Err(explain(config, &profile_path, status.to_string(), &tail))
        }
        Err(error) => Err(LaunchError::Protocol(error.to_string())),
    }
}

/// What the end of a starting browser means.
fn explain(config: &BrowserConfig, profile: &Path, status: String, tail: &Tail) -> LaunchError {
    let said = |text| tail.contains(text);
    if said("No usable sandbox")
        || said("setuid_sandbox_host")
        || said("Failed to move to new namespace")
    {
        LaunchError::NoSandbox
    } else if said("Running as root without --no-sandbox") {
        LaunchError::Root
    } else if said("Missing X server") || said("ozone_platform") {
        LaunchError::NoDisplay
    } else if matches!(config.profile, Profile::Kept(_))
        && (said("existing browser session")
            || said("profile appears to be in use")
            || said("ProcessSingleton"))
    {
        LaunchError::ProfileInUse {
            path: profile.to_owned(),
        }
    } else {
        LaunchError::Exited {
            status,
            tail: tail.text(),
        }
    }
}

fn arguments(config: &BrowserConfig, profile: &Path) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = Vec::new();
    if config.headless {
        arguments.push("--headless=new".into());
    }
    if !config.sandbox {
        arguments.push("--no-sandbox".into());
    }
    let mut data_dir = OsString::from("--user-data-dir=");
    data_dir.push(profile);
    arguments.push(data_dir);
    let (width, height) = config.window;
    let proxy = config.proxy;
    arguments.extend(
        [
            "--remote-debugging-pipe",
            "--no-startup-window",
            "--no-first-run",
            "--no-default-browser-check",
            &format!("--window-size={width},{height}"),
            // Everything goes through the proxy, the loopback included. The proxy must be named for the
            // whole process: a browser context's own setting is lost with the network process.
            &format!("--proxy-server=http://{proxy}"),
            "--proxy-bypass-list=<-loopback>",
            // No name is looked up here, no datagram leaves. The second of the two WebRTC switches is the
            // documented one and is ignored by current versions; the first is the one that works.
            &format!(
                "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE {}",
                proxy.ip()
            ),
            "--webrtc-ip-handling-policy=disable_non_proxied_udp",
            "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
            "--disable-quic",
            // Prompts would wait for a person who may not be there.
            "--deny-permission-prompts",
            "--disable-blink-features=AutomationControlled",
            // Tabs that nobody looks at run like the one in front.
            "--disable-background-timer-throttling",
            "--disable-renderer-backgrounding",
            "--disable-backgrounding-occluded-windows",
            // The browser's own talk with its maker.
            "--disable-background-networking",
            "--disable-component-update",
            "--component-updater=url-source=http://127.0.0.1:1/",
            "--gaia-url=http://127.0.0.1:1/",
            "--disable-sync",
            "--disable-domain-reliability",
            "--no-pings",
            "--disable-breakpad",
            "--disable-default-apps",
            "--disable-extensions",
            "--disable-client-side-phishing-detection",
            &format!("--disable-features={DISABLED_FEATURES}"),
            // No question about a key ring or about the last run at the start.
            "--password-store=basic",
            "--use-mock-keychain",
            "--hide-crash-restore-bubble",
        ]
        .map(OsString::from),
    );
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_program_must_exist() {
        let error = find_executable(Some(Path::new("/nonexistent/chromium"))).unwrap_err();
        assert!(error.to_string().contains("--browser"), "{error}");
        assert!(find_executable(Some(Path::new("sh"))).is_ok());
        assert!(find_executable(Some(Path::new("/"))).is_err());
    }

    #[test]
    fn the_proxy_is_named_for_the_whole_process() {
        let config = BrowserConfig::new("[::1]:4000".parse().unwrap());
        let arguments = arguments(&config, Path::new("/profile"));
        for expected in [
            "--proxy-server=http://[::1]:4000",
            "--proxy-bypass-list=<-loopback>",
            "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE ::1",
            "--user-data-dir=/profile",
        ] {
            assert!(
                arguments.iter().any(|argument| argument == expected),
                "{expected}"
            );
        }
        assert!(!arguments.iter().any(|argument| argument == "--no-sandbox"));
    }
}
