//! Where a page's time goes.

use serde_json::{Value, json};
use yonder_protocol::operation::error::ErrorCode;

use crate::stage::{Stage, refused};

const PAGE: &str = "<script>
function hot(ms) { const end = performance.now() + ms; let sum = 0; while (performance.now() < end) sum += Math.sqrt(sum + 1); return sum; }
function work() {
  return hot(400);
}
</script>";

fn function<'a>(summary: &'a Value, name: &str) -> &'a Value {
    let functions = summary["functions"].as_array().unwrap();
    let found = functions.iter().find(|function| function["name"] == name);
    found.unwrap_or_else(|| panic!("{name} in {summary}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hot_function_is_named_with_its_line() {
    let stage = Stage::new().await;
    stage.show(PAGE).await;
    let line = stage
        .evaluate("document.documentElement.outerHTML.split('function hot')[0].split('\\n').length")
        .await;
    stage.run("cpu.start", json!({})).await.unwrap();
    refused(
        stage.run("cpu.start", json!({})).await,
        ErrorCode::Invalid,
        "cpu.stop",
    );
    stage.evaluate("work()").await;
    let taken = stage.run("cpu.stop", json!({})).await.unwrap();
    let id = &taken["file"]["id"];
    let summary = stage
        .run("cpu.analyze", json!({ "fileID": id }))
        .await
        .unwrap();
    let hot = function(&summary, "hot");
    assert_eq!(hot["url"], "http://site.test/");
    assert_eq!(hot["line"], line);
    assert!(hot["selfMs"].as_f64().unwrap() > 100.0, "{summary}");
    let work = function(&summary, "work");
    assert!(
        work["totalMs"].as_f64().unwrap() >= hot["selfMs"].as_f64().unwrap(),
        "{summary}"
    );
    assert_eq!(
        work["line"].as_u64().unwrap(),
        hot["line"].as_u64().unwrap() + 1
    );
    let stack = summary["stacks"][0]["frames"].as_array().unwrap();
    assert!(
        stack[0]
            .as_str()
            .unwrap()
            .starts_with("hot (http://site.test/:"),
        "{summary}"
    );
    refused(
        stage.run("cpu.stop", json!({})).await,
        ErrorCode::Invalid,
        "cpu.start",
    );
    // The file is one that Chrome opens.
    let got = stage
        .run_with_files("files.get", json!({ "fileID": id }))
        .await
        .unwrap();
    let profile: Value = serde_json::from_slice(&got.files[0].data).unwrap();
    assert!(profile["nodes"].is_array() && profile["samples"].is_array());
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recording_ends_by_itself_and_can_be_had_later() {
    let stage = Stage::new().await;
    stage.show(PAGE).await;
    stage
        .run("cpu.start", json!({ "durationMs": 300 }))
        .await
        .unwrap();
    stage.evaluate("hot(1500)").await;
    let taken = stage.run("cpu.stop", json!({})).await.unwrap();
    let summary = stage
        .run(
            "cpu.analyze",
            json!({ "fileID": taken["file"]["id"], "limit": 1 }),
        )
        .await
        .unwrap();
    assert_eq!(summary["functions"].as_array().unwrap().len(), 1);
    stage.close().await;
}
