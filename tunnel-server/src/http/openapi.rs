//! `/openapi.json`: the description of the HTTP API, made from the table of operations and the list of routes.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};
use yonder_protocol::ErrorCode;
use yonder_protocol::limits;
use yonder_protocol::operation::{OPERATIONS, Operation};
use yonder_transport::VERSION;

use super::answer::operation_status;

/// The whole document. It is the same for every server of one version.
pub static DOCUMENT: LazyLock<Value> = LazyLock::new(document);

/// Every code with which an operation fails.
const CODES: [ErrorCode; 16] = [
    ErrorCode::Invalid,
    ErrorCode::UnknownOperation,
    ErrorCode::Unsupported,
    ErrorCode::Disconnected,
    ErrorCode::TabUnavailable,
    ErrorCode::Stale,
    ErrorCode::NotFound,
    ErrorCode::NotActionable,
    ErrorCode::DialogOpen,
    ErrorCode::NavigationFailed,
    ErrorCode::Timeout,
    ErrorCode::Cancelled,
    ErrorCode::Crashed,
    ErrorCode::Overloaded,
    ErrorCode::FileFailed,
    ErrorCode::OperationFailed,
];

fn document() -> Value {
    let mut paths = Map::new();
    for (path, item) in fixed_routes() {
        paths.insert(path.to_owned(), item);
    }
    for operation in OPERATIONS.iter() {
        paths.insert(format!("/call/{}", operation.name), call_route(operation));
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Yonder server half",
            "version": VERSION,
            "description": "All paths may stand below any prefix. Every answer carries the header Yonder-Version. \
                            Requests with an Origin are refused unless the administrator allowed it. \
                            Errors are JSON: {\"error\": {\"code\": …, \"message\": …}}."
        },
        "servers": [{"url": "."}],
        "security": [{"bearer": []}, {"header": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "header": {"type": "apiKey", "in": "header", "name": "Yonder-Token"}
            },
            "parameters": {
                "session": {
                    "name": "session", "in": "query", "required": false,
                    "description": "Browser session; the header Yonder-Session does the same and wins.",
                    "schema": {
                        "type": "string", "default": "default",
                        "pattern": "^[A-Za-z0-9._-]+$", "maxLength": limits::SESSION_NAME_BYTES
                    }
                },
                "files": {
                    "name": "files", "in": "query", "required": false,
                    "description": "With inline the answer is {\"value\": …, \"files\": [{\"info\": …, \"data\": base64}]}.",
                    "schema": {"type": "string", "enum": ["inline"]}
                }
            },
            "schemas": {
                "Error": {
                    "type": "object",
                    "required": ["error"],
                    "properties": {"error": {
                        "type": "object",
                        "required": ["code", "message"],
                        "properties": {
                            "code": {"type": "string"},
                            "message": {"type": "string", "description": "What failed, and what to do."}
                        }
                    }}
                }
            },
            "responses": {
                "Unauthorized": error_response("Token missing or wrong"),
                "Forbidden": error_response("The request came from a web page")
            }
        }
    })
}

fn error_response(description: &str) -> Value {
    json!({
        "description": description,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    })
}

/// One method of a route, with the answers that all of them share.
fn method(id: &str, summary: &str, mut extra: Value, success: Value) -> Value {
    let mut responses = json!({
        "401": {"$ref": "#/components/responses/Unauthorized"},
        "403": {"$ref": "#/components/responses/Forbidden"}
    });
    merge(&mut responses, success);
    let mut method = json!({"operationId": id, "summary": summary, "responses": responses});
    merge(&mut method, extra.take());
    method
}

/// Adds the members of the object `extra` to `target`; objects that both have are joined.
fn merge(target: &mut Value, extra: Value) {
    if let (Some(target), Value::Object(extra)) = (target.as_object_mut(), extra) {
        for (key, value) in extra {
            match target.get_mut(&key) {
                Some(known @ Value::Object(_)) => merge(known, value),
                _ => {
                    target.insert(key, value);
                }
            }
        }
    }
}

fn ok(description: &str, media: &str, schema: &Value) -> Value {
    json!({"200": {"description": description, "content": {media: {"schema": schema}}}})
}

fn call_route(operation: &Operation) -> Value {
    let mut responses = ok(
        "Result",
        "application/json",
        &operation.output_schema().to_value(),
    );
    for code in CODES {
        let status = operation_status(code).as_u16().to_string();
        let description = match responses
            .get(&status)
            .and_then(|known| known.get("description"))
        {
            Some(Value::String(known)) => format!("{known}, {}", code.as_str()),
            _ => format!("Failed; code {}", code.as_str()),
        };
        merge(
            &mut responses,
            json!({status: error_response(&description)}),
        );
    }
    let extra = json!({
        "tags": ["operations"],
        "parameters": [
            {"$ref": "#/components/parameters/session"},
            {"$ref": "#/components/parameters/files"}
        ],
        "requestBody": {
            "required": false,
            "content": {"application/json": {"schema": operation.input_schema().to_value()}}
        }
    });
    json!({"post": method(&operation.name.replace('.', "_"), operation.description, extra, responses)})
}

