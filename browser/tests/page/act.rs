//! Pointing, scrolling, dragging, choosing, and whole forms.

use serde_json::json;
use yonder_protocol::operation::error::ErrorCode;

use crate::stage::{Stage, refused};

#[tokio::test(flavor = "multi_thread")]
async fn hovering_shows_what_a_person_would_see() {
    let stage = Stage::new().await;
    stage
        .show(
            r"<style>#menu{display:none} #top:hover #menu{display:block} #lid{position:absolute;left:0;top:300px;width:200px;height:60px;background:red}
              #under{position:absolute;left:10px;top:310px}</style>
              <div id=top><button>File</button><ul id=menu><li><button>Open</button></ul></div>
              <button id=under>Under</button><div id=lid>Lid</div>",
        )
        .await;
    assert!(!stage.snapshot().await.contains("Open"));
    let file = stage.find("File").await;
    stage.run("hover", json!({ "ref": file })).await.unwrap();
    assert!(stage.snapshot().await.contains("Open"));
    let under = stage.find("Under").await;
    refused(
        stage.run("hover", json!({ "ref": under })).await,
        ErrorCode::NotActionable,
        "covered",
    );
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_wheel_scrolls_the_page_or_what_lies_below_it() {
    let stage = Stage::new().await;
    stage
        .show(
            r"<div id=box style='height:100px;width:300px;overflow:auto'><div style='height:2000px;width:2000px'>Inner</div></div>
              <div style='height:5000px'></div><p>End",
        )
        .await;
    stage.run("scroll", json!({ "deltaY": 700 })).await.unwrap();
    assert_eq!(stage.evaluate("scrollY").await, 700);
    stage
        .run("scroll", json!({ "deltaY": -300 }))
        .await
        .unwrap();
    assert_eq!(stage.evaluate("scrollY").await, 400);
    stage
        .run(
            "scroll",
            json!({ "deltaY": 120, "deltaX": 50, "ref": "css=#box" }),
        )
        .await
        .unwrap();
    assert_eq!(
        stage.evaluate("[box.scrollTop, box.scrollLeft]").await,
        json!([120, 50])
    );
    refused(
        stage.run("scroll", json!({ "deltaY": 10_001 })).await,
        ErrorCode::Invalid,
        "-10000 to 10000",
    );
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dragging_serves_pages_of_both_kinds() {
    let stage = Stage::new().await;
    stage
        .show(
            r"<style>div{width:120px;height:60px;border:1px solid;margin:20px}</style>
              <div id=card draggable=true tabindex=0>Card</div><div id=basket tabindex=0>Basket</div>
              <div id=knob tabindex=0>Knob</div><div id=hole tabindex=0>Hole</div>
              <script>
                const log = [];
                card.ondragstart = e => e.dataTransfer.setData('text/plain', 'ace');
                basket.ondragenter = e => e.preventDefault();
                basket.ondragover = e => e.preventDefault();
                basket.ondrop = e => { e.preventDefault(); log.push(`${e.isTrusted} ${e.dataTransfer.getData('text/plain')}`); };
                card.ondragend = e => log.push('end');
                let moves = 0;
                knob.onpointerdown = e => { moves = 0; document.onpointermove = () => moves++; };
                hole.onpointerup = e => { log.push(moves >= 10 ? 'let go' : 'a leap'); document.onpointermove = null; };
              </script>",
        )
        .await;
    let drag =
        async |from: &str, to: &str| stage.run("drag", json!({ "from": from, "to": to })).await;
    drag("text=Card", "text=Basket").await.unwrap();
    assert_eq!(stage.evaluate("log.splice(0)[0]").await, "true ace");
    drag("text=Knob", "text=Hole").await.unwrap();
    assert_eq!(stage.evaluate("log.splice(0)").await, json!(["let go"]));
    refused(
        drag("text=Card", "css=#nowhere").await,
        ErrorCode::NotFound,
        "css=#nowhere",
    );
    // A person can still drag, and click.
    stage.click("Knob").await.unwrap();
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn options_are_selected_and_read_back() {
    let stage = Stage::new().await;
    stage
        .show(
            r"<label>Size<select id=size><option value=s>Small<option value=m>Medium<option value=l disabled>Large</select></label>
              <select id=many multiple aria-label=Many><option>A<option>B<option>C</select>
              <select id=stubborn aria-label=Stubborn><option>One<option>Two</select><div tabindex=0>Plain</div>
              <script>const log = []; size.oninput = size.onchange = e => log.push(e.type + ' ' + size.value);
              stubborn.onchange = () => stubborn.value = 'One'</script>",
        )
        .await;
    let select = async |of: &str, values: &[&str]| {
        stage
            .run("select", json!({ "ref": of, "values": values }))
            .await
    };
    select("label=Size", &["m"]).await.unwrap();
    assert_eq!(
        stage.evaluate("log.splice(0)").await,
        json!(["input m", "change m"])
    );
    select("label=Size", &["Small"]).await.unwrap();
    assert_eq!(stage.evaluate("size.value").await, "s");
    stage.evaluate("void log.splice(0)").await;
    select("label=Size", &["s"]).await.unwrap();
    assert_eq!(stage.evaluate("log").await, json!([]), "nothing changed");
    select("label=Many", &["A", "C"]).await.unwrap();
    assert_eq!(
        stage
            .evaluate("[...many.selectedOptions].map(o => o.value)")
            .await,
        json!(["A", "C"])
    );
    refused(
        select("label=Size", &["s", "m"]).await,
        ErrorCode::Invalid,
        "one option",
    );
    refused(
        select("label=Size", &["xl"]).await,
        ErrorCode::Invalid,
        "\"m\"",
    );
    refused(
        select("label=Size", &["l"]).await,
        ErrorCode::NotActionable,
        "disabled",
    );
    refused(
        select("text=Plain", &["l"]).await,
        ErrorCode::Invalid,
        "not a list",
    );
    refused(
        select("label=Stubborn", &["Two"]).await,
        ErrorCode::OperationFailed,
        "\"One\"",
    );
    refused(
        select("label=Size", &[]).await,
        ErrorCode::Invalid,
        "1 to 100",
    );
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn boxes_are_checked_once_and_only_if_need_be() {
    let stage = Stage::new().await;
    stage
        .show(
            r"<label><input type=checkbox id=news>News</label>
              <label><input type=radio name=r id=r1>First</label><label><input type=radio name=r id=r2>Second</label>
              <label for=ghost>Ghost</label><input type=checkbox id=ghost style='display:none'>
              <div role=switch aria-checked=false tabindex=0 id=night>Night</div>
              <label><input type=checkbox id=no>Never</label><input type=checkbox id=half aria-label=Half>
              <script>let clicks = 0; news.onclick = () => clicks++;
              night.onclick = () => setTimeout(() => night.setAttribute('aria-checked', night.ariaChecked !== 'true'), 150);
              no.onclick = e => e.preventDefault(); half.indeterminate = true;</script>",
        )
        .await;
    let check = async |of: &str, checked: bool| {
        stage
            .run("check", json!({ "ref": of, "checked": checked }))
            .await
    };
    check("css=#news", true).await.unwrap();
    check("css=#news", true).await.unwrap();
    assert_eq!(
        stage.evaluate("[news.checked, clicks]").await,
        json!([true, 1])
    );
    check("text=News", false).await.unwrap();
    assert_eq!(stage.evaluate("news.checked").await, false);
    check("css=#r2", true).await.unwrap();
    refused(check("css=#r2", false).await, ErrorCode::Invalid, "radio");
    check("css=#ghost", true).await.unwrap();
    check("role=switch", true).await.unwrap();
    check("css=#half", true).await.unwrap();
    assert_eq!(
        stage
            .evaluate(
                "[r2.checked, ghost.checked, night.ariaChecked, half.checked, half.indeterminate]"
            )
            .await,
        json!([true, true, "true", true, false])
    );
    refused(
        check("css=#no", true).await,
        ErrorCode::OperationFailed,
        "checked=true",
    );
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_is_filled_in_order_and_stops_where_it_must() {
    let stage = Stage::new().await;
    stage
        .show(
            r"<label>Name<input id=who></label><label>Land<select id=land><option>AT<option>CH</select></label>
              <label><input type=checkbox id=ok>Agree</label><label>Mail<input id=mail disabled></label>",
        )
        .await;
    let form =
        async |fields: serde_json::Value| stage.run("fill_form", json!({ "fields": fields })).await;
    form(json!([
        { "type": "text", "ref": "label=Name", "value": "Ada" },
        { "type": "select", "ref": "label=Land", "values": ["CH"] },
        { "type": "check", "ref": "label=Agree", "checked": true },
    ]))
    .await
    .unwrap();
    assert_eq!(
        stage.evaluate("[who.value, land.value, ok.checked]").await,
        json!(["Ada", "CH", true])
    );
    // A ref that is wrong is found before anything is touched.
    refused(
        form(json!([
            { "type": "text", "ref": "label=Name", "value": "Bob" },
            { "type": "check", "ref": "@e999999", "checked": true },
        ]))
        .await,
        ErrorCode::NotFound,
        "field 2 of 2 (0 done)",
    );
    assert_eq!(stage.evaluate("who.value").await, "Ada");
    refused(
        form(json!([
            { "type": "text", "ref": "label=Name", "value": "Cyd" },
            { "type": "text", "ref": "label=Mail", "value": "c@d" },
        ]))
        .await,
        ErrorCode::NotActionable,
        "field 2 of 2 (1 done)",
    );
    // A dialog stops the rest.
    stage
        .evaluate("void (who.oninput = () => alert('Wait'))")
        .await;
    refused(
        form(json!([
            { "type": "text", "ref": "label=Name", "value": "Dan" },
            { "type": "check", "ref": "label=Agree", "checked": false },
        ]))
        .await,
        ErrorCode::DialogOpen,
        "Wait",
    );
    assert_eq!(stage.answer().await, "Wait");
    assert_eq!(stage.evaluate("ok.checked").await, true);
    stage.close().await;
}
