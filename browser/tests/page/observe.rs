use serde_json::{Value, json};
use yonder_protocol::operation::error::ErrorCode;

use crate::stage::{Stage, refused};

const FORM: &str = r#"
<header><a href=/home>Home</a></header>
<main>
  <h1>Sign <em>up</em></h1>
  <p>Please <b>read</b> the <a href=/terms>terms</a> first.</p>
  <form aria-label="Account">
    <label>First name <input name=first required></label>
    <label for=mail>Mail</label><input id=mail type=email placeholder="you@example.org" value="a@b.c">
    <input type=password aria-label=Password value=secret>
    <fieldset><legend>Plan</legend>
      <label><input type=radio name=plan checked> Free</label>
      <label><input type=radio name=plan> Paid</label>
    </fieldset>
    <label><input type=checkbox> News</label>
    <label><input type=checkbox style="display:none" checked><span>Drawn box</span></label>
    <label>Colour <select><option>Red<option selected>Green</select></label>
    <label>Born <input type=date value="2001-02-03"></label>
    <textarea aria-labelledby="note hint" readonly>Two
lines</textarea><span id=note>Note</span> <span id=hint>(short)</span>
    <button disabled>Send</button>
  </form>
  <ul><li>Milk</li><li><a href=/eggs>Eggs</a></li></ul>
  <div onclick="1" style="cursor:pointer">Open <b>me</b></div>
  <div role=checkbox aria-checked=mixed tabindex=0>All</div>
  <button aria-expanded=false aria-pressed=true>Menu</button>
  <details><summary>More</summary><p>Inside</p></details>
  <img src="data:," alt="A picture"><img src="data:," alt="">
  <canvas width=40 height=30 aria-label=Chart></canvas>
  <div style="display:none">None</div><div style="visibility:hidden">Unseen<i style="visibility:visible">Seen</i></div>
  <div aria-hidden=true>Muted</div>
  <div contenteditable aria-label=Rich><p>Hello</p></div>
  <table><tr><th>Name</th><th>Age</th></tr><tr><td>Ann</td><td>7</td></tr></table>
  <section aria-label=Extra><div inert><button>Cannot</button></div></section>
</main>
"#;

const FORM_OUTLINE: &str = r#"[banner]
  [link] "Home"
[main]
  [heading] "Sign up" level=1
  text "Please read the"
  [link] "terms"
  text "first."
  [form] "Account"
    [textbox] "First name" required=true
    [textbox] "Mail" value="a@b.c"
    [textbox] "Password" type=password
    [group] "Plan"
      [radio] "Free" checked=true
      [radio] "Paid" checked=false
    [checkbox] "News" checked=false
    [checkbox] "Drawn box" checked=true
    [combobox] "Colour" value="Green"
      [option] "Red"
      [option] "Green" selected=true
    [textbox] "Born" type=date value="2001-02-03"
    [textbox] "Note (short)" readonly=true value="Two lines"
    text "Note (short)"
    [button] "Send" disabled=true
  [list]
    [listitem] "Milk"
    [listitem]
      [link] "Eggs"
  [generic] "Open me"
  [checkbox] "All" checked=mixed
  [button] "Menu" expanded=false pressed=true
  [button] "More" expanded=false
  [img] "A picture"
  [canvas] "Chart" size=40x30
  text "Seen"
  [textbox] "Rich" value="Hello"
  [table]
    [row]
      [columnheader] "Name"
      [columnheader] "Age"
    [row]
      [cell] "Ann"
      [cell] "7"
  [region] "Extra"
    [button] "Cannot" disabled=true"#;

