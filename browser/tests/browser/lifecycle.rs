//! How browsers, tabs and profiles end.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::stage::{Site, Stage, config, done, refused, until};
use serde_json::json;
use yonder_browser::{Browser, Exit, LaunchError, Profile, ProxyCredential, SessionError};
use yonder_protocol::operation::error::ErrorCode;

/// The profile directory that a running browser was started with.
fn profile_of(browser: &Browser) -> PathBuf {
    let line = std::fs::read(format!("/proc/{}/cmdline", browser.pid())).unwrap();
    let line = String::from_utf8(line).unwrap();
    // Chromium rewrites its command line with blanks between the arguments.
    let at = line.find("--user-data-dir=").unwrap() + "--user-data-dir=".len();
    let path = line[at..].split([' ', '\0']).next().unwrap();
    PathBuf::from(path)
}

/// The processes of the group that `leader` leads.
fn group(leader: u32) -> Vec<u32> {
    let mut members = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        // After the name in parentheses: state, parent, group.
        let mut fields = stat[stat.rfind(')').unwrap() + 2..].split(' ');
        let state = fields.next();
        if fields.nth(1).and_then(|group| group.parse().ok()) == Some(leader) && state != Some("Z")
        {
            members.push(pid);
        }
    }
    members
}

/// The processes of the browser whose command line holds `word`.
fn helpers(browser: &Browser, word: &str) -> Vec<u32> {
    let mut found = group(browser.pid());
    found.retain(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(word)
    });
    found
}

async fn kill(pid: u32) {
    let killed = tokio::process::Command::new("kill")
        .args(["-KILL", &pid.to_string()])
        .status()
        .await;
    assert!(killed.unwrap().success());
}

#[tokio::test]
async fn nothing_is_left_of_a_closed_browser() {
    let stage = Stage::new().await;
    stage.site.page("/", "x");
    stage.go(&stage.first(), "http://site.test/").await.unwrap();
    let (pid, profile) = (stage.browser.pid(), profile_of(&stage.browser));
    assert!(profile.is_dir() && group(pid).len() > 2);
    let start = Instant::now();
    stage.browser.close().await;
    assert!(start.elapsed() < Duration::from_secs(5));
    assert!(!profile.exists(), "{}", profile.display());
    until("the end of its processes", async || group(pid).is_empty()).await;
    let after = done(&stage.session, "tabs.list", json!({}), None).await;
    refused(after.map(|done| done.value), ErrorCode::Crashed, &["gone"]);
}

#[tokio::test]
async fn crashes_are_told_and_survived() {
    let stage = Stage::new().await;
    let site = &stage.site;
    site.page("/", "x");
    let first = &*stage.first();
    stage.go(first, "http://site.test/").await.unwrap();
    let other = stage
        .run("tabs.open", json!({ "url": "http://other.test/" }))
        .await
        .unwrap();
    let other = other["id"].as_str().unwrap();

    // The network process takes the proxy credential along. It is given again.
    let network = "--utility-sub-type=network.mojom.NetworkService";
    for process in helpers(&stage.browser, network) {
        kill(process).await;
    }
    site.take_asked();
    until("requests without a credential", async || {
        // What the page shows then is the proxy's to decide.
        let _ = stage.go(other, "http://other.test/").await;
        site.take_asked().iter().any(|asked| !asked.authorized)
    })
    .await;
    stage.session.prime_again().await;
    site.take_asked();
    let page = stage.go(other, "http://other.test/").await.unwrap();
    assert_eq!(page["title"], "/");
    assert!(site.take_asked().iter().all(|asked| asked.authorized));

    // The renderers, while an operation waits for one.
    stage.script(first, "globalThis.mine = 1").await;
    let wait = stage.on(
        first,
        "evaluate",
        json!({ "script": "new Promise(() => {})" }),
    );
    let (waited, ()) = tokio::join!(wait, async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        for renderer in helpers(&stage.browser, "--type=renderer") {
            kill(renderer).await;
        }
    });
    refused(waited, ErrorCode::Crashed, &["http://site.test/", "reload"]);
    until("the other crash", async || {
        let one = stage.on(other, "evaluate", json!({ "script": "1" })).await;
        one.is_err_and(|error| error.code == ErrorCode::Crashed)
    })
    .await;
    refused(
        stage.on(first, "snapshot", json!({})).await,
        ErrorCode::Crashed,
        &["reload"],
    );
    let revived = stage.on(first, "reload", json!({})).await.unwrap();
    assert_eq!(revived["url"], "http://site.test/");
    assert_eq!(stage.script(first, "typeof mine").await, "undefined");
    stage.go(other, "http://other.test/").await.unwrap();
    stage.script(other, "1").await;

    // The browser itself.
    let (pid, profile) = (stage.browser.pid(), profile_of(&stage.browser));
    let wait = stage.on(
        first,
        "evaluate",
        json!({ "script": "new Promise(() => {})" }),
    );
    let (waited, ()) = tokio::join!(wait, async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        kill(pid).await;
    });
    refused(waited, ErrorCode::Crashed, &["browser"]);
    assert!(matches!(stage.browser.exited().await, Exit::Ended(ended) if !ended.is_success()));
    assert!(!profile.exists());
    until("the end of its helpers", async || group(pid).is_empty()).await;
    stage.browser.close().await;
}

