use serde_json::{Value, json};

use crate::stage::{Stage, entry};

/// The frames of the request once `enough` holds for what the answer says of them.
async fn frames(stage: &Stage, mut input: Value, enough: impl Fn(&Value) -> bool) -> Value {
    let list = stage.requests(&[]).await;
    let url = input["url"].take();
    input.as_object_mut().unwrap().remove("url");
    input["id"] = entry(&list, "url", url.as_str().unwrap())["id"].clone();
    loop {
        let detail = stage.run("network.get", input.clone()).await;
        if enough(&detail["frames"]) {
            return detail;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn web_sockets_frame_by_frame() {
    let stage = Stage::new().await;
    stage.show("<p>socket").await;
    stage
        .evaluate(
            "globalThis.ws = new WebSocket('ws://site.test/socket?token=abc'); ws.binaryType = 'arraybuffer';
            new Promise(done => { let got = 0; ws.onmessage = () => { if (++got == 3) done(0) };
                ws.onopen = () => { ws.send('hello'); ws.send(JSON.stringify({ password: 'hunter2' })); ws.send(new Uint8Array([1, 2, 3, 4, 5])) } })",
        )
        .await;
    let list = stage.requests(&["/socket?token=<redacted>"]).await;
    let socket = entry(&list, "url", "/socket");
    assert_eq!(
        (
            &socket["resourceType"],
            &socket["state"],
            &socket["statusCode"]
        ),
        (&json!("websocket"), &json!("completed"), &json!(101))
    );
    let detail = frames(&stage, json!({ "url": "/socket" }), |frames| {
        frames["total"] == 6
    })
    .await;
    let list = detail["frames"]["list"].as_array().unwrap();
    let seen: Vec<_> = list
        .iter()
        .map(|frame| {
            format!(
                "{} {} {} {}",
                frame["direction"], frame["kind"], frame["text"], frame["bytes"]
            )
        })
        .collect();
    assert!(
        seen.contains(&r#""sent" "text" "hello" 5"#.to_owned()),
        "{seen:?}"
    );
    assert!(
        seen.contains(&r#""received" "binary" "AQIDBAU=" 5"#.to_owned()),
        "{seen:?}"
    );
    assert!(!detail.to_string().contains("hunter2"));
    assert_eq!(detail["frames"]["open"], true);
    let found = json!({ "url": "/socket", "framesContain": "hello" });
    let found = frames(&stage, found, |_| true).await;
    assert_eq!(found["frames"]["list"].as_array().unwrap().len(), 2);

    // Many are bounded, and told to be.
    stage
        .evaluate("new Promise(done => { ws.onmessage = e => { if (e.data == 'last') done(0) }; for (let i = 0; i < 3000; i++) ws.send('frame ' + i); ws.send('last') })")
        .await;
    let many = frames(&stage, json!({ "url": "/socket" }), |frames| {
        frames["total"] == 6_008
    })
    .await;
    assert_eq!(many["frames"]["truncated"], true);
    assert_eq!(many["frames"]["dropped"], 4_008);
    assert!(many.to_string().len() < 8_000);
    let number = &many["frames"]["list"][0]["number"];
    let before = json!({ "url": "/socket", "framesBefore": number });
    let before = frames(&stage, before, |_| true).await;
    assert!(before["frames"]["list"][0]["number"].as_u64() < number.as_u64());
    stage.evaluate("ws.close(); 0").await;
    frames(&stage, json!({ "url": "/socket" }), |frames| {
        frames["open"] == false
    })
    .await;
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn event_streams_event_by_event() {
    let stage = Stage::new().await;
    stage.site.answer(
        "/events",
        200,
        "Content-Type: text/event-stream\r\n",
        b"data: one\n\nevent: tick\ndata: two\n\n",
    );
    stage.show("<p>events").await;
    stage
        .evaluate("new Promise(done => { globalThis.es = new EventSource('/events'); es.addEventListener('tick', () => done(0)) })")
        .await;
    let detail = frames(&stage, json!({ "url": "/events" }), |frames| {
        frames["total"] == 2
    })
    .await;
    assert_eq!(detail["request"]["resourceType"], "eventsource");
    assert_eq!(detail["request"]["state"], "pending");
    assert_eq!(detail["frames"]["open"], true);
    let list = detail["frames"]["list"].as_array().unwrap();
    assert_eq!(
        (&list[0]["kind"], &list[0]["text"]),
        (&json!("message"), &json!("one"))
    );
    assert_eq!(
        (&list[1]["kind"], &list[1]["text"]),
        (&json!("tick"), &json!("two"))
    );
    stage.evaluate("es.close(); 0").await;
    frames(&stage, json!({ "url": "/events" }), |frames| {
        frames["open"] == false
    })
    .await;
    stage.close().await;
}
