//! Pictures of tabs, seen or not.

use crate::stage::{Stage, refused, until};
use serde_json::{Value, json};
use yonder_protocol::operation::error::ErrorCode;

/// Width and height that a PNG declares (its `IHDR`, PNG specification section 11.2.2).
fn size(png: &[u8]) -> (u32, u32) {
    assert!(png.starts_with(b"\x89PNG"));
    let number = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap());
    (number(16), number(20))
}

impl Stage {
    async fn shot(&self, tab: &str, mut input: Value) -> (Vec<u8>, Value) {
        input["tabID"] = json!(tab);
        let mut done = self.done("screenshot", input, None).await.unwrap();
        let file = done.files.pop().unwrap();
        let told = done.value["files"][0].clone();
        assert_eq!(told["bytes"], file.data.len());
        assert_eq!(
            (&told["id"], &told["mime"]),
            (&json!(file.id), &json!(file.mime))
        );
        (file.data.to_vec(), told)
    }
}

#[tokio::test]
async fn any_tab_can_be_photographed() {
    let stage = Stage::new().await;
    let first = &*stage.first();
    let site = &stage.site;
    site.page(
        "/tall",
        "<style>body{background:linear-gradient(red,blue)}</style><div style='height:3000px'></div>\
         <button style='position:absolute;left:40px;top:2000px;width:120px;height:50px'>far down</button>",
    );
    stage.go(first, "http://site.test/tall").await.unwrap();
    let view = stage.script(first, "[innerWidth, innerHeight]").await;
    let view = (
        u32::try_from(view[0].as_u64().unwrap()).unwrap(),
        u32::try_from(view[1].as_u64().unwrap()).unwrap(),
    );

    // Covered by windows that opened later, several times in a row.
    for _ in 0..2 {
        stage
            .run("tabs.open", json!({ "url": "http://site.test/tall" }))
            .await
            .unwrap();
    }
    for _ in 0..3 {
        let (png, told) = stage.shot(first, json!({})).await;
        assert_eq!(told["name"], "screenshot.png");
        let (width, height) = size(&png);
        assert!(
            width.abs_diff(view.0) <= 20 && height == view.1,
            "{width}x{height}"
        );
    }
    // Behind its own popup, in the same window; and the popup itself after that.
    stage
        .script(first, "void open('http://site.test/tall')")
        .await;
    until("the popup", async || {
        let state = stage.session.state().borrow().clone();
        state.tabs.len() == 4
            && state
                .tabs
                .iter()
                .all(|tab| !tab.loading && !tab.title.is_empty())
    })
    .await;
    let popup = stage.session.state().borrow().tabs[3].id.to_string();
    for tab in [first, &popup, first, &popup] {
        stage.shot(tab, json!({})).await;
    }

    // The whole page, narrower; other formats.
    let (png, _) = stage.shot(first, json!({ "fullPage": true })).await;
    assert_eq!(size(&png).1, 3_000);
    let (png, _) = stage
        .shot(first, json!({ "fullPage": true, "maxWidth": 300 }))
        .await;
    let (width, height) = size(&png);
    assert!(
        (298..=300).contains(&width) && (650..=760).contains(&height),
        "{width}x{height}"
    );
    let (jpeg, told) = stage
        .shot(first, json!({ "format": "jpeg", "quality": 30 }))
        .await;
    assert!(jpeg.starts_with(b"\xff\xd8") && told["mime"] == "image/jpeg");
    let (webp, told) = stage.shot(first, json!({ "format": "webp" })).await;
    assert!(webp.starts_with(b"RIFF") && told["name"] == "screenshot.webp");

    // One element, wherever it is.
    let found = stage
        .on(first, "find", json!({ "text": "far down" }))
        .await
        .unwrap();
    let content = found["content"].as_str().unwrap();
    let at = content.find("@e").unwrap();
    let element = content[at..].split(' ').next().unwrap();
    let (png, _) = stage.shot(first, json!({ "ref": element })).await;
    assert_eq!(size(&png), (120, 50));
    let both = json!({ "ref": element, "fullPage": true });
    refused(
        stage.on(first, "screenshot", both).await,
        ErrorCode::Invalid,
        &["ref", "fullPage"],
    );

    // A page beyond every bound is shrunk to it.
    site.page(
        "/huge",
        "<div style='width:9000px;height:60000px;background:green'></div>",
    );
    stage.go(first, "http://site.test/huge").await.unwrap();
    let (png, _) = stage
        .shot(first, json!({ "fullPage": true, "maxWidth": 4000 }))
        .await;
    let (width, height) = size(&png);
    assert!(
        u64::from(width) * u64::from(height) <= 16_100_000 && width > 2_000,
        "{width}x{height}"
    );
    stage.browser.close().await;
}
