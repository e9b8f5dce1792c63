//! Behind reverse proxies that nobody retunes for us: everything works, and the carrier is the best that passes.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::timeout;
use yonder_tests::PATIENCE;
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

/// A server half behind a reverse proxy.
struct Rig {
    server: Server,
    reverse_proxy: ReverseProxy,
    /// What a desktop is told of it.
    url: String,
    ca: String,
}

impl Rig {
    /// Behind `configuration`; desktops are given the URL below `path`.
    async fn start(configuration: &str, path: &str) -> Self {
        let server = Server::start().await;
        let reverse_proxy = ReverseProxy::start(configuration, server.port()).await;
        Self {
            url: reverse_proxy.url(path),
            ca: reverse_proxy.ca().to_str().unwrap().to_owned(),
            reverse_proxy,
            server,
        }
    }

    async fn proxy(&self) -> (Desktop, Client) {
        let (desktop, proxy) =
            Desktop::proxy_with(&self.server, &self.url, &["--ca", &self.ca]).await;
        (desktop, Client::new(proxy))
    }
}

/// Runs what programs do through `tunnel-desktop proxy` behind `configuration`. The link's carrier must be `carrier`
/// before and after.
async fn works_behind(configuration: &str, path: &str, carrier: &str) {
    let rig = Rig::start(configuration, path).await;
    let site = Site::start().await;
    let (_desktop, client) = rig.proxy().await;
    let link = rig.server.wait_for_carrier(carrier).await;
    println!("{configuration}: {carrier}: {}", link["description"]);

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
    let same = rig.server.wait_for_carrier(carrier).await;
    assert_eq!(same["id"], link["id"], "{}", rig.reverse_proxy.messages());
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
    lighttpd_websocket: "lighttpd-websocket.conf", "", "websocket";
    varnish_plain: "varnish-plain.vcl", "", "poll";
    varnish_websocket: "varnish-websocket.vcl", "", "websocket";
}

/// A page in the browser, its hot reload included, and a carrier of kind `carrier`.
async fn a_page_reloads_behind(configuration: &str, path: &str, carrier: &str) {
    let rig = Rig::start(configuration, path).await;
    let app = App::start("localhost").await;
    let page = app.url();
    let _desktop = Desktop::open(&rig.server, &rig.url, &page, &["--ca", &rig.ca]);
    let tab = rig.server.wait_for_page(&page).await;
    rig.server.wait_for_carrier(carrier).await;
    app.requires_hot_reload(&rig.server, &tab).await;
    let outline = rig.server.call("snapshot", json!({"tabID": tab})).await;
    let content = outline["content"].as_str().unwrap();
    assert!(content.contains("second version"), "{outline}");
    rig.server.wait_for_carrier(carrier).await;
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

/// How long the tunnels of [`idle_tunnels_outlive_the_time_limits_of_proxies`] are idle: more than the longest limit
/// below, nginx's, Apache's and Varnish's 60 s.
const IDLE: Duration = Duration::from_secs(65);

/// All at once, since the waiting is the same for all.
#[tokio::test]
async fn idle_tunnels_outlive_the_time_limits_of_proxies() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let mut held = Vec::new();
    for configuration in [
        "apache-websocket.conf",
        "haproxy-plain.cfg",
        "nginx-strict.conf",
        "nginx-websocket.conf",
        "varnish-plain.vcl",
        "varnish-websocket.vcl",
    ] {
        let rig = Rig::start(configuration, "").await;
        let (desktop, client) = rig.proxy().await;
        let near = client.connect(&target).await.unwrap();
        let (far, _) = listener.accept().await.unwrap();
        held.push((configuration, near, far, desktop, rig));
    }
    tokio::time::sleep(IDLE).await;
    for (configuration, near, far, desktop, _rig) in &mut held {
        near.write_all(b"still here").await.unwrap();
        let mut bytes = [0; 10];
        let read = timeout(PATIENCE, far.read_exact(&mut bytes)).await;
        read.unwrap_or_else(|_| panic!("{configuration}: nothing came through"))
            .unwrap();
        assert_eq!(&bytes, b"still here", "{configuration}");
        let said = desktop.process.stderr();
        assert!(!said.contains("reconnecting"), "{configuration}: {said}");
    }
}
