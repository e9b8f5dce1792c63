//! Traces, beside what the page itself was told by Chromium.

use std::io::Read as _;
use std::time::Duration;

use flate2::read::MultiGzDecoder;
use serde_json::{Value, json};
use yonder_protocol::operation::error::ErrorCode;

use crate::stage::{Stage, refused, until};

const PAGE: &str = "<link rel=stylesheet href=/style>
<h1>A heading of some length, the largest of the page</h1>
<p id=out>text</p><button id=busy>busy</button>
<script src=/script></script>";

/// What the page observes of itself, then work of every kind that a trace is to name.
const SCRIPT: &str = "
const seen = { shifts: [], events: [], tasks: [] };
const observe = (type, take) =>
  new PerformanceObserver((list) => list.getEntries().forEach(take)).observe({ type, buffered: true, durationThreshold: 16 });
observe('largest-contentful-paint', (entry) => (seen.lcp = entry.startTime));
observe('paint', (entry) => { if (entry.name === 'first-contentful-paint') seen.fcp = entry.startTime; });
observe('layout-shift', (entry) => { if (!entry.hadRecentInput) seen.shifts.push(entry.value); });
observe('event', (entry) => { if (entry.interactionId) seen.events.push(entry.duration); });
observe('longtask', (entry) => seen.tasks.push(entry.duration));
function spin(ms) { const end = performance.now() + ms; while (performance.now() < end); }
function forcesLayout() { let sum = 0; for (let i = 0; i < 50; i++) { document.body.style.width = 400 + i + 'px'; sum += document.body.offsetHeight; } return sum; }
document.getElementById('busy').addEventListener('click', function clicked() { spin(120); document.getElementById('out').textContent = 'clicked'; });
setTimeout(function shifts() { const block = document.createElement('div'); block.id = 'moves'; block.style.height = '150px'; document.body.prepend(block); }, 700);
setTimeout(function slow() { spin(180); forcesLayout(); document.title = 'worked'; }, 1000);
";

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("no number: {value}"))
}

fn near(told: &Value, page: f64, within: f64) {
    assert!(
        (number(told) - page).abs() <= within,
        "{told} beside {page}"
    );
}

