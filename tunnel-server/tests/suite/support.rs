//! A server process of its own for each test, and just enough HTTP to see every byte of its answers.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// What anything may take before a test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The program, with an environment that nothing outside the test shapes.
pub(crate) fn program(state: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tunnel-server"));
    for (name, _) in std::env::vars_os() {
        let name_text = name.to_string_lossy().to_ascii_uppercase();
        if name_text.starts_with("YONDER_") || name_text.ends_with("_PROXY") {
            command.env_remove(name);
        }
    }
    command.env("YONDER_STATE_DIR", state).stdin(Stdio::null());
    command
}

/// Runs the program to its end.
pub(crate) fn run(state: &Path, arguments: &[&str]) -> Output {
    program(state).args(arguments).output().unwrap()
}

/// Exit code, standard output and standard error.
pub(crate) fn told(output: &Output) -> (i32, String, String) {
    (
        output.status.code().unwrap(),
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

/// A running server.
pub(crate) struct Server {
    child: Child,
    state: Option<TempDir>,
    log: PathBuf,
    pub(crate) state_path: PathBuf,
    pub(crate) url: String,
    pub(crate) token: String,
}

impl Server {
    /// Starts `serve` on a free port with a fresh state directory.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let state = tempfile::tempdir().unwrap();
        let path = state.path().join("state");
        let mut server = Self::start_in(&path, arguments, &[]);
        server.state = Some(state);
        server
    }

    /// The same with a given state directory and environment.
    pub(crate) fn start_in(state: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let log = state.with_extension("log");
        let mut command = program(state);
        command.args(["--log", "trace"]);
        if !environment.iter().any(|(name, _)| *name == "YONDER_LISTEN") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        let mut child = command
            .args(arguments)
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let url = line
            .trim_end()
            .strip_prefix("listening on ")
            .unwrap_or_else(|| panic!("{line:?}; {}", fs::read_to_string(&log).unwrap()))
            .to_owned();
        let token = fs::read_to_string(state.join("token")).unwrap_or_default();
        Self {
            child,
            state: None,
            log,
            state_path: state.to_owned(),
            url,
            token: token.trim_end().to_owned(),
        }
    }

    /// `host:port`.
    pub(crate) fn authority(&self) -> &str {
        let rest = self.url.split_once("://").unwrap().1;
        rest.split('/').next().unwrap()
    }

    /// The log so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits for the process to end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        until(|| self.child.try_wait().unwrap())
    }

    /// Sends one request with the token on a connection of its own.
    pub(crate) fn send(&self, method: &str, path: &str, body: &str) -> Answer {
        self.send_with(
            method,
            path,
            &[("Authorization", &format!("Bearer {}", self.token))],
            body,
        )
    }

    /// Sends one request with exactly these headers, and those without which there is no request.
    pub(crate) fn send_with(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let mut request = Vec::new();
        write!(
            request,
            "{method} {path} HTTP/1.1\r\nHost: anything.example\r\nConnection: close\r\n"
        )
        .unwrap();
        for (name, value) in headers {
            write!(request, "{name}: {value}\r\n").unwrap();
        }
        if !body.is_empty() {
            write!(request, "Content-Length: {}\r\n", body.len()).unwrap();
        }
        write!(request, "\r\n{body}").unwrap();
        self.raw(&request)
    }

    /// Sends `bytes` as they are and reads to the end of the connection.
    pub(crate) fn raw(&self, bytes: &[u8]) -> Answer {
        let mut stream = self.connect();
        stream.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        Answer::parse(&answer)
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.authority()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Runs another command of the program on the same state directory.
    pub(crate) fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        told(&run(&self.state_path, arguments))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Asks again and again until there is an answer.
pub(crate) fn until<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(
            Instant::now() < deadline,
            "nothing happened in {PATIENCE:?}"
        );
        std::thread::yield_now();
    }
}

/// An answer as it came.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text
            .split_once("\r\n\r\n")
            .unwrap_or_else(|| panic!("{text:?}"));
        Self {
            status: head.split(' ').nth(1).unwrap().parse().unwrap(),
            head: head.to_owned(),
            body: body.to_owned(),
        }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(':'))
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The code of the error that it tells.
    pub(crate) fn error_code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap().to_owned()
    }
}
