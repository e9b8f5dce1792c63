//! `curl` through `tunnel-desktop proxy`.

use std::process::{Output, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sha2::{Digest as _, Sha256};
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use yonder_tests::halves::{Desktop, Server};
use yonder_tests::process::{Process, output};
use yonder_tests::site::{Site, download_hash, hex};

struct Rig {
    _server: Server,
    _desktop: Desktop,
    proxy: String,
    site: Site,
}

impl Rig {
    async fn start() -> Self {
        let server = Server::start().await;
        let (desktop, proxy) = Desktop::proxy(&server, &server.url).await;
        Self {
            _server: server,
            _desktop: desktop,
            proxy,
            site: Site::start().await,
        }
    }

    fn curl(&self) -> Command {
        let mut command = Command::new("curl");
        command
            .args([
                "--silent",
                "--show-error",
                "--noproxy",
                "",
                "--proxy",
                &self.proxy,
            ])
            .stdin(Stdio::null());
        command
    }
}

fn stdout(output: &Output) -> String {
    assert!(
        output.status.success(),
        "curl failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test]
async fn a_download_of_a_gibibyte_arrives_whole() {
    const BYTES: u64 = 1 << 30;
    let rig = Rig::start().await;
    let mut curl = rig
        .curl()
        .arg(rig.site.url(&format!("/download?{BYTES}")))
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut stdout = curl.stdout.take().unwrap();
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let count = stdout.read(&mut buffer).await.unwrap();
        if count == 0 {
            break;
        }
        hash.update(&buffer[..count]);
    }
    assert!(curl.wait().await.unwrap().success());
    assert_eq!(hex(&hash.finalize()), download_hash(BYTES));
}

#[tokio::test]
async fn an_upload_of_256_mebibytes_arrives_whole() {
    const BYTES: u64 = 256 << 20;
    let rig = Rig::start().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("upload");
    // Fetched directly, so that both ways of the tunnel are tested apart.
    let fetched = output(
        Command::new("curl")
            .args(["--silent", "--output"])
            .arg(&file)
            .arg(rig.site.url(&format!("/download?{BYTES}"))),
    )
    .await;
    assert!(fetched.status.success());
    let answer = output(
        rig.curl()
            .arg("--upload-file")
            .arg(&file)
            .arg(rig.site.url("/upload")),
    )
    .await;
    assert_eq!(stdout(&answer), download_hash(BYTES));
    let chunked = output(
        rig.curl()
            .args(["--header", "Transfer-Encoding: chunked", "--upload-file"])
            .arg(&file)
            .arg(rig.site.url("/upload")),
    )
    .await;
    assert_eq!(stdout(&chunked), download_hash(BYTES));
}

#[tokio::test]
async fn a_thousand_requests_use_one_connection() {
    let rig = Rig::start().await;
    let answer = output(
        rig.curl()
            .args(["--write-out", " %{http_code} %{num_connects}\n"])
            .arg(rig.site.url("/n/[1-1000]")),
    )
    .await;
    let answer = stdout(&answer);
    let lines: Vec<_> = answer.lines().collect();
    assert_eq!(lines.len(), 1_000);
    let mut connects = 0;
    for (number, line) in (1..).zip(&lines) {
        let (body, count) = line.rsplit_once(' ').unwrap();
        assert_eq!(body, format!("/n/{number} 200"));
        connects += count.parse::<u32>().unwrap();
    }
    assert_eq!(connects, 1, "curl opened further connections to the proxy");
    assert_eq!(rig.site.requests(), 1_000);
}

/// How late each of 20 events was, in milliseconds.
async fn event_delays(rig: &Rig) -> Vec<u128> {
    let mut curl = Process::start(rig.curl().arg("--no-buffer").arg(rig.site.url("/events")));
    let mut delays = Vec::new();
    while delays.len() < 20 {
        let line = curl.line().await;
        let Some(sent) = line.strip_prefix("data: ") else {
            continue;
        };
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_millis();
        delays.push(now.saturating_sub(sent.parse::<u128>().unwrap()));
    }
    delays
}

#[tokio::test]
async fn events_arrive_as_they_are_sent() {
    let rig = Rig::start().await;
    // The machine itself may be late while other tests use it; a proxy that buffers is late every time.
    for _ in 0..10 {
        let delays = event_delays(&rig).await;
        println!("delays of events in ms: {delays:?}");
        if delays
            .iter()
            .all(|delay| *delay < Duration::from_millis(100).as_millis())
        {
            return;
        }
    }
    panic!("in ten streams of 20 events each, one was always more than 100 ms late");
}

#[tokio::test]
async fn http_1_0_is_spoken() {
    let rig = Rig::start().await;
    let answer = output(rig.curl().arg("--http1.0").arg(rig.site.url("/old"))).await;
    assert_eq!(stdout(&answer), "/old");
}

#[tokio::test]
async fn a_tunnel_by_connect_works() {
    let rig = Rig::start().await;
    let answer = output(
        rig.curl()
            .arg("--proxytunnel")
            .arg(rig.site.url("/connect")),
    )
    .await;
    assert_eq!(stdout(&answer), "/connect");
}

#[tokio::test]
async fn a_wrong_password_gets_407_and_nothing_is_dialled() {
    let rig = Rig::start().await;
    let (_, address) = rig.proxy.rsplit_once('@').unwrap();
    let answer = output(
        Command::new("curl")
            .args(["--silent", "--noproxy", "", "--proxy"])
            .arg(format!("http://user:wrong@{address}"))
            .args(["--write-out", "%{http_code}", "--output", "/dev/null"])
            .arg(rig.site.url("/secret")),
    )
    .await;
    assert_eq!(stdout(&answer), "407");
    assert_eq!(rig.site.requests(), 0);
}

#[tokio::test]
async fn a_closed_port_gets_502_with_the_reason() {
    let rig = Rig::start().await;
    // Taken and released again, so that nothing listens there.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let answer = output(
        rig.curl()
            .args(["--write-out", "%{http_code}"])
            .arg(format!("http://localhost:{port}/")),
    )
    .await;
    let answer = stdout(&answer);
    assert!(answer.ends_with("502"), "{answer}");
    assert!(
        answer.contains("refused") && answer.contains(&port.to_string()),
        "{answer}"
    );
    let connect = output(
        rig.curl()
            .arg("--proxytunnel")
            .arg(format!("http://localhost:{port}/")),
    )
    .await;
    assert!(
        String::from_utf8_lossy(&connect.stderr).contains("502"),
        "{connect:?}"
    );
}
