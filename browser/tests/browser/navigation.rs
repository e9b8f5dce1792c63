//! Loading pages, history, and what failures tell.

use std::sync::Arc;
use std::time::Duration;

use crate::stage::{Stage, refused, until};
use serde_json::json;
use yonder_protocol::operation::error::ErrorCode;
use yonder_protocol::target::{TunnelError, TunnelErrorCode};

const HTML: &str = "Content-Type: text/html\r\n";

#[tokio::test]
async fn tabs_move_through_documents_and_history() {
    let stage = Stage::new().await;
    let site = &stage.site;
    let tab = &*stage.first();
    site.page("/a", "<a name=part>A</a>");
    site.page("/b", "B");
    site.page("/moving", "<script>location.href = '/b'</script>");
    site.slow("/late.png", 200, "", b"", Duration::from_millis(700));
    site.page("/heavy", "<img src=/late.png>");

    let a = stage.go(tab, "http://localhost:8000/a").await.unwrap();
    assert_eq!((&a["title"], &a["generation"]), (&json!("/a"), &json!(1)));
    assert_eq!(a["canGoBack"], true);
    let part = stage.go(tab, "localhost:8000/a#part").await.unwrap();
    assert_eq!(part["url"], "http://localhost:8000/a#part");
    assert_eq!(part["generation"], 1);
    let b = stage.go(tab, "http://other.test/b").await.unwrap();
    assert_eq!((&b["title"], &b["generation"]), (&json!("/b"), &json!(2)));

    let back = stage.on(tab, "back", json!({})).await.unwrap();
    assert_eq!(back["url"], "http://localhost:8000/a#part");
    assert_eq!(
        (&back["title"], &back["loading"]),
        (&json!("/a"), &json!(false))
    );
    assert_eq!(back["canGoForward"], true);
    let back = stage.on(tab, "back", json!({})).await.unwrap();
    assert_eq!(back["url"], "http://localhost:8000/a");
    let forward = stage.on(tab, "forward", json!({})).await.unwrap();
    assert_eq!(forward["url"], "http://localhost:8000/a#part");
    stage.on(tab, "forward", json!({})).await.unwrap();
    let end = stage.on(tab, "forward", json!({})).await.unwrap();
    assert_eq!(end["url"], "http://other.test/b");
    assert_eq!(end["canGoForward"], false);

    // The document that was last seen is the one that is acted on.
    let seen = end["generation"].as_u64();
    let evaluate = json!({ "tabID": tab, "script": "1" });
    stage
        .done("evaluate", evaluate.clone(), seen)
        .await
        .unwrap();
    let reloaded = stage.on(tab, "reload", json!({})).await.unwrap();
    assert_eq!(reloaded["generation"].as_u64(), seen.map(|seen| seen + 1));
    let stale = stage.done("evaluate", evaluate, seen).await;
    refused(
        stale.map(|done| done.value),
        ErrorCode::Stale,
        &["snapshot"],
    );
    let any = stage.done("stop", json!({ "tabID": tab }), seen).await;
    any.unwrap();

    // Loaded means loaded: with pictures, and after a script moved on.
    stage.go(tab, "http://localhost/heavy").await.unwrap();
    assert_eq!(stage.script(tab, "document.readyState").await, "complete");
    let moved = stage.go(tab, "http://localhost/moving").await.unwrap();
    assert_eq!(moved["url"], "http://localhost/b", "{moved}");

    // Stop ends the wait of another operation.
    site.slow("/never", 200, HTML, b"x", Duration::from_mins(1));
    let (waited, ()) = tokio::join!(stage.go(tab, "http://localhost/never"), async {
        until("loading", async || {
            stage.session.state().borrow().tabs[0].loading
        })
        .await;
        stage.on(tab, "stop", json!({})).await.unwrap();
    });
    refused(
        waited,
        ErrorCode::NavigationFailed,
        &["stopped", "http://localhost/b"],
    );
    stage.script(tab, "1").await;

    // A dropped operation leaves the tab usable.
    let dropped = tokio::time::timeout(
        Duration::from_millis(300),
        stage.go(tab, "http://localhost/never"),
    );
    assert!(dropped.await.is_err());
    stage.go(tab, "http://localhost/a").await.unwrap();

    // Operations on one tab keep their order.
    let go = async |url: &str| stage.go(tab, url).await.unwrap()["title"].clone();
    let titles = tokio::join!(
        go("http://localhost/a"),
        go("http://localhost/b"),
        go("http://localhost/a"),
        go("http://localhost/b"),
    );
    assert_eq!(titles, (json!("/a"), json!("/b"), json!("/a"), json!("/b")));
    stage.browser.close().await;
}

