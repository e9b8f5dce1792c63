//! A browser with windows. These tests need a display and pass without one.

use std::env;

use serde_json::json;
use yonder_browser::{Browser, Exit, LaunchError};

use crate::stage::{Site, config, done, until};

#[tokio::test]
async fn a_person_closes_the_last_window() {
    let site = Site::start().await;
    site.page("/", "<p>hello");
    let mut config = config(&site);
    config.headless = false;
    if env::var_os("DISPLAY").is_none() && env::var_os("WAYLAND_DISPLAY").is_none() {
        let error = Browser::launch(config).await.unwrap_err();
        assert!(matches!(error, LaunchError::NoDisplay), "{error}");
        return;
    }
    let browser = Browser::launch(config).await.unwrap();
    let credential = site.admit("default", "secret");
    let session = browser.open_session("default", credential).await.unwrap();
    let open = json!({ "url": "http://site.test/" });
    let first = done(&session, "tabs.open", open.clone(), None)
        .await
        .unwrap();
    let second = done(&session, "tabs.open", open, None).await.unwrap();
    let on = async |tab: &serde_json::Value, name: &str, script: &str| {
        let mut input = json!({ "tabID": tab["id"] });
        if !script.is_empty() {
            input["script"] = json!(script);
        }
        done(&session, name, input, None).await.unwrap()
    };
    for tab in [&first.value, &second.value, &first.value] {
        let shot = on(tab, "screenshot", "").await;
        assert!(shot.files[0].data.starts_with(b"\x89PNG"));
        assert_eq!(
            on(tab, "evaluate", "document.hasFocus()").await.value["value"],
            true
        );
    }
    // An operation that closes the last tab ends nothing: agents may open another one.
    on(&second.value, "tabs.close", "").await;
    on(&first.value, "tabs.close", "").await;
    let third = done(&session, "tabs.open", json!({}), None).await.unwrap();
    // The page closes its own window, as the person's click on the cross does.
    on(&third.value, "evaluate", "setTimeout(close), 0").await;
    assert_eq!(browser.exited().await, Exit::WindowsClosed);
    until("the end of the tab", async || {
        session.state().borrow().tabs.is_empty()
    })
    .await;
    let mut asked = site.take_asked();
    asked.retain(|asked| {
        !asked.target.contains("prime.invalid") && !asked.target.contains("site.test")
    });
    assert!(asked.is_empty(), "{asked:?}");
    browser.close().await;
}
