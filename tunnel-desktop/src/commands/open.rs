//! `tunnel-desktop open`: Chromium with the server's network, its tabs at the service of the server's agents.

use anyhow::Context as _;
use yonder_browser::complete_address;
use yonder_protocol::link::Role;

use crate::cli::OpenArgs;
use crate::console::Console;
use crate::desk::{BrowserPlan, Desk, Plan};
use crate::failure::Failure;
use crate::settings::Settings;
use crate::stop::StopSignal;

/// Serves the browser session until its window is closed, another desktop takes over, or it is stopped.
///
/// # Errors
/// If the server half cannot be reached or refuses, or Chromium does not start or ends by itself.
pub(crate) async fn run(
    args: OpenArgs,
    settings: &Settings,
    console: &Console,
) -> Result<(), Failure> {
    let page = args
        .page
        .map(|page| complete_address(&page).map_err(Failure::usage))
        .transpose()?;
    let plan = Plan {
        way: settings.way(args.server.as_deref(), &args.access)?,
        role: Role::Browser,
        session: settings.session(args.session)?,
        page,
        browser: BrowserPlan::new(args.browser, settings)?,
    };
    let stop = StopSignal::new().context("could not watch for signals")?;
    let Some(mut desk) = Box::pin(Desk::set_up(plan, console, &stop)).await? else {
        return Ok(());
    };
    let end = tokio::select! {
        end = desk.ended() => end,
        () = stop.asked() => Ok(()),
    };
    desk.close().await;
    end
}
