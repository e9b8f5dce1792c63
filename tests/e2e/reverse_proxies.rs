//! Behind reverse proxies that nobody retunes for us: everything works, and the carrier is the best that passes.

use serde_json::json;
use yonder_tests::client::{Client, LiveSocket};
use yonder_tests::halves::{Desktop, Server};
use yonder_tests::reverse_proxy::ReverseProxy;
use yonder_tests::site::Site;
use yonder_tests::vite::App;

/// Bytes moved each way, both ways at once.
const BULK_BYTES: u64 = 64 << 20;

const SMALL_REQUESTS: usize = 200;
const EVENTS: u32 = 10;
const ECHOES: u64 = 100;

/// Starts `configuration` in front of a server half and runs what programs do through `tunnel-desktop proxy`, which is
/// given the URL below `path`; the link's carrier must be `carrier` all the time.
async fn works_behind(configuration: &str, path: &str, carrier: &str) {
    let server = Server::start().await;
    let reverse_proxy = ReverseProxy::start(configuration, server.port()).await;
    let site = Site::start().await;
    let ca = reverse_proxy.ca();
    let (_desktop, proxy) = Desktop::proxy_with(
        &server,
        &reverse_proxy.url(path),
        &["--ca", ca.to_str().unwrap()],
    )
    .await;
    let client = Client::new(proxy);

    let target = site.address.to_string();
    let mut socket = LiveSocket::start(client.connect(&target).await.unwrap()).await;
    socket.goes_on(ECHOES).await;
    client.events_one_by_one(&site, EVENTS).await;
    client.small_requests(&site, SMALL_REQUESTS).await;
    tokio::join!(
        client.download(&site, BULK_BYTES, &[], async || ()),
        client.upload(&site, BULK_BYTES)
    );
    socket.finish().await;

    let status = server.status().await;
    let links = status["links"].as_array().unwrap();
    assert_eq!(links.len(), 1, "{status}");
    println!("{configuration}: {}", links[0]["description"]);
    assert_eq!(links[0]["carrier"], carrier, "{status}");
}

/// A test for each configuration: its name, the path it mounts the server half below, the carrier expected there.
macro_rules! behind {
    ($($test:ident: $configuration:literal, $path:literal, $carrier:literal;)+) => {
        $(
            #[tokio::test]
            async fn $test() {
                works_behind($configuration, $path, $carrier).await;
            }
        )+
    };
}

behind! {
    nginx_plain: "nginx-plain.conf", "", "poll";
    nginx_websocket: "nginx-websocket.conf", "", "websocket";
    nginx_subpath_stripped: "nginx-subpath.conf", "tunnel/", "poll";
    nginx_subpath_kept: "nginx-subpath.conf", "keep/", "poll";
    nginx_gzip: "nginx-gzip.conf", "", "poll";
    nginx_strict: "nginx-strict.conf", "", "poll";
    nginx_tuned: "nginx-tuned.conf", "", "websocket";
    haproxy_plain: "haproxy-plain.cfg", "", "websocket";
    haproxy_websocket: "haproxy-websocket.cfg", "", "websocket";
    apache_plain: "apache-plain.conf", "", "poll";
    apache_websocket: "apache-websocket.conf", "", "websocket";
    apache_wstunnel: "apache-wstunnel.conf", "", "websocket";
    apache_subpath_stripped: "apache-subpath.conf", "tunnel/", "poll";
    apache_subpath_kept: "apache-subpath.conf", "keep/", "poll";
    caddy_plain: "Caddyfile-plain", "", "websocket";
    caddy_encode: "Caddyfile-encode", "", "websocket";
    caddy_subpath_stripped: "Caddyfile-subpath", "tunnel/", "websocket";
    caddy_subpath_kept: "Caddyfile-subpath", "keep/", "websocket";
    lighttpd_plain: "lighttpd-plain.conf", "", "poll";
    varnish_plain: "varnish-plain.vcl", "", "poll";
}

/// A page in the browser, its hot reload included, and a carrier of kind `carrier`.
async fn a_page_reloads_behind(configuration: &str, path: &str, carrier: &str) {
    let server = Server::start().await;
    let reverse_proxy = ReverseProxy::start(configuration, server.port()).await;
    let app = App::start("localhost").await;
    let page = app.url();
    let ca = reverse_proxy.ca();
    let _desktop = Desktop::open(
        &server,
        &reverse_proxy.url(path),
        &page,
        &["--ca", ca.to_str().unwrap()],
    );
    let tab = server.wait_for_page(&page).await;
    app.requires_hot_reload(&server, &tab).await;
    let outline = server.call("snapshot", json!({"tabID": tab})).await;
    let content = outline["content"].as_str().unwrap();
    assert!(content.contains("second version"), "{outline}");

    let status = server.status().await;
    assert_eq!(status["links"][0]["carrier"], carrier, "{status}");
}

#[tokio::test]
async fn hot_reload_behind_nginx_that_passes_no_upgrade() {
    a_page_reloads_behind("nginx-plain.conf", "", "poll").await;
}

#[tokio::test]
async fn hot_reload_behind_haproxy() {
    a_page_reloads_behind("haproxy-plain.cfg", "", "websocket").await;
}

#[tokio::test]
async fn hot_reload_behind_apache_below_a_path() {
    a_page_reloads_behind("apache-subpath.conf", "tunnel/", "poll").await;
}

#[tokio::test]
async fn hot_reload_behind_caddy() {
    a_page_reloads_behind("Caddyfile-encode", "", "websocket").await;
}

#[tokio::test]
async fn hot_reload_behind_lighttpd_that_buffers_everything() {
    a_page_reloads_behind("lighttpd-plain.conf", "", "poll").await;
}
