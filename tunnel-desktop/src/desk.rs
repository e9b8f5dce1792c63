//! A Chromium with the server's network: the link, the local proxy and the browser session over it, set up and closed
//! together. What is done with it is its command's.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use yonder_browser::{
    Browser, BrowserConfig, BrowserSession, LaunchError, Profile, ProxyCredential,
};
use yonder_protocol::OperationError;
use yonder_protocol::link::{Role, SessionName};
use yonder_protocol::operation::Operation;
use yonder_proxy::{Challenge, Credential, Proxy, ProxyConfig};

use crate::attach::{self, Attach, Attachment, Fresh};
use crate::calls;
use crate::cli::BrowserArgs;
use crate::console::Console;
use crate::failure::{Exit, Failure};
use crate::settings::Settings;
use crate::state_dir::KeptProfile;
use crate::stop::StopSignal;
use crate::way::Way;

/// Size of the first window in CSS pixels: a common laptop's, and what screenshots show.
const WINDOW: (u32, u32) = (1280, 800);

/// How long after the credential was given again further refusals count as the same loss.
const PRIME_PAUSE: Duration = Duration::from_secs(1);

/// How long a start that nobody waits for any more may go on before it is cut off.
const ABANDON_LIMIT: Duration = Duration::from_secs(2);

/// What a desk is set up with, everything checked that can be checked without doing it.
pub(crate) struct Plan {
    pub(crate) way: Way,
    /// [`Role::Browser`] puts the tabs at the service of the server's agents; with [`Role::Tunnels`] only this process
    /// drives them.
    pub(crate) role: Role,
    pub(crate) session: SessionName,
    /// Page to open first, a whole address.
    pub(crate) page: Option<String>,
    pub(crate) browser: BrowserPlan,
}

/// How Chromium is to be started.
pub(crate) struct BrowserPlan {
    headless: bool,
    sandbox: bool,
    executable: Option<PathBuf>,
    profile: Option<KeptProfile>,
}

impl BrowserPlan {
    /// What `args` and the configuration file say. A kept profile is locked from here on.
    ///
    /// # Errors
    /// If the profile cannot be used.
    pub(crate) fn new(args: BrowserArgs, settings: &Settings) -> Result<Self, Failure> {
        let config = &settings.config;
        let profile = args
            .profile
            .or_else(|| config.profile.clone())
            .map(|name| {
                settings
                    .state_dir()?
                    .profile(&name)
                    .map_err(|error| Failure::new(Exit::Usage, error))
            })
            .transpose()?;
        Ok(Self {
            headless: args.headless || config.headless,
            sandbox: !(args.no_sandbox || config.no_sandbox),
            executable: args.browser.or_else(|| config.browser.clone()),
            profile,
        })
    }

    fn config(&self, proxy: &Proxy) -> BrowserConfig {
        BrowserConfig {
            executable: self.executable.clone(),
            headless: self.headless,
            sandbox: self.sandbox,
            proxy: proxy.local_addr(),
            profile: self
                .profile
                .as_ref()
                .map_or(Profile::Temporary, |kept| Profile::Kept(kept.path.clone())),
            window: WINDOW,
        }
    }
}

/// A Chromium that is starting, in a task of its own so that it can be ended in order at any moment: one that is
/// cut off while it starts leaves files behind.
struct Launch(JoinSet<Result<Browser, LaunchError>>);

impl Launch {
    fn begin(config: BrowserConfig) -> Self {
        let mut launch = JoinSet::new();
        launch.spawn(Browser::launch(config));
        Self(launch)
    }

    /// The browser, once it has started. Cancel safe; asked for once.
    async fn browser(&mut self) -> Result<Browser, Failure> {
        match self.0.join_next().await {
            Some(Ok(Err(error @ LaunchError::NotExecutable { .. }))) => {
                Err(Failure::new(Exit::Usage, error))
            }
            Some(Ok(launched)) => launched.map_err(|error| Failure::new(Exit::Failed, error)),
            Some(Err(error)) => Err(Failure::failed(format!(
                "starting Chromium failed: {error}"
            ))),
            None => Err(Failure::failed("Chromium was started before")),
        }
    }

    /// Lets the start end, and closes what it started.
    async fn abandon(mut self) {
        if let Ok(Ok(browser)) = timeout(ABANDON_LIMIT, self.browser()).await {
            browser.close().await;
        }
    }
}

/// Everything that runs while the browser session lasts.
pub(crate) struct Desk {
    attachment: Attachment,
    browser: Browser,
    session: BrowserSession,
    proxy: Proxy,
    console: Console,
    /// Opening the first page; ends by itself.
    page: JoinSet<Result<(), OperationError>>,
    /// Serving calls and guarding the credential; end with the desk.
    _tasks: JoinSet<()>,
    /// Held until Chromium is gone.
    _profile: Option<KeptProfile>,
}

/// What stands once the link is there.
struct Attached {
    attachment: Attachment,
    session: BrowserSession,
    page: JoinSet<Result<(), OperationError>>,
    tasks: JoinSet<()>,
}

