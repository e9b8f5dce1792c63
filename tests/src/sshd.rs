//! A real `sshd` without a service: one process per connection, each on a socket that this module accepted, with keys and
//! configuration of its own. The person's end is a configuration file that knows the host `far`.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::task::JoinSet;

use crate::halves::is_root;

/// Where Debian has it; it wants to be started by its whole path.
const SSHD: &str = "/usr/sbin/sshd";

/// Where `sshd` locks itself in before it knows who logs in. Services have it made; we have none.
const LOCK_IN: &str = "/run/sshd";

/// A running `sshd`.
#[derive(Debug)]
pub struct Sshd {
    folder: TempDir,
    logins: Arc<AtomicU64>,
    _tasks: JoinSet<()>,
}

impl Sshd {
    /// Serves logins of this user on a loopback port; `environment` is what they find, and `force` runs in place of what
    /// they ask for.
    pub async fn start(environment: &[(&str, &str)], force: Option<&str>) -> Self {
        if is_root() && !Path::new(LOCK_IN).exists() {
            std::fs::create_dir_all(LOCK_IN).unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for key in ["host", "person", "stranger", "other-host"] {
            make_key(&path(key)).await;
        }
        std::fs::copy(path("person.pub"), path("authorized")).unwrap();
        let mut config = format!(
            "HostKey {host}\nAuthorizedKeysFile {authorized}\nStrictModes no\nUsePAM no\nPidFile none\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\nPrintMotd no\n",
            host = path("host").display(),
            authorized = path("authorized").display(),
        );
        if !environment.is_empty() {
            let list: Vec<_> = environment
                .iter()
                .map(|(name, value)| format!("\"{name}={value}\""))
                .collect();
            writeln!(config, "SetEnv {}", list.join(" ")).unwrap();
        }
        if let Some(force) = force {
            writeln!(config, "ForceCommand {force}").unwrap();
        }
        std::fs::write(path("sshd_config"), config).unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let logins = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, path("sshd_config"), Arc::clone(&logins)));
        let sshd = Self {
            folder,
            logins,
            _tasks: tasks,
        };
        sshd.write_client(address);
        sshd.know("host");
        sshd
    }

    /// What `tunnel-desktop --ssh` takes to reach the host `far`.
    pub fn client(&self) -> String {
        format!("ssh -F '{}'", self.path("client").display())
    }

    /// Connections so far.
    pub fn logins(&self) -> u64 {
        self.logins.load(Ordering::Relaxed)
    }

    /// From now on the person expects the key of another host.
    pub fn expect_another_host(&self) {
        self.know("other-host");
    }

    /// From now on the person knows no host, and is asked about new ones where that is possible.
    pub fn forget_host(&self) {
        std::fs::write(self.path("known"), "").unwrap();
        let client = std::fs::read_to_string(self.path("client")).unwrap();
        let client = client.replace("StrictHostKeyChecking yes", "StrictHostKeyChecking ask");
        std::fs::write(self.path("client"), client).unwrap();
    }

    /// From now on nobody may log in.
    pub fn refuse_logins(&self) {
        std::fs::copy(self.path("stranger.pub"), self.path("authorized")).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn know(&self, host: &str) {
        let key = std::fs::read_to_string(self.path(&format!("{host}.pub"))).unwrap();
        std::fs::write(self.path("known"), format!("far {key}")).unwrap();
    }

    fn write_client(&self, address: SocketAddr) {
        let text = format!(
            "Host far\n  HostName {ip}\n  Port {port}\n  HostKeyAlias far\n  IdentityFile {key}\n  IdentitiesOnly yes\n  \
             IdentityAgent none\n  UserKnownHostsFile {known}\n  GlobalKnownHostsFile none\n  StrictHostKeyChecking yes\n",
            ip = address.ip(),
            port = address.port(),
            key = self.path("person").display(),
            known = self.path("known").display(),
        );
        std::fs::write(self.path("client"), text).unwrap();
    }
}

async fn make_key(path: &Path) {
    let status = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-C", "test", "-f"])
        .arg(path)
        .status()
        .await
        .expect("ssh-keygen can be started");
    assert!(status.success());
}

async fn accept(listener: TcpListener, config: PathBuf, logins: Arc<AtomicU64>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok((socket, _)) = listener.accept().await else {
            continue;
        };
        logins.fetch_add(1, Ordering::Relaxed);
        let mut sshd = serve(socket, &config);
        connections.spawn(async move {
            let _ended = sshd.wait().await;
        });
    }
}

/// As inetd would start it.
fn serve(socket: TcpStream, config: &Path) -> tokio::process::Child {
    let socket = socket.into_std().unwrap();
    socket.set_nonblocking(false).unwrap();
    let socket = OwnedFd::from(socket);
    let other = socket.try_clone().unwrap();
    Command::new(SSHD)
        .args(["-i", "-f"])
        .arg(config)
        .stdin(Stdio::from(socket))
        .stdout(Stdio::from(other))
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("sshd can be started")
}