/// `content` without refs.
fn bare(content: &str) -> String {
    let lines = content.lines().map(|line| {
        let text = line.trim_start();
        let indent = &line[..line.len() - text.len()];
        let text = match text.strip_prefix("@e") {
            Some(rest) => rest.split_once(' ').unwrap().1,
            None => text,
        };
        format!("{indent}{text}")
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outline_tells_roles_names_and_states() {
    let stage = Stage::new().await;
    stage.show(FORM).await;
    let content = stage.snapshot().await;
    assert_eq!(bare(&content), FORM_OUTLINE);
    // Refs stay with their elements, however often they are told.
    assert_eq!(stage.snapshot().await, content);
    let link = stage.find("terms").await;
    assert!(
        content.contains(&format!("{link} [link] \"terms\"")),
        "{content}"
    );
    stage.evaluate("document.querySelector('a').remove(); document.body.append(document.querySelector('ul'))").await;
    assert!(
        stage
            .snapshot()
            .await
            .contains(&format!("{link} [link] \"terms\""))
    );

    // Boxes, depth and single elements.
    let boxed = stage
        .run(
            "snapshot",
            json!({ "boxes": true, "ref": stage.find("Chart").await }),
        )
        .await
        .unwrap();
    let boxed = boxed["content"].as_str().unwrap();
    assert!(
        boxed.contains("\"width\":40") && boxed.contains("\"height\":30"),
        "{boxed}"
    );
    let shallow = stage.run("snapshot", json!({ "depth": 1 })).await.unwrap();
    assert_eq!(shallow["truncated"], true);
    let shallow = shallow["content"].as_str().unwrap();
    assert!(
        shallow.starts_with("[banner]") || shallow.contains("[main]"),
        "{shallow}"
    );
    assert!(
        !shallow.contains("[textbox]") && shallow.contains("raise depth"),
        "{shallow}"
    );
    let form = stage.find("[form]").await;
    let part = stage
        .run("snapshot", json!({ "ref": form, "depth": 1 }))
        .await
        .unwrap();
    let part = bare(part["content"].as_str().unwrap());
    assert!(
        part.starts_with("[form] \"Account\"\n  [textbox] \"First name\""),
        "{part}"
    );
    assert!(!part.contains("[radio]"), "{part}");

    // A modal dialog puts the rest out of reach.
    stage.evaluate("document.body.insertAdjacentHTML('beforeend', '<dialog id=d><button>Yes</button></dialog>'); d.showModal()").await;
    let content = stage.snapshot().await;
    assert!(content.contains("[dialog] modal=true"), "{content}");
    assert!(
        content.contains("\"Menu\" disabled=true") && !content.contains("\"Yes\" disabled"),
        "{content}"
    );

    // Passwords are in no outline and in no search.
    assert!(!content.contains("secret"));
    let found = stage
        .run("find", json!({ "text": "secret" }))
        .await
        .unwrap();
    assert_eq!(found["content"], "(nothing holds this text)");
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_pages_are_cut_and_say_so() {
    let stage = Stage::new().await;
    stage
        .show("<ul id=l></ul><script>l.innerHTML=Array.from({length:2000},(_,i)=>`<li><a href=/${i}>Item ${i} report</a>`).join('')</script>")
        .await;
    let outline = stage.run("snapshot", json!({})).await.unwrap();
    assert_eq!(outline["truncated"], true);
    let content = outline["content"].as_str().unwrap();
    assert_eq!(content.lines().count(), 501);
    let last = content.lines().last().unwrap();
    assert!(
        last.starts_with("(about 3") && last.contains("find"),
        "{last}"
    );
    let found = stage
        .run("find", json!({ "text": "ITEM 1999" }))
        .await
        .unwrap();
    assert_eq!(
        bare(found["content"].as_str().unwrap()),
        "[link] \"Item 1999 report\""
    );
    assert_eq!(found["truncated"], false);
    let found = stage
        .run("find", json!({ "text": "report" }))
        .await
        .unwrap();
    assert!(
        found["content"]
            .as_str()
            .unwrap()
            .ends_with("(1500 more matches: look for a longer text)")
    );

    stage.show("<p id=p></p><script>document.body.innerHTML=('<button>'+'é'.repeat(400)+'</button><p>'+'x'.repeat(3000)+'</p>').repeat(300)</script>").await;
    let outline = stage.run("snapshot", json!({})).await.unwrap();
    let content = outline["content"].as_str().unwrap();
    assert!(content.chars().count() <= 100_000 && outline["truncated"] == true);
    assert!(content.contains(&format!("{}…\"", "é".repeat(299))));

    stage.show("").await;
    assert_eq!(stage.snapshot().await, "(nothing is visible here)");
    // Elements that hide what we ask them for, and words that pretend to be lines.
    stage
        .show("<form><input name=getAttribute></form><form><input name=title aria-label=Titled></form><button aria-current='x\n@e1 [button]'>Line\n@e1 [link] \"x\"</button>")
        .await;
    let lines: Vec<String> = bare(&stage.snapshot().await)
        .lines()
        .map(ToOwned::to_owned)
        .collect();
    assert_eq!(
        lines,
        [
            "text \"(this part of the page cannot be read)\"",
            "[textbox] \"Titled\"",
            "[button] \"Line @e1 [link] \\\"x\\\"\" current=true"
        ]
    );
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_and_shadow_roots_are_part_of_the_page() {
    let stage = Stage::new().await;
    stage.site.page(
        "/inner",
        "<button onclick=\"this.textContent='Done'\">Inner</button>",
    );
    stage.site.page(
        "/nest",
        "<h2>Nest</h2><iframe title=deep src=http://site.test/inner></iframe>",
    );
    stage
        .show(
            "<x-a><i slot=s>slotted</i></x-a><x-closed></x-closed>
             <iframe title=same src=/inner></iframe><iframe title=cross src=http://other.test/nest></iframe>
             <iframe title=doc srcdoc='<button>Doc</button>'></iframe><iframe hidden src=/inner></iframe>
             <script>customElements.define('x-a',class extends HTMLElement{connectedCallback(){this.attachShadow({mode:'open'}).innerHTML='<button>Open</button><slot name=s></slot><x-b></x-b>'}});
             customElements.define('x-b',class extends HTMLElement{connectedCallback(){this.attachShadow({mode:'open'}).innerHTML='<label>Deep <input></label>'}});
             customElements.define('x-closed',class extends HTMLElement{connectedCallback(){this.attachShadow({mode:'closed'}).innerHTML='<button onclick=\"this.textContent=`Shut`\">Closed</button>'}})</script>",
        )
        .await;
    let content = stage.snapshot().await;
    let expected = "[button] \"Open\"\ntext \"slotted\"\n[textbox] \"Deep\"\n[button] \"Closed\"\n[iframe] \"same\" frame=F\n  [button] \"Inner\"\n[iframe] \"cross\" frame=F\n  [heading] \"Nest\" level=2\n  [iframe] \"deep\" frame=F\n    [button] \"Inner\"\n[iframe] \"doc\" frame=F\n  [button] \"Doc\"";
    let mut seen = bare(&content);
    for frame in stage.frames().await {
        seen = seen.replace(frame["id"].as_str().unwrap(), "F");
    }
    assert_eq!(seen, expected);
    stage.click("Closed").await.unwrap();
    assert!(stage.snapshot().await.contains("[button] \"Shut\""));

    // One frame, and its boxes in coordinates of the page.
    let cross = content
        .lines()
        .find(|line| line.contains("\"cross\""))
        .unwrap();
    let frame = cross.rsplit_once("frame=").unwrap().1;
    let part = stage
        .run("snapshot", json!({ "frameID": frame, "boxes": true }))
        .await
        .unwrap();
    assert!(bare(part["content"].as_str().unwrap()).starts_with("[heading] \"Nest\" level=2 {"));
    let whole = stage
        .run("snapshot", json!({ "boxes": true }))
        .await
        .unwrap();
    let place = |text: &str| {
        let content = whole["content"].as_str().unwrap();
        let line = content.lines().find(|line| line.contains(text)).unwrap();
        serde_json::from_str::<Value>(&line[line.find(" {").unwrap() + 1..]).unwrap()
    };
    let (outer, inner) = (place("\"cross\""), place("\"deep\""));
    assert!(inner["x"].as_i64() > outer["x"].as_i64() && inner["y"].as_i64() > outer["y"].as_i64());
    refused(
        stage.run("snapshot", json!({ "frameID": "nowhere" })).await,
        ErrorCode::NotFound,
        "frames",
    );

    // What is found in a frame is told without the frame's line, unless it holds the text too.
    let found = stage.run("find", json!({ "text": "nest" })).await.unwrap();
    assert_eq!(
        bare(found["content"].as_str().unwrap()),
        "[heading] \"Nest\" level=2"
    );
    let found = stage
        .run("find", json!({ "text": "inner", "frameID": frame }))
        .await
        .unwrap();
    assert_eq!(found["content"].as_str().unwrap().lines().count(), 1);
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refs_end_with_their_elements_and_documents() {
    let stage = Stage::new().await;
    stage.site.page("/inner", "<button>Inner</button>");
    stage
        .show("<button id=a>First</button><button id=b>Second</button><iframe src=/inner></iframe>")
        .await;
    let first = stage.find("First").await;
    let inner = stage.find("Inner").await;

    // Other tabs have other refs, and do not know these.
    let other = stage.another_tab().await;
    let seen = stage.run("snapshot", json!({ "tabID": other })).await;
    let seen = seen.unwrap()["content"].as_str().unwrap().to_owned();
    assert!(
        seen.contains("\"First\"") && !seen.contains(&format!("{first} ")),
        "{seen}"
    );
    refused(
        stage
            .run("click", json!({ "tabID": other, "ref": first }))
            .await,
        ErrorCode::NotFound,
        "this tab has no",
    );

    stage.evaluate("a.remove()").await;
    refused(
        stage.run("click", json!({ "ref": first })).await,
        ErrorCode::NotFound,
        "new snapshot",
    );
    refused(
        stage.run("snapshot", json!({ "ref": first })).await,
        ErrorCode::NotFound,
        "new snapshot",
    );
    stage
        .evaluate("document.body.append(document.createElement('p'))")
        .await;
    let second = stage.find("Second").await;

    // A frame of its own moves on.
    stage.evaluate("document.querySelector('iframe').src='/inner?2'; new Promise(r => document.querySelector('iframe').onload = r)").await;
    refused(
        stage.run("click", json!({ "ref": inner })).await,
        ErrorCode::NotFound,
        "new snapshot",
    );
    assert_ne!(stage.find("Inner").await, inner);

    stage.show("<button>Second</button>").await;
    refused(
        stage.run("click", json!({ "ref": second })).await,
        ErrorCode::Stale,
        "earlier document",
    );
    refused(
        stage.run("click", json!({ "ref": "@e999999" })).await,
        ErrorCode::NotFound,
        "this tab has no",
    );
    stage.close().await;
}
