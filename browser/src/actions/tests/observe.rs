use super::*;

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
}

#[tokio::test(flavor = "multi_thread")]
async fn long_pages_are_cut_and_say_so() {
    let stage = Stage::new().await;
    stage
        .show("<ul id=l></ul><script>for(let i=0;i<2000;i++)l.insertAdjacentHTML('beforeend',`<li><a href=/${i}>Item ${i} report</a>`)</script>")
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

    stage.show("<p id=p></p><script>for(let i=0;i<300;i++)document.body.insertAdjacentHTML('beforeend','<button>'+'é'.repeat(400)+'</button><p>'+'x'.repeat(3000)+'</p>')</script>").await;
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
    let frames: Vec<String> = stage
        .tab
        .frames()
        .into_iter()
        .map(|frame| frame.id)
        .collect();
    for frame in &frames {
        seen = seen.replace(frame.as_str(), "F");
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
    let (other, _tracker) = open(&stage.root).await;
    let before = other.view().borrow().commits;
    let _: Ack = other
        .session()
        .call("Page.navigate", json!({ "url": "http://site.test/" }))
        .await
        .unwrap();
    other
        .view()
        .wait_for(|view| view.commits != before && view.loaded && !view.loading)
        .await
        .unwrap();
    let seen = run_on(&other, "snapshot", json!({})).await.unwrap();
    let seen = seen["content"].as_str().unwrap();
    assert!(
        seen.contains("\"First\"") && !seen.contains(&format!("{first} ")),
        "{seen}"
    );
    refused(
        run_on(&other, "click", json!({ "ref": first })).await,
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
}

/// Roles in which our outline and the browser's accessibility tree use the same words, or these.
const SAME: &[(&str, &str)] = &[
    ("image", "img"),
    ("Canvas", "canvas"),
    ("Date", "textbox"),
    ("DateTime", "textbox"),
    ("InputTime", "textbox"),
    ("ColorWell", "button"),
    ("DisclosureTriangle", "button"),
    ("Iframe", "iframe"),
];
const COMPARED: &[&str] = &[
    "button",
    "canvas",
    "checkbox",
    "columnheader",
    "combobox",
    "complementary",
    "contentinfo",
    "banner",
    "form",
    "heading",
    "iframe",
    "img",
    "link",
    "list",
    "listbox",
    "main",
    "menu",
    "menuitem",
    "navigation",
    "option",
    "progressbar",
    "radio",
    "region",
    "search",
    "searchbox",
    "slider",
    "spinbutton",
    "switch",
    "tab",
    "table",
    "tablist",
    "tabpanel",
    "textbox",
    "tree",
    "treeitem",
    "toolbar",
];

const NAMES: &str = r#"
<header>Top</header><nav aria-label="Main menu"><a href=/a>Plain</a> <a href=/b><b>Bold</b> and <i>italic</i></a>
<a href=/c><img src="data:," alt="Logo"> Home</a><a href=/d aria-label="Spoken">Shown</a><a href=/e title="Tip"></a></nav>
<main><h1>Title <small>sub</small></h1><h2 aria-label="Other">Real</h2><div role=heading aria-level=3>Drawn</div>
<button>Go <span hidden>not</span><span aria-hidden=true>nor</span></button><button aria-labelledby="x y">Z</button><span id=x>One</span><span id=y hidden>Two</span>
<button title=Tooltip><svg width=10 height=10></svg></button><input type=submit><input type=reset><input type=button value=Own><input type=image alt=Picture src="data:,">
<input type=search aria-label=Seek><input type=number title=Amount><label>Wrapped <input></label><label for=q>For</label><input id=q>
<input placeholder=Hint><textarea aria-label=Area></textarea><label><input type=checkbox>Tick <a href=/f>more</a></label>
<label>Range <input type=range></label><div role=switch aria-checked=true tabindex=0>Toggle</div><div role=slider aria-label=Knob tabindex=0 aria-valuenow=3></div>
<div role=tablist><div role=tab aria-selected=true tabindex=0>First</div><div role=tab>Second</div></div><div role=tabpanel aria-label=Panel>Body</div>
<ul role=tree aria-label=Files><li role=treeitem>src<ul role=group><li role=treeitem>main</li></ul></li></ul>
<div role=menu aria-label=Edit><div role=menuitem tabindex=-1>Cut</div><div role=menuitem>Paste <kbd>V</kbd></div></div>
<select aria-label=Pick><option>One<option label=Two>2</select><select aria-label=Many multiple><option>A<option>B</select>
<table><caption>Numbers</caption><tr><th>Head<th scope=col>Other<tr><td>1<td>2</table>
<img src="data:," alt="Cat"><svg role=img aria-label=Drawing width=9 height=9></svg><svg width=9 height=9><title>Star</title><circle r=4 /></svg>
<progress aria-label=Load value=.5></progress><div role=button tabindex=0><p>Two</p><p>blocks</p></div>
<div role=toolbar aria-label=Tools><button aria-label="Bold"></button></div><section aria-labelledby=s1><h2 id=s1>Part</h2></section>
<form aria-label=Entry><fieldset><legend>Group</legend><input aria-label=Inside></fieldset></form>
<details><summary>Reveal</summary>x</details><iframe title=Frame srcdoc="x" ></iframe><canvas aria-label=Plot></canvas>
<p style="display:none"><button>Gone</button></p><div style="visibility:hidden"><button>Unseen</button></div><div aria-hidden=true><button>Muted</button></div>
<button>Line<br>break</button><button>a<span style="display:block">b</span>c</button><button><img src="data:," alt="Alt">text</button>
<label>Every <input type=number value=3 aria-label=days> days <input></label>
</main><aside>Side</aside><footer>End</footer>"#;

#[tokio::test(flavor = "multi_thread")]
async fn roles_and_names_agree_with_the_browser() {
    #[derive(serde::Deserialize)]
    struct Tree {
        nodes: Vec<Node>,
    }
    #[derive(serde::Deserialize)]
    struct Node {
        ignored: bool,
        role: Option<Worded>,
        name: Option<Worded>,
    }
    #[derive(serde::Deserialize)]
    struct Worded {
        value: Value,
    }
    let stage = Stage::new().await;
    stage.show(NAMES).await;
    let tree: Tree = stage
        .tab
        .session()
        .call("Accessibility.getFullAXTree", json!({}))
        .await
        .unwrap();
    let mut theirs: Vec<(String, String)> = tree
        .nodes
        .into_iter()
        .filter(|node| !node.ignored)
        .filter_map(|node| {
            let role = node.role?.value.as_str()?.to_owned();
            let role = SAME
                .iter()
                .find(|(name, _)| *name == role)
                .map_or(role, |(_, ours)| (*ours).to_owned());
            let name = node
                .name
                .and_then(|name| Some(name.value.as_str()?.trim().to_owned()));
            let name = name.unwrap_or_default();
            // Pictures in a link or button are told as part of its name only, and nameless ones not at all.
            let told = role != "img" || !["", "Logo", "Alt"].contains(&&*name);
            (told && COMPARED.contains(&role.as_str())).then_some((role, name))
        })
        .collect();
    let content = stage.run("snapshot", json!({ "depth": 20 })).await.unwrap();
    let content = bare(content["content"].as_str().unwrap());
    let ours: Vec<(String, String)> = content
        .lines()
        .filter_map(|line| {
            let (role, rest) = line.trim().strip_prefix('[')?.split_once(']')?;
            let mut name =
                serde_json::Deserializer::from_str(rest.trim_start()).into_iter::<String>();
            let name = name.next().and_then(Result::ok).unwrap_or_default();
            COMPARED.contains(&role).then(|| (role.to_owned(), name))
        })
        .collect();
    let total = theirs.len().max(ours.len());
    let mut differ = Vec::new();
    for node in ours {
        let exact = theirs.iter().position(|other| *other == node);
        // A nameless part that holds nothing but a text is told with it.
        let nameless = (node.0.clone(), String::new());
        match exact.or_else(|| theirs.iter().position(|other| *other == nameless)) {
            Some(at) => drop(theirs.swap_remove(at)),
            None => differ.push(node),
        }
    }
    let same = total - differ.len().max(theirs.len());
    println!("{same} of {total} agree; only ours: {differ:?}; only theirs: {theirs:?}");
    assert!(
        same * 100 >= total * 99,
        "only ours: {differ:?}; only theirs: {theirs:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn boxes_of_elements_are_on_the_page() {
    let stage = Stage::new().await;
    stage.site.page("/inner", "<body style='margin:0'><div style='height:900px'></div><button id=b style='position:absolute;left:20px;top:900px;width:50px;height:40px'>Inner</button>");
    stage.show("<body style='margin:0'><div style='height:2000px'></div><iframe style='position:absolute;left:100px;top:2000px;border:10px solid' src=http://other.test/inner></iframe><button style='position:absolute;left:5px;top:3000px;width:60px;height:30px'>Outer</button>").await;
    let name = |text: String| yonder_protocol::operation::scalar::Ref::try_from(text).unwrap();
    let outer = stage.find("Outer").await;
    let rect = crate::page::element_rect(&stage.tab, name(outer))
        .await
        .unwrap();
    assert_eq!(
        (rect.x, rect.y, rect.width, rect.height),
        (5.0, 3000.0, 60.0, 30.0)
    );
    let inner = stage.find("Inner").await;
    let rect = crate::page::element_rect(&stage.tab, name(inner))
        .await
        .unwrap();
    // The frame is 150 high and scrolled so that the button is just in sight.
    assert_eq!(
        [rect.x, rect.width, rect.height].map(f64::round),
        [130.0, 50.0, 40.0]
    );
    assert!((2010.0..2160.0).contains(&rect.y), "{rect:?}");
}
