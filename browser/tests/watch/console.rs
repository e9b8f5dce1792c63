use serde_json::json;
use yonder_protocol::operation::error::ErrorCode;

use crate::stage::{Stage, entry, tokens};

#[tokio::test(flavor = "multi_thread")]
async fn every_level_with_its_place_and_equal_ones_once() {
    let stage = Stage::new().await;
    stage
        .show(
            "<script>
console.debug('a debug', {a: 1, b: ['x']});
console.log('%s is %d%%', 'full', 100); console.info(document.documentElement, null, undefined, new Map([[1, 2]]));
console.warn('careful'); console.error(new Error('told')); console.assert(1 > 2, 'sums');
for (let i = 0; i < 5; i++) console.log('again');
console.log('http://a.test/?token=abc#x'); console.clear(); console.log('after');
setTimeout(() => { null.x });
Promise.reject(new TypeError('not awaited'));
</script>",
        )
        .await;
    let list = stage.messages(&["reading 'x'", "not awaited"]).await;
    let level = |text: &str| entry(&list, "text", text)["level"].clone();
    assert_eq!(level("a debug {a: 1, b: "), "debug");
    assert_eq!(level("full is 100%"), "info");
    assert_eq!(level("html null undefined Map(1) {1 => 2}"), "info");
    assert_eq!(level("careful"), "warning");
    assert_eq!(level("Error: told\n    at"), "error");
    assert_eq!(level("Assertion failed: sums"), "error");
    assert_eq!(
        level("Uncaught TypeError: Cannot read properties of null (reading 'x')"),
        "error"
    );
    assert_eq!(
        level("Uncaught (in promise) TypeError: not awaited"),
        "error"
    );
    level("after");
    entry(&list, "text", "http://a.test/?token=<redacted>#x");
    let again = entry(&list, "text", "again");
    assert_eq!(again["count"], 5);
    let careful = &entry(&list, "text", "careful")["source"];
    assert_eq!(
        (&careful["url"], &careful["line"], &careful["column"]),
        (&json!("http://site.test/"), &json!(4), &json!(9))
    );
    let threshold = stage.run("console", json!({ "level": "warning" })).await;
    let texts = threshold["messages"].to_string();
    assert!(texts.contains("careful") && texts.contains("told") && !texts.contains("after"));
    let found = stage.run("console", json!({ "contains": "CAREFUL" })).await;
    assert_eq!(found["total"], 1);

    // A new document starts anew; what was before can be asked for.
    stage.show("<script>console.log('second')</script>").await;
    let list = stage.messages(&["second"]).await;
    assert!(!json!(list).to_string().contains("careful"));
    let earlier = stage
        .run("console", json!({ "earlier": true, "contains": "careful" }))
        .await;
    assert_eq!(earlier["total"], 1);
    stage
        .refused(
            "console",
            json!({ "before": "n1" }),
            ErrorCode::Invalid,
            "c12",
        )
        .await;
    stage
        .refused(
            "console",
            json!({ "level": "loud" }),
            ErrorCode::Invalid,
            "level",
        )
        .await;
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_and_workers_from_their_first_word_on() {
    let stage = Stage::new().await;
    let site = &stage.site;
    site.page(
        "/far",
        "<script>console.log('far frame'); fetch('/far.json').then(r => r.text())</script>",
    );
    site.page(
        "/near",
        "<script>console.log('near frame'); new Worker('/in-frame.js')</script>",
    );
    site.script("/in-frame.js", "console.log('worker of a frame')");
    site.script("/worker.js", "console.log('worker'); fetch('/worker.json').then(r => r.text()); new Worker('/inner.js'); setTimeout(() => { throw new Error('worker broke') })");
    site.script("/inner.js", "console.log('inner worker')");
    site.script("/sw.js", "console.log('service worker'); addEventListener('install', e => e.waitUntil(fetch('/sw.json').then(r => r.text())))");
    for path in ["/far.json", "/worker.json", "/sw.json"] {
        site.answer(path, 200, "Content-Type: application/json\r\n", b"{}");
    }
    // Service workers need a secure context.
    site.page(
        "/start",
        "<iframe src=http://other.test/far></iframe><iframe src=/near></iframe>
        <script>new Worker('/worker.js'); navigator.serviceWorker.register('/sw.js'); console.log('main frame')</script>",
    );
    stage.go("http://localhost/start").await;
    let list = stage
        .messages(&[
            "far frame",
            "near frame",
            "worker of a frame",
            "inner worker",
            "service worker",
            "worker broke",
            "main frame",
        ])
        .await;
    let frames = stage.run("frames", json!({})).await;
    let frame = |url: &str| entry(frames["frames"].as_array().unwrap(), "url", url)["id"].clone();
    assert_eq!(entry(&list, "text", "far frame")["frameID"], frame("/far"));
    assert_eq!(
        entry(&list, "text", "near frame")["frameID"],
        frame("/near")
    );
    let main = entry(&list, "text", "main frame");
    assert!(main.get("frameID").is_none() && main.get("worker").is_none());
    for (text, worker) in [
        ("inner worker", "worker http://localhost/inner.js"),
        ("worker of a frame", "worker http://localhost/in-frame.js"),
        ("worker broke", "worker http://localhost/worker.js"),
        ("service worker", "service_worker http://localhost/sw.js"),
    ] {
        let entry = entry(&list, "text", text);
        assert_eq!(entry["worker"], worker, "{entry}");
        assert!(entry.get("count").is_none(), "told twice: {entry}");
    }
    let requests = stage
        .requests(&["/far.json", "/worker.json", "/sw.json"])
        .await;
    assert_eq!(
        entry(&requests, "url", "/far.json")["frameID"],
        frame("/far")
    );
    assert_eq!(entry(&requests, "url", "/near")["frameID"], frame("/near"));
    assert_eq!(
        entry(&requests, "url", "/worker.json")["worker"],
        "worker http://localhost/worker.js"
    );
    assert_eq!(
        entry(&requests, "url", "/sw.json")["worker"],
        "service_worker http://localhost/sw.js"
    );
    for path in [
        "/far.json",
        "/worker.json",
        "/sw.json",
        "/far",
        "/worker.js",
    ] {
        let request = entry(&requests, "url", path);
        let input = json!({ "id": request["id"], "includeBody": true });
        let detail = stage.run("network.get", input).await;
        assert_eq!(detail["responseBody"]["state"], "text", "{detail}");
    }
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_leaves_the_page_alive_and_the_answer_short() {
    let stage = Stage::new().await;
    stage.show("<p>flood").await;
    stage
        .evaluate(
            "for (let i = 0; i < 20000; i++) console.log('message ' + i, ...(i % 20 ? [] : [{i}]))",
        )
        .await;
    let list = stage
        .list("console", "messages", json!({}), |list| {
            list.iter()
                .any(|entry| entry["text"].as_str().unwrap().starts_with("message 19999"))
        })
        .await;
    assert!(list.len() > 5);
    let answer = stage.run("console", json!({})).await;
    assert!(tokens(&answer) < 1_000, "{}", tokens(&answer));
    assert_eq!(answer["truncated"], true);
    assert_eq!(answer["total"], 1_000);
    assert_eq!(answer["dropped"], 19_000);
    let before = json!({ "before": answer["messages"][0]["id"] });
    let page = stage.run("console", before).await;
    assert_ne!(page["messages"], answer["messages"]);
    assert_eq!(stage.evaluate("1 + 1").await, 2);
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_hangs_or_asks_can_be_read() {
    let stage = Stage::new().await;
    stage
        .show("<script>console.log('before'); setTimeout(() => { alert('stop'); console.log('went on') }, 0)</script>")
        .await;
    stage.messages(&["before"]).await;
    let dialog = json!({ "action": "get" });
    stage
        .list("console", "messages", json!({}), |list| !list.is_empty())
        .await;
    while stage.run("dialog", dialog.clone()).await["dialog"].is_null() {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(stage.run("console", json!({})).await["total"], 1);
    stage.run("dialog", json!({ "action": "accept" })).await;
    stage.messages(&["went on"]).await;
    // A popup is watched before it runs.
    stage
        .site
        .page("/popup", "<script>console.log('popup here')</script>");
    let open = stage.evaluate("!!window.open('/popup')").await;
    assert_eq!(open, true);
    let tabs = stage
        .list("tabs.list", "tabs", json!({}), |tabs| tabs.len() == 2)
        .await;
    let input = json!({ "tabID": tabs[1]["id"] });
    stage
        .list("console", "messages", input, |list| {
            list.iter().any(|entry| entry["text"] == "popup here")
        })
        .await;
    stage.close().await;
}
