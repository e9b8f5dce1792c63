//! What a user's programs do through `tunnel-desktop proxy`: requests, bulk both ways, events, WebSockets.

use std::io;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::{SinkExt as _, StreamExt as _};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_websockets::{ClientBuilder, Message};

use crate::process::{Process, output};
use crate::site::{Site, download_hash, hex};
use crate::{PATIENCE, eventually};

/// Longest head of an answer to CONNECT.
const CONNECT_ANSWER_BYTES: usize = 8 * 1024;

/// A user of one proxy.
#[derive(Clone, Debug)]
pub struct Client {
    proxy: String,
}

impl Client {
    /// A user of `proxy`, a URL with its credential as `tunnel-desktop proxy` prints it.
    pub fn new(proxy: String) -> Self {
        Self { proxy }
    }

    /// `curl` through the proxy, silent but for errors.
    pub fn curl(&self) -> Command {
        let mut command = Command::new("curl");
        command
            .args(["--silent", "--show-error", "--noproxy", ""])
            .args(["--proxy", &self.proxy])
            .stdin(Stdio::null());
        command
    }

    /// The answer to a GET of `path`, whose status must be one of success.
    pub async fn get(&self, site: &Site, path: &str) -> Result<String, String> {
        let answer = output(self.curl().arg("--fail").arg(site.url(path))).await;
        if answer.status.success() {
            Ok(String::from_utf8_lossy(&answer.stdout).into_owned())
        } else {
            Err(String::from_utf8_lossy(&answer.stderr).into_owned())
        }
    }

    /// A connection to `target` (`HOST:PORT`) by CONNECT.
    ///
    /// # Errors
    /// The proxy cannot be reached, or refuses.
    pub async fn connect(&self, target: &str) -> io::Result<TcpStream> {
        let (credential, address) = self
            .proxy
            .strip_prefix("http://")
            .and_then(|rest| rest.rsplit_once('@'))
            .expect("a URL with a credential");
        let mut stream = TcpStream::connect(address).await?;
        let credential = STANDARD.encode(credential);
        let request = format!(
            "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nProxy-Authorization: Basic {credential}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            if head.len() == CONNECT_ANSWER_BYTES {
                return Err(io::Error::other("the answer to CONNECT has no end"));
            }
            head.push(stream.read_u8().await?);
        }
        if head.starts_with(b"HTTP/1.1 200") {
            Ok(stream)
        } else {
            Err(io::Error::other(
                String::from_utf8_lossy(&head).into_owned(),
            ))
        }
    }

    /// Requires that `bytes` come down as they were sent. After each of `marks`, counts of bytes received,
    /// `at_mark` is awaited before more is read.
    pub async fn download(
        &self,
        site: &Site,
        bytes: u64,
        marks: &[u64],
        mut at_mark: impl AsyncFnMut(),
    ) {
        let mut curl = self
            .curl()
            .arg(site.url(&format!("/download?{bytes}")))
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut stdout = curl.stdout.take().unwrap();
        let mut hash = Sha256::new();
        let mut buffer = vec![0; 256 << 10];
        let mut received = 0;
        let mut marks = marks.iter().peekable();
        loop {
            let read = timeout(PATIENCE, stdout.read(&mut buffer)).await;
            let count = read.expect("the download goes on").unwrap();
            if count == 0 {
                break;
            }
            hash.update(&buffer[..count]);
            received += count as u64;
            while marks.next_if(|mark| **mark <= received).is_some() {
                at_mark().await;
            }
        }
        assert!(curl.wait().await.unwrap().success());
        assert!(
            marks.next().is_none(),
            "the download ended before its marks"
        );
        assert_eq!(received, bytes);
        assert_eq!(hex(&hash.finalize()), download_hash(bytes));
    }

    /// Requires that `bytes` go up as they were sent.
    pub async fn upload(&self, site: &Site, bytes: u64) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("upload");
        // Fetched directly, so that both ways of the tunnel are tested apart.
        let fetched = output(
            Command::new("curl")
                .args(["--silent", "--output"])
                .arg(&file)
                .arg(site.url(&format!("/download?{bytes}"))),
        )
        .await;
        assert!(fetched.status.success());
        let answer = output(
            self.curl()
                .arg("--upload-file")
                .arg(&file)
                .arg(site.url("/upload")),
        )
        .await;
        assert!(
            answer.status.success(),
            "{}",
            String::from_utf8_lossy(&answer.stderr)
        );
        let hash = String::from_utf8_lossy(&answer.stdout);
        assert_eq!(hash, download_hash(bytes));
    }

    /// Requires that `count` small requests, many at a time as a page has them, get their own answers.
    pub async fn small_requests(&self, site: &Site, count: usize) {
        let folder = tempfile::tempdir().unwrap();
        let answer = output(
            self.curl()
                .args(["--fail", "--parallel", "--parallel-max", "16", "--output"])
                .arg(folder.path().join("#1"))
                .arg(site.url(&format!("/n/[1-{count}]"))),
        )
        .await;
        assert!(
            answer.status.success(),
            "{}",
            String::from_utf8_lossy(&answer.stderr)
        );
        for number in 1..=count {
            let body = std::fs::read_to_string(folder.path().join(number.to_string())).unwrap();
            assert_eq!(body, format!("/n/{number}"));
        }
    }

    /// Requires that `count` events arrive one by one: the site sends each only when told that the one before is here.
    pub async fn events_one_by_one(&self, site: &Site, count: u32) {
        let mut curl = Process::start(self.curl().arg("--no-buffer").arg(site.url("/steps")));
        for number in 1..=count {
            let event = loop {
                let line = curl.line().await;
                if let Some(event) = line.strip_prefix("data: ") {
                    break event.to_owned();
                }
            };
            assert_eq!(event, number.to_string());
            self.get(site, "/step").await.unwrap();
        }
    }
}

