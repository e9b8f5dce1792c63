//! Why `ssh` brought no carrier, read from its exit code and from what was written.
//!
//! `ssh` exits with 255 for troubles of its own and with the far command's code otherwise (ssh(1)). Its messages are not
//! translated, so those that call for different action are told apart by their words; others are repeated as they are.

use std::process::ExitStatus;

use crate::carrier::ConnectError;

/// Exit code of `ssh` for its own failures.
const OWN_FAILURE: i32 = 255;

/// Exit codes of a shell that did not find, or may not run, a command.
const NOT_FOUND: i32 = 127;
const NOT_EXECUTABLE: i32 = 126;

/// Exit code of `tunnel-server` for a command line that it does not know.
const WRONG_USAGE: i32 = 2;

/// How the far half is installed.
const INSTALL: &str = "install it on that host (`cargo install --locked --path tunnel-server` in a copy of Yonder's sources, \
                       or copy the binary into a folder of its PATH or into ~/.local/bin), or say with --ssh-remote how it \
                       is started there";

/// Words of `ssh` that mean that it, or the far end, refused. Trying again does not help.
const REFUSALS: &[(&str, &str)] = &[
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "the host shows another key than the one that your ssh knows, so it may be another host; if the change is meant, \
         remove the old key with ssh-keygen -R",
    ),
    (
        "Host key verification failed",
        "the host's key is not among those that your ssh knows; connect once with ssh at a terminal and compare the key",
    ),
    (
        "Permission denied",
        "the login was refused; make `ssh` to this host work first (key, agent, user)",
    ),
    (
        "Too many authentication failures",
        "the login was refused after too many keys; name the right one in your ssh configuration (IdentityFile, IdentitiesOnly)",
    ),
];

/// What is known of an `ssh` that ended, or was ended, before the link began.
#[derive(Debug)]
pub(super) struct Ending<'a> {
    /// The server half's address.
    pub(super) server: &'a str,
    /// How it ended; `None` where that is not known.
    pub(super) status: Option<ExitStatus>,
    /// Standard error.
    pub(super) errors: &'a [String],
    /// The last line of standard output, where it was noise.
    pub(super) noise: Option<String>,
}

impl Ending<'_> {
    /// The failure to report.
    pub(super) fn into_error(self) -> ConnectError {
        let server = self.server.to_owned();
        let unreachable = |problem: String| ConnectError::Unreachable {
            server: server.clone(),
            problem,
            source: None,
        };
        let last = self.errors.last().cloned();
        match self.status.and_then(|status| status.code()) {
            Some(OWN_FAILURE) => {
                let refusal = REFUSALS
                    .iter()
                    .find(|(words, _)| self.errors.iter().any(|line| line.contains(words)));
                match refusal {
                    Some((_, problem)) => ConnectError::SshRefused {
                        server,
                        problem: format!(
                            "{problem} (ssh: {})",
                            last.unwrap_or_else(|| "no message".to_owned())
                        ),
                    },
                    None => unreachable(last.map_or_else(
                        || {
                            "ssh failed without a message; try `ssh` to this host by hand"
                                .to_owned()
                        },
                        |line| format!("ssh: {line}"),
                    )),
                }
            }
            Some(NOT_FOUND | NOT_EXECUTABLE) => {
                unreachable(format!("tunnel-server is not installed there; {INSTALL}"))
            }
            Some(WRONG_USAGE) => unreachable(format!(
                "the tunnel-server there does not serve ssh://; install the same release on both halves{}",
                told(last)
            )),
            code => {
                let how = match (code, self.status) {
                    (Some(code), _) => format!("ended with exit code {code}"),
                    (None, Some(status)) => format!("was ended ({status})"),
                    (None, None) => "closed its output".to_owned(),
                };
                unreachable(format!(
                    "the far end {how} before a link began{}",
                    told(self.noise.or(last))
                ))
            }
        }
    }
}

/// `line` in brackets.
fn told(line: Option<String>) -> String {
    line.map_or_else(String::new, |line| format!(" (it said: {line})"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    fn error(code: i32, errors: &[&str], noise: Option<&str>) -> ConnectError {
        let errors: Vec<_> = errors.iter().map(|&line| line.to_owned()).collect();
        Ending {
            server: "ssh://host",
            status: Some(ExitStatus::from_raw(code << 8)),
            errors: &errors,
            noise: noise.map(str::to_owned),
        }
        .into_error()
    }

    #[test]
    fn refusals_are_told_from_outages() {
        for (line, refused) in [
            ("me@host: Permission denied (publickey).", true),
            ("Host key verification failed.", true),
            ("ssh: connect to host h port 22: Connection refused", false),
            (
                "ssh: Could not resolve hostname h: Name or service not known",
                false,
            ),
        ] {
            let error = error(255, &["debug", line], None);
            assert_eq!(error.is_refused(), refused, "{line}");
            assert_eq!(error.is_unreachable(), !refused, "{line}");
            assert!(error.to_string().contains(line), "{error}");
        }
        // The word may also be the far shell's, about a file.
        assert!(!error(1, &["sh: x: Permission denied"], None).is_refused());
    }

    #[test]
    fn a_missing_server_half_is_told_with_the_way_to_install_it() {
        let error = error(127, &["sh: 1: exec: tunnel-server: not found"], None).to_string();
        assert!(
            error.contains("cargo install --locked --path tunnel-server"),
            "{error}"
        );
        assert!(error.contains("--ssh-remote"), "{error}");
    }

    #[test]
    fn what_the_far_end_said_is_repeated() {
        let error = error(1, &[], Some("This account is currently not available.")).to_string();
        assert!(
            error.contains("exit code 1") && error.contains("currently not"),
            "{error}"
        );
    }
}
