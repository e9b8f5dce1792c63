//! Which route a path means. Paths are matched from their end, because most reverse proxies that mount us below a
//! prefix tell neither us nor the client how much of it they pass on.

use percent_encoding::percent_decode_str;

/// The methods of the attachment RPC.
pub(crate) const RPC_METHODS: [&str; 8] = [
    "attach",
    "state",
    "command",
    "result",
    "tunnel.open",
    "tunnel.read",
    "tunnel.write",
    "tunnel.close",
];

/// What a request is for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Route {
    /// Whether the server is up.
    Health,
    /// Counters for Prometheus.
    Metrics,
    /// What the server does, for `tunnel-server status`.
    Status,
    /// Whether a desktop serves a session, answered when that changes.
    Attached,
    /// A link.
    Link,
    /// The control events of the attachment RPC.
    Events,
    /// A method of the attachment RPC.
    Rpc(&'static str),
    /// An operation, by the name that the caller wrote.
    Call(String),
    /// The Model Context Protocol.
    Mcp,
    /// The description of the API.
    OpenApi,
    /// Nothing that we have.
    Unknown,
}

impl Route {
    /// The route of `path`.
    pub(crate) fn of(path: &str) -> Self {
        let mut segments = path.rsplit('/');
        let last = segments.next().unwrap_or_default();
        match (segments.next(), last) {
            (Some("call"), operation) if !operation.is_empty() => Self::Call(
                percent_decode_str(operation)
                    .decode_utf8_lossy()
                    .into_owned(),
            ),
            (Some("rpc"), "events") => Self::Events,
            (Some("rpc"), method) => RPC_METHODS
                .into_iter()
                .find(|known| *known == method)
                .map_or(Self::Unknown, Self::Rpc),
            (Some(_), "healthz") => Self::Health,
            (Some(_), "metrics") => Self::Metrics,
            (Some(_), "status") => Self::Status,
            (Some(_), "attached") => Self::Attached,
            (Some(_), "link") => Self::Link,
            (Some(_), "mcp") => Self::Mcp,
            (Some(_), "openapi.json") => Self::OpenApi,
            _ => Self::Unknown,
        }
    }

    /// The name under which its requests are counted.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Health => "healthz",
            Self::Metrics => "metrics",
            Self::Status => "status",
            Self::Attached => "attached",
            Self::Link => "link",
            Self::Events => "rpc/events",
            Self::Rpc(_) => "rpc",
            Self::Call(_) => "call",
            Self::Mcp => "mcp",
            Self::OpenApi => "openapi.json",
            Self::Unknown => "unknown",
        }
    }

    /// Its methods, as `Allow` lists them. A route that reads also answers HEAD.
    pub(crate) fn methods(&self) -> &'static str {
        match self {
            Self::Health
            | Self::Metrics
            | Self::Status
            | Self::Attached
            | Self::Events
            | Self::OpenApi
            | Self::Unknown => "GET, HEAD",
            Self::Link => "GET, POST",
            Self::Rpc(_) | Self::Call(_) => "POST",
            Self::Mcp => "GET, POST, DELETE",
        }
    }

    /// Whether it has `method`.
    pub(crate) fn takes(&self, method: &http::Method) -> bool {
        self.methods()
            .split(", ")
            .any(|known| known == method.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_prefix_works() {
        for prefix in ["", "/", "/a", "/a/b", "//", "/call", "/rpc/x"] {
            assert_eq!(
                Route::of(&format!("{prefix}/healthz")),
                match prefix {
                    "/call" => Route::Call("healthz".into()),
                    _ => Route::Health,
                },
                "{prefix}"
            );
            assert_eq!(
                Route::of(&format!("{prefix}/call/tabs.list")),
                Route::Call("tabs.list".into())
            );
            assert_eq!(
                Route::of(&format!("{prefix}/rpc/tunnel.open")),
                Route::Rpc("tunnel.open")
            );
        }
    }

    #[test]
    fn what_is_not_a_route_is_unknown() {
        for path in [
            "",
            "/",
            "*",
            "healthz",
            "/healthz/",
            "/rpc/nothing",
            "/rpc/",
            "/call/",
            "/a",
        ] {
            assert_eq!(Route::of(path), Route::Unknown, "{path}");
        }
        assert_eq!(
            Route::of("/call/tabs%2Elist"),
            Route::Call("tabs.list".into())
        );
    }

    #[test]
    fn methods_are_checked() {
        assert!(Route::Health.takes(&http::Method::HEAD));
        assert!(!Route::Health.takes(&http::Method::POST));
        assert!(Route::Link.takes(&http::Method::POST));
        assert!(!Route::Mcp.takes(&http::Method::HEAD));
    }
}
