use serde_json::json;
use yonder_protocol::operation::error::ErrorCode;

use crate::stage::{Stage, refused, soon};

#[tokio::test(flavor = "multi_thread")]
async fn keys_do_what_they_do_for_a_person() {
    let stage = Stage::new().await;
    stage.site.page("/found", "<h1>Found</h1>");
    stage
        .show(
            "<form action=/found><input id=q name=q autofocus></form><textarea id=t></textarea><input type=checkbox id=c>
            <script>const log=[]; addEventListener('keydown', e => log.push([e.key, e.code, e.keyCode, e.ctrlKey, e.shiftKey, e.isTrusted].join(' ')))</script>",
        )
        .await;
    let press = |key: &str| stage.run("press", json!({ "key": key }));
    stage.evaluate("q.focus()").await;
    for key in ["a", "B", "?", "é", "Space", "5"] {
        press(key).await.unwrap();
    }
    assert_eq!(stage.evaluate("q.value").await, "aB?é 5");
    assert_eq!(
        stage
            .evaluate("log.splice(0).filter(k => !k.startsWith('Shift'))")
            .await,
        json!([
            "a KeyA 65 false false true",
            "B KeyB 66 false true true",
            "? Slash 191 false true true",
            "é  0 false false true",
            "  Space 32 false false true",
            "5 Digit5 53 false false true"
        ])
    );
    press("Home").await.unwrap();
    press("Delete").await.unwrap();
    press("End").await.unwrap();
    press("Backspace").await.unwrap();
    press("Shift+ArrowLeft").await.unwrap();
    press("x").await.unwrap();
    assert_eq!(stage.evaluate("q.value").await, "B?éx");
    press("Control+A").await.unwrap();
    assert_eq!(
        stage
            .evaluate(
                "getSelection().toString() || q.value.slice(q.selectionStart, q.selectionEnd)"
            )
            .await,
        "B?éx"
    );
    press("Delete").await.unwrap();
    assert_eq!(stage.evaluate("q.value").await, "");
    press("Tab").await.unwrap();
    assert_eq!(stage.evaluate("document.activeElement.id").await, "t");
    press("Enter").await.unwrap();
    assert_eq!(stage.evaluate("t.value").await, "\n");
    press("Tab").await.unwrap();
    press("Space").await.unwrap();
    assert_eq!(stage.evaluate("c.checked").await, true);
    press("Shift+Tab").await.unwrap();
    press("Shift+Tab").await.unwrap();
    press("k").await.unwrap();
    let tab = press("Enter").await.unwrap();
    assert_eq!(tab["url"], "http://site.test/found?q=k");
    refused(press("Entre").await, ErrorCode::Invalid, "Enter, Tab");

    stage
        .show("<script>addEventListener('keydown', e => e.key == 'F2' && alert('key'))</script>")
        .await;
    soon(press("F2")).await.unwrap();
    assert_eq!(stage.answer().await, "key");
    stage.close().await;
}
