//! `ssh://` with a real `sshd` at the far end.

use std::process::Stdio;

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use yonder_tests::halves::Server;
use yonder_tests::process::{Process, output, program};
use yonder_tests::site::{Site, download_hash, hex};
use yonder_tests::sshd::Sshd;
use yonder_tests::{PATIENCE, eventually};

/// Where programs are looked for at the far end, beside ours.
const SYSTEM_PATH: &str = "/usr/bin:/bin";

/// A host with `sshd` on which no server half runs yet. What was started in the background there ends with this.
struct Far {
    sshd: Sshd,
    /// `XDG_STATE_HOME` of logins.
    state: TempDir,
}

impl Far {
    /// With `tunnel-server` where logins find it.
    async fn start() -> Self {
        Self::start_with(None).await
    }

    async fn start_with(force: Option<&str>) -> Self {
        let state = tempfile::tempdir().unwrap();
        let folder = program("tunnel-server");
        let path = format!("{}:{SYSTEM_PATH}", folder.parent().unwrap().display());
        let environment = [
            ("PATH", path.as_str()),
            ("XDG_STATE_HOME", state.path().to_str().unwrap()),
        ];
        Self {
            sshd: Sshd::start(&environment, force).await,
            state,
        }
    }

    /// `tunnel-desktop COMMAND ssh://far ARGUMENTS…`, without any secret.
    fn desktop(&self, command: &str, arguments: &[&str]) -> Command {
        let mut desktop = Command::new(program("tunnel-desktop"));
        desktop
            .args([command, "ssh://far"])
            .args(arguments)
            .args(["--log", "debug", "--ssh", &self.sshd.client()])
            // Neither this user's token nor their agent.
            .env("XDG_STATE_HOME", "/nonexistent")
            .env_remove("SSH_ASKPASS")
            .stdin(Stdio::null());
        desktop
    }

    /// `tunnel-desktop proxy`, and the proxy's URL with its credential.
    async fn proxy(&self) -> (Process, String) {
        let mut desktop = Process::start(&mut self.desktop("proxy", &[]));
        let line = desktop.line().await;
        let proxy = line.strip_prefix("proxy ").expect("the proxy's URL");
        let proxy = proxy.to_owned();
        (desktop, proxy)
    }

    /// `tunnel-server status --json` at the far end.
    async fn status(&self) -> Value {
        let mut command = Command::new(program("tunnel-server"));
        command
            .args(["status", "--json"])
            .env("XDG_STATE_HOME", self.state.path())
            .stdin(Stdio::null());
        let output = output(&mut command).await;
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The process that serves in the background.
    fn background(&self) -> Option<u64> {
        let note = std::fs::read(self.state.path().join("yonder/server.json")).ok()?;
        let note: Value = serde_json::from_slice(&note).ok()?;
        assert_eq!(note["background"], true);
        note["pid"].as_u64()
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        if let Some(pid) = self.background() {
            let _ended = std::process::Command::new("kill")
                .arg(pid.to_string())
                .status();
        }
    }
}

/// The `ssh` that `desktop` started, if there is one just now.
fn ssh_of(desktop: &Process) -> Option<String> {
    let pid = desktop.pid();
    let mut children = String::new();
    // Every thread has children of its own.
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).ok()? {
        let list = task.ok()?.path().join("children");
        children.push_str(&std::fs::read_to_string(list).ok()?);
    }
    children
        .split_whitespace()
        .find(|child| {
            std::fs::read_to_string(format!("/proc/{child}/comm"))
                .is_ok_and(|name| name.trim() == "ssh")
        })
        .map(str::to_owned)
}

fn curl(proxy: &str, url: &str) -> Command {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--fail", "--noproxy", ""])
        .args(["--proxy", proxy, url])
        .stdin(Stdio::null());
    curl
}

/// Runs `command` to its end, which must be a failure: exit code and standard error.
async fn failure(command: &mut Command) -> (i32, String) {
    let output = output(command).await;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().expect("an exit code"), errors)
}

