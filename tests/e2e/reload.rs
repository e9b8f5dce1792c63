//! Reverse proxies whose administrator changes something while tunnels are in use.

use yonder_tests::client::{Client, LiveSocket};
use yonder_tests::halves::{Desktop, Server};
use yonder_tests::reverse_proxy::ReverseProxy;
use yonder_tests::site::Site;

const BYTES: u64 = 256 << 20;

/// What of the download has arrived at each reload.
const RELOADS: [u64; 3] = [BYTES / 4, BYTES / 2, 3 * BYTES / 4];

/// Messages of the WebSocket that must pass after each reload, while the download waits.
const ECHOES: u64 = 20;

async fn nothing_is_lost_over_reloads(configuration: &str, carrier: &str) {
    let server = Server::start().await;
    let mut reverse_proxy = ReverseProxy::start(configuration, server.port()).await;
    let url = reverse_proxy.url("");
    let ca = reverse_proxy.ca();
    let arguments = ["--ca", ca.to_str().unwrap()];
    let site = Site::start().await;
    let (desktop, proxy) = Desktop::proxy_with(&server, &url, &arguments).await;
    let client = Client::new(proxy);
    let target = site.address.to_string();
    let mut socket = LiveSocket::start(client.connect(&target).await.unwrap()).await;
    let before = server.wait_for_carrier(carrier).await;

    client
        .download(&site, BYTES, &RELOADS, async || {
            reverse_proxy.reload().await;
            socket.goes_on(ECHOES).await;
        })
        .await;
    socket.finish().await;

    let after = server.wait_for_carrier(carrier).await;
    assert_eq!(after["id"], before["id"]);
    let said = desktop.process.stderr();
    assert!(!said.contains("were lost"), "{said}");
    let carriers = said.matches("carrier up").count();
    println!("{configuration}: {carriers} carriers over three reloads");

    // Newcomers are served by the proxy as it is now.
    let (_newcomer, proxy) = Desktop::proxy_with(&server, &url, &arguments).await;
    let answer = Client::new(proxy).get(&site, "/newcomer").await;
    assert_eq!(answer.as_deref(), Ok("/newcomer"));
}

#[tokio::test]
async fn of_nginx_under_a_websocket() {
    nothing_is_lost_over_reloads("nginx-websocket.conf", "websocket").await;
}

#[tokio::test]
async fn of_nginx_under_requests() {
    nothing_is_lost_over_reloads("nginx-strict.conf", "poll").await;
}

#[tokio::test]
async fn of_haproxy() {
    nothing_is_lost_over_reloads("haproxy-plain.cfg", "websocket").await;
}

/// Caddy closes every WebSocket when it reloads.
#[tokio::test]
async fn of_caddy() {
    nothing_is_lost_over_reloads("Caddyfile-plain", "websocket").await;
}
