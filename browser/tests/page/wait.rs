use std::time::{Duration, Instant};

use serde_json::{Value, json};
use yonder_protocol::operation::error::ErrorCode;

use crate::stage::{Stage, refused};

#[tokio::test(flavor = "multi_thread")]
async fn waits_end_when_the_page_is_there() {
    let stage = Stage::new().await;
    stage.site.page("/slow", "<h1>Slow page</h1>");
    stage.site.page("/inner", "<p>Inner words</p>");
    stage.show("<p id=p>Before</p><x-a></x-a><iframe src=/inner></iframe><script>customElements.define('x-a',class extends HTMLElement{connectedCallback(){this.attachShadow({mode:'open'}).innerHTML='<p>Shadow words</p>'}})</script>").await;
    let wait = |input: Value| stage.run("wait", input);
    wait(json!({ "condition": "load" })).await.unwrap();
    wait(json!({ "condition": "text", "text": "Before" }))
        .await
        .unwrap();
    wait(json!({ "condition": "text", "text": "Shadow words" }))
        .await
        .unwrap();
    wait(json!({ "condition": "textGone", "text": "before" }))
        .await
        .unwrap();
    stage
        .evaluate("setTimeout(() => p.textContent = 'After', 200)")
        .await;
    wait(json!({ "condition": "text", "text": "After" }))
        .await
        .unwrap();
    stage
        .evaluate("setTimeout(() => p.style.display = 'none', 200)")
        .await;
    wait(json!({ "condition": "textGone", "text": "After" }))
        .await
        .unwrap();
    let inner = stage.frames().await[1]["id"].clone();
    wait(json!({ "condition": "text", "text": "Inner words", "frameID": inner }))
        .await
        .unwrap();

    // Across a navigation.
    stage
        .evaluate("setTimeout(() => location.href = '/slow', 50)")
        .await;
    let tab = wait(json!({ "condition": "text", "text": "Slow page" }))
        .await
        .unwrap();
    assert_eq!(tab["url"], "http://site.test/slow");

    let started = Instant::now();
    refused(
        wait(json!({ "condition": "text", "text": "never", "timeoutMs": 300 })).await,
        ErrorCode::Timeout,
        "show the text \"never\"",
    );
    assert!(started.elapsed() < Duration::from_secs(3));
    refused(
        wait(json!({ "condition": "text" })).await,
        ErrorCode::Invalid,
        "text is needed",
    );
    refused(
        wait(json!({ "condition": "load", "frameID": "nowhere" })).await,
        ErrorCode::NotFound,
        "frames",
    );
    stage
        .evaluate("setTimeout(() => alert('meanwhile'), 100)")
        .await;
    refused(
        wait(json!({ "condition": "text", "text": "never" })).await,
        ErrorCode::DialogOpen,
        "meanwhile",
    );
    stage.close().await;
}
