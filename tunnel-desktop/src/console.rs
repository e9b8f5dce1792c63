//! Standard error as a person sees it: log lines above, one status line below.
//!
//! On a terminal the status line is rewritten in place and log lines are put in above it. Elsewhere each change
//! of the status is a line of its own, in the form of the log. Standard output stays free for what programs read.

use std::io::{self, IsTerminal as _, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing_subscriber::fmt::MakeWriter;

use crate::cli::LogFormat;

/// Back to the start of the line and clear it (ECMA-48: CR, EL 2).
const CLEAR: &str = "\r\x1b[2K";

/// Cuts the status at the edge of the terminal instead of wrapping it, which could not be rewritten in place
/// (DECAWM off, text, DECAWM on).
const NO_WRAP: (&str, &str) = ("\x1b[?7l", "\x1b[?7h");

/// Standard error, shared by the status line and the log.
#[derive(Clone)]
pub(crate) struct Console(Arc<Mutex<Inner>>);

struct Inner {
    out: Box<dyn Write + Send>,
    format: LogFormat,
    terminal: bool,
    headline: String,
    /// What the terminal's last line shows; empty where there is no status line.
    shown: String,
}

impl Console {
    /// The process's standard error, whose lines have the form `format`.
    pub(crate) fn stderr(format: LogFormat) -> Self {
        let person_looks_on = io::stderr().is_terminal() && format == LogFormat::Text;
        Self::new(Box::new(io::stderr()), format, person_looks_on)
    }

    fn new(out: Box<dyn Write + Send>, format: LogFormat, terminal: bool) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            out,
            format,
            terminal,
            headline: String::new(),
            shown: String::new(),
        })))
    }

    /// Whether the status line is rewritten in place, so that details may change every second.
    pub(crate) fn is_terminal(&self) -> bool {
        self.lock().terminal
    }

    /// Shows `headline` and `detail` as the status. Elsewhere than on a terminal only a new headline is written.
    pub(crate) fn status(&self, headline: &str, detail: &str) {
        let mut inner = self.lock();
        let text = if detail.is_empty() {
            headline.to_owned()
        } else {
            format!("{headline}, {detail}")
        };
        if inner.terminal {
            if inner.shown != text {
                inner.shown = text;
                inner.redraw();
            }
        } else if inner.headline != headline {
            inner.write_line(&text);
        }
        headline.clone_into(&mut inner.headline);
    }

    /// Shows `headline` as the status, as a line that stays where a question of another program may `follow` it.
    pub(crate) fn begin(&self, headline: &str, follow: bool) {
        if follow && self.is_terminal() {
            self.line(headline);
        } else {
            self.status(headline, "");
        }
    }

    /// Writes a line that stays.
    pub(crate) fn line(&self, text: &str) {
        let mut inner = self.lock();
        inner.clear();
        inner.write_line(text);
        inner.redraw();
    }

    /// Writes a line for programs to standard output, which may be the same terminal.
    ///
    /// # Errors
    /// If standard output is closed.
    pub(crate) fn output(&self, text: &str) -> io::Result<()> {
        let mut inner = self.lock();
        inner.clear();
        let mut out = io::stdout().lock();
        let written = writeln!(out, "{text}").and_then(|()| out.flush());
        inner.redraw();
        written
    }

    /// Leaves the last status on the terminal and begins a new line, so that a shell's prompt does not follow it.
    pub(crate) fn finish(&self) {
        let mut inner = self.lock();
        if !inner.shown.is_empty() {
            inner.shown.clear();
            inner.write_line("");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Failed writes are ignored below: there is no better place to report that standard error is gone.
impl Inner {
    fn clear(&mut self) {
        if !self.shown.is_empty() {
            let _ = self.out.write_all(CLEAR.as_bytes());
        }
    }

    fn redraw(&mut self) {
        if !self.shown.is_empty() {
            let (off, on) = NO_WRAP;
            let line = format!("{CLEAR}{off}{}{on}", self.shown);
            let _ = self.out.write_all(line.as_bytes());
            let _ = self.out.flush();
        }
    }

    fn write_line(&mut self, text: &str) {
        let line = match self.format {
            LogFormat::Text => format!("{text}\n"),
            // As the log's own lines, so that one program can read both.
            LogFormat::Json => {
                let event = serde_json::json!({
                    "level": "INFO",
                    "fields": { "message": text },
                    "target": "tunnel_desktop::status",
                });
                format!("{event}\n")
            }
        };
        let _ = self.out.write_all(line.as_bytes());
        let _ = self.out.flush();
    }
}

/// One write of the log, which is one whole event.
pub(crate) struct LogWriter(Console);

impl Write for LogWriter {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let mut inner = self.0.lock();
        inner.clear();
        inner.out.write_all(event)?;
        inner.redraw();
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.lock().out.flush()
    }
}

impl<'a> MakeWriter<'a> for Console {
    type Writer = LogWriter;

    fn make_writer(&'a self) -> LogWriter {
        LogWriter(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Default)]
    struct Capture(Arc<Mutex<Vec<u8>>>);

    impl Write for Capture {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Capture {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    #[test]
    fn a_file_gets_a_line_for_each_change() {
        let out = Capture::default();
        let console = Console::new(Box::new(out.clone()), LogFormat::Text, false);
        console.status("connecting", "");
        console.status("connected", "1 ms");
        console.status("connected", "2 ms");
        console.line("note");
        console.finish();
        assert_eq!(out.text(), "connecting\nconnected, 1 ms\nnote\n");
    }

    #[test]
    fn a_terminal_keeps_its_status_line_below_the_log() {
        let out = Capture::default();
        let console = Console::new(Box::new(out.clone()), LogFormat::Text, true);
        console.status("connected", "");
        console.make_writer().write_all(b"event\n").unwrap();
        console.finish();
        let (off, on) = NO_WRAP;
        let status = format!("{CLEAR}{off}connected{on}");
        assert_eq!(out.text(), format!("{status}{CLEAR}event\n{status}\n"));
    }

    #[test]
    fn a_program_gets_json_only() {
        let out = Capture::default();
        let console = Console::new(Box::new(out.clone()), LogFormat::Json, false);
        console.status("connected to \"x\"", "");
        let event: serde_json::Value = serde_json::from_str(&out.text()).unwrap();
        assert_eq!(event["fields"]["message"], "connected to \"x\"");
    }
}
