//! Elements by what they are like.

use serde_json::json;
use yonder_protocol::operation::error::ErrorCode;

use crate::stage::{Stage, refused};

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_finds_its_element() {
    let stage = Stage::new().await;
    stage
        .site
        .page("/inner", "<button data-testid=deep>In a frame</button>");
    stage
        .show(
            r"<button onclick='hit(this)'>Save</button><button onclick='hit(this)'>Save all</button>
              <a href='#x' onclick='hit(this)'>Save</a><label>E-mail<input id=mail></label>
              <input placeholder='Search here' id=search><p><span>Some <b>bold</b> words</span></p>
              <button hidden data-testid=go>Hidden</button><button data-testid=go onclick='hit(this)'>Seen</button>
              <input type=submit value='Send it' onclick='hit(this); return false'>
              <x-open></x-open><x-shut></x-shut><iframe src=/inner></iframe>
              <script>
                let last = null; const hit = el => { last = el.textContent || el.value; };
                customElements.define('x-open', class extends HTMLElement { constructor() { super();
                  this.attachShadow({ mode: 'open' }).innerHTML = '<button>Open shade</button>';
                  this.shadowRoot.firstChild.onclick = e => hit(e.target); } });
                customElements.define('x-shut', class extends HTMLElement { constructor() { super();
                  const root = this.attachShadow({ mode: 'closed' }); root.innerHTML = '<button>Shut shade</button>';
                  root.firstChild.onclick = e => hit(e.target); } });
              </script>",
        )
        .await;
    for (locator, expected) in [
        ("role=button[name=\"Save\"]", "Save"),
        ("role=link", "Save"),
        ("text=save ALL", "Save all"),
        ("testid=go", "Seen"),
        ("text=Send it", "Send it"),
        ("text=Open shade", "Open shade"),
        ("text=\"Shut shade\"", "Shut shade"),
    ] {
        stage.run("click", json!({ "ref": locator })).await.unwrap();
        assert_eq!(stage.evaluate("last").await, expected, "{locator}");
    }
    stage
        .run("click", json!({ "ref": "testid=deep" }))
        .await
        .unwrap();
    stage
        .run("fill", json!({ "ref": "label=mail", "text": "a@b" }))
        .await
        .unwrap();
    stage
        .run("fill", json!({ "ref": "placeholder=search", "text": "x" }))
        .await
        .unwrap();
    assert_eq!(
        stage.evaluate("[mail.value, search.value]").await,
        json!(["a@b", "x"])
    );
    stage
        .run("hover", json!({ "ref": "text=bold" }))
        .await
        .unwrap();
    let outline = stage
        .run("snapshot", json!({ "ref": "css=p" }))
        .await
        .unwrap();
    assert!(
        outline["content"]
            .as_str()
            .unwrap()
            .contains("Some bold words"),
        "{outline}"
    );
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_none_and_nonsense_are_told_apart() {
    let stage = Stage::new().await;
    stage
        .show("<button>Save</button><button>Save all</button><script>setTimeout(() => document.body.insertAdjacentHTML('beforeend', '<button id=late>Late</button>'), 400)</script>")
        .await;
    let click = async |locator: &str| stage.run("click", json!({ "ref": locator })).await;
    // Waited for.
    click("css=#late").await.unwrap();
    let several = click("text=Save").await;
    let refs = several.as_ref().unwrap_err().message.clone();
    refused(several, ErrorCode::Invalid, "fits 2 elements");
    let first = refs.split(' ').find(|word| word.starts_with("@e")).unwrap();
    click(first).await.unwrap();
    refused(click("role=link").await, ErrorCode::NotFound, "role=link");
    refused(click("css=a[").await, ErrorCode::Invalid, "not a selector");
    refused(click("id=late").await, ErrorCode::Invalid, "css=SELECTOR");
    stage.close().await;
}
