//! Moving a tab from document to document, and waiting until it has arrived.
//!
//! A page that crashes or is closed meanwhile ends these waits from outside, see `execute`.

pub(crate) mod address;
pub(crate) mod failure;

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use yonder_protocol::operation::error::{ErrorCode, OperationError};
use yonder_protocol::operation::types;
use yonder_protocol::target::{Target, TunnelError};

use crate::actions::{failed, kept_by};
use crate::cdp::{Ack, CdpError, NoParams, Session};
use crate::tab::{Tab, View};

/// From the command to the end of loading.
const LOAD_LIMIT: Duration = Duration::from_secs(30);

/// How long after its `load` event a page may go on loading before the operation answers nevertheless.
const QUIET_LIMIT: Duration = Duration::from_secs(1);

/// How long a change within the document may take to be reported. It happens in any case.
const FRAGMENT_LIMIT: Duration = Duration::from_secs(2);

/// How long the browser's own page about a failure may take to appear. The failure is told anyway.
const ERROR_PAGE_LIMIT: Duration = Duration::from_secs(2);

/// A history navigation is over for the loader up to this much before the document is announced.
const COMMIT_GRACE: Duration = Duration::from_secs(1);

/// What Chromium answers while it is between two documents, for some milliseconds, and when to ask again.
const NOT_YET: &str = "Not attached to an active page";
const NOT_YET_PAUSE: Duration = Duration::from_millis(50);

/// How long an error page may take to tell its error's name.
const ERROR_NAME_LIMIT: Duration = Duration::from_secs(2);

/// Tells why the last attempt to reach a target failed, if it did.
pub type FailureLookup = dyn Fn(&Target) -> Option<TunnelError> + Send + Sync;

