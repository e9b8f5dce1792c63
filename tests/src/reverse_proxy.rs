//! Reverse proxies of other people in front of the server half.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::eventually;
use crate::process::Process;

/// How often a proxy is started anew because something else took its port in the meantime.
const START_ATTEMPTS: u32 = 3;

/// Which program a configuration is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Program {
    Apache,
    Caddy,
    HaProxy,
    Lighttpd,
    Nginx,
    Varnish,
}

impl Program {
    fn of(configuration: &str) -> Self {
        let name = configuration.split('-').next().unwrap_or_default();
        match name {
            "apache" => Self::Apache,
            "Caddyfile" => Self::Caddy,
            "haproxy" => Self::HaProxy,
            "lighttpd" => Self::Lighttpd,
            "nginx" => Self::Nginx,
            "varnish" => Self::Varnish,
            other => panic!("no program is known for {other}"),
        }
    }

    /// Where Debian keeps its modules, which Apache and lighttpd must be told.
    fn modules(self) -> &'static str {
        match self {
            Self::Apache => "/usr/lib/apache2/modules",
            _ => "/usr/lib/lighttpd",
        }
    }

    /// It in the foreground with the configuration `file`, all that it writes in `folder`.
    fn command(self, folder: &Path, file: &Path, port: u16) -> Command {
        let mut command;
        match self {
            Self::Apache => {
                command = system("apache2");
                command.arg("-d").arg(folder).arg("-f").arg(file);
                command.arg("-DFOREGROUND");
            }
            Self::Caddy => {
                command = caddy(folder, "run", file);
            }
            Self::HaProxy => {
                command = system("haproxy");
                command.arg("-db").arg("-f").arg(file);
            }
            Self::Lighttpd => {
                command = system("lighttpd");
                command.args(["-D", "-m", self.modules(), "-f"]).arg(file);
            }
            Self::Nginx => {
                command = nginx(folder, file);
                command.args(["-g", "daemon off;"]);
            }
            Self::Varnish => {
                command = system("varnishd");
                command.arg("-F").arg("-n").arg(folder.join("varnish"));
                command.args(["-a", &format!("127.0.0.1:{port}"), "-f"]);
                command.arg(file).args(["-s", "malloc,64m"]);
            }
        }
        command.stdin(Stdio::null());
        command
    }
}

/// A running reverse proxy with one of the configurations in `fixtures/reverse-proxies`. Its certificate is for
/// `localhost`. Dropping it ends it with all its workers.
#[derive(Debug)]
pub struct ReverseProxy {
    /// The program.
    pub process: Process,
    program: Program,
    /// Processes that serve what was open when they were replaced.
    retired: Vec<Process>,
    port: u16,
    /// Its HTTPS port, if the configuration has one.
    tls_port: Option<u16>,
    file: PathBuf,
    folder: TempDir,
}

impl ReverseProxy {
    /// Starts the program that `configuration`, the name of a file, is for, in front of `origin_port`.
    pub async fn start(configuration: &str, origin_port: u16) -> Self {
        let program = Program::of(configuration);
        let source = fixtures().join("reverse-proxies").join(configuration);
        let template = std::fs::read_to_string(&source)
            .unwrap_or_else(|error| panic!("{}: {error}", source.display()));
        let mut attempts = 1;
        loop {
            let folder = tempfile::tempdir().expect("a temporary folder");
            // Started by root, most programs hand their work to a user who must be able to read the folder.
            open_to_all(folder.path());
            write_certificate(folder.path());
            let (port, tls_port) = free_ports();
            let text = template
                .replace("__PORT__", &port.to_string())
                .replace("__TLS_PORT__", &tls_port.to_string())
                .replace("__ORIGIN__", &origin_port.to_string())
                .replace("__RUN__", folder.path().to_str().expect("a plain path"))
                .replace("__MODULES__", program.modules());
            let file = folder.path().join(configuration);
            std::fs::write(&file, text).unwrap();
            let process = Process::start(&mut program.command(folder.path(), &file, port));
            let mut started = Self {
                process,
                program,
                retired: Vec::new(),
                port,
                tls_port: template.contains("__TLS_PORT__").then_some(tls_port),
                file,
                folder,
            };
            if started.listens().await {
                return started;
            }
            assert!(
                attempts < START_ATTEMPTS,
                "{configuration} does not start: {}",
                started.messages()
            );
            attempts += 1;
        }
    }

    /// Waits until it listens; false if it ended instead.
    async fn listens(&mut self) -> bool {
        let port = self.tls_port.unwrap_or(self.port);
        eventually("the reverse proxy listens", async || {
            if self.process.ended().is_some() {
                return Ok(false);
            }
            TcpStream::connect(("127.0.0.1", port)).await.map(|_| true)
        })
        .await
    }

    /// The URL below `path` that a desktop is given: HTTPS where the configuration has it.
    pub fn url(&self, path: &str) -> String {
        match self.tls_port {
            Some(port) => format!("https://localhost:{port}/{path}"),
            None => format!("http://localhost:{}/{path}", self.port),
        }
    }

    /// The certificate to trust, a PEM file.
    pub fn ca(&self) -> PathBuf {
        self.folder.path().join("cert.pem")
    }

