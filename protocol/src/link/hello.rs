//! The greeting at the head of every carrier: the client's `HELLO`, the server's `WELCOME` or `REFUSED`.
//! These messages are not part of the numbered byte stream; after `WELCOME` each half goes on sending
//! that stream from the offset which the other named as received.
//!
//! A message is its length (`u16`, of what follows), its type (`u8`) and its fields, big-endian. `HELLO`
//! starts with a magic number and the version, so that a stranger or another version is recognised
//! before anything else is read.

use std::fmt;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::frame::clip;
use crate::limits::SESSION_NAME_BYTES;

/// First bytes of every `HELLO`.
const MAGIC: [u8; 4] = *b"YNDR";

/// Version of the wire that this crate speaks.
pub const VERSION: u16 = 1;

/// Longest greeting, in bytes after the length field: several times the largest valid one, so that
/// later versions may add fields (unknown trailing bytes are ignored).
pub const MESSAGE_BYTES_MAX: usize = 4 * 1024;

/// Longest agent text (program and version), in bytes.
pub const AGENT_BYTES_MAX: usize = 256;

/// Longest text of a refusal, in bytes.
pub const REFUSAL_TEXT_BYTES_MAX: usize = 256;

/// Smallest `DATA` payload limit that a half may announce: below it, headers and system calls dominate.
pub const DATA_BYTES_LEAST: u32 = 1024;

/// Smallest initial window that a half may announce.
pub const WINDOW_LEAST: u32 = 1024;

const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const REFUSED: u8 = 3;

const ROLE_BROWSER: u8 = 0;
const ROLE_TUNNELS: u8 = 1;

/// Names a link on the server half; zero asks for a new one.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct LinkId(pub [u8; 16]);

impl LinkId {
    /// Asks for a new link.
    pub const NEW: Self = Self([0; 16]);

    /// Whether this asks for a new link.
    pub fn is_new(&self) -> bool {
        *self == Self::NEW
    }
}

impl fmt::Display for LinkId {
    /// The first four bytes in hexadecimal: enough to follow a link in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .take(4)
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// What a client proves to take up its link again; chosen by the client when the link is new.
#[derive(Clone)]
pub struct ResumeSecret([u8; 32]);

impl ResumeSecret {
    /// A secret of these bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes, for the wire and for a comparison in constant time.
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for ResumeSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResumeSecret(..)")
    }
}

/// What the desktop half attaches for.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Role {
    /// It serves a browser session: tunnels, and operations called by the server half.
    Browser,
    /// Tunnels alone.
    Tunnels,
}

/// Name of a browser session: 1 to [`SESSION_NAME_BYTES`] characters of `A-Z a-z 0-9 . _ -`.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct SessionName(String);

/// A name that is not a [`SessionName`].
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "a session name has 1 to {SESSION_NAME_BYTES} characters: letters, digits, '.', '_' and '-'"
)]
pub struct InvalidSessionName;

impl SessionName {
    /// Checks `name`.
    pub fn new(name: &str) -> Result<Self, InvalidSessionName> {
        let valid = (1..=SESSION_NAME_BYTES).contains(&name.len())
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
        if valid {
            Ok(Self(name.to_owned()))
        } else {
            Err(InvalidSessionName)
        }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for SessionName {
    fn default() -> Self {
        Self("default".to_owned())
    }
}

impl fmt::Display for SessionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for SessionName {
    type Err = InvalidSessionName;

    fn from_str(name: &str) -> Result<Self, InvalidSessionName> {
        Self::new(name)
    }
}

/// The client's greeting.
#[derive(Clone, Debug)]
pub struct Hello {
    /// The link to take up again, or [`LinkId::NEW`].
    pub link: LinkId,
    /// Which lane of the link this carrier is for: 0 for its main one, another number, never used before, for each
    /// further one.
    pub lane: u32,
    /// Proves that the link is the client's.
    pub secret: ResumeSecret,
    /// Bytes of the server's stream that arrived so far.
    pub received: u64,
    /// What the client attaches for.
    pub role: Role,
    /// The browser session.
    pub session: SessionName,
    /// Program and version, for `status`; cut at [`AGENT_BYTES_MAX`].
    pub agent: String,
    /// Longest `DATA` payload that the client takes.
    pub data_max: u32,
    /// Bytes that the server may send on each new stream before it is granted more.
    pub window: u32,
}

/// The server's acceptance.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Welcome {
    /// The link.
    pub link: LinkId,
    /// Bytes of the client's stream that arrived so far.
    pub received: u64,
    /// Longest `DATA` payload that the server takes.
    pub data_max: u32,
    /// Bytes that the client may send on each new stream before it is granted more.
    pub window: u32,
    /// How long the server keeps the link without a carrier (whole milliseconds).
    pub grace: Duration,
    /// Silence after which either half pings (whole milliseconds).
    pub heartbeat: Duration,
    /// Program and version, for `status`; cut at [`AGENT_BYTES_MAX`].
    pub agent: String,
}

/// Why a greeting is refused.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum RefusalCode {
    /// The server does not know the link: its grace ended, or the server was restarted.
    UnknownLink,
    /// The resume secret is wrong.
    BadSecret,
    /// The halves speak different versions.
    Version,
    /// The server holds as many links as it may.
    Overloaded,
    /// The server takes no new work.
    Draining,
    /// The greeting cannot be read or asks for what this version does not have.
    Malformed,
    /// A number that this version does not know.
    Other(u16),
}