/// A step through the tab's history.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Step {
    Back,
    Forward,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Navigated {
    loader_id: Option<String>,
    error_text: Option<String>,
    #[serde(default)]
    is_download: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct History {
    current_index: usize,
    entries: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    id: i64,
}

#[derive(Deserialize)]
struct Evaluated {
    result: Evaluation,
}

#[derive(Deserialize)]
struct Evaluation {
    #[serde(default)]
    value: serde_json::Value,
}

/// Loads `url`, which is [normalised](address::normalise), and waits until the page has loaded.
///
/// # Errors
/// [`ErrorCode::NavigationFailed`] with the cause, [`ErrorCode::Timeout`] if loading takes more than 30 s
/// (it goes on), [`ErrorCode::DialogOpen`] if the page asks before it is left.
pub(crate) async fn navigate(
    tab: &Tab,
    url: &str,
    lookup: Option<&FailureLookup>,
) -> Result<types::Tab, OperationError> {
    let deadline = Instant::now() + LOAD_LIMIT;
    let mut view = tab.view();
    let before = view.borrow().commits;
    let call =
        tab.session()
            .call_within::<Navigated>(LOAD_LIMIT, "Page.navigate", json!({ "url": url }));
    let navigated = tokio::select! {
        // An answer that is there counts, even if the new page opened a dialog at once.
        biased;
        navigated = call => navigated,
        dialog = tab.dialog_opened() => return Err(kept_by(&dialog)),
    };
    let navigated = navigated.map_err(|error| match error {
        CdpError::TimedOut { .. } => slow(url),
        CdpError::Refused { message, .. } => OperationError::new(
            ErrorCode::NavigationFailed,
            format!("the browser refuses to open {url}: {message}"),
        ),
        error => failed(tab, error),
    })?;
    let arrived = |view: &View| {
        view.dialog.is_some()
            || (navigated.loader_id.as_ref() == Some(&view.loader) && view.loaded)
            // Another document took the place of ours: a script moved on.
            || (view.commits > before
                && navigated.loader_id.as_ref() != Some(&view.loader)
                && !view.loading)
    };
    match (&navigated.error_text, &navigated.loader_id) {
        (Some(error), _) => {
            return Err(not_loaded(tab, url, error, &navigated, before, lookup).await);
        }
        // The document stays and only the fragment of its address changes. The renderer tells when it has
        // done so, before or after the answer of the browser process.
        (None, None) => {
            let changed = view.wait_for(|view| view.commits > before || view.dialog.is_some());
            let _ = timeout_at(Instant::now() + FRAGMENT_LIMIT, changed).await;
        }
        (None, Some(_)) => {
            let loaded = timeout_at(deadline, view.wait_for(arrived)).await;
            loaded.map_err(|_| slow(url))?.map_err(|_| ended(tab))?;
            quiet(&mut view).await;
        }
    }
    finish(tab, lookup).await
}

/// Goes one step through the history and waits until the page is there; does nothing at its end.
///
/// # Errors
/// As [`navigate`].
pub(crate) async fn step(
    tab: &Tab,
    step: Step,
    lookup: Option<&FailureLookup>,
) -> Result<types::Tab, OperationError> {
    let history: History = tab
        .session()
        .call("Page.getNavigationHistory", NoParams {})
        .await
        .map_err(|error| failed(tab, error))?;
    let index = match step {
        Step::Back => history.current_index.checked_sub(1),
        Step::Forward => history.current_index.checked_add(1),
    };
    let Some(entry) = index.and_then(|index| history.entries.get(index)) else {
        return Ok(tab.summary());
    };
    move_by(
        tab,
        "Page.navigateToHistoryEntry",
        json!({ "entryId": entry.id }),
        lookup,
    )
    .await
}

/// Loads the page again and waits until it has loaded; revives a crashed one.
///
/// # Errors
/// As [`navigate`].
pub(crate) async fn reload(
    tab: &Tab,
    lookup: Option<&FailureLookup>,
) -> Result<types::Tab, OperationError> {
    move_by(tab, "Page.reload", json!({}), lookup).await
}

/// Ends loading, without waiting for anything that the page does about it.
///
/// # Errors
/// If the tab is gone.
pub(crate) async fn stop(tab: &Tab) -> Result<types::Tab, OperationError> {
    tab.session()
        .call::<Ack>("Page.stopLoading", NoParams {})
        .await
        .map_err(|error| failed(tab, error))?;
    tab.caught_up().await;
    Ok(tab.summary())
}

async fn move_by(
    tab: &Tab,
    method: &'static str,
    params: serde_json::Value,
    lookup: Option<&FailureLookup>,
) -> Result<types::Tab, OperationError> {
    let deadline = Instant::now() + LOAD_LIMIT;
    let mut view = tab.view();
    let (starts, commits) = {
        let view = view.borrow();
        (view.starts, view.commits)
    };
    let start = async {
        loop {
            let call = tab
                .session()
                .call_within::<Ack>(LOAD_LIMIT, method, &params);
            match call.await {
                Err(CdpError::Refused { message, .. })
                    if message == NOT_YET && Instant::now() < deadline =>
                {
                    tokio::time::sleep(NOT_YET_PAUSE).await;
                }
                answer => return answer,
            }
        }
    };
    let moved = tokio::select! {
        biased;
        moved = start => moved,
        dialog = tab.dialog_opened() => return Err(kept_by(&dialog)),
    };
    moved.map_err(|error| failed(tab, error))?;
    let slow = || slow(&tab.summary().url);
    let interrupted = |view: &View| view.dialog.is_some();
    let loaded = view.wait_for(|view| {
        interrupted(view) || ((view.commits > commits || view.starts > starts) && !view.loading)
    });
    let committed = timeout_at(deadline, loaded)
        .await
        .map_err(|_| slow())?
        .map_err(|_| ended(tab))?
        .commits
        > commits;
    if !committed {
        let grace = Instant::now() + COMMIT_GRACE;
        let late = view.wait_for(|view| interrupted(view) || view.commits > commits);
        // Without a document there was an answer without one, such as a download: the tab stays as it was.
        let _ = timeout_at(grace.min(deadline), late).await;
    }
    if let Some(dialog) = tab.dialog()
        && tab.view().borrow().commits == commits
    {
        return Err(kept_by(&dialog));
    }
    let arrived = view.wait_for(|view| interrupted(view) || !view.loading);
    timeout_at(deadline, arrived)
        .await
        .map_err(|_| slow())?
        .map_err(|_| ended(tab))?;
    finish(tab, lookup).await
}

/// Waits a moment for the browser to agree that a loaded page is no longer loading.
async fn quiet(view: &mut watch::Receiver<View>) {
    let still = view.wait_for(|view| !view.loading || view.dialog.is_some());
    // A page that goes on loading for ever is answered as loading.
    let _ = timeout_at(Instant::now() + QUIET_LIMIT, still).await;
}

/// The answer of an operation whose page is there, unless the page is one about a failure.
async fn finish(tab: &Tab, lookup: Option<&FailureLookup>) -> Result<types::Tab, OperationError> {
    let (url, unreachable, waits) = {
        let view = tab.view();
        let view = view.borrow();
        (view.url.clone(), view.unreachable, view.dialog.is_some())
    };
    let cause = || lookup.and_then(|lookup| lookup(&failure::target(&url)?));
    let failed = |error: &str, cause: Option<&TunnelError>| {
        OperationError::new(
            ErrorCode::NavigationFailed,
            failure::explain(&url, error, cause),
        )
    };
    if unreachable {
        return Err(failed(&error_name(tab.session()).await, cause().as_ref()));
    }
    // Over plain HTTP a failure to connect arrives as the proxy's page. Only the proxy knows it from one
    // that the target itself sent with the same status.
    if !waits
        && let Some(cause) = cause()
        && matches!(status(tab.session()).await, Some(502 | 504))
    {
        return Err(failed("", Some(&cause)));
    }
    tab.refresh().await;
    Ok(tab.summary())
}

async fn not_loaded(
    tab: &Tab,
    url: &str,
    error: &str,
    navigated: &Navigated,
    before: u64,
    lookup: Option<&FailureLookup>,
) -> OperationError {
    let told = |message| OperationError::new(ErrorCode::NavigationFailed, message);
    if navigated.is_download {
        return told(format!(
            "{url} is a download, not a page: it is kept as a file of the tab, which stays where it was; see files.list"
        ));
    }
    if error == "net::ERR_ABORTED" {
        return told(format!(
            "{url} gave no page: it answered without content, or the navigation was stopped or replaced by another; the tab shows {}",
            tab.summary().url
        ));
    }
    // The error page is a document like any other: let it be counted before the caller acts again.
    let mut view = tab.view();
    let shown = |view: &View| view.commits > before && !view.loading;
    let shown = view.wait_for(shown);
    let _ = timeout_at(Instant::now() + ERROR_PAGE_LIMIT, shown).await;
    let cause = lookup.and_then(|lookup| lookup(&failure::target(url)?));
    told(failure::explain(url, error, cause.as_ref()))
}

fn slow(url: &str) -> OperationError {
    OperationError::new(
        ErrorCode::Timeout,
        format!(
            "{url} has not loaded within {} s and goes on loading; use wait, look at it with snapshot, or end it with stop",
            LOAD_LIMIT.as_secs()
        ),
    )
}

fn ended(tab: &Tab) -> OperationError {
    failed(tab, CdpError::Detached)
}

/// The name of the error that the browser's own error page is about, such as `ERR_CONNECTION_REFUSED`.
async fn error_name(page: &Session) -> String {
    let script = "document.querySelector('.error-code')?.textContent ?? ''";
    let name = evaluate(page, script).await;
    let name = name.as_ref().and_then(serde_json::Value::as_str);
    name.unwrap_or_default()
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == '_')
        .take(80)
        .collect()
}

/// The HTTP status of the page's document.
async fn status(page: &Session) -> Option<u64> {
    let script = "performance.getEntriesByType('navigation')[0]?.responseStatus";
    evaluate(page, script).await?.as_u64()
}

async fn evaluate(page: &Session, expression: &str) -> Option<serde_json::Value> {
    let script = json!({ "expression": expression, "returnByValue": true });
    let evaluated = page.call_within::<Evaluated>(ERROR_NAME_LIMIT, "Runtime.evaluate", script);
    Some(evaluated.await.ok()?.result.value)
}
