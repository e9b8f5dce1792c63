//! `ssh -D` to compare with: a server of our own on a free port, with keys made for this run.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use tempfile::TempDir;

use crate::halves::Target;
use crate::place::Place;
use crate::process::{Background, START_LIMIT, wait_until};
use crate::way::Way;

/// The ciphers to compare with: the default of OpenSSH, and the cheapest one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Cipher {
    /// `chacha20-poly1305@openssh.com`, which `ssh` takes unless told otherwise.
    Default,
    /// `aes128-gcm@openssh.com`.
    Aes,
}

impl Cipher {
    fn parts(self) -> (&'static str, &'static str) {
        match self {
            Self::Default => ("ssh -D", "chacha20-poly1305@openssh.com"),
            Self::Aes => ("ssh aes", "aes128-gcm@openssh.com"),
        }
    }
}

/// A running `sshd` and an `ssh -D` to it.
#[derive(Debug)]
pub(crate) struct Ssh {
    /// The way through them.
    pub(crate) way: Way,
    /// Stop when dropped, the client first.
    _client: Background,
    _server: Background,
    _folder: TempDir,
}

/// Where `sshd` lies; it is not in every user's `PATH`.
fn sshd() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/usr/local/sbin".into()])
        .map(|folder: PathBuf| folder.join("sshd"))
        .find(|program| program.is_file())
}

impl Ssh {
    /// Why this machine cannot compare with `ssh`, or nothing.
    pub(crate) fn missing() -> Option<&'static str> {
        let ssh = Command::new("ssh")
            .arg("-V")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if ssh.is_err() {
            return Some("`ssh` is not installed (Debian: openssh-client)");
        }
        if sshd().is_none() {
            return Some("`sshd` is not installed (Debian: openssh-server)");
        }
        None
    }

    /// Starts both ends, so that the target is reached through them.
    pub(crate) fn start(place: &Place, cipher: Cipher, target: &Target) -> anyhow::Result<Self> {
        let (name, cipher) = cipher.parts();
        let folder = tempfile::Builder::new().prefix("yonder-ssh-").tempdir()?;
        let host_key = make_key(folder.path(), "host")?;
        let user_key = make_key(folder.path(), "user")?;
        let user = user_name()?;
        let address = SocketAddr::new(place.far_address(), free_port()?);
        let configuration = folder.path().join("sshd_config");
        fs::write(
            &configuration,
            format!(
                "ListenAddress {address}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\n\
                 UsePAM no\nPasswordAuthentication no\nAllowTcpForwarding yes\nMaxSessions 100\nLogLevel ERROR\n",
                host_key.display(),
                user_key.with_extension("pub").display(),
            ),
        )?;
        // Run by root, sshd wants this folder; run by anyone else, it neither needs it nor may make it.
        let _ = fs::create_dir_all("/run/sshd");
        let program = sshd().context("sshd is gone")?;
        let server = Background::start(
            place
                .enter(&program)
                .args(["-D", "-e", "-f"])
                .arg(&configuration),
        )?;
        wait_for_port(address, "sshd")?;
        let entry = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), free_port()?);
        let client = Background::start(
            Command::new("ssh")
                .args(["-N", "-T", "-F", "none", "-c", cipher, "-l", &user, "-i"])
                .arg(&user_key)
                .args(["-p", &address.port().to_string()])
                .args(["-D", &entry.to_string()])
                .args(["-o", "StrictHostKeyChecking=no"])
                .args(["-o", "UserKnownHostsFile=/dev/null"])
                .args(["-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes"])
                .args(["-o", "ExitOnForwardFailure=yes", "-o", "LogLevel=ERROR"])
                .arg(address.ip().to_string()),
        )?;
        wait_for_port(entry, "ssh -D")?;
        Ok(Self {
            way: Way {
                name,
                entry,
                socks: Some(target.ports.wishes),
                between: Some([client.id(), server.id()]),
                target: target.id(),
            },
            _client: client,
            _server: server,
            _folder: folder,
        })
    }
}

fn make_key(folder: &Path, name: &str) -> anyhow::Result<PathBuf> {
    let path = folder.join(name);
    let status = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-C", name, "-f"])
        .arg(&path)
        .stdin(Stdio::null())
        .status()
        .context("could not run ssh-keygen")?;
    if !status.success() {
        bail!("ssh-keygen failed ({status})");
    }
    Ok(path)
}

fn user_name() -> anyhow::Result<String> {
    let output = Command::new("id")
        .arg("-un")
        .output()
        .context("could not run `id -un`")?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// A port that was free a moment ago. OpenSSH cannot be asked to choose one itself; should another program be faster, the run
/// ends with its error.
fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
        .local_addr()?
        .port())
}

fn wait_for_port(address: SocketAddr, who: &str) -> anyhow::Result<()> {
    wait_until(START_LIMIT, &format!("the start of {who}"), || {
        Ok(TcpStream::connect_timeout(&address, START_LIMIT).is_ok())
    })?;
    Ok(())
}
