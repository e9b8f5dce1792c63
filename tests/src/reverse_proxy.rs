//! Reverse proxies of other people in front of the server half.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::eventually;
use crate::process::Process;

/// A reverse proxy that serves HTTPS with a certificate for `localhost`.
#[derive(Debug)]
pub struct ReverseProxy {
    /// The program.
    pub process: Process,
    /// Its HTTPS port.
    pub tls_port: u16,
    /// Its plain HTTP port.
    pub port: u16,
    folder: TempDir,
}

impl ReverseProxy {
    /// nginx with one of the configurations in `fixtures/reverse-proxies`, in front of `origin_port`.
    pub async fn nginx(configuration: &str, origin_port: u16) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        // Started by root, nginx hands its work to a user who must be able to read the folder.
        open_to_all(folder.path());
        write_certificate(folder.path());
        // Both ports are picked by the system and released again; nginx takes them at once.
        let (port, tls_port) = {
            let plain = TcpListener::bind("127.0.0.1:0").unwrap();
            let tls = TcpListener::bind("127.0.0.1:0").unwrap();
            (
                plain.local_addr().unwrap().port(),
                tls.local_addr().unwrap().port(),
            )
        };
        let source = fixtures().join("reverse-proxies").join(configuration);
        let text = std::fs::read_to_string(&source)
            .unwrap_or_else(|error| panic!("{}: {error}", source.display()))
            .replace("__PORT__", &port.to_string())
            .replace("__TLS_PORT__", &tls_port.to_string())
            .replace("__ORIGIN__", &origin_port.to_string())
            .replace("__RUN__", folder.path().to_str().expect("a plain path"));
        let file = folder.path().join(configuration);
        std::fs::write(&file, text).unwrap();
        let process = Process::start(
            Command::new(nginx())
                .arg("-e")
                .arg(folder.path().join("error.log"))
                .arg("-p")
                .arg(folder.path())
                .arg("-c")
                .arg(&file)
                .args(["-g", "daemon off;"])
                .stdin(Stdio::null()),
        );
        eventually("nginx listens", async || {
            TcpStream::connect(("127.0.0.1", tls_port)).await
        })
        .await;
        Self {
            process,
            tls_port,
            port,
            folder,
        }
    }

    /// The HTTPS URL that a desktop is given.
    pub fn url(&self) -> String {
        format!("https://localhost:{}/", self.tls_port)
    }

    /// The certificate to trust, a PEM file.
    pub fn ca(&self) -> PathBuf {
        self.folder.path().join("cert.pem")
    }
}

fn nginx() -> &'static str {
    if Path::new("/usr/sbin/nginx").exists() {
        "/usr/sbin/nginx"
    } else {
        "nginx"
    }
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
