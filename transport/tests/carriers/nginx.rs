//! The real thing that most often stands between the halves. Skipped, and said so, where nginx is not installed.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

/// Within `location /`: nothing but the line that everybody writes.
pub(crate) const PLAIN: &str = "";

/// Within `location /`: what the manual recommends for WebSockets.
pub(crate) const WEBSOCKET: &str = "proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; \
                                    proxy_set_header Connection \"upgrade\";";

/// Within `location /`: small bodies only, as a firewall would have it.
pub(crate) const STRICT: &str = "client_max_body_size 128k;";

pub(crate) struct Nginx {
    pub(crate) address: SocketAddr,
    _process: Child,
    _directory: TempDir,
}

impl Nginx {
    /// Starts nginx before `origin` with `lines` beside its `proxy_pass`; `None` where there is no nginx.
    pub(crate) async fn before(origin: SocketAddr, lines: &str) -> Option<Self> {
        let program = ["/usr/sbin/nginx", "/usr/bin/nginx", "/usr/local/bin/nginx"]
            .into_iter()
            .find(|path| Path::new(path).exists())?;
        let directory = tempfile::tempdir().expect("a directory");
        let run = directory.path().display();
        // The port is free now; should another program take it meanwhile, nginx ends and the test says so.
        let free = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let address = free.local_addr().expect("bound");
        drop(free);
        let user = if is_root(directory.path()) {
            "user root;"
        } else {
            ""
        };
        let config = format!(
            "daemon off; master_process off; {user} pid {run}/pid; error_log {run}/error.log;
             events {{}}
             http {{
               access_log off;
               client_body_temp_path {run}/body; proxy_temp_path {run}/proxy;
               fastcgi_temp_path {run}/fastcgi; uwsgi_temp_path {run}/uwsgi; scgi_temp_path {run}/scgi;
               server {{ listen {address}; location / {{ proxy_pass http://{origin}; {lines} }} }}
             }}"
        );
        let file = directory.path().join("nginx.conf");
        std::fs::write(&file, config).expect("writes");
        let mut process = Command::new(program)
            .arg("-e")
            .arg(directory.path().join("error.log"))
            .arg("-p")
            .arg(directory.path())
            .arg("-c")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("nginx starts");
        let listening = async {
            while TcpStream::connect(address).await.is_err() {
                if let Some(status) = process.try_wait().expect("a child") {
                    panic!("nginx ended with {status}");
                }
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_secs(10), listening)
            .await
            .expect("nginx listens");
        Some(Self {
            address,
            _process: process,
            _directory: directory,
        })
    }
}

/// Whether this process makes files as root, in whose folders nginx's own user could not write.
fn is_root(directory: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata(directory).is_ok_and(|metadata| metadata.uid() == 0)
}
