//! What is tested from inside: limits too long for a test, the browser's own view of a page, and what
//! other modules ask of elements. The operations as callers see them are in `tests/page.rs`.

#[path = "../../tests/common/site.rs"]
mod site;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use yonder_protocol::operation::error::ErrorCode;
use yonder_protocol::operation::scalar::Ref;
use yonder_protocol::operation::types::{Click, Find, Press, Snapshot};

use self::site::Site;
use super::click::click_within;
use super::evaluate::evaluate_within;
use super::press::press_within;
use crate::browser::Browser;
use crate::launch::BrowserConfig;
use crate::page::element_rect;
use crate::prime::ProxyCredential;
use crate::tab::Tab;

/// A browser with a tab on the test site.
struct Stage {
    site: Site,
    browser: Browser,
    tab: Arc<Tab>,
}

impl Stage {
    async fn new() -> Self {
        let site = Site::start().await;
        let mut config = BrowserConfig::new(site.address);
        config.headless = true;
        // The tests may run as root, where Chromium has no sandbox.
        config.sandbox = false;
        let browser = Browser::launch(config).await.unwrap();
        let credential = ProxyCredential::new("test", "secret");
        let session = browser.open_session("test", credential).await.unwrap();
        let tab = session.tabs().remove(0);
        Self { site, browser, tab }
    }

    async fn show(&self, body: &str) {
        self.site.page("/", body);
        let url = "http://site.test/";
        crate::navigation::navigate(&self.tab, url, None)
            .await
            .unwrap();
    }

    async fn snapshot(&self) -> String {
        let input = json!({ "tabID": self.tab.id(), "depth": 20 });
        let input: Snapshot = serde_json::from_value(input).unwrap();
        super::snapshot(&self.tab, &input)
            .await
            .unwrap()
            .content
            .to_string()
    }

    async fn find(&self, text: &str) -> Ref {
        let input = json!({ "tabID": self.tab.id(), "text": text });
        let input: Find = serde_json::from_value(input).unwrap();
        let found = super::find(&self.tab, &input)
            .await
            .unwrap()
            .content
            .to_string();
        let name = found.split(' ').next().unwrap().to_owned();
        Ref::try_from(name).unwrap()
    }

    async fn evaluate(&self, script: &str) -> Value {
        let frame = self.tab.frame(None).unwrap();
        let limit = Duration::from_secs(20);
        evaluate_within(&self.tab, &frame, script, limit)
            .await
            .unwrap()
    }
}

/// Waits for `work` for no longer than it may take on a loaded machine.
async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(15), work)
        .await
        .expect("it hangs")
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
        let limit = Duration::from_millis(400);
        let ended = soon(evaluate_within(&stage.tab, &frame, script, limit)).await;
        let error = ended.unwrap_err();
        assert_eq!(error.code, ErrorCode::Timeout, "{script}: {error}");
        assert_eq!(stage.evaluate("1+1").await, 2, "{script}");
        assert!(stage.snapshot().await.contains("Here"));
    }
    // Nobody waits any more: the browser ends the loop by itself.
    let limit = Duration::from_secs(2);
    let abandoned = evaluate_within(&stage.tab, &frame, "for (;;) {}", limit);
    let soon_over = tokio::time::timeout(Duration::from_millis(200), abandoned);
    assert!(soon_over.await.is_err());
    assert_eq!(soon(stage.evaluate("2+2")).await, 4);
    stage.browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn handlers_that_do_not_end_are_ended() {
    let stage = Stage::new().await;
    stage
        .show("<button onclick='for (;;) {}'>Hang</button><script>addEventListener('keydown', e => { while (e.key === 'F3'); })</script>")
        .await;
    let limit = Duration::from_secs(2);
    let input = json!({ "tabID": stage.tab.id(), "ref": stage.find("Hang").await });
    let input: Click = serde_json::from_value(input).unwrap();
    let error = soon(click_within(&stage.tab, &input, limit))
        .await
        .unwrap_err();
    assert!(
        error.code == ErrorCode::Timeout && error.message.contains("was ended"),
        "{error:?}"
    );
    assert_eq!(stage.evaluate("1+1").await, 2);
    let input = json!({ "tabID": stage.tab.id(), "key": "F3" });
    let input: Press = serde_json::from_value(input).unwrap();
    let error = soon(press_within(&stage.tab, &input, limit))
        .await
        .unwrap_err();
    assert!(error.message.contains("was ended"), "{error:?}");
    assert_eq!(stage.evaluate("2+2").await, 4);
    stage.browser.close().await;
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
    let content = stage.snapshot().await;
    let ours: Vec<(String, String)> = content
        .lines()
        .filter_map(|line| {
            let line = line.trim();
            let line = match line.strip_prefix("@e") {
                Some(rest) => rest.split_once(' ')?.1,
                None => line,
            };
            let (role, rest) = line.strip_prefix('[')?.split_once(']')?;
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
    stage.browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn boxes_of_elements_are_on_the_page() {
    let stage = Stage::new().await;
    stage.site.page("/inner", "<body style='margin:0'><div style='height:900px'></div><button id=b style='position:absolute;left:20px;top:900px;width:50px;height:40px'>Inner</button>");
    stage.show("<body style='margin:0'><div style='height:2000px'></div><iframe style='position:absolute;left:100px;top:2000px;border:10px solid' src=http://other.test/inner></iframe><button style='position:absolute;left:5px;top:3000px;width:60px;height:30px'>Outer</button>").await;
    let outer = stage.find("Outer").await;
    let rect = element_rect(&stage.tab, &outer.into()).await.unwrap();
    assert_eq!(
        (rect.x, rect.y, rect.width, rect.height),
        (5.0, 3000.0, 60.0, 30.0)
    );
    let inner = stage.find("Inner").await;
    let rect = element_rect(&stage.tab, &inner.into()).await.unwrap();
    // The frame is 150 high and scrolled so that the button is just in sight.
    assert!(
        [rect.x - 130.0, rect.width - 50.0, rect.height - 40.0]
            .iter()
            .all(|off| off.abs() < 0.01),
        "{rect:?}"
    );
    assert!((2010.0..2160.0).contains(&rect.y), "{rect:?}");
    stage.browser.close().await;
}