#[tokio::test]
async fn a_kept_profile_keeps_its_cookies_for_one_browser_at_a_time() {
    let home = tempfile::tempdir().unwrap();
    let site = Site::start().await;
    site.page("/", "x");
    let mut config = config(&site);
    config.profile = Profile::Kept(home.path().join("profile"));
    for visit in 0..2 {
        let browser = Browser::launch(config.clone()).await.unwrap();
        let credential = site.admit("default", "secret");
        let session = browser.open_session("default", credential).await.unwrap();
        let open = json!({ "url": "http://site.test/" });
        let tab = done(&session, "tabs.open", open, None).await.unwrap();
        let script = "const had = document.cookie; document.cookie = 'seen=1; max-age=1000'; had";
        let script = json!({ "tabID": tab.value["id"], "script": script });
        let had = done(&session, "evaluate", script, None).await.unwrap();
        assert_eq!(had.value["value"], ["", "seen=1"][visit]);
        if visit == 0 {
            let second = Browser::launch(config.clone()).await.unwrap_err();
            assert!(
                matches!(second, LaunchError::ProfileInUse { .. }),
                "{second}"
            );
        }
        browser.close().await;
    }
    assert!(home.path().join("profile").is_dir());
}

#[tokio::test]
async fn what_cannot_start_says_why() {
    let site = Site::start().await;
    let mut missing = config(&site);
    missing.executable = Some("/nonexistent/chromium".into());
    let error = Browser::launch(missing).await.unwrap_err();
    assert!(
        matches!(error, LaunchError::NotExecutable { .. }),
        "{error}"
    );

    let mut failing = config(&site);
    failing.executable = Some("/bin/false".into());
    let error = Browser::launch(failing).await.unwrap_err();
    assert!(matches!(error, LaunchError::Exited { .. }), "{error}");

    // One that speaks before it dies is quoted.
    let script = tempfile::NamedTempFile::new().unwrap().into_temp_path();
    std::fs::write(&script, "#!/bin/sh\necho 'no screens today' >&2\nexit 3\n").unwrap();
    make_executable(&script);
    let mut speaking = config(&site);
    speaking.executable = Some(script.to_path_buf());
    let error = Browser::launch(speaking).await.unwrap_err().to_string();
    assert!(
        error.contains("no screens today") && error.contains('3'),
        "{error}"
    );

    let mut root = config(&site);
    if !root.sandbox {
        root.sandbox = true;
        let error = Browser::launch(root).await.unwrap_err();
        assert!(matches!(error, LaunchError::Root), "{error}");
        assert!(error.to_string().contains("--no-sandbox"));
    }

    // A wrong credential is noticed when the session opens.
    let browser = Browser::launch(config(&site)).await.unwrap();
    let wrong = ProxyCredential::new("default", "wrong");
    let error = browser.open_session("default", wrong).await.unwrap_err();
    assert!(matches!(error, SessionError::Refused), "{error}");
    let right = site.admit("default", "right");
    browser.open_session("default", right).await.unwrap();
    // Dropped without a word, it ends as well.
    let (pid, profile) = (browser.pid(), profile_of(&browser));
    drop(browser);
    until("the end", async || {
        group(pid).is_empty() && !profile.exists()
    })
    .await;
}

fn make_executable(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).unwrap();
}