/// A WebSocket to the site's echo that is in use all the time.
#[derive(Debug)]
pub struct LiveSocket {
    echoes: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    /// How the socket failed, if it did.
    task: JoinSet<Result<(), String>>,
}

impl LiveSocket {
    /// Opens it on `stream` and begins to count up.
    pub async fn start(stream: TcpStream) -> Self {
        let uri = "ws://localhost/websocket";
        let builder = ClientBuilder::new().uri(uri).unwrap();
        let (mut socket, _) = timeout(PATIENCE, builder.connect_on(stream))
            .await
            .expect("an answer to the upgrade")
            .unwrap();
        let echoes = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let mut task = JoinSet::new();
        task.spawn({
            let (echoes, stop) = (Arc::clone(&echoes), Arc::clone(&stop));
            async move {
                while !stop.load(Ordering::Relaxed) {
                    let number = echoes.load(Ordering::Relaxed).to_string();
                    let sent = socket.send(Message::text(number.clone())).await;
                    sent.map_err(|error| error.to_string())?;
                    let answer = socket.next().await.ok_or("the WebSocket was closed")?;
                    let answer = answer.map_err(|error| error.to_string())?;
                    assert_eq!(answer.as_text(), Some(number.as_str()));
                    echoes.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            }
        });
        Self { echoes, stop, task }
    }

    /// Messages that have come back.
    pub fn echoes(&self) -> u64 {
        self.echoes.load(Ordering::Relaxed)
    }

    /// Waits for `count` more messages to come back.
    pub async fn goes_on(&mut self, count: u64) {
        let wanted = self.echoes() + count;
        eventually("the WebSocket carries messages", async || {
            if let Some(end) = self.task.try_join_next() {
                end.unwrap().expect("the WebSocket stays whole");
            }
            (self.echoes() >= wanted).then_some(()).ok_or("silent")
        })
        .await;
    }

    /// Waits until it is lost, however that shows at its end.
    pub async fn ends(mut self) {
        let end = timeout(PATIENCE, self.task.join_next()).await;
        let end = end.expect("the WebSocket ends rather than hangs");
        assert!(end.unwrap().unwrap().is_err(), "it was not lost");
    }

    /// Ends it after requiring that it has lost nothing.
    pub async fn finish(mut self) {
        self.goes_on(1).await;
        self.stop.store(true, Ordering::Relaxed);
        let end = timeout(PATIENCE, self.task.join_next()).await;
        end.expect("the last echo").unwrap().unwrap().unwrap();
    }
}
