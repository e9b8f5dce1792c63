//! `status`: shows what a running server half does, for people or as JSON.

use std::fmt::{self, Write as _};

use super::print;
use crate::cli::StatusOptions;
use crate::client::{Client, QUICK};
use crate::config::Common;
use crate::exit::{CommandResult, Failure};
use crate::hub::status::{LinkStatus, SessionStatus, Status};

/// Longest title or URL that is shown to people, in characters.
const SHOWN_CHARS: usize = 100;

pub(super) async fn run(common: &Common, options: StatusOptions) -> CommandResult {
    let client = Client::new(common, options.server)?;
    if options.json {
        // As it came, so that fields of a newer server half are not lost.
        let status: serde_json::Value = client.get("status", QUICK).await?;
        return print(&status.to_string());
    }
    let status: Status = client.get("status", QUICK).await?;
    let mut text = String::new();
    describe(&mut text, &client.address().to_string(), &status)
        .map_err(|error| Failure::failed(format!("cannot show the status: {error}")))?;
    print(text.trim_end())
}

fn describe(out: &mut String, address: &str, status: &Status) -> fmt::Result {
    writeln!(
        out,
        "{address}  version {}, up {}, egress {}",
        status.version,
        Span(status.uptime_seconds),
        status.egress
    )?;
    if status.sessions.is_empty() {
        writeln!(out, "\nno desktop is attached")?;
    }
    for session in &status.sessions {
        describe_session(out, session)?;
    }
    for link in &status.links {
        describe_link(out, link)?;
    }
    let totals = &status.totals;
    writeln!(
        out,
        "\ntunnels: {} open, {} since the start; {} to targets, {} from them; {} reconnects",
        totals.tunnels_open,
        totals.tunnels_opened,
        Size(totals.bytes_to_targets),
        Size(totals.bytes_from_targets),
        totals.reconnects
    )
}

fn describe_session(out: &mut String, session: &SessionStatus) -> fmt::Result {
    writeln!(
        out,
        "\nsession {}  attached by {} {} for {}",
        session.name,
        session.attachment,
        session.connection,
        Span(session.age_seconds)
    )?;
    let Some(state) = &session.state else {
        return writeln!(out, "  tabs not told yet");
    };
    for tab in &state.tabs {
        let mark = if state.focused_tab_id.as_ref() == Some(&tab.id) {
            '*'
        } else {
            ' '
        };
        writeln!(
            out,
            " {mark} {}  {}  {}",
            tab.id.as_str(),
            Shown(&tab.title),
            Shown(&tab.url)
        )?;
    }
    Ok(())
}

fn describe_link(out: &mut String, link: &LinkStatus) -> fmt::Result {
    write!(
        out,
        "\nlink {}  {} of session {}, {}\n  {} {}",
        link.id,
        link.role,
        link.session,
        Shown(&link.agent),
        if link.up {
            "up:"
        } else {
            "waiting for a carrier:"
        },
        Shown(&link.description)
    )?;
    if let Some(round_trip) = link.round_trip_ms {
        write!(out, ", round trip {round_trip:.1} ms")?;
    }
    writeln!(
        out,
        "\n  {} tunnels, {} in, {} out, {} reconnects, for {}",
        link.tunnels,
        Size(link.bytes_in),
        Size(link.bytes_out),
        link.reconnects,
        Span(link.age_seconds)
    )
}

/// Text from elsewhere, cut to length and without characters that would steer the terminal.
struct Shown<'a>(&'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars().take(SHOWN_CHARS) {
            f.write_char(if character.is_control() {
                ' '
            } else {
                character
            })?;
        }
        if self.0.chars().nth(SHOWN_CHARS).is_some() {
            f.write_char('…')?;
        }
        Ok(())
    }
}

/// Seconds in words.
struct Span(u64);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            seconds @ 0..60 => write!(f, "{seconds} s"),
            seconds @ 60..3_600 => write!(f, "{} min", seconds / 60),
            seconds @ 3_600..86_400 => write!(f, "{} h {} min", seconds / 3_600, seconds / 60 % 60),
            seconds => write!(f, "{} d {} h", seconds / 86_400, seconds / 3_600 % 24),
        }
    }
}

/// Bytes in words.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
        if self.0 < 1_024 {
            return write!(f, "{} B", self.0);
        }
        let mut tenths = u128::from(self.0) * 10;
        let mut unit = "B";
        for next in UNITS {
            if tenths < 10_240 {
                break;
            }
            tenths /= 1_024;
            unit = next;
        }
        write!(f, "{}.{} {unit}", tenths / 10, tenths % 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        for (bytes, text) in [
            (0, "0 B"),
            (1_023, "1023 B"),
            (1_536, "1.5 KiB"),
            (1 << 30, "1.0 GiB"),
            (u64::MAX, "16777215.9 TiB"),
        ] {
            assert_eq!(Size(bytes).to_string(), text);
        }
        assert_eq!(Span(59).to_string(), "59 s");
        assert_eq!(Span(7_260).to_string(), "2 h 1 min");
        assert_eq!(Span(90_000).to_string(), "1 d 1 h");
    }

    #[test]
    fn pages_cannot_steer_the_terminal() {
        assert_eq!(Shown("a\u{1b}[2Jb").to_string(), "a [2Jb");
        assert_eq!(Shown(&"x".repeat(200)).to_string().chars().count(), 101);
    }
}
