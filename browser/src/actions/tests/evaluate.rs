use super::*;

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
    for frame in stage.tab.frames().iter().skip(1) {
        let answer = stage
            .run(
                "evaluate",
                json!({ "script": "where + location.host", "frameID": frame.id }),
            )
            .await
            .unwrap();
        let host = if frame.is_root_of_session {
            "other.test"
        } else {
            "site.test"
        };
        assert_eq!(answer["value"], format!("inner{host}"));
    }
    refused(run("alert('stop'); 1").await, ErrorCode::DialogOpen, "stop");
    let _: Ack = stage
        .tab
        .session()
        .call("Page.handleJavaScriptDialog", json!({ "accept": true }))
        .await
        .unwrap();
    stage
        .tab
        .view()
        .wait_for(|view| view.dialog.is_none())
        .await
        .unwrap();
    refused(
        run("location.href = '/inner'; await new Promise(() => {})").await,
        ErrorCode::OperationFailed,
        "another document",
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_that_do_not_end_are_ended() {
    let stage = Stage::new().await;
    stage.show("<h1>Here</h1>").await;
    let frame = stage.tab.frame(None).unwrap();
    for script in [
        "for (;;) {}",
        "for (;;) {} return 1",
        "await 1; for (;;) {}",
        "(async () => { await 1; for (;;) {} })()",
        "new Promise(() => {})",
        "setTimeout(() => { for (;;) {} }, 20); await new Promise(r => setTimeout(r, 10000))",
        "({ toJSON() { for (;;) {} } })",
    ] {
        let ended = crate::actions::evaluate::evaluate_within(
            &stage.tab,
            &frame,
            script,
            Duration::from_millis(400),
        );
        let error = tokio::time::timeout(Duration::from_secs(10), ended)
            .await
            .unwrap()
            .unwrap_err();
        assert_eq!(error.code, ErrorCode::Timeout, "{script}: {error}");
        assert_eq!(stage.evaluate("1+1").await, 2, "{script}");
        assert!(stage.snapshot().await.contains("Here"));
    }
    // Nobody waits any more: the browser ends the loop by itself.
    let abandoned = crate::actions::evaluate::evaluate_within(
        &stage.tab,
        &frame,
        "for (;;) {}",
        Duration::from_secs(2),
    );
    assert!(
        tokio::time::timeout(Duration::from_millis(200), abandoned)
            .await
            .is_err()
    );
    let answer = tokio::time::timeout(Duration::from_secs(10), stage.evaluate("2+2"));
    assert_eq!(answer.await.unwrap(), 4);
}