    /// What it has said, to standard error and its log.
    pub fn messages(&self) -> String {
        let log = std::fs::read_to_string(self.folder.path().join("error.log"));
        self.process.stderr() + &log.unwrap_or_default()
    }

    /// Reads its configuration again as its manual says, with connections open. Returns once the new configuration is
    /// the one that newcomers meet.
    ///
    /// Only for nginx, HAProxy and Caddy.
    pub async fn reload(&mut self) {
        match self.program {
            Program::Nginx => {
                let before = children(self.process.pid());
                let mut command = nginx(self.folder.path(), &self.file);
                succeed(command.args(["-s", "reload"])).await;
                eventually("nginx has a new worker", async || {
                    let now = children(self.process.pid());
                    let new = now.iter().any(|pid| !before.contains(pid));
                    new.then_some(()).ok_or(now)
                })
                .await;
            }
            Program::HaProxy => {
                let mut command = self
                    .program
                    .command(self.folder.path(), &self.file, self.port);
                let old = self.process.pid();
                command.arg("-sf").arg(old.to_string());
                let new = Process::start(&mut command);
                let old = std::mem::replace(&mut self.process, new);
                // The old process closes its listeners as soon as the new one is ready, and stays for what is open.
                let listeners = [Some(self.port), self.tls_port];
                eventually("the old HAProxy listens no more", async || {
                    let holds = listeners
                        .into_iter()
                        .flatten()
                        .any(|port| is_listening(old.pid(), port));
                    (!holds).then_some(()).ok_or("it still does")
                })
                .await;
                assert!(self.listens().await, "{}", self.messages());
                self.retired.push(old);
            }
            Program::Caddy => {
                let mut command = caddy(self.folder.path(), "reload", &self.file);
                command
                    .args(["--force", "--address"])
                    .arg(format!("unix/{}/admin.sock", self.folder.path().display()));
                succeed(&mut command).await;
            }
            other => panic!("nothing is known of how to reload {other:?}"),
        }
    }
}

impl Drop for ReverseProxy {
    fn drop(&mut self) {
        for process in self.retired.iter_mut().chain([&mut self.process]) {
            if process.ended().is_some() {
                continue;
            }
            // The workers of a killed master would go on serving. It is halted first, so that it starts no more.
            let master = process.pid();
            kill("STOP", &[master]);
            let mut family = children(master);
            family.push(master);
            kill("KILL", &family);
        }
    }
}

/// Signals processes; those that are gone already are no failure.
fn kill(signal: &str, pids: &[u32]) {
    // Nothing is left to do where it cannot be started; `kill_on_drop` ends the masters even so.
    let _ = std::process::Command::new("kill")
        .arg(format!("-{signal}"))
        .args(pids.iter().map(u32::to_string))
        .stderr(Stdio::null())
        .status();
}

/// The processes that `pid` has started.
fn children(pid: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    list.unwrap_or_default()
        .split_whitespace()
        .filter_map(|child| child.parse().ok())
        .collect()
}

/// Whether the process `pid`, unless it has ended, has a socket that listens on `port`.
fn is_listening(pid: u32, port: u16) -> bool {
    // The state LISTEN and the inode's column, as proc(5) describes the table.
    const LISTEN: &str = "0A";
    const INODE: usize = 9;
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let inodes: Vec<String> = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|fields| {
            fields.len() > INODE
                && fields[1].ends_with(&format!(":{port:04X}"))
                && fields[3] == LISTEN
        })
        .map(|fields| format!("socket:[{}]", fields[INODE]))
        .collect();
    let Ok(descriptors) = std::fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    descriptors
        .flatten()
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .any(|target| inodes.iter().any(|inode| target == Path::new(inode)))
}

async fn succeed(command: &mut Command) {
    let output = crate::process::output(command).await;
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A program of the system, which an ordinary user's PATH may lack.
fn system(name: &str) -> Command {
    let found = ["/usr/sbin", "/usr/bin"]
        .into_iter()
        .map(|folder| Path::new(folder).join(name))
        .find(|path| path.exists());
    Command::new(found.unwrap_or_else(|| PathBuf::from(name)))
}

fn nginx(folder: &Path, file: &Path) -> Command {
    let mut command = system("nginx");
    command
        .arg("-e")
        .arg(folder.join("error.log"))
        .arg("-p")
        .arg(folder)
        .arg("-c")
        .arg(file);
    command
}

fn caddy(folder: &Path, subcommand: &str, file: &Path) -> Command {
    let mut command = system("caddy");
    command
        .args([subcommand, "--adapter", "caddyfile", "--config"])
        .arg(file)
        .env("XDG_DATA_HOME", folder)
        .env("XDG_CONFIG_HOME", folder);
    command
}

/// Two ports that nothing listened on a moment ago.
fn free_ports() -> (u16, u16) {
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let tls = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
    (port(&plain), port(&tls))
}

/// The folder of files that tests read.
pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

fn open_to_all(folder: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn write_certificate(folder: &Path) {
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    std::fs::write(folder.join("cert.pem"), &certificate).unwrap();
    std::fs::write(folder.join("key.pem"), &key).unwrap();
    std::fs::write(folder.join("both.pem"), certificate + &key).unwrap();
}
