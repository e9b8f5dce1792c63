use serde_json::{Value, json};
use yonder_protocol::operation::error::ErrorCode;

use crate::stage::{Stage, entry, tokens};

async fn get(stage: &Stage, request: &Value, body: bool) -> Value {
    let input = json!({ "id": request["id"], "includeBody": body });
    stage.run("network.get", input).await
}

fn header<'a>(detail: &'a Value, side: &str, name: &str) -> Option<&'a str> {
    let fields = detail[side].as_array().unwrap();
    let field = fields.iter().find(|field| field["name"] == name)?;
    field["value"].as_str()
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_failures_sizes_and_bodies() {
    let stage = Stage::new().await;
    let site = &stage.site;
    site.answer(
        "/one",
        302,
        "Location: /two?token=abc\r\nSet-Cookie: sid=1\r\n",
        b"",
    );
    site.answer("/two", 302, "Location: /three\r\n", b"");
    site.answer(
        "/three",
        200,
        "Content-Type: application/json\r\nX-Plain: shown\r\n",
        br#"{"access_token": "hunter2", "user": "me"}"#,
    );
    site.answer(
        "/picture.png",
        200,
        "Content-Type: image/png\r\n",
        b"\x89PNG\r\n\x1a\nnot really",
    );
    site.answer(
        "/big.txt",
        200,
        "Content-Type: text/plain; charset=utf-8\r\n",
        "ü".repeat(30_000).as_bytes(),
    );
    site.answer(
        "/huge.bin",
        200,
        "Content-Type: application/octet-stream\r\n",
        &vec![7; 6 << 20],
    );
    site.answer("/none", 204, "", b"");
    stage.show("<p>page").await;
    stage
        .evaluate(
            "document.cookie = 'known=1'; Promise.all([
                fetch('/one', { headers: { Authorization: 'Bearer abc' } }).then(r => r.text()),
                fetch('/missing').then(r => r.text()),
                fetch('/picture.png').then(r => r.blob()), fetch('/big.txt').then(r => r.text()),
                fetch('/none'),
                fetch('/post', { method: 'POST', body: new URLSearchParams({ user: 'me', password: 'hunter2' }) }).then(r => r.text()),
                fetch('/json', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ secret: 'hunter2', a: 1 }) }).then(r => r.text()),
            ]).then(() => 0)",
        )
        .await;
    stage
        .evaluate("fetch('https://unreachable.test/').catch(() => 0)")
        .await;
    let list = stage
        .requests(&["/three", "/none", "/json", "unreachable.test/"])
        .await;
    // Each hop is an entry, and secrets are hidden in addresses.
    let hops: Vec<_> = ["/one", "/two?token=<redacted>", "/three"]
        .into_iter()
        .map(|url| entry(&list, "url", url))
        .collect();
    assert_eq!(hops[0]["statusCode"], 302);
    assert_eq!(hops[2]["statusCode"], 200);
    let first = get(&stage, hops[0], true).await;
    assert_eq!(first["redirectedTo"], hops[1]["id"]);
    assert_eq!(first["responseBody"]["state"], "empty");
    assert_eq!(
        header(&first, "responseHeaders", "set-cookie"),
        Some("<redacted>")
    );
    assert_eq!(
        header(&first, "responseHeaders", "location"),
        Some("/two?token=<redacted>")
    );
    assert_eq!(
        header(&first, "requestHeaders", "authorization"),
        Some("<redacted>")
    );
    assert_eq!(
        header(&first, "requestHeaders", "cookie"),
        Some("<redacted>")
    );
    let last = get(&stage, hops[2], true).await;
    assert_eq!(last["redirectedFrom"], hops[1]["id"]);
    assert_eq!(header(&last, "responseHeaders", "x-plain"), Some("shown"));
    assert_eq!(
        last["responseBody"],
        json!({ "state": "text", "text": r#"{"access_token": "<redacted>", "user": "me"}"#, "truncated": false })
    );
    assert_eq!(last["initiator"]["type"], "script");
    assert!(
        last["timing"]["waitMs"].is_u64() && last["bodyBytes"] == 41,
        "{last}"
    );
    assert!(hops[2]["bytes"].as_u64().unwrap() > 41 && hops[2]["durationMs"].is_u64());
    let open = json!({ "id": hops[0]["id"], "secrets": true });
    let open = stage.run("network.get", open).await;
    assert_eq!(
        header(&open, "requestHeaders", "authorization"),
        Some("Bearer abc")
    );
    assert_eq!(
        header(&open, "responseHeaders", "set-cookie"),
        Some("sid=1")
    );

    // HTTP errors are answers, everything else is a failure with its reason.
    let missing = entry(&list, "url", "/missing");
    assert_eq!(
        (&missing["state"], &missing["statusCode"]),
        (&json!("completed"), &json!(404))
    );
    let unreachable = entry(&list, "url", "unreachable.test");
    assert_eq!(unreachable["state"], "failed");
    assert!(unreachable["failure"].as_str().unwrap().contains("ERR_"));
    let detail = get(&stage, unreachable, true).await;
    assert_eq!(
        detail["responseBody"],
        json!({ "state": "unavailable", "reason": "notCaptured" })
    );

    // Bodies: cut text, files for what is not text, a word where there is none.
    let big = get(&stage, entry(&list, "url", "/big.txt"), true).await;
    assert_eq!(big["responseBody"]["truncated"], true);
    assert_eq!(
        big["responseBody"]["text"]
            .as_str()
            .unwrap()
            .chars()
            .count(),
        20_000
    );
    let few = json!({ "id": big["request"]["id"], "includeBody": true, "maxBodyChars": 5 });
    assert_eq!(
        stage.run("network.get", few).await["responseBody"]["text"],
        "üüüüü"
    );
    let picture = json!({ "id": entry(&list, "url", "/picture.png")["id"], "includeBody": true });
    let picture = stage.done("network.get", picture).await.unwrap();
    assert_eq!(picture.value["responseBody"]["state"], "file");
    assert_eq!(picture.files[0].name, "picture.png");
    assert!(picture.files[0].data.starts_with(b"\x89PNG"));
    let none = get(&stage, entry(&list, "url", "/none"), true).await;
    assert_eq!(none["responseBody"]["state"], "empty");
    assert_eq!(
        get(&stage, hops[2], false).await["responseBody"]["state"],
        "notRequested"
    );
    let post = get(&stage, entry(&list, "url", "/post"), true).await;
    assert_eq!(post["requestBody"]["text"], "user=me&password=<redacted>");
    let posted = get(&stage, entry(&list, "url", "/json"), true).await;
    assert_eq!(
        posted["requestBody"]["text"],
        r#"{"secret":"<redacted>","a":1}"#
    );
    for path in ["/three", "/picture.png", "/big.txt", "/json"] {
        assert_eq!(stage.site.asked(path), 1, "{path} was loaded again");
    }

    // What is too large is not kept, and said to be so.
    stage
        .evaluate("fetch('/huge.bin').then(r => r.arrayBuffer()).then(() => 0)")
        .await;
    let list = stage.requests(&["/huge.bin"]).await;
    let huge = get(&stage, entry(&list, "url", "/huge.bin"), true).await;
    assert_eq!(huge["responseBody"]["reason"], "notCaptured", "{huge}");

    let filtered = stage
        .run("network.list", json!({ "urlContains": "big" }))
        .await;
    assert_eq!(filtered["total"], 1);
    let documents = stage
        .run("network.list", json!({ "resourceType": "document" }))
        .await;
    assert_eq!(documents["total"], 1);
    let failed = stage
        .run("network.list", json!({ "state": "failed" }))
        .await;
    assert_eq!(failed["total"], 1);
    stage
        .refused(
            "network.get",
            json!({ "id": "n9999" }),
            ErrorCode::NotFound,
            "network.list",
        )
        .await;
    stage
        .refused(
            "network.get",
            json!({ "id": "4677.2" }),
            ErrorCode::Invalid,
            "n12",
        )
        .await;
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_led_to_a_document_belongs_to_it() {
    let stage = Stage::new().await;
    stage.site.page("/next", "<script src=/s.js></script>");
    stage.site.script("/s.js", "0");
    stage.site.answer("/go", 302, "Location: /next\r\n", b"");
    stage.show("<img src=/old.png>").await;
    stage.requests(&["/old.png"]).await;
    stage.go("http://site.test/go").await;
    let list = stage.requests(&["/s.js", "/next"]).await;
    let json = json!(list).to_string();
    assert!(json.contains("/go") && !json.contains("old.png"), "{json}");
    let earlier = json!({ "earlier": true, "urlContains": "old.png" });
    let earlier = stage.run("network.list", earlier).await;
    assert_eq!(earlier["total"], 1);
    // The page behind a form or link that left can still be read.
    let old = json!({ "earlier": true, "resourceType": "document", "limit": 10 });
    let old = stage.run("network.list", old).await;
    let detail = get(&stage, &old["requests"][0], true).await;
    assert!(
        detail["responseBody"]["text"]
            .as_str()
            .unwrap()
            .contains("old.png"),
        "{detail}"
    );
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_requests_are_a_short_answer() {
    let stage = Stage::new().await;
    stage.show("<p>many").await;
    stage
        .evaluate(
            "(async () => { for (let i = 0; i < 100; i++)
                await Promise.all([...Array(100).keys()].map(j => fetch(`data:text/plain,${i}-${j}`))) })()",
        )
        .await;
    let answer = stage.run("network.list", json!({})).await;
    assert!(tokens(&answer) < 1_000, "{}", tokens(&answer));
    assert_eq!(answer["total"], 1_000);
    assert_eq!(answer["truncated"], true);
    assert!(answer["dropped"].as_u64().unwrap() >= 9_000);
    let first = &answer["requests"][0]["id"];
    let page = stage.run("network.list", json!({ "before": first })).await;
    assert!(page["requests"].as_array().unwrap().len() > 5);
    let after = json!({ "after": page["requests"][0]["id"], "limit": 3 });
    let after = stage.run("network.list", after).await;
    assert_eq!(after["requests"][0], page["requests"][1]);
    stage.close().await;
}