impl Desk {
    /// Starts proxy and Chromium, then attaches. In this order, so that a Chromium that does not start cannot push
    /// out a desktop that works. Answers `None` when stopped meanwhile; nothing is left then.
    pub(crate) async fn set_up(
        plan: Plan,
        console: &Console,
        stop: &StopSignal,
    ) -> Result<Option<Self>, Failure> {
        let (links, tunnels) = attach::links();
        let proxy = Proxy::start(ProxyConfig::new(Challenge::PrimingHostOnly), tunnels)
            .await
            .context("could not open a local port for Chromium's proxy")?;
        console.begin(
            &format!("connecting to {}", plan.way.address()),
            plan.way.prompts(),
        );
        // Chromium starts while the server half is asked, since each takes a while. A server half that cannot be reached
        // is told first: it is the more frequent trouble, and has exit codes of its own.
        let mut launch = Launch::begin(plan.browser.config(&proxy));
        let reachable = tokio::select! {
            reachable = attach::probe(&plan.way) => reachable,
            () = stop.asked() => {
                launch.abandon().await;
                return Ok(None);
            }
        };
        if let Err(failure) = reachable {
            launch.abandon().await;
            return Err(failure);
        }
        let browser = tokio::select! {
            browser = launch.browser() => browser?,
            () = stop.asked() => {
                launch.abandon().await;
                return Ok(None);
            }
        };
        let attached = tokio::select! {
            attached = Self::attach(&plan, console, links, &proxy, &browser) => attached.map(Some),
            () = stop.asked() => Ok(None),
        };
        match attached {
            Ok(Some(Attached {
                attachment,
                session,
                page,
                tasks,
            })) => Ok(Some(Self {
                attachment,
                browser,
                session,
                proxy,
                console: console.clone(),
                page,
                _tasks: tasks,
                _profile: plan.browser.profile,
            })),
            Ok(None) => {
                browser.close().await;
                Ok(None)
            }
            Err(failure) => {
                browser.close().await;
                Err(failure)
            }
        }
    }

    /// Opens the browser session and the link that serves it.
    async fn attach(
        plan: &Plan,
        console: &Console,
        links: attach::Links,
        proxy: &Proxy,
        browser: &Browser,
    ) -> Result<Attached, Failure> {
        let credential = proxy.add_session(plan.session.as_str());
        let session = browser
            .open_session(plan.session.as_str(), for_browser(&credential))
            .await
            .context("could not open the browser session")?;
        // Chromium hides why a CONNECT failed.
        session.set_failure_lookup(Arc::new(proxy.failures()));
        let attach = Attach::new(&plan.way, plan.role, plan.session.clone(), console);
        let (attachment, fresh) = attach.start(links).await?;
        let mut tasks = JoinSet::new();
        tasks.spawn(guard_credential(proxy.unauthenticated(), session.clone()));
        if plan.role == Role::Browser {
            tasks.spawn(serve(fresh, session.clone()));
        }
        let mut page = JoinSet::new();
        if let Some(url) = plan.page.clone() {
            page.spawn(open_page(session.clone(), url));
        }
        Ok(Attached {
            attachment,
            session,
            page,
            tasks,
        })
    }

    /// The browser session.
    pub(crate) fn session(&self) -> &BrowserSession {
        &self.session
    }

    /// Waits for the end: the window closed, Chromium gone, or the link gone for good.
    pub(crate) async fn ended(&mut self) -> Result<(), Failure> {
        loop {
            tokio::select! {
                end = self.attachment.ended() => return end,
                exit = self.browser.exited() => return judge_exit(&exit),
                Some(opened) = self.page.join_next() => match opened {
                    // The person sees Chromium's or the proxy's error page and may try again there.
                    Ok(Err(error)) => self.console.line(&format!("the page did not open: {error}")),
                    Ok(Ok(())) => {}
                    Err(error) => tracing::error!(%error, "opening the page ended abnormally"),
                },
            }
        }
    }

    /// Closes every socket and removes what Chromium left. Takes at most some two seconds.
    pub(crate) async fn close(self) {
        // Side by side: each tells its other end and has a deadline of its own.
        tokio::join!(
            self.attachment.close(),
            self.browser.close(),
            self.proxy.close()
        );
    }
}

/// How the command ends with Chromium: in order when the person closed it.
fn judge_exit(exit: &yonder_browser::Exit) -> Result<(), Failure> {
    match exit {
        yonder_browser::Exit::WindowsClosed => Ok(()),
        yonder_browser::Exit::Ended(ended) if ended.is_success() => Ok(()),
        yonder_browser::Exit::Ended(ended) => Err(Failure::failed(format!(
            "Chromium ended unexpectedly ({ended}); run the command again"
        ))),
        other => Err(Failure::failed(format!("Chromium is gone: {other:?}"))),
    }
}

/// The proxy's credential in the browser's words.
fn for_browser(credential: &Credential) -> ProxyCredential {
    ProxyCredential::new(credential.username(), credential.password().expose())
}

/// Serves one link after the other.
async fn serve(mut fresh: Fresh, session: BrowserSession) {
    while let Some((link, incoming)) = fresh.recv().await {
        calls::serve(link, incoming, session.clone()).await;
    }
}

/// Gives Chromium the credential again when it lost it, which happens when its network process dies.
async fn guard_credential(mut refused: watch::Receiver<u64>, session: BrowserSession) {
    while refused.changed().await.is_ok() {
        tracing::info!("a request came without the proxy credential; giving it to Chromium again");
        session.prime_again().await;
        // A page full of refused requests is one loss; whatever comes later is another.
        tokio::time::sleep(PRIME_PAUSE).await;
        refused.mark_unchanged();
    }
}

/// Opens the page that the person asked for.
async fn open_page(session: BrowserSession, url: String) -> Result<(), OperationError> {
    let request = Operation::named("tabs.open")?.parse(serde_json::json!({ "url": url }))?;
    session.execute(request, None).await.map(drop)
}
