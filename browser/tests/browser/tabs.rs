//! Sessions, their credential, and the coming and going of tabs.

use crate::stage::{Stage, done, refused, until};
use serde_json::json;
use yonder_protocol::operation::error::ErrorCode;

#[tokio::test]
async fn a_session_opens_focuses_and_closes_tabs_behind_its_credential() {
    let stage = Stage::new().await;
    let site = &stage.site;
    assert!(stage.browser.version().contains('/'));
    let first = stage.first();
    let primed = site.take_asked();
    let asked: Vec<_> = primed
        .iter()
        .map(|asked| (asked.target.as_str(), asked.authorized))
        .collect();
    assert_eq!(
        asked,
        [
            ("http://prime.invalid/", false),
            ("http://prime.invalid/", true)
        ]
    );

    site.page(
        "/",
        "<script src=/s.js></script><img src=/i.png><iframe src=http://other.test/frame></iframe>",
    );
    site.page("/frame", "<script>fetch('/data')</script>");
    site.answer(
        "/s.js",
        200,
        "Content-Type: text/javascript\r\n",
        b"new Worker('/w.js'); new SharedWorker('/shared.js'); navigator.serviceWorker.register('/sw.js')",
    );
    site.answer(
        "/w.js",
        200,
        "Content-Type: text/javascript\r\n",
        b"fetch('/from-worker')",
    );
    site.answer(
        "/shared.js",
        200,
        "Content-Type: text/javascript\r\n",
        b"fetch('/from-shared')",
    );
    site.answer(
        "/sw.js",
        200,
        "Content-Type: text/javascript\r\n",
        b"fetch('/from-service')",
    );
    // The untouched first tab is used before another one is opened.
    let opened = stage
        .run("tabs.open", json!({ "url": "localhost:8000" }))
        .await
        .unwrap();
    assert_eq!(opened["id"], first.as_str());
    assert_eq!(opened["url"], "http://localhost:8000/");
    assert_eq!(opened["title"], "/");
    assert_eq!(opened["loading"], false);
    assert_eq!(opened["canGoBack"], false);
    assert_eq!(opened["generation"], 1);
    let mut seen = Vec::new();
    until("the page's requests", async || {
        seen.extend(site.take_asked());
        [
            "/from-worker",
            "/from-shared",
            "/from-service",
            "/data",
            "/i.png",
        ]
        .iter()
        .all(|end| seen.iter().any(|asked| asked.target.ends_with(end)))
    })
    .await;
    for asked in &seen {
        assert!(asked.authorized, "{asked:?}");
        assert!(!asked.target.contains("prime.invalid"), "{asked:?}");
    }

    // A second tab, not focused.
    let second = stage
        .run(
            "tabs.open",
            json!({ "url": "http://site.test/", "focus": false }),
        )
        .await
        .unwrap();
    let second = second["id"].as_str().unwrap();
    let list = stage.run("tabs.list", json!({})).await.unwrap();
    assert_eq!(list["tabs"].as_array().unwrap().len(), 2);
    assert_eq!(list["focusedTabID"], first.as_str());
    stage.on(second, "tabs.focus", json!({})).await.unwrap();
    assert_eq!(
        stage
            .session
            .state()
            .borrow()
            .focused_tab_id
            .as_ref()
            .unwrap()
            .as_str(),
        second
    );
    // Every tab has a window of its own.
    for tab in [&*first, second] {
        assert_eq!(
            stage.script(tab, "document.visibilityState").await,
            "visible"
        );
    }

    // A popup becomes a tab and gets the focus.
    stage
        .script(&first, "void open('http://site.test/frame')")
        .await;
    until("the popup", async || {
        let state = stage.session.state().borrow().clone();
        state.tabs.len() == 3
            && state.tabs[2].url == "http://site.test/frame"
            && !state.tabs[2].loading
            && state.focused_tab_id.as_ref() == Some(&state.tabs[2].id)
    })
    .await;
    let popup = stage.session.state().borrow().tabs[2].id.to_string();
    stage.script(&popup, "1 + 1").await;

    // Closed by an operation, and by the page itself.
    let left = stage.on(&popup, "tabs.close", json!({})).await.unwrap();
    assert_eq!(left["tabs"].as_array().unwrap().len(), 2);
    assert_eq!(left["focusedTabID"], first.as_str());
    refused(
        stage.on(&popup, "tabs.close", json!({})).await,
        ErrorCode::TabUnavailable,
        &["tabs.list"],
    );
    stage.script(&first, "window.child = open('/'), 0").await;
    until("the child", async || {
        stage.session.state().borrow().tabs.len() == 3
    })
    .await;
    stage.script(&first, "child.close(), 0").await;
    until("its end", async || {
        stage.session.state().borrow().tabs.len() == 2
    })
    .await;

    // What an address may not be is told before anything is opened.
    refused(
        stage
            .run("tabs.open", json!({ "url": "file:///etc/hostname" }))
            .await,
        ErrorCode::Invalid,
        &["http", "about:blank"],
    );
    let blank = stage.run("tabs.open", json!({})).await.unwrap();
    assert_eq!(blank["url"], "about:blank");
    assert_eq!(stage.session.state().borrow().tabs.len(), 3);

    // Another session shares nothing, not even the credential's name.
    let credential = site.admit("other", "password");
    let other = stage
        .browser
        .open_session("other", credential)
        .await
        .unwrap();
    stage.script(second, "document.cookie = 'a=1'").await;
    let tab = done(
        &other,
        "tabs.open",
        json!({ "url": "http://site.test/" }),
        None,
    )
    .await
    .unwrap();
    let read = json!({ "tabID": tab.value["id"], "script": "document.cookie" });
    let cookie = done(&other, "evaluate", read, None).await.unwrap();
    assert_eq!(cookie.value["value"], "");
    assert_eq!(stage.session.state().borrow().tabs.len(), 3);

    // A lost credential is given again without touching a tab.
    site.take_asked();
    stage.session.prime_again().await;
    let asked = site.take_asked();
    assert!(
        asked
            .iter()
            .all(|asked| asked.target == "http://prime.invalid/")
            && !asked.is_empty()
    );
    assert_eq!(stage.session.state().borrow().tabs.len(), 3);

    // With all tabs closed the session goes on.
    let state = stage.session.state().borrow().clone();
    for tab in state.tabs {
        stage
            .on(tab.id.as_str(), "tabs.close", json!({}))
            .await
            .unwrap();
    }
    stage.session.prime_again().await;
    let again = stage
        .run("tabs.open", json!({ "url": "http://site.test/" }))
        .await
        .unwrap();
    assert_eq!(again["title"], "/");
    other.close().await;
    stage.session.close().await;
    stage.browser.close().await;
}

