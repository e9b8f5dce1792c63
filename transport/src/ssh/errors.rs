//! What `ssh` and the far end wrote to standard error: kept within bounds for the log and for the message of a failure.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::preamble::printable;

/// Lines that are kept: the reason of a failure is among the last.
const LINES_KEPT: usize = 20;

/// Longest line that is kept whole.
const LINE_BYTES_MAX: usize = 1024;

/// The newest lines of a standard error.
#[derive(Clone, Debug, Default)]
pub(super) struct Errors(Arc<Mutex<VecDeque<String>>>);

impl Errors {
    /// Reads `output` to its end, and writes each line to the log.
    pub(super) async fn collect(self, mut output: impl AsyncRead + Unpin) {
        let mut piece = [0; 1024];
        let mut line = Vec::new();
        // A read that fails ends it like the end: there is nothing more to learn.
        while let Ok(count @ 1..) = output.read(&mut piece).await {
            for &byte in piece.get(..count).unwrap_or_default() {
                if byte == b'\n' {
                    self.keep(&line);
                    line.clear();
                } else if line.len() < LINE_BYTES_MAX {
                    line.push(byte);
                }
            }
        }
        self.keep(&line);
    }

    fn keep(&self, line: &[u8]) {
        let line = printable(&String::from_utf8_lossy(line));
        if line.is_empty() {
            return;
        }
        tracing::info!("ssh: {line}");
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == LINES_KEPT {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// The lines kept, oldest first.
    pub(super) fn lines(&self) -> Vec<String> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .cloned()
            .collect()
    }

    /// The newest line.
    pub(super) fn last(&self) -> Option<String> {
        self.lines().pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_bounded_and_shown_without_control_characters() {
        let errors = Errors::default();
        let mut text = "first\n".repeat(LINES_KEPT * 2);
        text.push_str(&"x".repeat(10_000));
        text.push_str("\n\n\x1b[31mlast\r\n");
        errors.clone().collect(text.as_bytes()).await;
        let lines = errors.lines();
        assert_eq!(lines.len(), LINES_KEPT);
        assert!(lines.iter().all(|line| line.len() <= LINE_BYTES_MAX));
        assert_eq!(errors.last().as_deref(), Some("[31mlast"));
    }
}
