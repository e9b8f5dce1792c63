//! `token`: says where the token lies, and replaces it.

use std::io::{self, IsTerminal as _, Write as _};

use super::print;
use crate::cli::TokenOptions;
use crate::config::Common;
use crate::exit::{CommandResult, Failure};
use crate::server::presence::Presence;
use crate::server::tls::pin_of_file;
use crate::token::TokenError;

pub(super) fn run(common: &Common, options: &TokenOptions) -> CommandResult {
    let usage = |error| Failure::new(crate::exit::Exit::Usage, anyhow::Error::from(error));
    let path = common
        .token
        .path()
        .ok_or_else(|| usage(TokenError::NoFile))?;
    if options.rotate {
        common.token.rotate().map_err(usage)?;
    } else {
        common.token.ensure().map_err(usage)?;
        // Better told now than by the server or the desktop later.
        common.token.read().map_err(usage)?;
    }
    let path = std::path::absolute(&path).unwrap_or(path);
    print(&path.display().to_string())?;
    if io::stdout().is_terminal() {
        // A terminal that went away has nobody who reads this.
        let _told = writeln!(
            io::stderr(),
            "{}",
            instructions(common, &path.display().to_string())
        );
    }
    Ok(())
}

/// How a desktop attaches.
fn instructions(common: &Common, path: &str) -> String {
    let presence = Presence::of_running(&common.state_dir);
    let pin = presence
        .as_ref()
        .and_then(|presence| presence.pin.clone())
        .or_else(|| {
            pin_of_file(&common.state_dir.certificate())
                .ok()
                .map(|pin| pin.to_string())
        });
    let server = presence.map_or_else(
        || "https://THIS-HOST:7070".to_owned(),
        |presence| presence.url,
    );
    let pin = pin
        .filter(|_| server.starts_with("https:"))
        .map_or_else(String::new, |pin| format!(" --pin {pin}"));
    format!(
        "\nOn the desk, copy the token and attach (replace the host by the name under which the desk reaches it):\n\n  \
         scp THIS-HOST:{path} yonder-token\n  \
         tunnel-desktop open {server} --token-file yonder-token{pin}\n"
    )
}