#[tokio::test]
async fn failures_say_what_failed_and_where() {
    let stage = Stage::new().await;
    let site = &stage.site;
    let tab = &*stage.first();
    site.page("/a", "A");
    stage.go(tab, "http://localhost/a").await.unwrap();
    site.answer("/empty", 204, "", b"");
    let attachment = "Content-Disposition: attachment\r\nContent-Type: application/zip\r\n";
    site.answer("/file", 200, attachment, b"zip");
    site.answer("/closed", 0, "", b"");
    site.answer("/circle", 302, "Location: /circle\r\n", b"");
    site.answer("/bad-gateway", 502, HTML, b"<title>gateway</title>");

    for (url, words) in [
        (
            "http://localhost/empty",
            &["without content", "shows http://localhost/a"][..],
        ),
        ("http://localhost/file", &["download"][..]),
        (
            "http://localhost/closed",
            &["ERR_EMPTY_RESPONSE", "without an answer"][..],
        ),
        (
            "http://localhost/circle",
            &["ERR_TOO_MANY_REDIRECTS", "circle"][..],
        ),
        (
            "https://localhost:8443/",
            &["ERR_TUNNEL_CONNECTION_FAILED", "server", "localhost:8443"][..],
        ),
        ("http://localhost:1/", &["ERR_UNSAFE_PORT"][..]),
    ] {
        refused(stage.go(tab, url).await, ErrorCode::NavigationFailed, words);
    }
    // A status with a page is a page.
    let page = stage.go(tab, "http://localhost/bad-gateway").await.unwrap();
    assert_eq!(page["title"], "gateway");
    // After a failure the tab shows Chromium's page about it, which is a document to leave.
    let failed = stage.go(tab, "https://localhost:8443/").await;
    assert!(failed.is_err());
    let state = stage.session.state().borrow().tabs[0].clone();
    assert_eq!(state.url, "https://localhost:8443/");
    let reload = stage.on(tab, "reload", json!({})).await;
    refused(
        reload,
        ErrorCode::NavigationFailed,
        &["ERR_TUNNEL_CONNECTION_FAILED"],
    );
    let back = stage.on(tab, "back", json!({})).await.unwrap();
    assert_eq!(back["title"], "gateway");

    // Whoever knows the true cause is asked for it.
    stage.session.set_failure_lookup(Arc::new(|target| {
        (target.port() != 80).then(|| {
            TunnelError::new(
                TunnelErrorCode::Refused,
                format!("nothing listens on {target}"),
            )
        })
    }));
    refused(
        stage.go(tab, "https://localhost:8443/").await,
        ErrorCode::NavigationFailed,
        &["nothing listens on localhost:8443"],
    );
    refused(
        stage.go(tab, "http://localhost:8000/bad-gateway").await,
        ErrorCode::NavigationFailed,
        &["nothing listens on localhost:8000"],
    );
    stage.go(tab, "http://localhost/bad-gateway").await.unwrap();
    refused(
        stage.go(tab, "chrome://settings").await,
        ErrorCode::Invalid,
        &["chrome"],
    );
    refused(
        stage
            .run("tabs.open", json!({ "url": "https://localhost:8443/" }))
            .await,
        ErrorCode::NavigationFailed,
        &["stays open"],
    );
    stage.browser.close().await;
}
