//! A browser with a tab on the test site.

use std::time::Duration;

use serde_json::{Value, json};
use yonder_browser::{Browser, BrowserConfig, BrowserSession, Done, ProxyCredential};
use yonder_protocol::operation::Operation;
use yonder_protocol::operation::error::{ErrorCode, OperationError};

use crate::site::Site;

pub(crate) struct Stage {
    pub(crate) site: Site,
    session: BrowserSession,
    browser: Browser,
    pub(crate) tab: Value,
}

impl Stage {
    pub(crate) async fn new() -> Self {
        let site = Site::start().await;
        let mut config = BrowserConfig::new(site.address);
        config.headless = true;
        // The tests may run as root, where Chromium has no sandbox.
        config.sandbox = false;
        let browser = Browser::launch(config).await.unwrap();
        let credential = ProxyCredential::new("test", "secret");
        let session = browser.open_session("test", credential).await.unwrap();
        let tab = json!(session.state().borrow().tabs[0].id);
        Self {
            site,
            session,
            browser,
            tab,
        }
    }

    pub(crate) async fn close(self) {
        self.browser.close().await;
    }

    pub(crate) async fn done(&self, name: &str, mut input: Value) -> Result<Done, OperationError> {
        if input.get("tabID").is_none() && !name.starts_with("tabs.") {
            input["tabID"] = self.tab.clone();
        }
        let operation = Operation::named(name).unwrap();
        let done = self.session.execute(operation.parse(input)?, None).await?;
        let mut value = done.value.clone();
        if let Some(files) = value.get_mut("files").and_then(Value::as_array_mut) {
            for file in files {
                file["path"] = json!("/added/by/the/server");
            }
        }
        operation.check_output(&value).unwrap();
        Ok(done)
    }

    pub(crate) async fn run(&self, name: &str, input: Value) -> Value {
        self.done(name, input).await.unwrap().value
    }

    pub(crate) async fn refused(&self, name: &str, input: Value, code: ErrorCode, words: &str) {
        let error = self.done(name, input).await.expect_err(words);
        assert!(
            error.code == code && error.message.contains(words),
            "{error:?} has no {words:?}"
        );
    }

    pub(crate) async fn go(&self, url: &str) {
        self.run("navigate", json!({ "url": url })).await;
    }

    /// Shows a page with this body.
    pub(crate) async fn show(&self, body: &str) {
        self.site.page("/", body);
        self.go("http://site.test/").await;
    }

    pub(crate) async fn evaluate(&self, script: &str) -> Value {
        let evaluated = self.run("evaluate", json!({ "script": script })).await;
        evaluated["value"].clone()
    }

    /// The messages once there is one that holds each of `texts`.
    pub(crate) async fn messages(&self, texts: &[&str]) -> Vec<Value> {
        let has = |list: &[Value], text: &str| {
            list.iter()
                .any(|entry| entry["text"].as_str().unwrap().contains(text))
        };
        let input = json!({ "level": "debug", "limit": 500 });
        self.list("console", "messages", input, |list| {
            texts.iter().all(|text| has(list, text))
        })
        .await
    }

    /// The requests once there is one that is done whose URL ends with each of `urls`.
    pub(crate) async fn requests(&self, urls: &[&str]) -> Vec<Value> {
        let input = json!({ "limit": 500 });
        self.list("network.list", "requests", input, |list| {
            urls.iter().all(|url| {
                list.iter().any(|request| {
                    request["url"].as_str().unwrap().ends_with(url) && request["state"] != "pending"
                })
            })
        })
        .await
    }

    /// What the operation `name` lists as `field` once `enough` holds.
    pub(crate) async fn list(
        &self,
        name: &str,
        field: &str,
        input: Value,
        enough: impl Fn(&[Value]) -> bool,
    ) -> Vec<Value> {
        let mut seen = Vec::new();
        let wait = async {
            loop {
                let answer = self.run(name, input.clone()).await;
                answer[field].as_array().unwrap().clone_into(&mut seen);
                if enough(&seen) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(20), wait).await;
        assert!(waited.is_ok(), "{name} never answered enough: {seen:#?}");
        seen
    }
}

/// The entry whose `field` holds `text`.
pub(crate) fn entry<'a>(list: &'a [Value], field: &str, text: &str) -> &'a Value {
    list.iter()
        .find(|entry| {
            entry[field]
                .as_str()
                .is_some_and(|held| held.contains(text))
        })
        .unwrap_or_else(|| panic!("no {text:?} in {list:#?}"))
}

/// What an answer costs a model, in tokens of four characters.
pub(crate) fn tokens(answer: &Value) -> usize {
    answer.to_string().chars().count() / 4
}
