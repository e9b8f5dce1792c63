//! Two desktops that serve one browser session, one after the other.

use std::time::Duration;

use yonder_tests::eventually;
use yonder_tests::halves::{Desktop, Server};
use yonder_tests::site::Site;

#[tokio::test]
async fn the_older_desktop_is_told_and_leaves_for_good() {
    let server = Server::start().await;
    let site = Site::start().await;
    let first_page = site.url("/first");
    let second_page = site.url("/second");
    let mut first = Desktop::open(&server, &server.url, &first_page, &[]);
    server.wait_for_page(&first_page).await;
    let _second = Desktop::open(&server, &server.url, &second_page, &[]);

    let status = first.process.wait_within(yonder_tests::PATIENCE).await;
    let said = first.process.stderr();
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(said.contains("replaced"), "{said}");

    server.wait_for_page(&second_page).await;
    eventually("only the second desktop's link is left", async || {
        let status = server.status().await;
        (status["links"].as_array().map(Vec::len) == Some(1))
            .then_some(())
            .ok_or_else(|| status.to_string())
    })
    .await;
}

/// Sockets of either half and the temporary profile go away soon after the end.
#[tokio::test]
async fn a_stopped_desktop_leaves_nothing_behind() {
    let server = Server::start().await;
    let site = Site::start().await;
    // The page holds a WebSocket, so a tunnel is open all the time.
    let page = site.url("/");
    let temporary = tempfile::tempdir().unwrap();
    let temporary_path = temporary.path().to_str().unwrap().to_owned();
    let mut desktop = Desktop::open_with_environment(
        &server,
        &server.url,
        &page,
        &[],
        &[("TMPDIR", &temporary_path)],
    );
    server.wait_for_page(&page).await;
    assert!(
        std::fs::read_dir(temporary.path())
            .unwrap()
            .next()
            .is_some(),
        "the profile lies elsewhere"
    );
    desktop.process.signal("TERM").await;
    let status = desktop.process.wait_within(Duration::from_secs(20)).await;
    assert_eq!(status.code(), Some(0), "{}", desktop.process.stderr());
    let left: Vec<_> = std::fs::read_dir(temporary.path())
        .unwrap()
        .flatten()
        .collect();
    assert!(left.is_empty(), "{left:?}");
    eventually("the server half has closed everything", async || {
        let status = server.status().await;
        let done = status["totals"]["tunnelsOpen"] == 0
            && status["links"].as_array().is_some_and(Vec::is_empty);
        done.then_some(()).ok_or_else(|| status.to_string())
    })
    .await;
    let error = server
        .try_call("tabs.list", serde_json::json!({}))
        .await
        .unwrap_err();
    assert!(error.contains("desktop"), "{error}");
}