impl RefusalCode {
    fn to_wire(self) -> u16 {
        match self {
            Self::UnknownLink => 1,
            Self::BadSecret => 2,
            Self::Version => 3,
            Self::Overloaded => 4,
            Self::Draining => 5,
            Self::Malformed => 6,
            Self::Other(number) => number,
        }
    }

    fn from_wire(number: u16) -> Self {
        match number {
            1 => Self::UnknownLink,
            2 => Self::BadSecret,
            3 => Self::Version,
            4 => Self::Overloaded,
            5 => Self::Draining,
            6 => Self::Malformed,
            other => Self::Other(other),
        }
    }
}

/// The server's refusal.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{text}")]
pub struct Refusal {
    /// What kind.
    pub code: RefusalCode,
    /// What to do, for a person; cut at [`REFUSAL_TEXT_BYTES_MAX`].
    pub text: String,
}

impl Refusal {
    /// A refusal of `code` told as `text`.
    pub fn new(code: RefusalCode, text: impl Into<String>) -> Self {
        Self {
            code,
            text: text.into(),
        }
    }
}

/// What the server answers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Answer {
    /// The link is up.
    Welcome(Welcome),
    /// It is not.
    Refused(Refusal),
}

/// Bytes that are not a greeting.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidGreeting {
    /// Not the first bytes of a `HELLO`, or another message than was due.
    #[error("the other end does not speak the link protocol")]
    Stranger,
    /// Another version of the wire.
    #[error(
        "the other half speaks version {0} of the link protocol, this one version {VERSION}; install the same release on both"
    )]
    Version(u16),
    /// Longer than [`MESSAGE_BYTES_MAX`].
    #[error("greeting of {0} bytes, more than {MESSAGE_BYTES_MAX}")]
    TooLong(usize),
    /// A field is missing or out of its bounds.
    #[error("malformed greeting: {0}")]
    Field(&'static str),
}

