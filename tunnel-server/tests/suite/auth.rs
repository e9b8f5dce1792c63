//! Who is let in.

use crate::support::{Answer, Server};

/// Every path of the API with its methods, as the server describes them.
fn routes(server: &Server) -> Vec<(String, String)> {
    let document = server.send("GET", "/openapi.json", "").json();
    let mut routes = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            routes.push((method.to_uppercase(), path.clone()));
        }
    }
    routes
}

fn assert_refused(answer: &Answer, what: &str) {
    assert_eq!(answer.status, 401, "{what}: {answer:?}");
    assert!(
        answer
            .header("WWW-Authenticate")
            .unwrap()
            .starts_with("Bearer"),
        "{what}"
    );
    assert_eq!(answer.error_code(), "unauthorized", "{what}");
    assert!(answer.header("Yonder-Version").is_some(), "{what}");
    assert_eq!(answer.header("Cache-Control"), Some("no-store"), "{what}");
}

#[test]
fn no_route_but_healthz_answers_without_the_token() {
    let server = Server::start(&[]);
    let routes = routes(&server);
    assert!(routes.len() > 25);
    let long = "x".repeat(2_000);
    for (method, path) in &routes {
        if path == "/healthz" {
            continue;
        }
        for headers in [
            &[][..],
            &[("Authorization", "Bearer wrong")],
            &[("Authorization", "Basic eDp5")],
            &[("Yonder-Token", "wrong")],
            &[("Yonder-Token", "")],
            &[("Yonder-Token", &long)],
        ] {
            assert_refused(
                &server.send_with(method, path, headers, "{}"),
                &format!("{method} {path} {headers:?}"),
            );
        }
    }
    // What does not exist is not told to strangers either.
    assert_refused(&server.send_with("GET", "/nothing", &[], ""), "unknown");
    assert_refused(&server.send_with("DELETE", "/metrics", &[], ""), "method");
}

#[test]
fn healthz_needs_no_token() {
    let server = Server::start(&[]);
    let answer = server.send_with("GET", "/healthz", &[], "");
    assert_eq!(answer.status, 200);
    assert_eq!(answer.body, r#"{"status":"ok"}"#);
    assert!(answer.header("Yonder-Version").is_some());
    assert_eq!(server.send_with("HEAD", "/healthz", &[], "").body, "");
}

#[test]
fn either_header_carries_the_token() {
    let server = Server::start(&[]);
    assert_eq!(server.send("GET", "/metrics", "").status, 200);
    let own = [
        ("Authorization", "Basic cHJveHk6cHJveHk="),
        ("Yonder-Token", server.token.as_str()),
    ];
    assert_eq!(server.send_with("GET", "/metrics", &own, "").status, 200);
    // A credential in the URL is none: it would end up in logs.
    let url = format!("/metrics?token={}", server.token);
    assert_eq!(server.send_with("GET", &url, &[], "").status, 401);
}

#[test]
fn web_pages_are_refused_on_every_route() {
    let server = Server::start(&[]);
    let bearer = format!("Bearer {}", server.token);
    for (method, path) in routes(&server) {
        for origin in ["https://evil.example", "null", "http://localhost:7070"] {
            let headers = [("Authorization", bearer.as_str()), ("Origin", origin)];
            let answer = server.send_with(&method, &path, &headers, "{}");
            assert_eq!(answer.status, 403, "{method} {path}");
            assert_eq!(answer.error_code(), "origin_refused");
            assert_eq!(answer.header("Access-Control-Allow-Origin"), None);
        }
    }
}

#[test]
fn pages_of_an_allowed_origin_are_served() {
    let server = Server::start(&["--allow-origin", "https://tools.example"]);
    let bearer = format!("Bearer {}", server.token);
    let origin = ("Origin", "https://tools.example");
    let answer = server.send_with("GET", "/status", &[("Authorization", &bearer), origin], "");
    assert_eq!(answer.status, 200);
    assert_eq!(
        answer.header("Access-Control-Allow-Origin"),
        Some("https://tools.example")
    );
    assert_eq!(
        server.send_with("GET", "/status", &[origin], "").status,
        401
    );
    let ask = [origin, ("Access-Control-Request-Method", "POST")];
    let preflight = server.send_with("OPTIONS", "/mcp", &ask, "");
    assert_eq!(preflight.status, 204);
    assert!(
        preflight
            .header("Access-Control-Allow-Headers")
            .unwrap()
            .contains("yonder-token")
    );
    let other = [
        ("Authorization", bearer.as_str()),
        ("Origin", "https://other.example"),
    ];
    assert_eq!(server.send_with("GET", "/status", &other, "").status, 403);
}

#[test]
fn a_rotated_token_replaces_the_old_one_while_the_server_runs() {
    let server = Server::start(&[]);
    let (code, out, _) = server.run(&["token", "--rotate"]);
    assert_eq!(code, 0);
    let path = server.state_path.join("token");
    assert_eq!(out.trim_end(), path.display().to_string());
    let new = std::fs::read_to_string(path).unwrap();
    let bearer = format!("Bearer {}", new.trim_end());
    let answer = server.send_with("GET", "/status", &[("Authorization", &bearer)], "");
    assert_eq!(answer.status, 200);
    assert_eq!(server.send("GET", "/status", "").status, 401);
}

#[test]
fn the_token_is_never_logged() {
    let server = Server::start(&[]);
    server.send("GET", "/status", "");
    server.send("POST", "/call/tabs.list", "{\"a\":1}");
    server.send_with("GET", "/status", &[("Yonder-Token", "a-wrong-token")], "");
    let log = server.log();
    assert!(log.contains("answered"), "{log}");
    assert!(!log.contains(&server.token));
    assert!(!log.contains("a-wrong-token"));
}
