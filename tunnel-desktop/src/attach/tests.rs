use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tokio::time::timeout;
use yonder_protocol::Target;
use yonder_protocol::link::CloseCode;
use yonder_proxy::DialMode;
use yonder_transport::carrier::ConnectError;

use super::*;
use crate::cli::LogFormat;
use crate::test_server::{Pipe, TestServer, attached};

/// Far beyond what any step here takes, so that a hang fails instead of hanging.
const PATIENCE: Duration = Duration::from_secs(20);

async fn within<T>(what: impl Future<Output = T>) -> T {
    timeout(PATIENCE, what).await.expect("it took too long")
}

fn unreachable() -> ConnectError {
    ConnectError::Unreachable {
        server: "memory".to_owned(),
        problem: "it is being restarted".to_owned(),
        source: None,
    }
}

fn refused() -> ConnectError {
    ConnectError::Refused {
        server: "memory".to_owned(),
        status: StatusCode::UNAUTHORIZED,
        problem: "the token was changed".to_owned(),
    }
}

#[tokio::test]
async fn the_first_attempt_is_answered_with_its_exit_code() {
    for (error, exit) in [
        (unreachable(), Exit::Unreachable),
        (refused(), Exit::Refused),
        (ConnectError::Configuration("no".to_owned()), Exit::Usage),
    ] {
        let (server, _seen) = TestServer::new();
        server.fail_with(vec![error]);
        let attach = Attach {
            server: "memory".to_owned(),
            connector: Arc::new(Pipe(server)),
            prompts: false,
            role: Role::Tunnels,
            session: SessionName::default(),
            console: Console::stderr(LogFormat::Text),
        };
        let failure = attach.start(links().0).await.map(drop).unwrap_err();
        assert_eq!(failure.exit(), exit);
    }
}

#[tokio::test]
async fn a_replaced_desktop_ends_well_and_stays_away() {
    let (server, mut seen) = TestServer::new();
    let (mut attachment, _fresh, tunnels) = attached(&server).await;
    let link = seen.links.recv().await.unwrap();
    link.close(CloseCode::Replaced, "a newer desktop attached");
    within(attachment.ended()).await.unwrap();
    let target = Target::new("localhost", 1).unwrap();
    let error = within(tunnels.open(&target, DialMode::Optimistic))
        .await
        .unwrap_err();
    assert_eq!(error.code, yonder_protocol::TunnelErrorCode::LinkDown);
    assert!(seen.links.try_recv().is_err());
}

#[tokio::test]
async fn a_server_that_restarts_is_attached_to_again() {
    let (server, mut seen) = TestServer::new();
    let (mut attachment, mut fresh, tunnels) = attached(&server).await;
    let first = within(fresh.recv()).await.unwrap();
    server.fail_with(vec![unreachable(), unreachable()]);
    seen.links
        .recv()
        .await
        .unwrap()
        .close(CloseCode::ShuttingDown, "restarting");
    let second = tokio::select! {
        second = within(fresh.recv()) => second.unwrap(),
        _ = attachment.ended() => panic!("it gave up"),
    };
    assert_ne!(first.0.id(), second.0.id());
    // Nothing listens at the target; that the verdict arrives shows that the new link is used.
    let target = Target::new("127.0.0.1", 1).unwrap();
    let error = within(tunnels.open(&target, DialMode::Verdict))
        .await
        .unwrap_err();
    assert_eq!(error.code, yonder_protocol::TunnelErrorCode::Refused);
}

#[tokio::test]
async fn a_token_that_was_changed_ends_the_attempts() {
    let (server, mut seen) = TestServer::new();
    let (mut attachment, _fresh, _tunnels) = attached(&server).await;
    server.fail_with(vec![refused(), unreachable()]);
    seen.links
        .recv()
        .await
        .unwrap()
        .close(CloseCode::ShuttingDown, "restarting");
    let failure = within(attachment.ended()).await.unwrap_err();
    assert_eq!(failure.exit(), Exit::Refused);
}

#[tokio::test]
async fn closing_tells_the_server_half() {
    let (server, mut seen) = TestServer::new();
    let (attachment, _fresh, _tunnels) = attached(&server).await;
    let link = seen.links.recv().await.unwrap();
    within(attachment.close()).await;
    let reason = within(link.closed()).await;
    assert!(
        matches!(
            reason,
            CloseReason::Peer {
                code: CloseCode::Detached,
                ..
            }
        ),
        "{reason}"
    );
}

#[tokio::test]
async fn streams_that_nobody_wants_are_refused() {
    let (server, mut seen) = TestServer::new();
    let (_attachment, fresh, _tunnels) = attached(&server).await;
    drop(fresh);
    let link = seen.links.recv().await.unwrap();
    let mut stream = link.open_call().unwrap();
    assert!(within(stream.opened()).await.is_err());
}
