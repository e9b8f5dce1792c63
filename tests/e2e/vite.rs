//! A Vite dev server on the server's loopback, browsed from the desk, hot reload included.

use yonder_tests::halves::{Desktop, Server};
use yonder_tests::vite::App;

async fn hot_reload_on(host: &str) {
    let app = App::start(host).await;
    let server = Server::start().await;
    let page = app.url();
    let _desktop = Desktop::open(&server, &server.url, &page, &[]);
    let tab = server.wait_for_page(&page).await;
    app.requires_hot_reload(&server, &tab).await;
}

#[tokio::test]
async fn hot_reload_of_a_server_bound_to_localhost() {
    hot_reload_on("localhost").await;
}

#[tokio::test]
async fn hot_reload_of_a_server_bound_only_to_ipv4_loopback() {
    hot_reload_on("127.0.0.1").await;
}

#[tokio::test]
async fn hot_reload_of_a_server_bound_only_to_ipv6_loopback() {
    hot_reload_on("::1").await;
}
