use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::json;
use yonder_protocol::operation::error::ErrorCode;

use crate::stage::{Stage, refused, soon};

#[tokio::test(flavor = "multi_thread")]
async fn clicks_are_those_of_a_person() {
    let stage = Stage::new().await;
    stage.site.page("/next", "<h1>Next</h1>");
    stage.site.page("/slow", "<h1>Slow</h1>");
    stage
        .show(
            r#"<style>#m{position:relative}</style><script>
            const log = []; for (const t of ['mousedown','mouseup','click','dblclick','contextmenu','auxclick'])
              addEventListener(t, e => { log.push(`${t} ${e.button} ${e.detail} ${e.isTrusted} ${e.ctrlKey}${e.shiftKey}`); if (t=='contextmenu') e.preventDefault() })
            </script><button>Plain</button><div style="height:3000px"></div><button id=far>Far</button>
            <div style="transform:rotate(30deg) scale(.8);width:200px"><button>Turned</button></div>
            <label><input type=checkbox id=c style="opacity:0;position:absolute;width:1px;height:1px"><span>Drawn</span></label>
            <select id=s><option>One<option>Two<option disabled>Three</select>
            <select id=mm multiple><option>A<option>B</select>
            <a href=/next>Leave</a> <a href=/slow>Slowly</a>
            <form action=/next><button>Send</button></form>"#,
        )
        .await;
    stage.click("Plain").await.unwrap();
    assert_eq!(
        stage.evaluate("log.splice(0)").await,
        json!([
            "mousedown 0 1 true falsefalse",
            "mouseup 0 1 true falsefalse",
            "click 0 1 true falsefalse"
        ])
    );
    let plain = stage.find("Plain").await;
    stage
        .run(
            "click",
            json!({ "ref": plain, "count": 2, "modifiers": ["Control", "Shift"] }),
        )
        .await
        .unwrap();
    let log = stage.evaluate("log.splice(0)").await;
    assert!(
        log.to_string().contains("dblclick 0 2 true truetrue"),
        "{log}"
    );
    stage
        .run("click", json!({ "ref": plain, "button": "right" }))
        .await
        .unwrap();
    assert!(
        stage
            .evaluate("log.splice(0)")
            .await
            .to_string()
            .contains("contextmenu 2")
    );
    stage
        .run("click", json!({ "ref": plain, "button": "middle" }))
        .await
        .unwrap();
    assert!(
        stage
            .evaluate("log.splice(0)")
            .await
            .to_string()
            .contains("auxclick 1")
    );

    // Out of sight, turned, drawn by a label.
    stage.click("Far").await.unwrap();
    assert!(
        stage
            .evaluate("scrollY > 1000 && log.splice(0).length === 3")
            .await
            == true
    );
    stage.click("Turned").await.unwrap();
    assert_eq!(stage.evaluate("log.splice(0).length").await, 3);
    stage.click("Drawn").await.unwrap();
    assert_eq!(stage.evaluate("c.checked").await, true);

    // Options.
    stage
        .evaluate("void (s.onchange = e => document.title = s.value)")
        .await;
    let chosen = stage.click("Two").await.unwrap();
    assert_eq!(chosen["title"], "Two");
    refused(
        stage.click("Three").await,
        ErrorCode::NotActionable,
        "disabled",
    );
    stage.click("\"A\"").await.unwrap();
    let b = stage.find("\"B\"").await;
    stage
        .run("click", json!({ "ref": b, "modifiers": ["Control"] }))
        .await
        .unwrap();
    assert_eq!(
        stage
            .evaluate("[...mm.selectedOptions].map(o => o.text)")
            .await,
        json!(["A", "B"])
    );

    // What a click starts is waited for.
    let tab = stage.click("Leave").await.unwrap();
    assert_eq!(
        (&tab["url"], &tab["title"], &tab["loading"]),
        (
            &json!("http://site.test/next"),
            &json!("/next"),
            &json!(false)
        )
    );
    stage.go("http://site.test/").await;
    let tab = stage.click("Slowly").await.unwrap();
    assert_eq!(
        (&tab["url"], &tab["title"]),
        (&json!("http://site.test/slow"), &json!("/slow"))
    );
    stage.go("http://site.test/").await;
    let tab = stage.click("Send").await.unwrap();
    assert_eq!(tab["url"], "http://site.test/next?");
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clicks_in_frames_of_every_kind() {
    let stage = Stage::new().await;
    stage.site.page("/inner", "<div style='height:500px'></div><button onclick=\"this.textContent='Done '+event.isTrusted\">Inner</button>");
    stage.site.page("/nest", "<iframe title=deep style='margin:30px;border:7px solid' src=http://site.test/inner></iframe>");
    stage
        .show(
            "<div style='height:1500px'></div><div style='transform:rotate(10deg) scale(.7);margin:60px'>
             <iframe title=same src=/inner></iframe><iframe title=cross width=400 height=300 style='border:9px solid;padding:5px' src=http://other.test/nest></iframe></div>
             <div style='position:relative;width:320px'><iframe title='veiled same' src=/inner></iframe><div id=veil style='position:absolute;inset:0'></div></div>
             <div style='position:relative;width:320px'><iframe title='veiled cross' src=http://other.test/inner></iframe><div id=veil2 style='position:absolute;inset:0'></div></div>",
        )
        .await;
    let content = stage.snapshot().await;
    let refs: Vec<&str> = content
        .lines()
        .filter(|line| line.contains("\"Inner\""))
        .map(|line| line.trim_start().split(' ').next().unwrap())
        .collect();
    assert_eq!(refs.len(), 4, "{content}");
    for element in &refs[..2] {
        stage.run("click", json!({ "ref": element })).await.unwrap();
        let part = stage
            .run("snapshot", json!({ "ref": element }))
            .await
            .unwrap();
        assert!(
            part["content"].as_str().unwrap().contains("Done true"),
            "{part}"
        );
    }
    // Something of the page lies over the whole frame. Each takes its whole time, so that each has a tab.
    let covered = ["same", "cross"].map(async |kind| {
        let tab = stage.another_tab().await;
        let content = stage
            .run("snapshot", json!({ "tabID": tab }))
            .await
            .unwrap();
        let content = content["content"].as_str().unwrap();
        let mut lines = content
            .lines()
            .skip_while(|line| !line.contains(&format!("\"veiled {kind}\"")));
        let button = lines.nth(1).unwrap().trim_start();
        assert!(button.ends_with("[button] \"Inner\""), "{content}");
        let element = button.split(' ').next().unwrap();
        let clicked = stage.run("click", json!({ "tabID": tab, "ref": element }));
        refused(clicked.await, ErrorCode::NotActionable, "covered");
    });
    join_all(covered).await;
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_clicked_is_told_with_the_reason() {
    let stage = Stage::new().await;
    stage
        .show(
            r#"<div style="position:relative;width:100px"><button onclick="out.textContent='wrong'">Under</button><div id=veil class=shade style="position:absolute;inset:0"></div></div>
            <button disabled onclick="out.textContent='wrong'">Off</button>
            <button id=ghost style="pointer-events:none">Ghost</button>
            <button id=mover style="position:relative;animation:m 3s linear infinite">Mover</button><style>@keyframes m{from{left:0}to{left:600px}}</style>
            <button id=later disabled onclick="out.textContent='later'">Later</button>
            <div style="position:relative;width:100px"><button onclick="out.textContent='uncovered'">Soon</button><div id=soon style="position:absolute;inset:0"></div></div>
            <button id=gone>Gone</button><button style="position:fixed;left:-500px">Away</button>
            <p id=out>Ready</p>"#,
        )
        .await;
    // Each takes its whole time to become ready, so that each has a tab of its own.
    let refusals = [
        ("Under", "<div id=\"veil\" class=\"shade\">"),
        ("Off", "disabled"),
        ("Ghost", "pointer-events"),
        ("Mover", "moving"),
        ("Away", "scrolled into view"),
    ];
    join_all(refusals.iter().map(async |(name, words)| {
        let tab = stage.another_tab().await;
        let element = stage.find_in(&tab, name).await;
        let clicked = stage.run("click", json!({ "tabID": tab, "ref": element }));
        refused(clicked.await, ErrorCode::NotActionable, words);
        let script = json!({ "tabID": tab, "script": "out.textContent" });
        let answer = stage.run("evaluate", script).await.unwrap();
        assert_eq!(answer["value"], "Ready", "{name}");
    }))
    .await;
    let gone = stage.find("Gone").await;
    stage
        .evaluate("gone.style.display='none'; setTimeout(() => gone.remove(), 200)")
        .await;
    let clicked = stage.run("click", json!({ "ref": gone }));
    refused(clicked.await, ErrorCode::NotFound, "new snapshot");

    // What becomes ready in time is clicked.
    stage
        .evaluate("setTimeout(() => later.disabled = false, 600)")
        .await;
    stage.click("Later").await.unwrap();
    assert_eq!(stage.evaluate("out.textContent").await, "later");
    stage
        .evaluate("setTimeout(() => document.getElementById('soon').remove(), 600)")
        .await;
    stage.click("Soon").await.unwrap();
    assert_eq!(stage.evaluate("out.textContent").await, "uncovered");

    // Something comes in between when the pointer arrives.
    stage
        .show("<div style='position:relative;width:100px'><button id=b onclick=\"document.title='wrong'\">Trap</button></div><script>b.onmouseenter=()=>{const d=document.createElement('div');d.id='late';d.style='position:fixed;inset:0';document.body.append(d)}</script>")
        .await;
    refused(
        stage.click("Trap").await,
        ErrorCode::NotActionable,
        "id=\"late\"",
    );
    assert_eq!(stage.evaluate("document.title").await, "/");
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_click_that_opens_a_dialog_answers() {
    let stage = Stage::new().await;
    stage.show("<button onclick=\"document.title='before';alert('Hello');document.title='after'\">Alert</button><button onmousedown=\"confirm('Down?')\">Down</button>").await;
    for (name, message) in [("Alert", "Hello"), ("Down", "Down?")] {
        let element = stage.find(name).await;
        let clicked = soon(stage.run("click", json!({ "ref": element }))).await;
        clicked.unwrap();
        refused(
            stage.run("snapshot", json!({})).await,
            ErrorCode::DialogOpen,
            message,
        );
        refused(
            stage.run("click", json!({ "ref": element })).await,
            ErrorCode::DialogOpen,
            message,
        );
        assert_eq!(stage.answer().await, message);
    }
    assert_eq!(stage.evaluate("document.title").await, "after");
    // The button that was down when the dialog opened is up again.
    stage.evaluate("globalThis.seen = []; for (const t of ['mousedown', 'mouseup', 'click', 'dragstart']) addEventListener(t, e => seen.push(t + e.buttons)); document.querySelector('button').onclick = null").await;
    stage.click("Alert").await.unwrap();
    assert_eq!(
        stage.evaluate("seen").await,
        json!(["mousedown1", "mouseup0", "click0"])
    );
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_without_script_are_seen_and_clicked() {
    let stage = Stage::new().await;
    stage.site.page(
        "/inner",
        "<h2>Inner</h2><button>Quiet</button><a href=/next>Onward</a><label>Field <input></label>",
    );
    stage.site.page("/next", "<h2>Arrived</h2>");
    stage
        .show("<meta http-equiv=Content-Security-Policy content=\"script-src 'none'\"><iframe sandbox src=/inner></iframe><iframe sandbox srcdoc='<button>Doc</button>'></iframe>")
        .await;
    let content = stage.snapshot().await;
    for text in ["Inner", "Quiet", "Onward", "Doc"] {
        assert!(content.contains(text), "{content}");
    }
    assert_eq!(
        stage
            .evaluate("document.querySelectorAll('iframe').length")
            .await,
        2
    );
    let started = Instant::now();
    stage.click("Quiet").await.unwrap();
    stage.fill("Field", "typed").await.unwrap();
    stage.click("Onward").await.unwrap();
    stage
        .run(
            "wait",
            json!({ "condition": "text", "text": "Arrived", "frameID": stage.frames().await[1]["id"] }),
        )
        .await
        .unwrap();
    assert!(started.elapsed() < Duration::from_secs(8));
    for (path, mime, content, text) in [
        (
            "/drawn",
            "image/svg+xml",
            "<svg xmlns='http://www.w3.org/2000/svg'><text y='20'>Drawn words</text><a href='x'><text y='50'>Linked</text></a></svg>",
            "Drawn words",
        ),
        ("/plain", "text/plain", "Plain words", "Plain words"),
        (
            "/marked",
            "text/xml",
            "<a><b>Marked words</b></a>",
            "Marked words",
        ),
        (
            "/data",
            "application/json",
            "{\"a\":\"json words\"}",
            "json words",
        ),
    ] {
        stage.site.file(path, mime, content);
        stage.go(&format!("http://site.test{path}")).await;
        let content = stage.snapshot().await;
        assert!(content.contains(text), "{path}: {content}");
        stage
            .run(
                "wait",
                json!({ "condition": "text", "text": text, "timeoutMs": 1000 }),
            )
            .await
            .unwrap();
    }
    stage.close().await;
}
