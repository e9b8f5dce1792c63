//! The MCP server of one client: lists the tools, calls operations, announces changes of the list.

use std::sync::{Arc, Mutex, PoisonError};

use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, SubscriptionFilter,
};
use rmcp::service::{NotificationContext, RequestContext, RoleServer, SubscriptionContext};
use rmcp::{ErrorData, model::Tool};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;
use yonder_protocol::OperationError;
use yonder_protocol::operation::error::ErrorCode;

use crate::instructions::INSTRUCTIONS;
use crate::{Operate, tools};

pub(crate) struct Handler<O> {
    operate: Arc<O>,
    session: String,
    /// Tells a client of the older, session-keeping protocol when the list of tools changes; ends with it.
    announcer: Mutex<JoinSet<()>>,
}

impl<O: Operate> Handler<O> {
    pub(crate) fn new(operate: Arc<O>, session: String) -> Self {
        Self {
            operate,
            session,
            announcer: Mutex::default(),
        }
    }

    fn is_attached(&self) -> bool {
        *self.operate.attached(&self.session).borrow()
    }
}

impl<O: Operate> ServerHandler for Handler<O> {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(
            ServerCapabilities::builder()
                .enable_tools()
                .enable_tool_list_changed()
                .build(),
        )
        .with_server_info(Implementation::new("yonder", env!("CARGO_PKG_VERSION")))
        .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = if self.is_attached() {
            tools::TOOLS.clone()
        } else {
            Vec::new()
        };
        Ok(ListToolsResult::with_all_items(tools))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools::TOOLS.iter().find(|tool| tool.name == name).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(operation) = tools::operation(&request.name) else {
            return Err(ErrorData::invalid_params(
                format!("there is no tool {:?}; tools/list names them", request.name),
                None,
            ));
        };
        let input = request.arguments.map_or(Value::Null, Value::Object);
        let result = tokio::select! {
            result = self.operate.operate(&self.session, operation, input) => result,
            () = context.ct.cancelled() => Err(OperationError::new(
                ErrorCode::Cancelled,
                format!("{}: cancelled; whether the browser acted is unknown", operation.name),
            )),
        };
        Ok(match result {
            Ok(answer) => tools::success(answer),
            Err(error) => tools::failure(&error),
        }
        .into())
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let mut attached = self.operate.attached(&self.session);
        let peer = context.peer;
        let announcer = async move {
            while next_change(&mut attached).await {
                if peer.notify_tool_list_changed().await.is_err() {
                    break;
                }
            }
        };
        let mut tasks = self
            .announcer
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        tasks.abort_all();
        tasks.spawn(announcer);
    }

    fn accepted_subscription_filter(&self, _: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(SubscriptionFilter::builder().tools_list_changed().build())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut attached = self.operate.attached(&self.session);
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                changed = next_change(&mut attached) => {
                    if !changed || context.sink().notify_tool_list_changed().await.is_err() {
                        return Ok(());
                    }
                }
            }
        }
    }
}

/// Waits until the value really differs; false when nobody will change it any more. Cancel safe: a
/// change that arrives while nobody waits is seen by the next call.
async fn next_change(attached: &mut watch::Receiver<bool>) -> bool {
    let before = *attached.borrow_and_update();
    attached.wait_for(|now| *now != before).await.is_ok()
}
