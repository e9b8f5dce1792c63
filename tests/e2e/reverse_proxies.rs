//! Behind reverse proxies that nobody retunes for us.

use serde_json::json;
use yonder_tests::eventually;
use yonder_tests::halves::{Desktop, Server};
use yonder_tests::reverse_proxy::ReverseProxy;
use yonder_tests::site::Site;

async fn page_works_behind(configuration: &str, carrier: &str) {
    let server = Server::start().await;
    let nginx = ReverseProxy::nginx(configuration, server.port()).await;
    let site = Site::start().await;
    let page = site.url("/");
    let ca = nginx.ca();
    let _desktop = Desktop::open(
        &server,
        &nginx.url(),
        &page,
        &["--ca", ca.to_str().unwrap()],
    );
    let tab = server.wait_for_page(&page).await;

    // The page counts the echoes of its WebSocket in its title.
    eventually("the page's WebSocket carries messages", async || {
        let title = server.evaluate(&tab, "document.title").await;
        let count = title
            .as_str()
            .and_then(|title| title.strip_prefix("messages "));
        let count = count.and_then(|count| count.parse::<u32>().ok());
        count.filter(|count| *count >= 10).ok_or(title)
    })
    .await;
    let outline = server.call("snapshot", json!({"tabID": tab})).await;
    assert!(
        outline["content"]
            .as_str()
            .unwrap()
            .contains("A page of the server"),
        "{outline}"
    );

    let status = server.status().await;
    let shown = status["links"][0]["carrier"].to_string();
    println!("{configuration}: carrier {shown}");
    assert!(shown.contains(carrier), "{status}");
}

#[tokio::test]
async fn nginx_that_passes_no_upgrade_is_served_by_requests() {
    page_works_behind("nginx-plain.conf", "poll").await;
}

#[tokio::test]
async fn nginx_that_passes_upgrades_is_served_by_a_websocket() {
    page_works_behind("nginx-websocket.conf", "websocket").await;
}
