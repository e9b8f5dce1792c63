//! The two halves as programs.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

use crate::process::{Process, output, program};
use crate::{PATIENCE, eventually};

/// A running server half with a state directory of its own.
#[derive(Debug)]
pub struct Server {
    /// The program.
    pub process: Process,
    /// Where it listens, as it said.
    pub url: String,
    arguments: Vec<String>,
    state: TempDir,
}

impl Server {
    /// A server half on a loopback port, plaintext.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// A server half with further arguments after `serve`.
    pub async fn start_with(arguments: &[&str]) -> Self {
        let state = tempfile::tempdir().expect("a temporary folder");
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        let (process, url) = serve("127.0.0.1:0", state.path(), &arguments).await;
        Self {
            process,
            url,
            arguments,
            state,
        }
    }

    /// Ends it by `signal`, such as `TERM` or `KILL`, and starts another with the same port and state directory.
    pub async fn restart(&mut self, signal: &str) {
        let address = format!("127.0.0.1:{}", self.port());
        self.process.signal(signal).await;
        self.process.wait_within(PATIENCE).await;
        let (process, url) = serve(&address, self.state.path(), &self.arguments).await;
        assert_eq!(url, self.url);
        self.process = process;
    }

    /// The state directory, which on one machine both halves share.
    pub fn state(&self) -> &Path {
        self.state.path()
    }

    /// The TCP port.
    pub fn port(&self) -> u16 {
        let authority = self.url.split("//").nth(1).expect("a URL");
        let authority = authority.split('/').next().expect("an authority");
        authority
            .rsplit(':')
            .next()
            .and_then(|port| port.parse().ok())
            .expect("a port")
    }

    /// The secret, for tests that speak HTTP themselves.
    pub fn token(&self) -> String {
        std::fs::read_to_string(self.state().join("token"))
            .expect("the token file")
            .trim()
            .to_owned()
    }

