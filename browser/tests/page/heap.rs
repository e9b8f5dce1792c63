//! What a page's memory holds.

use serde_json::json;
use yonder_protocol::operation::error::ErrorCode;

use crate::stage::{Stage, refused};

#[tokio::test(flavor = "multi_thread")]
async fn a_leak_is_named_and_counted() {
    let stage = Stage::new().await;
    stage
        .show(
            r"<script>
              class Ledger { constructor(n) { this.page = new Array(1000).fill(n); } }
              const kept = []; window.shelf = { ledgers: [] };
              function leak(n) { for (let i = 0; i < n; i++) { const s = document.createElement('section'); s.append(document.createElement('b'));
                kept.push(s); shelf.ledgers.push(new Ledger(i)); } }
              leak(3);
              </script>",
        )
        .await;
    let take = async || {
        let taken = stage.run("heap.snapshot", json!({})).await.unwrap();
        assert_eq!(taken["file"]["kind"], "heapSnapshot");
        assert_eq!(taken["file"]["url"], "http://site.test/");
        taken["file"]["id"].clone()
    };
    let before = take().await;
    stage.evaluate("leak(40)").await;
    let after = take().await;

    let summary = stage
        .run("heap.summary", json!({ "fileID": after, "limit": 50 }))
        .await
        .unwrap();
    let detached = summary["detached"].as_array().unwrap();
    let count = |tag: &str| {
        let fits = |name: &str| name.contains(tag) || name.contains("HTMLElement");
        let found = detached
            .iter()
            .filter(|d| fits(d["name"].as_str().unwrap()));
        found.map(|d| d["count"].as_u64().unwrap()).sum::<u64>()
    };
    assert!(count("<section") >= 43, "{summary}");
    assert!(summary["selfBytes"].as_u64().unwrap() > 100_000);

    let changes = stage
        .run(
            "heap.compare",
            json!({ "before": before, "after": after, "limit": 200 }),
        )
        .await
        .unwrap();
    let ledgers = changes["classes"].as_array().unwrap().iter();
    let ledgers = ledgers
        .clone()
        .find(|class| class["name"] == "Ledger")
        .unwrap_or_else(|| panic!("{changes}"));
    assert_eq!(ledgers["countDelta"], 40);

    let found = stage
        .run(
            "heap.query",
            json!({ "fileID": after, "name": "ledger", "limit": 200 }),
        )
        .await
        .unwrap();
    let nodes = found["nodes"].as_array().unwrap();
    let one = nodes.iter().find(|node| node["class"] == "Ledger").unwrap();
    assert!(
        one["retainedBytes"].as_u64().unwrap() > 4_000,
        "its array is its own: {one}"
    );
    let object = stage
        .run("heap.object", json!({ "fileID": after, "id": one["id"] }))
        .await
        .unwrap();
    let path = object["path"].as_array().unwrap();
    assert!(
        path.iter().any(|step| step["name"] == "ledgers")
            && path.iter().any(|step| step["name"] == "shelf"),
        "{object}"
    );
    assert!(
        object["references"]
            .as_array()
            .unwrap()
            .iter()
            .any(|link| link["name"] == "page")
    );

    refused(
        stage
            .run(
                "heap.object",
                json!({ "fileID": after, "id": 4_294_967_295_u32 }),
            )
            .await,
        ErrorCode::NotFound,
        "heap.query",
    );
    refused(
        stage.run("cpu.analyze", json!({ "fileID": after })).await,
        ErrorCode::Invalid,
        "a heap snapshot",
    );
    let nobody = "file_00000000-0000-0000-0000-000000000000";
    refused(
        stage.run("heap.summary", json!({ "fileID": nobody })).await,
        ErrorCode::NotFound,
        "files.list",
    );

    // The files are the tab's, in order, and can be had.
    let list = stage.run("files.list", json!({})).await.unwrap();
    assert_eq!(list["files"][0]["id"], before);
    assert_eq!(list["files"][1]["id"], after);
    let other = stage.another_tab().await;
    refused(
        stage
            .run("files.get", json!({ "tabID": other, "fileID": after }))
            .await,
        ErrorCode::NotFound,
        "files.list",
    );
    let got = stage
        .run_with_files("files.get", json!({ "fileID": after }))
        .await
        .unwrap();
    assert_eq!(got.files[0].name, "heap.heapsnapshot.gz");
    assert!(got.files[0].data.starts_with(&[0x1f, 0x8b]));
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn recording_leaves_other_tabs_alone_and_survives_navigation() {
    let stage = Stage::new().await;
    stage.show("<h1>Here</h1>").await;
    let other = stage.another_tab().await;
    let (taken, _) = tokio::join!(
        stage.run("heap.snapshot", json!({})),
        stage.run("evaluate", json!({ "tabID": other, "script": "1" })),
    );
    let id = taken.unwrap()["file"]["id"].clone();
    stage.go("http://site.test/").await;
    let summary = stage
        .run("heap.summary", json!({ "fileID": id }))
        .await
        .unwrap();
    assert!(summary["nodes"].as_u64().unwrap() > 1_000);
    stage.close().await;
}