/// Takes one complete message off the front of `buffer`; `None` when more bytes are needed. What
/// follows the message stays in `buffer`.
pub fn take_message(buffer: &mut BytesMut) -> Result<Option<Bytes>, InvalidGreeting> {
    let Some(&[high, low]) = buffer.first_chunk::<2>() else {
        return Ok(None);
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length > MESSAGE_BYTES_MAX {
        return Err(InvalidGreeting::TooLong(length));
    }
    if buffer.len() < 2 + length {
        return Ok(None);
    }
    buffer.advance(2);
    Ok(Some(buffer.split_to(length).freeze()))
}

fn message(kind: u8, fields: impl FnOnce(&mut BytesMut)) -> Bytes {
    let mut body = BytesMut::with_capacity(512);
    body.put_u8(kind);
    fields(&mut body);
    let mut out = BytesMut::with_capacity(2 + body.len());
    // Every field is bounded, their sum is far below MESSAGE_BYTES_MAX.
    out.put_u16(u16::try_from(body.len()).unwrap_or(u16::MAX));
    out.put(body);
    out.freeze()
}

fn put_text(out: &mut BytesMut, text: &str, max: usize) {
    let text = clip(text, max);
    out.put_u16(u16::try_from(text.len()).unwrap_or(u16::MAX));
    out.put_slice(text.as_bytes());
}

fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

impl Hello {
    /// The message with its length.
    pub fn encode(&self) -> Bytes {
        message(HELLO, |out| {
            out.put_slice(&MAGIC);
            out.put_u16(VERSION);
            out.put_slice(&self.link.0);
            out.put_u32(self.lane);
            out.put_slice(&self.secret.0);
            out.put_u64(self.received);
            out.put_u8(match self.role {
                Role::Browser => ROLE_BROWSER,
                Role::Tunnels => ROLE_TUNNELS,
            });
            put_text(out, self.session.as_str(), SESSION_NAME_BYTES);
            put_text(out, &self.agent, AGENT_BYTES_MAX);
            out.put_u32(self.data_max);
            out.put_u32(self.window);
        })
    }

    /// Reads the message that [`take_message`] took.
    pub fn decode(message: Bytes) -> Result<Self, InvalidGreeting> {
        let mut fields = Fields(message);
        if fields.byte("type")? != HELLO || fields.array("magic")? != MAGIC {
            return Err(InvalidGreeting::Stranger);
        }
        let version = u16::from_be_bytes(fields.array("version")?);
        if version != VERSION {
            return Err(InvalidGreeting::Version(version));
        }
        Ok(Self {
            link: LinkId(fields.array("link id")?),
            lane: u32::from_be_bytes(fields.array("lane")?),
            secret: ResumeSecret(fields.array("resume secret")?),
            received: u64::from_be_bytes(fields.array("received offset")?),
            role: match fields.byte("role")? {
                ROLE_BROWSER => Role::Browser,
                ROLE_TUNNELS => Role::Tunnels,
                _ => return Err(InvalidGreeting::Field("role")),
            },
            session: SessionName::new(&fields.text("session name", SESSION_NAME_BYTES)?)
                .map_err(|_| InvalidGreeting::Field("session name"))?,
            agent: fields.text("agent", AGENT_BYTES_MAX)?,
            data_max: fields.at_least("data length", DATA_BYTES_LEAST)?,
            window: fields.at_least("initial window", WINDOW_LEAST)?,
        })
    }
}

impl Answer {
    /// The message with its length.
    pub fn encode(&self) -> Bytes {
        match self {
            Self::Welcome(welcome) => message(WELCOME, |out| {
                out.put_slice(&welcome.link.0);
                out.put_u64(welcome.received);
                out.put_u32(welcome.data_max);
                out.put_u32(welcome.window);
                out.put_u32(millis(welcome.grace));
                out.put_u32(millis(welcome.heartbeat));
                put_text(out, &welcome.agent, AGENT_BYTES_MAX);
            }),
            Self::Refused(refusal) => message(REFUSED, |out| {
                out.put_u16(refusal.code.to_wire());
                put_text(out, &refusal.text, REFUSAL_TEXT_BYTES_MAX);
            }),
        }
    }

    /// Reads the message that [`take_message`] took.
    pub fn decode(message: Bytes) -> Result<Self, InvalidGreeting> {
        let mut fields = Fields(message);
        match fields.byte("type")? {
            WELCOME => Ok(Self::Welcome(Welcome {
                link: LinkId(fields.array("link id")?),
                received: u64::from_be_bytes(fields.array("received offset")?),
                data_max: fields.at_least("data length", DATA_BYTES_LEAST)?,
                window: fields.at_least("initial window", WINDOW_LEAST)?,
                grace: Duration::from_millis(fields.at_least("grace", 0)?.into()),
                heartbeat: Duration::from_millis(fields.at_least("heartbeat", 1)?.into()),
                agent: fields.text("agent", AGENT_BYTES_MAX)?,
            })),
            REFUSED => Ok(Self::Refused(Refusal {
                code: RefusalCode::from_wire(u16::from_be_bytes(fields.array("code")?)),
                text: fields.text("text", REFUSAL_TEXT_BYTES_MAX)?,
            })),
            _ => Err(InvalidGreeting::Stranger),
        }
    }
}

/// Reads fields off a message; each names itself in the error.
struct Fields(Bytes);

impl Fields {
    fn array<const N: usize>(&mut self, name: &'static str) -> Result<[u8; N], InvalidGreeting> {
        let mut array = [0; N];
        self.0
            .try_copy_to_slice(&mut array)
            .map_err(|_| InvalidGreeting::Field(name))?;
        Ok(array)
    }

    fn byte(&mut self, name: &'static str) -> Result<u8, InvalidGreeting> {
        self.array::<1>(name).map(|[byte]| byte)
    }

    fn at_least(&mut self, name: &'static str, least: u32) -> Result<u32, InvalidGreeting> {
        let value = u32::from_be_bytes(self.array(name)?);
        if value < least {
            Err(InvalidGreeting::Field(name))
        } else {
            Ok(value)
        }
    }

    fn text(&mut self, name: &'static str, max: usize) -> Result<String, InvalidGreeting> {
        let length = usize::from(u16::from_be_bytes(self.array(name)?));
        if length > max || length > self.0.len() {
            return Err(InvalidGreeting::Field(name));
        }
        let bytes = self.0.split_to(length);
        match std::str::from_utf8(&bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(InvalidGreeting::Field(name)),
        }
    }
}