    /// A command of `tunnel-server` against this server half.
    pub fn command<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(program("tunnel-server"));
        command
            .args(arguments)
            .arg("--state-dir")
            .arg(self.state())
            .stdin(Stdio::null());
        command
    }

    /// `tunnel-server status --json`.
    pub async fn status(&self) -> Value {
        let output = output(&mut self.command(["status", "--json"])).await;
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// Waits until the only link has a carrier of kind `carrier`, and answers its status.
    pub async fn wait_for_carrier(&self, carrier: &str) -> Value {
        eventually(&format!("one link over {carrier}"), async || {
            let status = self.status().await;
            match status["links"].as_array().map(Vec::as_slice) {
                Some([link]) if link["carrier"] == carrier => Ok(link.clone()),
                _ => Err(status.to_string()),
            }
        })
        .await
    }

    /// `tunnel-server call OPERATION INPUT`, its error text on failure.
    pub async fn try_call(&self, operation: &str, input: Value) -> Result<Value, String> {
        let output = output(&mut self.command(["call", operation, &input.to_string()])).await;
        if output.status.success() {
            Ok(serde_json::from_slice(&output.stdout).expect("JSON"))
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    /// [`Self::try_call`] that must succeed.
    pub async fn call(&self, operation: &str, input: Value) -> Value {
        match self.try_call(operation, input).await {
            Ok(value) => value,
            Err(error) => panic!(
                "{operation} failed: {error}\nserver:\n{}",
                self.process.stderr()
            ),
        }
    }

    /// Waits until a desktop shows `url`, loaded, and answers the tab's id.
    pub async fn wait_for_page(&self, url: &str) -> String {
        eventually("the page is loaded", async || {
            let state = self.try_call("tabs.list", serde_json::json!({})).await?;
            let tab = state["tabs"]
                .as_array()
                .into_iter()
                .flatten()
                .find(|tab| tab["url"] == url && tab["loading"] == false);
            tab.and_then(|tab| tab["id"].as_str())
                .map(str::to_owned)
                .ok_or_else(|| state.to_string())
        })
        .await
    }

    /// Evaluates `script` in a tab.
    pub async fn evaluate(&self, tab: &str, script: &str) -> Value {
        let answer = self
            .call(
                "evaluate",
                serde_json::json!({"tabID": tab, "script": script}),
            )
            .await;
        answer["value"].clone()
    }
}

/// Starts `tunnel-server serve`; the program and the URL that it says it listens on.
async fn serve(listen: &str, state: &Path, arguments: &[String]) -> (Process, String) {
    let mut process = Process::start(
        Command::new(program("tunnel-server"))
            .args(["serve", "--listen", listen, "--log", "debug"])
            .args(arguments)
            .arg("--state-dir")
            .arg(state)
            .stdin(Stdio::null()),
    );
    let line = process.line().await;
    let url = line
        .strip_prefix("listening on ")
        .unwrap_or_else(|| panic!("unexpected first line {line:?}"))
        .to_owned();
    (process, url)
}

/// A running desktop half.
#[derive(Debug)]
pub struct Desktop {
    /// The program.
    pub process: Process,
}

impl Desktop {
    /// `tunnel-desktop COMMAND SERVER ARGUMENTS…` with the server half's own secret.
    pub fn start(server: &Server, command: &str, url: &str, arguments: &[&str]) -> Self {
        Self::start_with_environment(server, command, url, arguments, &[])
    }

    fn start_with_environment(
        server: &Server,
        command: &str,
        url: &str,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Self {
        let process = Process::start(
            Command::new(program("tunnel-desktop"))
                .args([command, url])
                .args(arguments)
                .args(["--log", "debug", "--state-dir"])
                .arg(server.state())
                .envs(environment.iter().copied())
                .stdin(Stdio::null()),
        );
        Self { process }
    }

    /// `tunnel-desktop open`, headless and, where the tests run as root, without Chromium's sandbox.
    pub fn open(server: &Server, url: &str, page: &str, arguments: &[&str]) -> Self {
        Self::open_with_environment(server, url, page, arguments, &[])
    }

    /// [`Self::open`] with further environment variables.
    pub fn open_with_environment(
        server: &Server,
        url: &str,
        page: &str,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Self {
        let mut all = vec![page, "--headless"];
        if is_root() {
            all.push("--no-sandbox");
        }
        all.extend(arguments);
        Self::start_with_environment(server, "open", url, &all, environment)
    }

    /// `tunnel-desktop proxy`, and the proxy's URL with its credential.
    pub async fn proxy(server: &Server, url: &str) -> (Self, String) {
        Self::proxy_with(server, url, &[]).await
    }

    /// [`Self::proxy`] with further arguments.
    pub async fn proxy_with(server: &Server, url: &str, arguments: &[&str]) -> (Self, String) {
        let mut desktop = Self::start(server, "proxy", url, arguments);
        let line = desktop.process.line().await;
        let proxy = line
            .strip_prefix("proxy ")
            .unwrap_or_else(|| panic!("unexpected first line {line:?}"))
            .to_owned();
        (desktop, proxy)
    }

    /// `tunnel-desktop forward` of one target from a port that the system picks; answers that port.
    pub async fn forward(server: &Server, url: &str, target: &str) -> (Self, u16) {
        let mut desktop = Self::start(server, "forward", url, &[&format!("0:{target}")]);
        let line = desktop.process.line().await;
        let port = line
            .strip_prefix("forwarding ")
            .and_then(|rest| rest.split(" to ").next())
            .and_then(|address| address.rsplit(':').next())
            .and_then(|port| port.parse().ok())
            .unwrap_or_else(|| panic!("unexpected first line {line:?}"));
        (desktop, port)
    }
}

/// Whether the tests run with all privileges, where Chromium's sandbox does not start.
pub fn is_root() -> bool {
    std::process::Command::new("id")
        .arg("-u")
        .output()
        .is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}
