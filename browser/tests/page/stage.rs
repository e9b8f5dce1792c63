//! A browser with a tab on the test site, and the operations in few words.

use std::time::Duration;

use serde_json::{Value, json};
use yonder_browser::{Browser, BrowserConfig, BrowserSession, Done, GivenFile, ProxyCredential};
use yonder_protocol::operation::Operation;
use yonder_protocol::operation::error::{ErrorCode, OperationError};

use crate::site::Site;

/// A browser, its session, and the tab that operations without another go to.
pub(crate) struct Stage {
    pub(crate) site: Site,
    session: BrowserSession,
    browser: Browser,
    tab: Value,
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
        let tab = session.state().borrow().tabs[0].id.clone();
        Self {
            site,
            session,
            browser,
            tab: json!(tab),
        }
    }

    /// Ends the browser.
    pub(crate) async fn close(self) {
        self.browser.close().await;
    }

    /// Loads `url` in the tab.
    pub(crate) async fn go(&self, url: &str) {
        self.run("navigate", json!({ "url": url })).await.unwrap();
    }

    /// Shows a page with this body.
    pub(crate) async fn show(&self, body: &str) {
        self.site.page("/", body);
        self.go("http://site.test/").await;
    }

    /// Runs an operation on the tab, unless `input` names another.
    pub(crate) async fn run(&self, name: &str, input: Value) -> Result<Value, OperationError> {
        let done = self.run_with_files(name, input).await?;
        Operation::named(name)
            .unwrap()
            .check_output(&done.value)
            .unwrap();
        Ok(done.value)
    }

    /// As [`Self::run`], with the files of the result, which have no path yet.
    pub(crate) async fn run_with_files(
        &self,
        name: &str,
        mut input: Value,
    ) -> Result<Done, OperationError> {
        if input.get("tabID").is_none() && !name.starts_with("tabs.") {
            input["tabID"] = self.tab.clone();
        }
        let operation = Operation::named(name).unwrap();
        self.session.execute(operation.parse(input)?, None).await
    }

    /// Runs an operation that takes `files`, each a name and a content.
    pub(crate) async fn give(
        &self,
        name: &str,
        element: &str,
        files: &[(&str, &str)],
    ) -> Result<Value, OperationError> {
        let paths: Vec<&str> = files.iter().map(|(name, _)| *name).collect();
        let input = json!({ "tabID": self.tab, "ref": element, "paths": paths });
        let request = Operation::named(name)?.parse(input)?;
        let files = files.iter().map(|(name, content)| {
            GivenFile::new((*name).to_owned(), content.as_bytes().to_vec().into())
        });
        let done = self
            .session
            .execute_with(request, None, files.collect())
            .await?;
        Ok(done.value)
    }

    /// A further tab on the site, by its id.
    pub(crate) async fn another_tab(&self) -> Value {
        let opened = self.run("tabs.open", json!({ "url": "http://site.test/" }));
        opened.await.unwrap()["id"].clone()
    }

    /// The outline of the page.
    pub(crate) async fn snapshot(&self) -> String {
        let outline = self.run("snapshot", json!({})).await.unwrap();
        outline["content"].as_str().unwrap().to_owned()
    }

    /// The ref in the first line of the outline that holds `text`.
    pub(crate) async fn find(&self, text: &str) -> String {
        self.find_in(&self.tab, text).await
    }

    /// As [`Self::find`], in another tab.
    pub(crate) async fn find_in(&self, tab: &Value, text: &str) -> String {
        let found = self.run("find", json!({ "tabID": tab, "text": text }));
        let found = found.await.unwrap();
        let content = found["content"].as_str().unwrap();
        let line = content.lines().find(|line| line.starts_with('@'));
        let line = line.unwrap_or_else(|| panic!("no ref for {text:?} in {content}"));
        line.split(' ').next().unwrap().to_owned()
    }

    pub(crate) async fn evaluate(&self, script: &str) -> Value {
        let evaluated = self.run("evaluate", json!({ "script": script })).await;
        evaluated.unwrap()["value"].clone()
    }

    /// Clicks what [`Self::find`] finds.
    pub(crate) async fn click(&self, text: &str) -> Result<Value, OperationError> {
        let element = self.find(text).await;
        self.run("click", json!({ "ref": element })).await
    }

    /// Fills what [`Self::find`] finds.
    pub(crate) async fn fill(&self, text: &str, value: &str) -> Result<Value, OperationError> {
        let element = self.find(text).await;
        self.run("fill", json!({ "ref": element, "text": value }))
            .await
    }

    /// The frames of the tab, the main frame first.
    pub(crate) async fn frames(&self) -> Vec<Value> {
        let frames = self.run("frames", json!({})).await.unwrap();
        frames["frames"].as_array().unwrap().clone()
    }

    /// The message of the open dialog, which is accepted.
    pub(crate) async fn answer(&self) -> String {
        let state = self
            .run("dialog", json!({ "action": "get" }))
            .await
            .unwrap();
        let message = state["dialog"]["message"].as_str().unwrap().to_owned();
        self.run("dialog", json!({ "action": "accept" }))
            .await
            .unwrap();
        message
    }
}

/// Checks that an operation failed as it should.
pub(crate) fn refused(result: Result<Value, OperationError>, code: ErrorCode, words: &str) {
    let error = result.expect_err(words);
    assert!(
        error.code == code && error.message.contains(words),
        "{error:?} has no {words:?}"
    );
}

/// Waits for `work` for no longer than a person would.
pub(crate) async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(8), work)
        .await
        .expect("it hangs")
}
