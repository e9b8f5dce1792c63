//! Tools made from operations, and results made from answers.

use std::fmt::Write as _;
use std::sync::{Arc, LazyLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool, ToolAnnotations};
use serde_json::Value;
use yonder_protocol::OperationError;
use yonder_protocol::operation::{OPERATIONS, Operation};

use crate::Answer;

/// Every tool, in the order of the operations.
pub(crate) static TOOLS: LazyLock<Vec<Tool>> =
    LazyLock::new(|| OPERATIONS.iter().map(tool).collect());

/// The operation behind a tool's name.
pub(crate) fn operation(tool_name: &str) -> Option<&'static Operation> {
    OPERATIONS
        .iter()
        .find(|operation| operation.tool_name() == tool_name)
}

fn tool(operation: &Operation) -> Tool {
    Tool::new(
        operation.tool_name(),
        operation.description,
        object(operation.input_schema().to_value()),
    )
    .with_raw_output_schema(object(operation.output_schema().to_value()))
    .with_annotations(
        ToolAnnotations::new()
            .read_only(operation.read_only)
            .destructive(operation.destructive)
            .idempotent(operation.idempotent)
            .open_world(operation.open_world),
    )
}

fn object(schema: Value) -> Arc<JsonObject> {
    match schema {
        Value::Object(map) => Arc::new(map),
        _ => Arc::default(),
    }
}

/// A result whose text and structured content say the same. Outlines are shown as they are, since
/// escaping every line break would cost a model a fifth more tokens.
pub(crate) fn success(answer: Answer) -> CallToolResult {
    let mut content = vec![ContentBlock::text(text(&answer.value))];
    content.extend(
        answer
            .images
            .iter()
            .map(|image| ContentBlock::image(BASE64.encode(&image.data), image.mime.as_str())),
    );
    let mut result = CallToolResult::success(content);
    result.structured_content = Some(answer.value);
    result
}

/// A failure that the model reads: its code, what failed and the next step.
pub(crate) fn failure(error: &OperationError) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(format!(
        "[browser.{}] {}",
        error.code.as_str(),
        error.message
    ))])
}

fn text(value: &Value) -> String {
    let (Some(tab), Some(content)) = (
        value.get("tab"),
        value.get("content").and_then(Value::as_str),
    ) else {
        return value.to_string();
    };
    let mut text = tab.to_string();
    if value.get("truncated").and_then(Value::as_bool) == Some(true) {
        text.push_str(" truncated");
    }
    let _ = write!(text, "\n{content}");
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_tool_leads_back_to_its_operation() {
        for (tool, expected) in TOOLS.iter().zip(OPERATIONS.iter()) {
            assert_eq!(operation(&tool.name).unwrap().name, expected.name);
        }
        assert!(operation("browser_fly").is_none());
    }

    #[test]
    fn outlines_are_text_and_everything_else_is_json() {
        let outline = json!({"tab": {"id": "t"}, "content": "a\nb", "truncated": true});
        assert_eq!(text(&outline), "{\"id\":\"t\"} truncated\na\nb");
        assert_eq!(text(&json!({"value": 2})), "{\"value\":2}");
    }
}
