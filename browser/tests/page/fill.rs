use serde_json::json;
use yonder_protocol::operation::error::ErrorCode;

use crate::stage::{Stage, refused};

#[tokio::test(flavor = "multi_thread")]
async fn fields_hold_what_was_given() {
    let stage = Stage::new().await;
    stage
        .show(
            r#"<label>Text <input value=old oninput="log.push('input '+this.value)" onchange="log.push('change')"></label>
            <label>Mail <input type=email></label><label>Count <input type=number></label><label>Secret <input type=password maxlength=5></label>
            <label>Area <textarea>old</textarea></label><label>Short <input maxlength=3></label>
            <label>Day <input type=date oninput="log.push('day '+this.value)"></label><label>Clock <input type=time></label><label>Both <input type=datetime-local></label>
            <label>Month <input type=month></label><label>Week <input type=week></label>
            <label>Mask <input oninput="this.value=this.value.replace(/\D/g,'')"></label>
            <div contenteditable id=rich aria-label=Rich><p>old <b>text</b></p></div>
            <label>Fixed <input readonly value=x></label>
            <label>Check <input type=checkbox></label><label>File <input type=file></label><label>Range <input type=range></label><label>Tint <input type=color></label>
            <label>Pick <select><option>One</select></label><button>Button</button>
            <label>Controlled <input id=controlled></label>
            <script>const log=[];
            // As React does it: the page remembers the value by its own setter on the element and resets what it did not see.
            { const el = controlled, own = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value'); let tracked = '', state = '';
              Object.defineProperty(el, 'value', { configurable: true, get() { return own.get.call(this) }, set(v) { tracked = v; own.set.call(this, v) } });
              el.addEventListener('input', () => { const now = own.get.call(el); if (now === tracked) return; tracked = now; state = now; });
              globalThis.controlledState = () => state }
            </script>"#,
        )
        .await;
    for (name, text) in [
        ("Text", "new text"),
        ("Mail", "a@b.c"),
        ("Count", "-12.5"),
        ("Secret", "12345"),
        ("Area", "two\nlines"),
        ("Short", "abc"),
        ("Day", "2024-02-29"),
        ("Clock", "23:59"),
        ("Both", "2024-02-29T10:20"),
        ("Month", "2024-02"),
        ("Week", "2024-W09"),
        ("Rich", "plain ünïcode 🙂"),
        ("Controlled", "seen"),
    ] {
        stage
            .fill(name, text)
            .await
            .unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    let values = stage
        .evaluate(
            "[...document.querySelectorAll('input, textarea')].slice(0, 11).map(e => e.value)",
        )
        .await;
    assert_eq!(
        values,
        json!([
            "new text",
            "a@b.c",
            "-12.5",
            "12345",
            "two\nlines",
            "abc",
            "2024-02-29",
            "23:59",
            "2024-02-29T10:20",
            "2024-02",
            "2024-W09"
        ])
    );
    assert_eq!(
        stage.evaluate("log").await,
        json!(["input new text", "change", "day 2024-02-29"])
    );
    assert_eq!(stage.evaluate("rich.innerText").await, "plain ünïcode 🙂");
    assert_eq!(stage.evaluate("controlledState()").await, "seen");
    stage.fill("Text", "").await.unwrap();
    stage.fill("Day", "").await.unwrap();
    stage.fill("Rich", "").await.unwrap();
    assert_eq!(stage.evaluate("[document.querySelector('input').value, rich.innerText.trim(), document.querySelector('[type=date]').value]").await, json!(["", "", ""]));
    stage.fill("Rich", "first\nsecond").await.unwrap();
    assert_eq!(
        stage.evaluate("rich.innerText.replace(/\\n+/g, '|')").await,
        "first|second"
    );

    // What is not held fails and says what is.
    refused(
        stage.fill("Short", "abcdef").await,
        ErrorCode::OperationFailed,
        "\"abc\"",
    );
    refused(
        stage.fill("Mask", "a1b2").await,
        ErrorCode::OperationFailed,
        "\"12\"",
    );
    let error = stage.fill("Secret", "1234567").await.unwrap_err();
    assert!(!error.message.contains("12345"), "{error}");
    refused(
        stage.fill("Count", "twelve").await,
        ErrorCode::OperationFailed,
        "\"\"",
    );
    for (name, text, words) in [
        ("Day", "29.2.2024", "YYYY-MM-DD"),
        ("Clock", "25:00", "hh:mm"),
        ("Week", "2024-9", "YYYY-Www"),
        ("Text", "two\nlines", "one line"),
        ("Check", "x", "clicked"),
        ("File", "x", "files"),
        ("Range", "5", "ArrowRight"),
        ("Tint", "#123456", "evaluate"),
        ("Pick", "One", "option"),
        ("\"Button\"", "x", "not a field"),
    ] {
        refused(stage.fill(name, text).await, ErrorCode::Invalid, words);
    }
    refused(
        stage.fill("Fixed", "y").await,
        ErrorCode::NotActionable,
        "read-only",
    );
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_in_frames_and_late_ones() {
    let stage = Stage::new().await;
    stage.site.page("/inner", "<label>Inner <input></label>");
    stage
        .show("<iframe src=http://other.test/inner></iframe><iframe src=/inner></iframe><label>Late <input id=late disabled></label><input aria-label=Asks onfocus=\"alert('why')\">")
        .await;
    let content = stage.snapshot().await;
    for line in content.lines().filter(|line| line.contains("\"Inner\"")) {
        let element = line.trim_start().split(' ').next().unwrap();
        stage
            .run("fill", json!({ "ref": element, "text": "in a frame" }))
            .await
            .unwrap();
        let seen = stage
            .run("snapshot", json!({ "ref": element }))
            .await
            .unwrap();
        assert!(
            seen["content"]
                .as_str()
                .unwrap()
                .contains("value=\"in a frame\""),
            "{seen}"
        );
    }
    stage
        .evaluate("setTimeout(() => late.disabled = false, 500)")
        .await;
    stage.fill("Late", "in time").await.unwrap();
    assert_eq!(stage.evaluate("late.value").await, "in time");
    refused(stage.fill("Asks", "x").await, ErrorCode::DialogOpen, "why");
    stage.close().await;
}
