//! Everything about one request, its bodies included.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;
use yonder_protocol::limits;
use yonder_protocol::operation::error::{ErrorCode, OperationError};
use yonder_protocol::operation::scalar::{Bounded, Needle};
use yonder_protocol::operation::types::{
    Body, BodyUnavailable, Header, NetworkDetail, NetworkFrames, NetworkGet, RequestState,
    ResourceType, Timing,
};

use super::frames::Wanted;
use super::{Entry, Head, ID_PREFIX, NetworkLog, POST_CHARS_MAX, URL_CHARS_MAX};
use crate::cdp::{CdpError, Session};
use crate::execute::CapturedFile;
use crate::listing::{cut, millis, number};
use crate::redact;
use crate::tab::Tab;

/// How long the browser may take to hand out a body that it has.
const BODY_LIMIT: Duration = Duration::from_secs(5);

/// Characters of a text body unless the caller asks for less.
const BODY_CHARS: usize = 20_000;

/// Characters of the name of a file made from a body.
const NAME_CHARS_MAX: usize = 100;

/// Statuses that never have a body (RFC 9110, section 6.4.1).
const BODYLESS: &[u64] = &[204, 205, 304];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResponseBody {
    body: String,
    base64_encoded: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PostData {
    post_data: String,
}

/// Answers `network.get`, with the file made from a body that is not text.
///
/// # Errors
/// [`ErrorCode::NotFound`] if the request is not kept any more, [`ErrorCode::Invalid`] for an id that is none.
pub(crate) async fn get(
    tab: &Tab,
    request: &NetworkGet,
) -> Result<(NetworkDetail, Option<CapturedFile>), OperationError> {
    let id = request.id.as_str();
    let number = number(ID_PREFIX, id).ok_or_else(|| {
        let id: String = id.chars().take(80).collect();
        OperationError::new(
            ErrorCode::Invalid,
            format!(
                "network.get: {id:?} is no request id; take one such as {ID_PREFIX}12 from network.list"
            ),
        )
    })?;
    let (mut detail, entry) = tab.watch().network(|log| {
        let entry = log.get(number)?.clone();
        Some((detail(log, number, &entry, request, tab), entry))
    })
    .ok_or_else(|| {
        OperationError::new(
            ErrorCode::NotFound,
            format!("the tab has no request {id} or keeps it no longer; call network.list for the present ones"),
        )
    })?;
    let mut file = None;
    if request.include_body.unwrap_or_default() {
        let chars = request.max_body_chars.map_or(BODY_CHARS, |limit| {
            usize::try_from(Bounded::get(limit)).unwrap_or(BODY_CHARS)
        });
        let secrets = request.secrets.unwrap_or_default();
        let page = tab.watch().page();
        detail.request_body = posted(&entry, page.as_ref(), chars, secrets).await;
        (detail.response_body, file) = answered(&entry, page.as_ref(), chars, secrets).await;
    }
    Ok((detail, file))
}

fn detail(
    log: &NetworkLog,
    number: u64,
    entry: &Entry,
    request: &NetworkGet,
    tab: &Tab,
) -> NetworkDetail {
    let secrets = request.secrets.unwrap_or_default();
    let mut shown = entry.shown(number, URL_CHARS_MAX);
    if secrets && let Some(url) = &entry.full_url {
        shown.url.clone_from(url);
    }
    let streams = matches!(
        entry.kind,
        ResourceType::WebSocket | ResourceType::EventSource
    );
    let frames = (streams || entry.frames > 0).then(|| {
        let wanted = Wanted {
            contains: request.frames_contain.as_ref().map(Needle::as_str),
            before: request.frames_before,
            secrets,
        };
        let (list, truncated, kept) = log.frames.list(number, &wanted);
        NetworkFrames {
            list,
            total: entry.frames,
            truncated,
            dropped: entry.frames.saturating_sub(kept),
            open: entry.open,
        }
    });
    let id = |number: u64| format!("{ID_PREFIX}{number}");
    NetworkDetail {
        tab: tab.summary(),
        request: shown,
        request_headers: headers(&entry.request, secrets),
        response_headers: headers(&entry.response, secrets),
        headers_truncated: entry.request.truncated || entry.response.truncated,
        request_body: Body::NotRequested,
        response_body: Body::NotRequested,
        mime: (!entry.mime.is_empty()).then(|| entry.mime.clone()),
        protocol: entry.protocol.clone(),
        served_from: entry.served_from.map(str::to_owned),
        body_bytes: (entry.body_bytes > 0).then_some(entry.body_bytes),
        initiator: entry.initiator.clone(),
        timing: timing(entry),
        redirected_from: entry.redirected_from.map(id),
        redirected_to: entry.redirected_to.map(id),
        frames,
        files: Vec::new(),
    }
}

fn headers(head: &Head, secrets: bool) -> Vec<Header> {
    let shown = |(name, value): &(String, String)| Header {
        name: name.clone(),
        value: if secrets {
            value.clone()
        } else {
            redact::header(name, value).into_owned()
        },
    };
    head.fields.iter().map(shown).collect()
}

fn timing(entry: &Entry) -> Option<Timing> {
    let timing = entry.timing?;
    let answered = timing.request_time + timing.receive_headers_end / 1_000.0;
    Some(Timing {
        blocked_ms: millis(timing.send_start),
        wait_ms: millis(timing.receive_headers_end - timing.send_end),
        receive_ms: entry
            .ended
            .map(|ended| millis((ended - answered) * 1_000.0)),
    })
}

/// Asks for something of `entry` where it was reported, and then at the page itself, which keeps what
/// frames and workers left behind.
async fn ask<R: serde::de::DeserializeOwned>(
    entry: &Entry,
    page: Option<&Session>,
    method: &'static str,
) -> Result<R, CdpError> {
    let id = json!({ "requestId": &*entry.id });
    let own = entry.session.call_within(BODY_LIMIT, method, &id).await;
    match (own, page) {
        (Err(CdpError::Refused { .. } | CdpError::Detached), Some(page))
            if *page != entry.session =>
        {
            page.call_within(BODY_LIMIT, method, &id).await
        }
        (own, _) => own,
    }
}

fn gone(error: &CdpError) -> Body {
    let reason = match error {
        // It knows the request and says that it kept nothing of it.
        CdpError::Refused { .. } => BodyUnavailable::NotCaptured,
        _ => BodyUnavailable::BackendUnavailable,
    };
    Body::Unavailable { reason }
}

async fn posted(entry: &Entry, page: Option<&Session>, chars: usize, secrets: bool) -> Body {
    if !entry.has_post {
        return Body::Empty;
    }
    let mime = entry.request.get("content-type").unwrap_or_default();
    let whole = match &entry.post {
        Some(data) => data.clone(),
        None => match ask::<PostData>(entry, page, "Network.getRequestPostData").await {
            Ok(data) => data.post_data,
            Err(error) => return gone(&error),
        },
    };
    if whole.contains('\u{fffd}') || !(mime.is_empty() || is_text(mime)) {
        return Body::Unavailable {
            reason: BodyUnavailable::Binary,
        };
    }
    let mut body = text(&whole, mime, chars, secrets);
    if let Body::Text { truncated, .. } = &mut body {
        *truncated |= entry.post.is_some() && whole.chars().count() >= POST_CHARS_MAX;
    }
    body
}

async fn answered(
    entry: &Entry,
    page: Option<&Session>,
    chars: usize,
    secrets: bool,
) -> (Body, Option<CapturedFile>) {
    let unavailable = |reason| (Body::Unavailable { reason }, None);
    let bodyless = entry.redirected_to.is_some()
        || entry.kind == ResourceType::WebSocket
        || entry.method == "HEAD"
        || entry
            .status
            .is_some_and(|status| BODYLESS.contains(&status));
    match entry.state {
        _ if bodyless => return (Body::Empty, None),
        RequestState::Pending => return (Body::Pending, None),
        RequestState::Failed if entry.status.is_none() => {
            return unavailable(BodyUnavailable::NotCaptured);
        }
        RequestState::Failed | RequestState::Completed => {}
    }
    let body = match ask::<ResponseBody>(entry, page, "Network.getResponseBody").await {
        Ok(body) => body,
        Err(CdpError::Refused { .. }) if !entry.has_body() => return (Body::Empty, None),
        Err(error) => return (gone(&error), None),
    };
    if body.body.is_empty() {
        // What was there and is not any more is not an empty body.
        return if entry.has_body() {
            unavailable(BodyUnavailable::NotCaptured)
        } else {
            (Body::Empty, None)
        };
    }
    let data = if body.base64_encoded {
        let Ok(data) = STANDARD.decode(&body.body) else {
            return unavailable(BodyUnavailable::BackendUnavailable);
        };
        data
    } else {
        body.body.into_bytes()
    };
    if is_text(&entry.mime) || (entry.mime.is_empty() && !body.base64_encoded) {
        let whole = String::from_utf8_lossy(&data);
        return (text(&whole, &entry.mime, chars, secrets), None);
    }
    if data.len() > limits::FILE_TRANSFER_BYTES {
        return unavailable(BodyUnavailable::Binary);
    }
    let file = CapturedFile::new(&file_name(&entry.url), &entry.mime, Bytes::from(data));
    (Body::File, Some(file))
}

fn text(whole: &str, mime: &str, chars: usize, secrets: bool) -> Body {
    // Hidden before it is cut, so that a cut cannot make a name unknown.
    let (text, truncated) = if secrets {
        cut(whole, chars)
    } else {
        cut(&redact::body(mime, whole), chars)
    };
    Body::Text { text, truncated }
}

/// Whether the media type `mime` is one that people read.
fn is_text(mime: &str) -> bool {
    let essence = mime
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    essence.starts_with("text/")
        || essence.ends_with("+json")
        || essence.ends_with("+xml")
        || matches!(
            essence.as_str(),
            "application/json"
                | "application/xml"
                | "application/javascript"
                | "application/x-javascript"
                | "application/ecmascript"
                | "application/x-www-form-urlencoded"
                | "application/graphql"
                | "application/x-ndjson"
                | "application/yaml"
                | "application/x-yaml"
                | "application/toml"
                | "application/sql"
                | "application/manifest+json"
                | "multipart/form-data"
        )
}

/// The last part of the path of `url`, or a name that says what it is.
fn file_name(url: &str) -> String {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    let last = path.rsplit('/').next().unwrap_or_default();
    if last.is_empty() || url.starts_with("data:") {
        return "body".to_owned();
    }
    cut(last, NAME_CHARS_MAX).0
}