/// The routes apart from the operations.
fn fixed_routes() -> Vec<(&'static str, Value)> {
    let object = || json!({"type": "object"});
    let text = || json!({"type": "string"});
    let get = |id: &str, summary: &str, success: Value| json!({"get": method(id, summary, json!({}), success)});
    let session = json!({"parameters": [{"$ref": "#/components/parameters/session"}]});
    let mut routes = vec![
        (
            "/healthz",
            json!({"get": {
                "operationId": "healthz", "summary": "Whether the server is up; needs no token", "security": [],
                "responses": ok("It is", "application/json", &object())
            }}),
        ),
        (
            "/metrics",
            get(
                "metrics",
                "Counters for Prometheus",
                ok("Text format 0.0.4", "text/plain", &text()),
            ),
        ),
        (
            "/status",
            get(
                "status",
                "Links, sessions, tabs, tunnels",
                ok("Status", "application/json", &object()),
            ),
        ),
        (
            "/attached",
            json!({"get": method(
                "attached",
                "Whether a desktop serves the session; with `was`, answered once that changes or after 25 s",
                json!({"parameters": [
                    {"$ref": "#/components/parameters/session"},
                    {"name": "was", "in": "query", "required": false, "schema": {"type": "boolean"}}
                ]}),
                ok("How it stands", "application/json", &json!({
                    "type": "object", "required": ["attached"], "properties": {"attached": {"type": "boolean"}}
                })),
            )}),
        ),
        (
            "/link",
            json!({
                "get": method("link", "WebSocket upgrade to a link, subprotocol yonder.v1", json!({}), json!({
                    "101": {"description": "The link begins"},
                    "426": error_response("The request carried no usable upgrade")
                })),
                "post": method("linkPoll", "The same link in plain requests", json!({
                    "requestBody": {"content": {"application/octet-stream": {"schema": text()}}}
                }), ok("Bytes of the link", "application/octet-stream", &text()))
            }),
        ),
        (
            "/mcp",
            json!({
                "post": method("mcpPost", "Model Context Protocol, streamable HTTP", session.clone(),
                    ok("JSON or an event stream", "application/json", &object())),
                "get": method("mcpGet", "Event stream of an MCP session", session.clone(),
                    ok("Events", "text/event-stream", &text())),
                "delete": method("mcpDelete", "Ends an MCP session", session, json!({"204": {"description": "Ended"}}))
            }),
        ),
        (
            "/openapi.json",
            get(
                "openapi",
                "This document",
                ok("OpenAPI 3.1", "application/json", &object()),
            ),
        ),
        (
            "/rpc/events",
            get(
                "rpcEvents",
                "Control events of RPC attachments: identifiers and cancellations only",
                ok(
                    "Events attached, command and cancel",
                    "text/event-stream",
                    &text(),
                ),
            ),
        ),
    ];
    for (path, id, summary) in [
        (
            "/rpc/attach",
            "rpcAttach",
            "Attaches a desktop for as long as the request is pending; answers how it ended",
        ),
        ("/rpc/state", "rpcState", "Replaces the inventory of tabs"),
        ("/rpc/command", "rpcCommand", "Reads a pending command"),
        ("/rpc/result", "rpcResult", "Ends a command"),
        (
            "/rpc/tunnel.open",
            "rpcTunnelOpen",
            "Opens a tunnel to a target",
        ),
        (
            "/rpc/tunnel.read",
            "rpcTunnelRead",
            "Reads what has arrived, waiting up to 10 s",
        ),
        (
            "/rpc/tunnel.write",
            "rpcTunnelWrite",
            "Writes a chunk, or ends the writing direction",
        ),
        (
            "/rpc/tunnel.close",
            "rpcTunnelClose",
            "Closes a tunnel; may be repeated",
        ),
    ] {
        let mut content = json!({"application/json": {"schema": object()}});
        if id.starts_with("rpcTunnel") {
            merge(
                &mut content,
                json!({"application/octet-stream": {"schema": text()}}),
            );
        }
        let extra = json!({"tags": ["rpc"], "requestBody": {"content": content}});
        let mut success = ok("Answer", "application/json", &object());
        if id == "rpcTunnelRead" {
            merge(
                &mut success,
                json!({"200": {"content": {"application/octet-stream": {"schema": text()}}}}),
            );
        }
        routes.push((path, json!({"post": method(id, summary, extra, success)})));
    }
    routes
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::http::route::{RPC_METHODS, Route};

    #[test]
    fn every_path_is_a_route_with_that_method_and_every_reference_resolves() {
        let paths = DOCUMENT["paths"].as_object().unwrap();
        let mut ids = BTreeSet::new();
        for (path, item) in paths {
            let route = Route::of(path);
            assert_ne!(route, Route::Unknown, "{path}");
            for (name, method) in item.as_object().unwrap() {
                let http = http::Method::from_bytes(name.to_uppercase().as_bytes()).unwrap();
                assert!(route.takes(&http), "{name} {path}");
                assert!(
                    ids.insert(method["operationId"].as_str().unwrap().to_owned()),
                    "{path}"
                );
                assert!(!method["responses"].as_object().unwrap().is_empty());
            }
        }
        for operation in OPERATIONS.iter() {
            assert!(paths.contains_key(&format!("/call/{}", operation.name)));
        }
        for method in RPC_METHODS {
            assert!(paths.contains_key(&format!("/rpc/{method}")));
        }
        check_references(&DOCUMENT);
    }

    fn check_references(value: &Value) {
        match value {
            Value::Object(members) => {
                if let Some(Value::String(target)) = members.get("$ref") {
                    assert!(
                        DOCUMENT.pointer(target.trim_start_matches('#')).is_some(),
                        "{target}"
                    );
                }
                members.values().for_each(check_references);
            }
            Value::Array(items) => items.iter().for_each(check_references),
            _ => {}
        }
    }
}