#[tokio::test]
async fn a_link_to_a_new_tab_loads_there_without_an_opener() {
    let stage = Stage::new().await;
    let first = &*stage.first();
    stage.site.page(
        "/a",
        "<a id=plain href=/b target=_blank>plain</a>
         <a id=opener href=/b target=_blank rel=opener>with an opener</a>",
    );
    stage
        .site
        .page("/b", "<script>console.log(String(opener))</script>");
    stage.go(first, "http://localhost/a").await.unwrap();
    for (at, (locator, logged)) in [("css=#plain", "null"), ("css=#opener", "[object Window]")]
        .into_iter()
        .enumerate()
    {
        let clicked = stage.on(first, "click", json!({ "ref": locator })).await;
        clicked.unwrap();
        until("the tab loads", async || {
            let tabs = stage.session.state().borrow().tabs.clone();
            tabs.get(at + 1)
                .is_some_and(|tab| tab.url == "http://localhost/b" && !tab.loading)
        })
        .await;
        let tab = stage.session.state().borrow().tabs[at + 1].clone();
        assert_eq!(tab.opener_id.unwrap().as_str(), first);
        // It was watched from its beginning.
        let tab = tab.id.to_string();
        until("what the page logged", async || {
            let console = stage.on(&tab, "console", json!({})).await.unwrap();
            console["messages"][0]["text"] == logged
        })
        .await;
        let network = stage.on(&tab, "network.list", json!({})).await.unwrap();
        assert_eq!(network["requests"][0]["url"], "http://localhost/b");
    }
    stage.browser.close().await;
}
