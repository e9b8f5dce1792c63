//! MCP over standard input and output, for agents that start us as a child process.

use std::sync::Arc;

use rmcp::ServiceExt as _;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::Operate;
use crate::handler::Handler;

/// Why serving over standard input and output ended other than by the client's leaving.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StdioError {
    /// The client's first messages were not MCP.
    #[error("the MCP client did not begin as the protocol asks: {0}")]
    Initialize(String),
    /// The serving task failed.
    #[error("serving MCP ended unexpectedly: {0}")]
    Ended(String),
}

/// Serves the operations of `session` until the client closes our standard input.
///
/// # Errors
/// [`StdioError`]; the client's closing the stream is not one.
pub async fn serve_stdio<O: Operate>(operate: Arc<O>, session: String) -> Result<(), StdioError> {
    let (input, output) = rmcp::transport::io::stdio();
    serve(operate, session, input, output).await
}

async fn serve<O: Operate>(
    operate: Arc<O>,
    session: String,
    input: impl AsyncRead + Send + Unpin + 'static,
    output: impl AsyncWrite + Send + Unpin + 'static,
) -> Result<(), StdioError> {
    let running = match Handler::new(operate, session).serve((input, output)).await {
        Ok(running) => running,
        Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(StdioError::Initialize(error.to_string())),
    };
    running
        .waiting()
        .await
        .map(drop)
        .map_err(|error| StdioError::Ended(error.to_string()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tokio::io::{
        AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, ReadHalf, WriteHalf,
    };
    use tokio::sync::watch;
    use tokio::task::JoinSet;
    use yonder_protocol::OperationError;
    use yonder_protocol::operation::error::ErrorCode;
    use yonder_protocol::operation::{OPERATIONS, Operation};

    use super::*;
    use crate::{Answer, Image};

    struct Desk {
        attached: watch::Sender<bool>,
    }

    impl Operate for Desk {
        async fn operate(
            &self,
            session: &str,
            operation: &'static Operation,
            input: Value,
        ) -> Result<Answer, OperationError> {
            assert_eq!(session, "default");
            match operation.name {
                "tabs.list" => Ok(Answer {
                    value: json!({"tabs": [], "focusedTabID": null}),
                    images: vec![],
                }),
                "screenshot" => Ok(Answer {
                    value: json!({"tab": null, "files": []}),
                    images: vec![Image {
                        mime: "image/png".to_owned(),
                        data: bytes::Bytes::from_static(b"png"),
                    }],
                }),
                "wait" => std::future::pending().await,
                _ => Err(OperationError::new(ErrorCode::Invalid, format!("{input}"))),
            }
        }

        fn attached(&self, _: &str) -> watch::Receiver<bool> {
            self.attached.subscribe()
        }
    }

    struct Client {
        lines: tokio::io::Lines<BufReader<ReadHalf<DuplexStream>>>,
        output: WriteHalf<DuplexStream>,
    }

    impl Client {
        async fn send(&mut self, message: Value) {
            self.output
                .write_all(format!("{message}\n").as_bytes())
                .await
                .unwrap();
        }

        async fn receive(&mut self) -> Value {
            serde_json::from_str(
                &self
                    .lines
                    .next_line()
                    .await
                    .unwrap()
                    .expect("server still there"),
            )
            .unwrap()
        }

        async fn call(&mut self, id: u32, method: &str, params: Value) -> Value {
            self.send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
                .await;
            let answer = self.receive().await;
            assert_eq!(answer["id"], id, "{answer}");
            answer
        }
    }

    async fn start(desk: Arc<Desk>) -> (Client, Serving) {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let (input, output) = tokio::io::split(theirs);
        let mut task = JoinSet::new();
        task.spawn(serve(desk, "default".to_owned(), input, output));
        let (read, write) = tokio::io::split(ours);
        let mut client = Client {
            lines: BufReader::new(read).lines(),
            output: write,
        };
        let hello = client
            .call(1, "initialize", json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}))
            .await;
        assert_eq!(hello["result"]["serverInfo"]["name"], "yonder");
        assert!(
            hello["result"]["instructions"]
                .as_str()
                .unwrap()
                .contains("browser_snapshot")
        );
        client
            .send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            .await;
        (client, task)
    }

    type Serving = JoinSet<Result<(), StdioError>>;

    #[tokio::test]
    async fn tools_appear_when_a_desktop_attaches() {
        let desk = Arc::new(Desk {
            attached: watch::Sender::new(false),
        });
        let (mut client, _task) = start(Arc::clone(&desk)).await;
        assert_eq!(
            client.call(2, "tools/list", json!({})).await["result"]["tools"],
            json!([])
        );
        desk.attached.send_replace(true);
        assert_eq!(
            client.receive().await["method"],
            "notifications/tools/list_changed"
        );
        let tools = client.call(3, "tools/list", json!({})).await["result"]["tools"].clone();
        assert_eq!(tools.as_array().unwrap().len(), OPERATIONS.len());
        let list = &tools[0];
        assert_eq!(list["name"], "browser_tabs_list");
        assert_eq!(list["annotations"]["readOnlyHint"], true);
        assert_eq!(list["inputSchema"]["type"], "object");
        assert_eq!(list["outputSchema"]["type"], "object");
        desk.attached.send_replace(false);
        assert_eq!(
            client.receive().await["method"],
            "notifications/tools/list_changed"
        );
    }

    #[tokio::test]
    async fn answers_carry_text_structure_and_pictures() {
        let desk = Arc::new(Desk {
            attached: watch::Sender::new(true),
        });
        let (mut client, _task) = start(desk).await;
        let result = client
            .call(
                2,
                "tools/call",
                json!({"name": "browser_tabs_list", "arguments": {}}),
            )
            .await["result"]
            .clone();
        assert_eq!(
            result["structuredContent"],
            json!({"tabs": [], "focusedTabID": null})
        );
        assert_eq!(result["isError"], false);
        let result = client
            .call(
                3,
                "tools/call",
                json!({"name": "browser_screenshot", "arguments": {}}),
            )
            .await["result"]
            .clone();
        assert_eq!(
            result["content"][1],
            json!({"type": "image", "data": "cG5n", "mimeType": "image/png"})
        );
    }

    #[tokio::test]
    async fn failures_name_their_code() {
        let desk = Arc::new(Desk {
            attached: watch::Sender::new(true),
        });
        let (mut client, _task) = start(desk).await;
        let result = client
            .call(
                2,
                "tools/call",
                json!({"name": "browser_click", "arguments": {"x": 1}}),
            )
            .await["result"]
            .clone();
        assert_eq!(result["isError"], true);
        assert_eq!(result["content"][0]["text"], "[browser.invalid] {\"x\":1}");
        let unknown = client
            .call(3, "tools/call", json!({"name": "browser_fly"}))
            .await;
        assert_eq!(unknown["error"]["code"], -32602);
    }

    #[tokio::test]
    async fn a_client_that_leaves_is_not_an_error() {
        let desk = Arc::new(Desk {
            attached: watch::Sender::new(true),
        });
        let (client, mut task) = start(desk).await;
        drop(client);
        task.join_next().await.unwrap().unwrap().unwrap();
    }
}
