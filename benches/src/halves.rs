//! Both halves of the product, started as a user would start them.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use tempfile::TempDir;

use crate::place::Place;
use crate::process::{Background, wait_until};
use crate::target::Ports;
use crate::way::Way;

/// How the link is carried.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Carrier {
    /// Without encryption, as on loopback or behind a reverse proxy.
    Plain,
    /// TLS at both ends, the server's key pinned.
    Tls,
}

impl Carrier {
    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Tls => "tls",
        }
    }
}

/// A running server half, and what is needed to reach and restart it.
#[derive(Debug)]
pub(crate) struct ServerHalf {
    carrier: Carrier,
    address: SocketAddr,
    url: String,
    pin: Option<String>,
    process: Background,
    folder: TempDir,
}

impl ServerHalf {
    /// Starts it at the far place on a free port.
    pub(crate) fn start(place: &Place, carrier: Carrier) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("yonder-bench-")
            .tempdir()
            .context("could not make a folder for the halves' state")?;
        let listen = SocketAddr::new(place.far_address(), 0);
        let (process, url, pin) = start_server(place, carrier, listen, &folder)?;
        let (_, address) = url
            .split_once("://")
            .with_context(|| format!("tunnel-server listens on {url:?}"))?;
        let address = address.trim_end_matches('/').parse()?;
        Ok(Self {
            carrier,
            address,
            url,
            pin,
            process,
            folder,
        })
    }

    /// Stops it, and starts it again on the same port.
    pub(crate) fn restart(&mut self, place: &Place) -> anyhow::Result<()> {
        self.process.stop()?;
        let (process, _, _) = start_server(place, self.carrier, self.address, &self.folder)?;
        self.process = process;
        Ok(())
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Starts the desktop half near us, to forward a free port to `target`.
    ///
    /// `through` is an address that leads to the server half, if not its own.
    pub(crate) fn forward(
        &self,
        place: &Place,
        target: SocketAddr,
        through: Option<SocketAddr>,
    ) -> anyhow::Result<(Background, SocketAddr)> {
        let mut command = self.desktop(place, "forward", through)?;
        command.arg(format!("0:{}:{}", target.ip(), target.port()));
        let mut desktop = Background::start(&mut command)?;
        let line = desktop.first_line()?;
        let entry = line
            .strip_prefix("forwarding ")
            .and_then(|rest| rest.split(' ').next())
            .with_context(|| format!("tunnel-desktop said {line:?}"))?
            .parse()?;
        Ok((desktop, entry))
    }

    /// Starts the desktop half near us as an HTTP proxy; answers its address and the value of `Proxy-Authorization`'s
    /// user and password.
    pub(crate) fn proxy(&self, place: &Place) -> anyhow::Result<(Background, SocketAddr, String)> {
        let mut desktop = Background::start(&mut self.desktop(place, "proxy", None)?)?;
        let line = desktop.first_line()?;
        let (credential, address) = line
            .strip_prefix("proxy http://")
            .and_then(|rest| rest.split_once('@'))
            .with_context(|| "tunnel-desktop printed no proxy".to_owned())?;
        Ok((desktop, address.parse()?, credential.to_owned()))
    }

    /// The desktop half's command. What it tells its user goes to a file, for whoever looks into a failure.
    fn desktop(
        &self,
        place: &Place,
        what: &str,
        through: Option<SocketAddr>,
    ) -> anyhow::Result<Command> {
        let url = match through {
            Some(address) => self
                .url
                .replace(&self.address.to_string(), &address.to_string()),
            None => self.url.clone(),
        };
        let mut command = place.near("tunnel-desktop");
        command.args([what, &url, "--log", "error", "--state-dir"]);
        command.arg(self.folder.path());
        if let Some(pin) = &self.pin {
            command.args(["--pin", pin]);
        }
        let messages = File::create(self.folder.path().join("desktop.messages"))
            .context("could not make a file for messages")?;
        command.stderr(messages);
        Ok(command)
    }
}

/// How long the key's fingerprint may stay away after the first line.
const PIN_LIMIT: Duration = Duration::from_secs(5);

fn start_server(
    place: &Place,
    carrier: Carrier,
    listen: SocketAddr,
    folder: &TempDir,
) -> anyhow::Result<(Background, String, Option<String>)> {
    let messages: PathBuf = folder.path().join("server.messages");
    let mut command = place.far("tunnel-server");
    command
        .args(["serve", "--log", "warn", "--listen", &listen.to_string()])
        .args(["--grace", "0"])
        .arg("--state-dir")
        .arg(folder.path())
        .stderr(File::create(&messages).context("could not make a file for messages")?);
    match carrier {
        Carrier::Tls => {
            command.arg("--tls-self-signed");
        }
        Carrier::Plain if !listen.ip().is_loopback() => {
            command.arg("--plaintext");
        }
        Carrier::Plain => {}
    }
    let mut server = Background::start(&mut command)?;
    let line = server.first_line();
    let said = fs::read_to_string(&messages).unwrap_or_default();
    let line = line.with_context(|| format!("its messages: {said}"))?;
    let url = line
        .strip_prefix("listening on ")
        .with_context(|| format!("tunnel-server said {line:?}"))?
        .to_owned();
    let mut pin = None;
    if carrier == Carrier::Tls {
        wait_until(PIN_LIMIT, "the server's fingerprint", || {
            pin = fs::read_to_string(&messages)?
                .split_ascii_whitespace()
                .find(|word| word.starts_with("sha256:"))
                .map(str::to_owned);
            Ok(pin.is_some())
        })?;
    }
    Ok((server, url, pin))
}

/// Both halves with a forward to the target.
#[derive(Debug)]
pub(crate) struct Halves {
    /// The way through them.
    pub(crate) way: Way,
    /// The desktop half, stopped before the server half as it would else look for it.
    _desktop: Background,
    /// The server half.
    pub(crate) server: ServerHalf,
}

impl Halves {
    /// Starts both.
    pub(crate) fn start(place: &Place, carrier: Carrier, target: &Target) -> anyhow::Result<Self> {
        let server = ServerHalf::start(place, carrier)?;
        let (desktop, entry) = server.forward(place, target.ports.wishes, None)?;
        let way = Way {
            name: carrier.name(),
            entry,
            socks: None,
            between: Some([desktop.id(), server.id()]),
            target: target.id(),
        };
        Ok(Self {
            way,
            _desktop: desktop,
            server,
        })
    }
}

/// A target process at the far place.
#[derive(Debug)]
pub(crate) struct Target {
    /// Where it listens.
    pub(crate) ports: Ports,
    process: Background,
}

impl Target {
    /// Starts one.
    pub(crate) fn start(place: &Place) -> anyhow::Result<Self> {
        Self::start_with(place, &[])
    }

    /// Starts one that sends with this congestion control.
    pub(crate) fn start_sending_by(place: &Place, congestion: &str) -> anyhow::Result<Self> {
        Self::start_with(place, &["--congestion", congestion])
    }

    fn start_with(place: &Place, further: &[&str]) -> anyhow::Result<Self> {
        let address = place.far_address().to_string();
        let mut command = place.far_self()?;
        command
            .args(["target", "--address", &address])
            .args(further);
        let mut process = Background::start(&mut command)?;
        let ports = Ports::parse(&process.first_line()?)?;
        Ok(Self { ports, process })
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// The way without anything in between.
    pub(crate) fn direct(&self) -> Way {
        Way {
            name: "direct",
            entry: self.ports.wishes,
            socks: None,
            between: None,
            target: self.id(),
        }
    }
}
