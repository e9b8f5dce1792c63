//! Frames of all kinds, and JavaScript dialogs.

use std::collections::HashSet;

use crate::stage::{Stage, refused, until};
use serde_json::{Value, json};
use yonder_protocol::operation::error::ErrorCode;

fn frame_urls(frames: &Value) -> Vec<&str> {
    let frames = frames["frames"].as_array().unwrap();
    frames
        .iter()
        .map(|frame| frame["url"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn frames_are_listed_wherever_they_live() {
    let stage = Stage::new().await;
    let tab = &*stage.first();
    let site = &stage.site;
    site.page(
        "/",
        "<iframe name=near src=/near></iframe><iframe name=far src=http://far.test/far></iframe>",
    );
    site.page("/near", "<iframe srcdoc='<p>deep'></iframe>");
    site.page("/far", "<iframe src=http://main.test/near></iframe>");
    site.page("/elsewhere", "E");
    let all = [
        "http://main.test/",
        "http://main.test/near",
        "about:srcdoc",
        "http://far.test/far",
        "http://main.test/near",
        "about:srcdoc",
    ];
    let listed = async || stage.on(tab, "frames", json!({})).await.unwrap();
    stage.go(tab, "http://main.test/").await.unwrap();
    until("all frames", async || frame_urls(&listed().await) == all).await;
    let frames = listed().await;
    let frames = frames["frames"].as_array().unwrap();
    assert_eq!(frames[0].get("parentID"), None);
    assert_eq!(frames[3]["name"], "far");
    assert_eq!(frames[3]["parentID"], frames[0]["id"]);
    assert_eq!(frames[4]["parentID"], frames[3]["id"]);
    assert_eq!(frames[5]["parentID"], frames[4]["id"]);
    let ids: HashSet<_> = frames.iter().map(|frame| frame["id"].as_str()).collect();
    assert_eq!(ids.len(), frames.len());
    // Each can be spoken to.
    for frame in frames {
        let script = json!({ "frameID": frame["id"], "script": "location.href" });
        let there = stage.on(tab, "evaluate", script).await.unwrap();
        assert_eq!(there["value"], frame["url"]);
    }

    // A frame that changes its process keeps its id and its place.
    let far = frames[3]["id"].clone();
    stage
        .script(tab, "frames.far.location = '/elsewhere', 0")
        .await;
    let moved = "http://main.test/elsewhere";
    until("the move in", async || {
        frame_urls(&listed().await) == [all[0], all[1], all[2], moved]
    })
    .await;
    assert_eq!(listed().await["frames"][3]["id"], far);
    stage
        .script(tab, "frames.far.location = 'http://far.test/far', 0")
        .await;
    until("the move out", async || frame_urls(&listed().await) == all).await;
    stage
        .script(tab, "document.querySelector('[name=near]').remove()")
        .await;
    until("the removal", async || {
        frame_urls(&listed().await).len() == 4
    })
    .await;

    // They come back with a page that was kept for going back.
    stage.go(tab, "http://main.test/elsewhere").await.unwrap();
    assert_eq!(frame_urls(&listed().await), [moved]);
    stage.on(tab, "back", json!({})).await.unwrap();
    let kept = [all[0], all[3], all[4], all[5]];
    until("the return", async || {
        let urls = listed().await;
        frame_urls(&urls) == kept || frame_urls(&urls) == all
    })
    .await;
    stage.browser.close().await;
}

#[tokio::test]
async fn dialogs_hold_other_operations_until_they_are_answered() {
    let stage = Stage::new().await;
    let tab = &*stage.first();
    let site = &stage.site;
    site.page("/", "main <iframe src=http://far.test/far></iframe>");
    site.page("/far", "far");
    site.page("/alerting", "<script>alert('at once')</script>");
    stage.go(tab, "http://main.test/").await.unwrap();
    let none = stage
        .on(tab, "dialog", json!({ "action": "get" }))
        .await
        .unwrap();
    assert_eq!(none["dialog"], Value::Null);
    refused(
        stage.on(tab, "dialog", json!({ "action": "accept" })).await,
        ErrorCode::NotFound,
        &["no open dialog"],
    );

    // A prompt.
    let open = "setTimeout(() => window.said = prompt('name?', 'Ada')), 0";
    stage.script(tab, open).await;
    let opened = async || {
        let state = stage
            .on(tab, "dialog", json!({ "action": "get" }))
            .await
            .unwrap();
        state["dialog"].clone()
    };
    until("the prompt", async || !opened().await.is_null()).await;
    assert_eq!(
        opened().await,
        json!({ "type": "prompt", "message": "name?", "defaultValue": "Ada" })
    );
    for (name, input) in [
        ("evaluate", json!({ "script": "1" })),
        ("screenshot", json!({})),
        ("navigate", json!({ "url": "http://main.test/" })),
        ("snapshot", json!({})),
        ("reload", json!({})),
    ] {
        let result = stage.on(tab, name, input).await;
        refused(
            result,
            ErrorCode::DialogOpen,
            &["prompt", "name?", "dismiss"],
        );
    }
    // The session and other tabs go on.
    stage.run("tabs.list", json!({})).await.unwrap();
    stage.on(tab, "tabs.focus", json!({})).await.unwrap();
    let other = stage
        .run("tabs.open", json!({ "url": "http://main.test/far" }))
        .await
        .unwrap();
    stage.script(other["id"].as_str().unwrap(), "1").await;
    let answered = stage
        .on(
            tab,
            "dialog",
            json!({ "action": "accept", "promptText": "Bob" }),
        )
        .await
        .unwrap();
    assert_eq!(answered["dialog"], Value::Null);
    assert_eq!(stage.script(tab, "said").await, "Bob");

    // A confirm in a cross-site frame.
    let frames = stage.on(tab, "frames", json!({})).await.unwrap();
    let far = &frames["frames"][1]["id"];
    let ask =
        json!({ "frameID": far, "script": "setTimeout(() => window.said = confirm('sure?')), 0" });
    stage.on(tab, "evaluate", ask).await.unwrap();
    until("the confirm", async || opened().await["type"] == "confirm").await;
    refused(
        stage
            .on(
                tab,
                "dialog",
                json!({ "action": "accept", "promptText": "x" }),
            )
            .await,
        ErrorCode::Invalid,
        &["prompt"],
    );
    stage
        .on(tab, "dialog", json!({ "action": "dismiss" }))
        .await
        .unwrap();
    let said = json!({ "frameID": far, "script": "said" });
    assert_eq!(
        stage.on(tab, "evaluate", said).await.unwrap()["value"],
        false
    );

    // One that opens while the page loads ends the wait; the page is there.
    let loading = stage.go(tab, "http://main.test/alerting").await.unwrap();
    assert_eq!(loading["url"], "http://main.test/alerting");
    stage
        .on(tab, "dialog", json!({ "action": "accept" }))
        .await
        .unwrap();

    // The question before a page is left.
    stage.go(tab, "http://main.test/").await.unwrap();
    stage
        .script(tab, "onbeforeunload = event => event.preventDefault(), 0")
        .await;
    let leave = async || stage.go(tab, "http://main.test/far").await;
    refused(leave().await, ErrorCode::DialogOpen, &["beforeunload"]);
    stage
        .on(tab, "dialog", json!({ "action": "dismiss" }))
        .await
        .unwrap();
    assert_eq!(stage.script(tab, "location.pathname").await, "/");
    stage.script(tab, "1").await;
    refused(leave().await, ErrorCode::DialogOpen, &["beforeunload"]);
    stage
        .on(tab, "dialog", json!({ "action": "accept" }))
        .await
        .unwrap();
    until("the next page", async || {
        let state = stage.session.state();
        let url = state.borrow().tabs[0].url.clone();
        url == "http://main.test/far"
    })
    .await;
    // Closing a tab asks nobody.
    stage
        .script(tab, "onbeforeunload = event => event.preventDefault(), 0")
        .await;
    stage.on(tab, "tabs.close", json!({})).await.unwrap();
    stage.browser.close().await;
}