#[tokio::test]
async fn a_killed_ssh_costs_a_download_nothing() {
    const BYTES: u64 = 64 << 20;
    const CUTS: u64 = 3;
    let far = Far::start().await;
    let site = Site::start().await;
    let (desktop, proxy) = far.proxy().await;
    let mut curl = curl(&proxy, &site.url(&format!("/download?{BYTES}")))
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut stdout = curl.stdout.take().unwrap();
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 256 << 10];
    let (mut received, mut cuts) = (0, 0);
    loop {
        let count = stdout.read(&mut buffer).await.unwrap();
        if count == 0 {
            break;
        }
        hash.update(&buffer[..count]);
        received += count as u64;
        if cuts < CUTS && received >= (cuts + 1) * BYTES / (CUTS + 1) {
            let logins = far.sshd.logins();
            let ssh = eventually("an ssh runs", async || ssh_of(&desktop).ok_or("none")).await;
            let killed = Command::new("kill").args(["-KILL", &ssh]).status().await;
            assert!(killed.unwrap().success());
            eventually("ssh is started again", async || {
                (far.sshd.logins() > logins).then_some(()).ok_or("not yet")
            })
            .await;
            cuts += 1;
        }
    }
    assert!(curl.wait().await.unwrap().success(), "{}", desktop.stderr());
    assert_eq!((cuts, received), (CUTS, BYTES));
    assert_eq!(hex(&hash.finalize()), download_hash(BYTES));
    let status = far.status().await;
    assert_eq!(status["links"].as_array().map(Vec::len), Some(1));
    assert!(
        status["totals"]["reconnects"].as_u64() >= Some(CUTS),
        "{status}"
    );
}

#[tokio::test]
async fn the_server_half_that_runs_is_joined() {
    // Whatever waits for a grace fails this test.
    let server = Server::start_with(&["--resume-grace", "600"]).await;
    let sshd = Sshd::start(&[], None).await;
    let site = Site::start().await;
    let remote = format!(
        "{} --state-dir {}",
        program("tunnel-server").display(),
        server.state().display()
    );
    let mut desktop = Process::start(
        Command::new(program("tunnel-desktop"))
            .args(["proxy", "ssh://far", "--session", "work"])
            .args(["--ssh", &sshd.client(), "--ssh-remote", &remote])
            .env("XDG_STATE_HOME", "/nonexistent")
            .process_group(0)
            .stdin(Stdio::null()),
    );
    let line = desktop.line().await;
    let fetched = output(&mut curl(&line["proxy ".len()..], &site.url("/hello"))).await;
    assert_eq!(fetched.stdout, b"/hello");
    let links = server.status().await["links"].clone();
    assert_eq!(links[0]["session"], "work", "{links}");
    // As the terminal's interrupt key does, which reaches every process of the job.
    let interrupted = Command::new("kill")
        .args(["-INT", "--", &format!("-{}", desktop.pid())])
        .status();
    assert!(interrupted.await.unwrap().success());
    assert!(desktop.wait_within(PATIENCE).await.success());
    // The goodbye reached it through ssh, so that nothing waits for a grace.
    eventually("the link is over", async || {
        let links = server.status().await["links"].clone();
        (links == serde_json::json!([])).then_some(()).ok_or(links)
    })
    .await;
}

#[tokio::test]
async fn desktops_that_come_at_once_share_one_server_half() {
    let far = Far::start().await;
    let ((first, _), (second, _), (third, _)) = tokio::join!(far.proxy(), far.proxy(), far.proxy());
    let status = far.status().await;
    assert_eq!(
        status["links"].as_array().map(Vec::len),
        Some(3),
        "{status}"
    );
    drop((first, second, third));
}

#[tokio::test]
async fn noise_before_the_link_is_skipped() {
    let noise = "i=0; while [ $i -lt 200 ]; do echo 'Welcome to this host, have a pleasant day!'; i=$((i+1)); done; \
                 printf 'no end of line'; eval \"$SSH_ORIGINAL_COMMAND\"";
    let far = Far::start_with(Some(noise)).await;
    let site = Site::start().await;
    let (_desktop, proxy) = far.proxy().await;
    let fetched = output(&mut curl(&proxy, &site.url("/hello"))).await;
    assert_eq!(fetched.stdout, b"/hello");
}