#[tokio::test]
async fn a_trace_tells_what_the_page_was_told_and_what_made_it_slow() {
    let stage = Stage::new().await;
    let tab = &*stage.first();
    stage.site.page("/a", PAGE);
    let css = "Content-Type: text/css\r\n";
    let delay = Duration::from_millis(150);
    stage
        .site
        .slow("/style", 200, css, b"body { margin: 0 }", delay);
    let script = "Content-Type: text/javascript\r\n";
    stage.site.answer("/script", 200, script, SCRIPT.as_bytes());

    let nothing = stage.on(tab, "trace.stop", json!({})).await;
    refused(nothing, ErrorCode::Invalid, &["trace.start"]);
    let started = stage.on(tab, "trace.start", json!({ "durationMs": 30_000 }));
    assert_eq!(started.await.unwrap()["durationMs"], 30_000);
    let again = stage.on(tab, "trace.start", json!({})).await;
    refused(again, ErrorCode::Invalid, &["trace.stop"]);
    let other = stage
        .run("tabs.open", json!({ "focus": false }))
        .await
        .unwrap();
    let other = other["id"].as_str().unwrap();
    let second = stage.on(other, "trace.start", json!({})).await;
    refused(second, ErrorCode::Invalid, &["one trace at a time"]);

    stage.go(tab, "http://localhost/a").await.unwrap();
    until("the page has worked", async || {
        stage.script(tab, "document.title").await == "worked"
    })
    .await;
    stage
        .on(tab, "click", json!({ "ref": "css=#busy" }))
        .await
        .unwrap();
    until("the page knows of the click", async || {
        stage
            .script(tab, "seen.events.length > 0 && seen.tasks.length > 1")
            .await
            == true
    })
    .await;
    let seen = stage
        .script(
            tab,
            "({ ...seen, ttfb: performance.getEntriesByType('navigation')[0].responseStart })",
        )
        .await;
    let stopped = stage.on(tab, "trace.stop", json!({})).await.unwrap();
    assert_eq!(stopped["incomplete"], false, "{stopped}");
    assert_eq!(stopped["file"]["kind"], "trace");

    let file = json!({ "fileID": stopped["file"]["id"] });
    let told = stage.on(tab, "trace.analyze", file.clone()).await.unwrap();
    let metrics = &told["metrics"];
    assert_eq!(metrics["url"], "http://localhost/a");
    // The page's clock is coarse, to 0.1 ms, and event durations to 8 ms.
    near(&metrics["ttfbMs"], number(&seen["ttfb"]), 2.0);
    near(&metrics["fcpMs"], number(&seen["fcp"]), 4.1);
    near(&metrics["lcp"]["ms"], number(&seen["lcp"]), 4.1);
    assert_eq!(metrics["lcp"]["element"], "h1");
    let shifts: f64 = seen["shifts"].as_array().unwrap().iter().map(number).sum();
    assert!(shifts > 0.0);
    near(&metrics["cls"], shifts, 0.0002);
    let slowest = seen["events"].as_array().unwrap().iter().map(number);
    near(&metrics["inpMs"], slowest.fold(0.0, f64::max), 8.0);
    let parts = ["ttfbMs"].map(|part| number(&metrics[part]));
    near(
        &metrics["lcp"]["ms"],
        parts[0] + number(&metrics["lcp"]["renderDelayMs"]),
        0.2,
    );
    let shifted = &metrics["shifts"][0]["elements"];
    assert!(
        shifted.as_array().unwrap().iter().any(|name| name != ""),
        "{shifted}"
    );

    assert_eq!(told["renderBlocking"][0]["url"], "http://localhost/style");
    let forced = &told["forcedLayouts"][0];
    assert_eq!(forced["function"], "forcesLayout", "{forced}");
    assert_eq!(forced["line"], 11, "{forced}");
    assert_eq!(told["scripts"][0]["url"], "http://localhost/script");
    let tasks = told["longTasks"].as_array().unwrap();
    for task in seen["tasks"].as_array().unwrap() {
        let same = |told: &Value| (number(&told["ms"]) - number(task)).abs() < 5.0;
        assert!(tasks.iter().any(same), "{task} is not in {tasks:?}");
    }
    let names = |wanted: &str| {
        let scripts = tasks.iter().filter_map(|task| task["script"].as_str());
        scripts.clone().any(|script| script.starts_with(wanted))
    };
    assert!(names("slow (http://localhost/script:14:"), "{tasks:?}");
    assert!(told["events"].as_array().unwrap().len() > 5);
    let insights = told["insights"].as_array().unwrap();
    assert!(
        insights
            .iter()
            .any(|insight| insight["id"] == "CLSCulprits"),
        "{} {insights:?}",
        told["insightsMissing"]
    );

    // Another tab's pages are not in the file, which is one that Chromium reads again.
    let input = json!({ "tabID": tab, "fileID": stopped["file"]["id"] });
    let done = stage.done("files.get", input, None).await.unwrap();
    let mut text = String::new();
    MultiGzDecoder::new(&*done.files[0].data)
        .read_to_string(&mut text)
        .unwrap();
    let trace: Value = serde_json::from_str(&text).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    assert!(
        events
            .iter()
            .any(|event| event["name"] == "navigationStart")
    );
    let wrong = stage.on(tab, "cpu.analyze", file).await;
    refused(wrong, ErrorCode::Invalid, &["a trace", "a CPU profile"]);
    stage.browser.close().await;
}

#[tokio::test]
async fn a_trace_ends_by_itself_and_makes_room_for_another() {
    let stage = Stage::new().await;
    let tab = &*stage.first();
    stage
        .on(tab, "trace.start", json!({ "durationMs": 1_000 }))
        .await
        .unwrap();
    let other = stage
        .run("tabs.open", json!({ "focus": false }))
        .await
        .unwrap();
    let other = other["id"].as_str().unwrap();
    until("another tab can record", async || {
        stage.on(other, "trace.start", json!({})).await.is_ok()
    })
    .await;
    let stopped = stage.on(tab, "trace.stop", json!({})).await.unwrap();
    assert!(number(&stopped["durationMs"]) >= 1_000.0);
    // A closed tab ends its trace.
    stage.on(other, "tabs.close", json!({})).await.unwrap();
    until("the first tab can record again", async || {
        stage.on(tab, "trace.start", json!({})).await.is_ok()
    })
    .await;
    stage.browser.close().await;
}
