use serde_json::{Value, json};
use yonder_protocol::operation::error::ErrorCode;

use crate::stage::{Stage, refused, soon};

#[tokio::test(flavor = "multi_thread")]
async fn scripts_answer_json() {
    let stage = Stage::new().await;
    stage
        .site
        .page("/inner", "<script>var where='inner'</script>");
    stage
        .show("<script>var where='top'</script><iframe src=/inner></iframe><iframe src=http://other.test/inner></iframe>")
        .await;
    for (script, value) in [
        ("1+1", json!(2)),
        ("'text'", json!("text")),
        ("undefined", Value::Null),
        ("null", Value::Null),
        ("", Value::Null),
        ("// only a comment", Value::Null),
        ("({a: [1, {b: null}]})", json!({"a": [1, {"b": null}]})),
        ("{a: 1}", json!({"a": 1})),
        ("new Date(0)", json!("1970-01-01T00:00:00.000Z")),
        ("[1, undefined, () => 1]", json!([1, null, null])),
        ("Promise.resolve({x: 1})", json!({"x": 1})),
        ("await Promise.resolve(3)", json!(3)),
        (
            "const a = 1; const b = await Promise.resolve(2); a + b",
            json!(3),
        ),
        ("a + b + 1", json!(4)),
        ("let p = Promise.resolve(5); p", json!(5)),
        ("if (1) { 7 }", json!(7)),
        ("const z = 6; return z", json!(6)),
        ("return await Promise.resolve(8) // done", json!(8)),
        ("function f() { return 9 } f()", json!(9)),
        ("where", json!("top")),
        ("navigator.userActivation.isActive", json!(true)),
        ("1 // trailing", json!(1)),
    ] {
        assert_eq!(stage.evaluate(script).await, value, "{script}");
    }
    let run = |script: &'static str| stage.run("evaluate", json!({ "script": script }));
    for (script, words) in [
        ("null.x", "Cannot read properties of null"),
        ("\n\n  null.x", "line 3, column 8"),
        ("throw new Error('own ' + 'words')", "own words"),
        ("Promise.reject(new Error('late'))", "late"),
        ("throw 5", "threw 5"),
        ("JSON.parse('{')", "JSON.parse"),
        ("const x = ;", "SyntaxError"),
        ("() => 1", "call it"),
        ("document.body", "DOM node"),
        ("0/0", "NaN"),
        ("10n", "BigInt"),
        ("Symbol('s')", "symbol"),
        ("new Map()", "Map"),
        ("window", "window"),
        ("const c = {}; c.c = c; c", "circular"),
        ("'x'.repeat(600000)", "600002 characters"),
        ("['x'.repeat(600000)]", "return less"),
        ("'\\n'.repeat(300000)", "600002 characters"),
        (
            "let d = []; for (let i = 0; i < 1000; i++) d = [d]; d",
            "nested too deeply",
        ),
        ("new Error('given')", "given"),
    ] {
        refused(run(script).await, ErrorCode::OperationFailed, words);
    }
    let long = run("throw new Error('x'.repeat(5000))").await.unwrap_err();
    assert!(long.message.len() < 1_000);
    for frame in &stage.frames().await[1..] {
        let script = json!({ "script": "where + location.host", "frameID": frame["id"] });
        let answer = stage.run("evaluate", script).await.unwrap();
        let url = frame["url"].as_str().unwrap();
        let host = url.split('/').nth(2).unwrap();
        assert_eq!(answer["value"], format!("inner{host}"));
    }
    refused(
        soon(run("alert('stop'); 1")).await,
        ErrorCode::DialogOpen,
        "stop",
    );
    assert_eq!(stage.answer().await, "stop");
    refused(
        run("location.href = '/inner'; await new Promise(() => {})").await,
        ErrorCode::OperationFailed,
        "another document",
    );
    stage.close().await;
}
