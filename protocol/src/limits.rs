//! Bounds that both halves share. Each says what it bounds and why it has that value.

use std::time::Duration;

/// Tunnels that one link may hold open at once. A browser holds a few hundred; load benchmarks a few thousand.
pub const TUNNELS_PER_LINK: usize = 4_096;

/// Tunnels that one server half holds open over all links: below the 65,535 ports a single target address allows.
pub const TUNNELS_PER_SERVER: usize = 65_536;

/// Bytes of one unary tunnel chunk unless the caller asks for more (the figure of the attachment RPC).
pub const UNARY_CHUNK_BYTES: usize = 64 * 1024;

/// Largest unary tunnel chunk: what a plain nginx (`client_max_body_size 1m`) still lets through.
pub const UNARY_CHUNK_BYTES_MAX: usize = 1_000_000;

/// Bytes that a tunnel may send before the receiver grants more: a 1 MiB object never stalls at 50 ms.
pub const INITIAL_WINDOW: u32 = 1024 * 1024;

/// Payload of one `DATA` frame: system calls dominate the cost of relaying, so chunks are large.
pub const DATA_FRAME_BYTES: usize = 256 * 1024;

/// Bytes queued over all tunnels of the desktop half.
pub const DESKTOP_QUEUE_BYTES: usize = 64 * 1024 * 1024;

/// Bytes queued over all tunnels of the server half.
pub const SERVER_QUEUE_BYTES: usize = 256 * 1024 * 1024;

/// Lanes of one link, each with a carrier of its own: enough that bulk, lost packets and small traffic keep out of each
/// other's way, few enough for proxies that give a desktop a handful of connections.
pub const LANES_PER_LINK: usize = 4;

/// Sent but unacknowledged bytes that a lane keeps for replay on its next carrier: one stream's largest window.
pub const REPLAY_BYTES: usize = 8 * 1024 * 1024;

/// How long a link without a carrier keeps its tunnels.
pub const RESUME_GRACE: Duration = Duration::from_secs(30);

/// Silence after which a half sends a ping: a third of the shortest idle limit seen in proxies (50 s).
pub const HEARTBEAT: Duration = Duration::from_secs(15);

/// A carrier is dead when nothing arrived for this long after a ping. Whoever receives acknowledges at least every second, so
/// a slow line that still moves is not taken for dead.
pub const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(5);

/// Limit of each step of getting a carrier: TCP connect, TLS handshake, upgrade, first message.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Limit of dialling a target.
pub const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a new tunnel waits for a link that is reconnecting.
pub const LINK_WAIT: Duration = Duration::from_secs(5);

/// Sum of the files that travel with one operation, each way.
pub const FILE_TRANSFER_BYTES: usize = 25 * 1024 * 1024;

/// Files that travel with one operation.
pub const FILES_PER_TRANSFER: usize = 64;

/// Result of an operation as JSON, in characters.
pub const RESULT_CHARS: usize = 512_000;

/// Arguments of an operation as JSON, in bytes: the largest script plus its escapes.
pub const INPUT_BYTES: usize = 1024 * 1024;

/// Longest text that a page or an agent may put into one field, in characters.
pub const TEXT_CHARS: usize = 100_000;

/// Longest short field (a URL argument, a name), in characters.
pub const SHORT_CHARS: usize = 2_048;

/// Longest URL that a tab reports, in characters.
pub const URL_CHARS: usize = 16_384;

/// Tabs of one browser session.
pub const TABS_PER_SESSION: usize = 100;

/// Deadline of an operation that names none of its own.
pub const OPERATION_DEADLINE: Duration = Duration::from_mins(1);

/// How long an operation may take that does many things, or much.
pub const LONG_OPERATION_DEADLINE: Duration = Duration::from_mins(2);

/// Head room on top of a caller's `timeoutMs`, so that the desktop's own time-out answers first.
pub const DEADLINE_MARGIN: Duration = Duration::from_secs(15);

/// Operations under way at once on one attachment; the next one is refused.
pub const CALLS_PER_LINK: usize = 256;

/// Longest name of a browser session, in bytes.
pub const SESSION_NAME_BYTES: usize = 64;
