//! A half that is gone for a while: the desktop asleep, the server restarted.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use yonder_tests::client::{Client, LiveSocket};
use yonder_tests::halves::{Desktop, Server};
use yonder_tests::reverse_proxy::ReverseProxy;
use yonder_tests::site::Site;
use yonder_tests::{PATIENCE, eventually, eventually_within};

/// How long the desktop sleeps: longer than most time limits on the way, shorter than the grace of 30 s.
const SLEEP: Duration = Duration::from_secs(20);

/// Longest way back after a restart of the server half, on a busy machine. An idle one takes under a second.
const COMEBACK: Duration = Duration::from_secs(20);

const BYTES: u64 = 64 << 20;

async fn sleeps(desktop: &Desktop) {
    desktop.process.signal("STOP").await;
    tokio::time::sleep(SLEEP).await;
    desktop.process.signal("CONT").await;
}

/// Puts `tunnel-desktop proxy` to sleep in the middle of a download and of a WebSocket's life.
async fn tunnels_survive_sleep(server: &Server, url: &str, arguments: &[&str]) {
    let site = Site::start().await;
    let (desktop, proxy) = Desktop::proxy_with(server, url, arguments).await;
    let client = Client::new(proxy);
    let target = site.address.to_string();
    let mut socket = LiveSocket::start(client.connect(&target).await.unwrap()).await;
    socket.goes_on(1).await;
    client
        .download(&site, BYTES, &[BYTES / 2], async || {
            sleeps(&desktop).await;
            socket.goes_on(20).await;
        })
        .await;
    socket.finish().await;
    let said = desktop.process.stderr();
    assert!(!said.contains("were lost"), "{said}");
}

async fn tunnels_in_a_websocket_survive_sleep() {
    let server = Server::start().await;
    tunnels_survive_sleep(&server, &server.url, &[]).await;
}

async fn tunnels_in_requests_survive_sleep() {
    let server = Server::start().await;
    let reverse_proxy = ReverseProxy::start("nginx-plain.conf", server.port()).await;
    let ca = reverse_proxy.ca();
    let arguments = ["--ca", ca.to_str().unwrap()];
    tunnels_survive_sleep(&server, &reverse_proxy.url(""), &arguments).await;
}

/// Waits until the page's WebSocket has carried `count` more messages than it has now.
async fn page_counts_on(server: &Server, tab: &str, count: u32) {
    let counted = async || {
        let title = server.evaluate(tab, "document.title").await;
        let count = title
            .as_str()
            .and_then(|title| title.strip_prefix("messages "))
            .and_then(|count| count.parse::<u32>().ok());
        count.ok_or(title)
    };
    let before = counted().await.unwrap_or(0);
    eventually("the page's WebSocket carries messages", async || {
        let now = counted().await?;
        (now >= before + count)
            .then_some(())
            .ok_or_else(|| Value::from(now))
    })
    .await;
}

async fn a_page_survives_sleep() {
    let server = Server::start().await;
    let site = Site::start().await;
    let page = site.url("/");
    let desktop = Desktop::open(&server, &server.url, &page, &[]);
    let tab = server.wait_for_page(&page).await;
    page_counts_on(&server, &tab, 10).await;
    server.evaluate(&tab, "window.mark = 'kept'").await;
    sleeps(&desktop).await;
    // The operations find the desktop again, too, and the page is the one from before.
    page_counts_on(&server, &tab, 10).await;
    assert_eq!(server.evaluate(&tab, "window.mark").await, "kept");
}

/// All at once, since the waiting is the same for all.
#[tokio::test]
async fn everything_outlives_a_desktop_that_sleeps() {
    tokio::join!(
        tunnels_in_a_websocket_survive_sleep(),
        tunnels_in_requests_survive_sleep(),
        a_page_survives_sleep()
    );
}

/// Restarts the server half by `signal` under `tunnel-desktop proxy`.
async fn proxy_comes_back_after(signal: &str) {
    let mut server = Server::start().await;
    let site = Site::start().await;
    let (mut desktop, proxy) = Desktop::proxy(&server, &server.url).await;
    let client = Client::new(proxy);
    let target = site.address.to_string();
    let mut socket = LiveSocket::start(client.connect(&target).await.unwrap()).await;
    socket.goes_on(1).await;
    // A tunnel without traffic must end as well, on both sides of the server half.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = listener.local_addr().unwrap().to_string();
    let mut silent = client.connect(&silent).await.unwrap();
    let (mut served, _) = listener.accept().await.unwrap();

    server.restart(signal).await;
    socket.ends().await;
    ends(&mut silent).await;
    ends(&mut served).await;
    eventually_within(COMEBACK, "a request works again", async || {
        client.get(&site, "/again").await
    })
    .await;
    let said = desktop.process.stderr();
    assert!(said.contains("open connections were lost"), "{said}");
    assert!(desktop.process.ended().is_none());
    let status = server.status().await;
    assert_eq!(status["links"].as_array().unwrap().len(), 1, "{status}");
}

/// Waits until the peer of `stream` has closed or reset it.
async fn ends(stream: &mut TcpStream) {
    let read = timeout(PATIENCE, stream.read(&mut [0; 1])).await;
    let read = read.expect("an end, not a hang");
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
}

#[tokio::test]
async fn the_proxy_comes_back_after_the_server_half_was_stopped_and_started() {
    proxy_comes_back_after("TERM").await;
}

#[tokio::test]
async fn the_proxy_comes_back_after_the_server_half_was_killed() {
    proxy_comes_back_after("KILL").await;
}

/// Restarts the server half by `signal` under a browser.
async fn browser_comes_back_after(signal: &str) {
    let mut server = Server::start().await;
    let site = Site::start().await;
    let page = site.url("/");
    let desktop = Desktop::open(&server, &server.url, &page, &[]);
    let tab = server.wait_for_page(&page).await;
    page_counts_on(&server, &tab, 10).await;

    server.restart(signal).await;
    eventually_within(COMEBACK, "the page sees its WebSocket's end", async || {
        let title = server
            .try_call(
                "evaluate",
                json!({"tabID": tab, "script": "document.title"}),
            )
            .await?;
        (title["value"] == "closed")
            .then_some(())
            .ok_or_else(|| title.to_string())
    })
    .await;
    let said = desktop.process.stderr();
    assert!(said.contains("open connections were lost"), "{said}");

    server.call("reload", json!({"tabID": tab})).await;
    page_counts_on(&server, &tab, 10).await;
}

#[tokio::test]
async fn the_browser_comes_back_after_the_server_half_was_stopped_and_started() {
    browser_comes_back_after("TERM").await;
}

#[tokio::test]
async fn the_browser_comes_back_after_the_server_half_was_killed() {
    browser_comes_back_after("KILL").await;
}
