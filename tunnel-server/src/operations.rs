//! The hub's operations as the MCP endpoint calls them.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::watch;
use yonder_mcp::{Answer, Image, Operate};
use yonder_protocol::OperationError;
use yonder_protocol::operation::Operation;

use crate::hub::Hub;

/// What a media type of pictures begins with.
pub(crate) const IMAGE: &str = "image/";

/// Calls operations on the hub of this process.
#[derive(Debug)]
pub(crate) struct HubOperations {
    hub: Arc<Hub>,
}

impl HubOperations {
    pub(crate) fn new(hub: Arc<Hub>) -> Self {
        Self { hub }
    }
}

impl Operate for HubOperations {
    async fn operate(
        &self,
        session: &str,
        operation: &'static Operation,
        input: Value,
    ) -> Result<Answer, OperationError> {
        let done = self.hub.operate(session, operation.name, input).await?;
        let images = done
            .files
            .into_iter()
            .filter(|file| file.info.mime.starts_with(IMAGE))
            .map(|file| Image {
                mime: file.info.mime,
                data: file.data,
            })
            .collect();
        Ok(Answer {
            value: done.value,
            images,
        })
    }

    fn attached(&self, session: &str) -> watch::Receiver<bool> {
        self.hub.attached(session)
    }
}
