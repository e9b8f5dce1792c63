//! Every bound of the proxy with its reason. Those that users may change are fields of
//! [`ProxyConfig`](crate::ProxyConfig) and take their default from here.

use std::time::Duration;

/// Bytes of one message head, either way: eight times what common servers accept, since development
/// cookies grow large. A head must fit into a [`BLOCK_BYTES`] buffer.
pub(crate) const HEAD_BYTES: usize = 64 * 1024;

/// Fields of a request head.
pub(crate) const REQUEST_FIELDS: usize = 100;

/// Fields of a response head: more than in a request, as frameworks send one `Set-Cookie` or `Link` each.
pub(crate) const RESPONSE_FIELDS: usize = 256;

/// Bytes read from a socket at once. System calls and frames dominate the cost of relaying, so blocks
/// are large; they are held only while they carry data.
pub(crate) const BLOCK_BYTES: usize = 128 * 1024;

/// Blocks that one thread keeps for its next reads: 4 MiB.
pub(crate) const SPARE_BLOCKS: usize = 32;

/// Blocks that one direction moves before the other gets its turn and the runtime its thread.
pub(crate) const BLOCKS_PER_TURN: usize = 8;

/// Digits of a chunk size: 2^60 bytes is beyond any body, and sums stay far from overflow.
pub(crate) const CHUNK_SIZE_DIGITS: u32 = 15;

/// Bytes of one chunk's extensions. Nobody uses them, but they are legal.
pub(crate) const CHUNK_EXTENSION_BYTES: u32 = 1024;

/// Bytes of a trailer section.
pub(crate) const TRAILER_BYTES: u32 = 16 * 1024;

/// Interim (1xx) responses before a final one; a server that sends more is broken.
pub(crate) const INTERIM_RESPONSES: usize = 64;

/// Client connections at once: a browser holds a few hundred, load tests a few thousand.
pub(crate) const CONNECTIONS: usize = 4_096;

/// From the first byte of a request head to its last.
pub(crate) const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Silence between requests after which a client connection is closed; Chromium gives up its own at this age.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_mins(5);

/// Limit of one dial. The dialer has its own, shorter one with a better message; this one
/// only guards against a dialer without.
pub(crate) const DIAL_DEADLINE: Duration = Duration::from_secs(30);

/// Limit of writing an answer of our own to a client that does not read.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a client that ended its side is still served without taking a byte. A closed
/// connection looks the same as a half-closed one until something is written to it, and a tunnel must not
/// outlive its client for long.
pub(crate) const HALF_CLOSED_GRACE: Duration = Duration::from_secs(1);

/// Silence after which the system asks a client's socket whether it is still there. A client that closed
/// its end of a tunnel for good looks half-closed until then; the orphan it leaves is gone after a minute,
/// and the question is answered with a reset.
pub(crate) const KEEPALIVE_IDLE: Duration = Duration::from_mins(1);

/// Time between such questions while none is answered.
pub(crate) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// How long input is discarded before a connection is closed whose client still sends. Closing
/// with unread input resets the connection, and the reset could overtake the answer.
pub(crate) const LINGER: Duration = Duration::from_secs(2);

/// How long a client may stop in the middle of a request whose response it has had already.
pub(crate) const UPLOAD_STALL: Duration = Duration::from_secs(30);

/// How long the proxy remembers that a target answered or failed.
pub(crate) const REACH_MEMORY: Duration = Duration::from_secs(30);

/// Targets remembered; the oldest makes room.
pub(crate) const REACH_TARGETS: usize = 1_024;

/// How long an idle connection to a target is kept for another client connection.
pub(crate) const POOL_IDLE: Duration = Duration::from_secs(15);

/// How often idle connections are looked through for expired and closed ones.
pub(crate) const POOL_SWEEP: Duration = Duration::from_secs(3);

/// Idle connections per session and target: what a browser opens to one host.
pub(crate) const POOL_PER_TARGET: usize = 6;

/// Idle connections in all.
pub(crate) const POOL_TOTAL: usize = 128;

/// An idle connection may carry a request that must not be repeated only when it was in use this
/// lately: servers close idle connections after some seconds, and a request that meets that close is lost.
pub(crate) const REUSE_UNSAFE_IDLE: Duration = Duration::from_secs(1);

/// Pause after a failed `accept`, for example with too many open files: time for some to be closed.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(250);