#[tokio::test]
async fn what_stands_in_the_way_is_told() {
    let far = Far::start().await;
    let missing = ["--ssh-remote", "/nonexistent/server"];
    let (code, errors) = failure(&mut far.desktop("proxy", &missing)).await;
    assert_eq!(code, 3, "{errors}");
    assert!(
        errors.contains("cargo install --locked --path tunnel-server"),
        "{errors}"
    );

    let closed = ["--ssh-remote", "echo This host is closed. #"];
    let (code, errors) = failure(&mut far.desktop("proxy", &closed)).await;
    assert_eq!(code, 3, "{errors}");
    assert!(errors.contains("This host is closed."), "{errors}");

    far.sshd.refuse_logins();
    let (code, errors) = failure(&mut far.desktop("proxy", &[])).await;
    assert_eq!(code, 4, "{errors}");
    assert!(errors.contains("Permission denied"), "{errors}");

    far.sshd.expect_another_host();
    let (code, errors) = failure(&mut far.desktop("proxy", &[])).await;
    assert_eq!(code, 4, "{errors}");
    assert!(errors.contains("ssh-keygen -R"), "{errors}");

    let (code, errors) = failure(
        Command::new(program("tunnel-desktop"))
            .args(["proxy", "ssh://far", "--ssh", "/nonexistent/ssh"])
            .stdin(Stdio::null()),
    )
    .await;
    assert_eq!(code, 2, "{errors}");
    let (code, errors) = failure(
        Command::new(program("tunnel-desktop"))
            .args(["proxy", "ssh://-oProxyCommand=id"])
            .stdin(Stdio::null()),
    )
    .await;
    assert_eq!(code, 2, "{errors}");
}

#[tokio::test]
async fn a_person_at_a_terminal_is_asked_by_ssh_itself() {
    let far = Far::start().await;
    far.sshd.forget_host();
    let command = format!(
        "exec {} proxy ssh://far --ssh \"{}\"",
        program("tunnel-desktop").display(),
        far.sshd.client()
    );
    // Gives it a terminal of its own, whose other end are the pipes.
    let mut terminal = Command::new("script")
        .args(["--quiet", "--return", "--command", &command, "/dev/null"])
        .env("XDG_STATE_HOME", "/nonexistent")
        .env("SHELL", "/bin/sh")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut keys = terminal.stdin.take().unwrap();
    let mut screen = terminal.stdout.take().unwrap();
    let mut shown = String::new();
    for (awaited, answer) in [("continue connecting", "yes\n"), ("proxy http://", "\x03")] {
        while !shown.contains(awaited) {
            let mut piece = [0; 1024];
            let read = tokio::time::timeout(PATIENCE, screen.read(&mut piece)).await;
            let count = read.unwrap_or_else(|_| panic!("{shown}")).unwrap();
            assert!(count > 0, "{shown}");
            shown.push_str(&String::from_utf8_lossy(&piece[..count]));
        }
        keys.write_all(answer.as_bytes()).await.unwrap();
    }
    let ended = tokio::time::timeout(PATIENCE, terminal.wait()).await;
    assert!(ended.unwrap().unwrap().success(), "{shown}");
}

#[tokio::test]
async fn a_server_half_in_the_background_ends_when_it_is_unused() {
    let state = tempfile::tempdir().unwrap();
    let mut background = Process::start(
        Command::new(program("tunnel-server"))
            .args(["background", "--unused", "1", "--state-dir"])
            .arg(state.path())
            .stdin(Stdio::null()),
    );
    let ended = background.wait_within(PATIENCE).await;
    assert!(ended.success(), "{}", background.stderr());
    assert!(!state.path().join("server.json").exists());
}

#[tokio::test]
async fn the_doctor_names_what_ssh_reached() {
    let far = Far::start().await;
    let output = output(&mut far.desktop("doctor", &["--browser", "/nonexistent/chromium"])).await;
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("server half: ssh://far logs in"), "{text}");
    assert!(text.contains("link: ssh to far"), "{text}");
}
