//! The browser operations: data that the dispatcher, MCP, HTTP and the documentation are made from.
//!
//! An operation is a name, a sentence, flags and two types. [`OPERATIONS`] lists those that this
//! version carries out, [`PLANNED`] the names it refuses with a clear word. [`Request`] is a checked call.

pub mod error;
pub mod locator;
pub mod scalar;
pub mod types;

use std::fmt;
use std::sync::LazyLock;
use std::time::Duration;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde::de::DeserializeOwned;
use serde_json::Value;

use self::error::{ErrorCode, OperationError};
use self::scalar::{Needle, TabId};
use self::types as t;
use crate::limits;

/// What an operation is, apart from how it is done.
#[allow(
    clippy::struct_excessive_bools,
    reason = "independent flags, each of which some caller reads"
)]
pub struct Operation {
    /// Dotted name, such as `tabs.open`.
    pub name: &'static str,
    /// One sentence for people and agents.
    pub description: &'static str,
    /// Changes nothing in the page or browser.
    pub read_only: bool,
    /// May lose something that the user has: a tab, typed text.
    pub destructive: bool,
    /// Doing it twice has the effect of doing it once.
    pub idempotent: bool,
    /// May load or reach something outside the browser.
    pub open_world: bool,
    /// Needs the tab to show the document that the caller last saw.
    pub checks_generation: bool,
    /// Works while a JavaScript dialog of the tab is open.
    pub allowed_in_dialog: bool,
    /// Its `paths` are read where the agent is, and their bytes travel with the call.
    pub takes_files: bool,
    /// Its result lists files that do not come with it.
    pub lists_files: bool,
    parse: fn(Value) -> Result<Request, serde_path_to_error::Error<serde_json::Error>>,
    check_output: fn(&Value) -> Result<(), serde_path_to_error::Error<serde_json::Error>>,
    input_schema: fn() -> Schema,
    output_schema: fn() -> Schema,
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operation")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

fn schema<T: JsonSchema>() -> Schema {
    let mut schema = SchemaSettings::draft2020_12()
        .with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        })
        .into_generator()
        .into_root_schema_for::<T>();
    schema.remove("title");
    schema.remove("description");
    schema
}

fn parse<T: DeserializeOwned>(
    value: Value,
) -> Result<T, serde_path_to_error::Error<serde_json::Error>> {
    serde_path_to_error::deserialize(value)
}

macro_rules! operations {
    ($(
        $(#[doc = $doc:literal])+
        $name:literal = $variant:ident($input:ty) -> $output:ty { $($flag:ident),* }
    )*) => {
        /// A call whose arguments fit its operation.
        #[derive(Clone, Debug)]
        #[non_exhaustive]
        pub enum Request {
            $($(#[doc = $doc])+ $variant($input),)*
        }

        impl Request {
            /// The operation's dotted name.
            pub fn name(&self) -> &'static str {
                match self { $(Self::$variant(_) => $name,)* }
            }

            /// The arguments as JSON, in their canonical form.
            pub fn to_input(&self) -> Value {
                match self { $(Self::$variant(input) => serde_json::to_value(input),)* }
                    .expect("operation inputs hold only strings, numbers and plain maps")
            }
        }

        /// Every operation that this version carries out, in the order in which tools are listed.
        pub static OPERATIONS: LazyLock<Vec<Operation>> = LazyLock::new(|| vec![$(
            {
                #[allow(unused_mut, reason = "some operations set no flag")]
                let mut operation = Operation {
                    name: $name,
                    description: concat!($($doc),+).trim_ascii(),
                    read_only: false,
                    destructive: false,
                    idempotent: false,
                    open_world: false,
                    checks_generation: true,
                    allowed_in_dialog: false,
                    lists_files: false,
                    takes_files: false,
                    parse: |value| parse::<$input>(value).map(Request::$variant),
                    check_output: |value| {
                        serde_path_to_error::deserialize::<_, $output>(value).map(drop)
                    },
                    input_schema: schema::<$input>,
                    output_schema: schema::<$output>,
                };
                $(operations!(@flag operation $flag);)*
                operation
            },
        )*]);
    };
    (@flag $operation:ident read_only) => { $operation.read_only = true; $operation.idempotent = true };
    (@flag $operation:ident destructive) => { $operation.destructive = true };
    (@flag $operation:ident idempotent) => { $operation.idempotent = true };
    (@flag $operation:ident open_world) => { $operation.open_world = true };
    (@flag $operation:ident any_generation) => { $operation.checks_generation = false };
    (@flag $operation:ident takes_files) => { $operation.takes_files = true };
    (@flag $operation:ident lists_files) => { $operation.lists_files = true };
    (@flag $operation:ident in_dialog) => { $operation.allowed_in_dialog = true };
}

operations! {
    /// List the tabs of the browser session.
    "tabs.list" = TabsList(t::Empty) -> t::State { read_only, any_generation, in_dialog }
    /// Open a tab, at a URL if one is given, and wait until it has loaded.
    "tabs.open" = TabsOpen(t::TabsOpen) -> t::Tab { open_world, any_generation, in_dialog }
    /// Select the tab that the person at the desk sees; needed by no other operation.
    "tabs.focus" = TabsFocus(t::OfTab) -> t::Tab { idempotent, any_generation, in_dialog }
    /// Close a tab.
    "tabs.close" = TabsClose(t::OfTab) -> t::State { destructive, any_generation, in_dialog }
    /// Load a URL in a tab and wait until it has loaded.
    "navigate" = Navigate(t::Navigate) -> t::Tab { destructive, open_world, any_generation }
    /// Go back one entry in the tab's history.
    "back" = Back(t::OfTab) -> t::Tab { open_world }
    /// Go forward one entry in the tab's history.
    "forward" = Forward(t::OfTab) -> t::Tab { open_world }
    /// Load the tab's page again.
    "reload" = Reload(t::OfTab) -> t::Tab { destructive, open_world }
    /// Stop loading the tab's page.
    "stop" = Stop(t::OfTab) -> t::Tab { idempotent, any_generation }
    /// List the frames of a tab, cross-site ones included.
    "frames" = Frames(t::OfTab) -> t::Frames { read_only }
    /// Outline the page: roles, names and states, with a ref for each element to act on.
    "snapshot" = Snapshot(t::Snapshot) -> t::Outline { read_only }
    /// Find the lines of the outline that hold a text.
    "find" = Find(t::Find) -> t::Outline { read_only }
    /// Run JavaScript in the page and return its value as JSON.
    "evaluate" = Evaluate(t::Evaluate) -> t::Evaluated { destructive, open_world }
    /// Wait until the page has loaded, or until a text appears or is gone.
    "wait" = Wait(t::Wait) -> t::Tab { read_only, any_generation }
    /// Click an element.
    "click" = Click(t::Click) -> t::Tab { destructive, open_world }
    /// Move the pointer over an element.
    "hover" = Hover(t::Hover) -> t::Tab { open_world }
    /// Drag an element onto another.
    "drag" = Drag(t::Drag) -> t::Tab { destructive, open_world }
    /// Replace the content of a text field.
    "fill" = Fill(t::Fill) -> t::Tab { destructive, open_world }
    /// Fill, select and check several fields, in order.
    "fill_form" = FillForm(t::FillForm) -> t::Tab { destructive, open_world }
    /// Select options of a list.
    "select" = Select(t::Select) -> t::Tab { destructive, open_world }
    /// Check or clear a checkbox, radio button or switch.
    "check" = Check(t::Check) -> t::Tab { destructive, open_world }
    /// Turn the mouse wheel.
    "scroll" = Scroll(t::Scroll) -> t::Tab { open_world }
    /// Press a key or a chord on what has the focus.
    "press" = Press(t::Press) -> t::Tab { destructive, open_world }
    /// Read or answer the tab's JavaScript dialog.
    "dialog" = Dialog(t::DialogRequest) -> t::DialogState { destructive, any_generation, in_dialog }
    /// Take a picture of the viewport, an element or the whole page; any tab, visible or not.
    "screenshot" = Screenshot(t::Screenshot) -> t::Saved { read_only }
    /// List what the page and its workers wrote to the console, uncaught exceptions included.
    "console" = Console(t::Console) -> t::ConsoleList { read_only, any_generation, in_dialog }
    /// List the network requests of the page, redirects, workers and WebSockets included.
    "network.list" = NetworkList(t::NetworkListRequest) -> t::NetworkList { read_only, any_generation, in_dialog }
    /// Show one request: headers, timing, bodies, WebSocket frames; it is not sent again.
    "network.get" = NetworkGet(t::NetworkGet) -> t::NetworkDetail { read_only, any_generation, in_dialog }
    /// Give files of the server to a file field, or to the button that asks for them.
    "files.upload" = FilesUpload(t::Upload) -> t::Tab { destructive, open_world, takes_files }
    /// Drop files of the server on an element.
    "files.drop" = FilesDrop(t::Upload) -> t::Tab { destructive, open_world, takes_files }
    /// List the files that were recorded in a tab.
    "files.list" = FilesList(t::OfTab) -> t::FilesList { read_only, any_generation, in_dialog, lists_files }
    /// Bring a file of a tab to the server; heap snapshots come compressed.
    "files.get" = FilesGet(t::OfFile) -> t::Saved { read_only, any_generation, in_dialog }
    /// Record where the page's script spends its time, until cpu.stop or durationMs.
    "cpu.start" = CpuStart(t::CpuStart) -> t::Recording { }
    /// End the recording that cpu.start began; works after it ended by itself, too.
    "cpu.stop" = CpuStop(t::OfTab) -> t::Captured { any_generation }
    /// Sum up a CPU profile: functions by self time, with source positions, and the hottest stacks.
    "cpu.analyze" = CpuAnalyze(t::CpuAnalyze) -> t::CpuSummary { read_only, any_generation, in_dialog }
    /// Record what the browser does for the page, until trace.stop or durationMs; then load or use the page.
    "trace.start" = TraceStart(t::TraceStart) -> t::Recording { any_generation }
    /// End the recording that trace.start began; works after it ended by itself, too.
    "trace.stop" = TraceStop(t::OfTab) -> t::TraceCaptured { any_generation }
    /// Sum up a trace: LCP and its parts, CLS, INP, long tasks, blocking requests, forced layouts, scripts, insights.
    "trace.analyze" = TraceAnalyze(t::TraceAnalyze) -> t::TraceSummary { read_only, any_generation, in_dialog }
    /// Record the page's JavaScript heap after collecting garbage; the page stands still meanwhile.
    "heap.snapshot" = HeapSnapshot(t::OfTab) -> t::Captured { }
    /// Sum up a heap snapshot: classes by retained size, detached DOM nodes, the largest objects.
    "heap.summary" = HeapSummary(t::HeapSummaryRequest) -> t::HeapSummary { read_only, any_generation, in_dialog }
    /// Find objects in a heap snapshot by name or class.
    "heap.query" = HeapQuery(t::HeapQuery) -> t::HeapNodes { read_only, any_generation, in_dialog }
    /// Show an object of a heap snapshot: what it holds, what holds it, and the path to a root.
    "heap.object" = HeapObject(t::HeapObjectRequest) -> t::HeapObject { read_only, any_generation, in_dialog }
    /// Compare two heap snapshots class by class: what grew.
    "heap.compare" = HeapCompare(t::HeapCompare) -> t::HeapChanges { read_only, any_generation, in_dialog }
}

/// Operations whose names are taken and which this version does not carry out.
pub const PLANNED: &[&str] = &["lighthouse"];

impl Operation {
    /// The operation called `name`.
    ///
    /// # Errors
    /// [`ErrorCode::Unsupported`] for a planned one, [`ErrorCode::UnknownOperation`] with the list of names otherwise.
    pub fn named(name: &str) -> Result<&'static Self, OperationError> {
        if let Some(operation) = OPERATIONS.iter().find(|operation| operation.name == name) {
            return Ok(operation);
        }
        if PLANNED.contains(&name) {
            return Err(OperationError::new(
                ErrorCode::Unsupported,
                format!("{name} is not available in this version"),
            ));
        }
        let names: Vec<_> = OPERATIONS.iter().map(|operation| operation.name).collect();
        Err(OperationError::new(
            ErrorCode::UnknownOperation,
            format!(
                "there is no operation {:?}; the operations are {}",
                name.chars().take(80).collect::<String>(),
                names.join(", ")
            ),
        ))
    }

    /// The MCP tool name: `tabs.open` is `browser_tabs_open`.
    pub fn tool_name(&self) -> String {
        format!("browser_{}", self.name.replace('.', "_"))
    }

    /// Checks `input` against the operation; a missing input is an empty object.
    ///
    /// # Errors
    /// [`ErrorCode::Invalid`], naming the field, what was expected and, for an unknown field, the valid ones.
    pub fn parse(&self, input: Value) -> Result<Request, OperationError> {
        let input = if input.is_null() {
            Value::Object(serde_json::Map::new())
        } else {
            input
        };
        if !input.is_object() {
            return Err(OperationError::new(
                ErrorCode::Invalid,
                format!("{}: the arguments must be a JSON object", self.name),
            ));
        }
        let takes_nothing = self
            .input_schema()
            .get("properties")
            .and_then(Value::as_object)
            .is_none_or(serde_json::Map::is_empty);
        (self.parse)(input).map_err(|error| {
            let path = error.path().to_string();
            let mut reason = error.inner().to_string();
            if takes_nothing {
                reason = reason.replace(
                    ", there are no fields",
                    "; the operation takes no arguments",
                );
            }
            let place = if path == "." {
                String::new()
            } else {
                format!("{path}: ")
            };
            OperationError::new(
                ErrorCode::Invalid,
                format!("{}: {place}{reason}", self.name),
            )
        })
    }

    /// Checks a result that came from the other half before anybody relies on it.
    ///
    /// # Errors
    /// [`ErrorCode::OperationFailed`], naming the field that does not fit.
    pub fn check_output(&self, output: &Value) -> Result<(), OperationError> {
        (self.check_output)(output).map_err(|error| {
            OperationError::new(
                ErrorCode::OperationFailed,
                format!("{}: the desktop half sent a malformed result at {error}; update both halves to the same version", self.name),
            )
        })
    }

    /// JSON Schema (draft 2020-12) of the arguments, an object.
    pub fn input_schema(&self) -> Schema {
        (self.input_schema)()
    }

    /// JSON Schema (draft 2020-12) of the result, an object.
    pub fn output_schema(&self) -> Schema {
        (self.output_schema)()
    }
}

impl Request {
    /// The tab that the call is for; `None` where it is for the whole session.
    pub fn tab(&self) -> Option<&TabId> {
        match self {
            Self::TabsList(_) | Self::TabsOpen(_) => None,
            Self::FilesUpload(t::Upload { tab_id, .. })
            | Self::FilesDrop(t::Upload { tab_id, .. })
            | Self::FilesList(t::OfTab { tab_id })
            | Self::FilesGet(t::OfFile { tab_id, .. })
            | Self::CpuStart(t::CpuStart { tab_id, .. })
            | Self::CpuStop(t::OfTab { tab_id })
            | Self::CpuAnalyze(t::CpuAnalyze { tab_id, .. })
            | Self::TraceStart(t::TraceStart { tab_id, .. })
            | Self::TraceStop(t::OfTab { tab_id })
            | Self::TraceAnalyze(t::TraceAnalyze { tab_id, .. })
            | Self::HeapSnapshot(t::OfTab { tab_id })
            | Self::HeapSummary(t::HeapSummaryRequest { tab_id, .. })
            | Self::HeapQuery(t::HeapQuery { tab_id, .. })
            | Self::HeapObject(t::HeapObjectRequest { tab_id, .. })
            | Self::HeapCompare(t::HeapCompare { tab_id, .. })
            | Self::TabsFocus(t::OfTab { tab_id })
            | Self::TabsClose(t::OfTab { tab_id })
            | Self::Navigate(t::Navigate { tab_id, .. })
            | Self::Back(t::OfTab { tab_id })
            | Self::Forward(t::OfTab { tab_id })
            | Self::Reload(t::OfTab { tab_id })
            | Self::Stop(t::OfTab { tab_id })
            | Self::Frames(t::OfTab { tab_id })
            | Self::Snapshot(t::Snapshot { tab_id, .. })
            | Self::Find(t::Find { tab_id, .. })
            | Self::Evaluate(t::Evaluate { tab_id, .. })
            | Self::Wait(t::Wait { tab_id, .. })
            | Self::Click(t::Click { tab_id, .. })
            | Self::Fill(t::Fill { tab_id, .. })
            | Self::Hover(t::Hover { tab_id, .. })
            | Self::Drag(t::Drag { tab_id, .. })
            | Self::FillForm(t::FillForm { tab_id, .. })
            | Self::Select(t::Select { tab_id, .. })
            | Self::Check(t::Check { tab_id, .. })
            | Self::Scroll(t::Scroll { tab_id, .. })
            | Self::Press(t::Press { tab_id, .. })
            | Self::Dialog(t::DialogRequest { tab_id, .. })
            | Self::Screenshot(t::Screenshot { tab_id, .. })
            | Self::Console(t::Console { tab_id, .. })
            | Self::NetworkList(t::NetworkListRequest { tab_id, .. })
            | Self::NetworkGet(t::NetworkGet { tab_id, .. }) => Some(tab_id),
        }
    }

    /// The paths of an operation that takes files.
    pub fn paths(&self) -> &[Needle] {
        match self {
            Self::FilesUpload(input) | Self::FilesDrop(input) => input.paths.as_slice(),
            _ => &[],
        }
    }

    /// How long the desktop half may take.
    pub fn deadline(&self) -> Duration {
        match self {
            Self::Wait(t::Wait {
                timeout_ms: Some(limit),
                ..
            }) => Duration::from_millis(limit.get().unsigned_abs()).max(limits::OPERATION_DEADLINE),
            // Each field may take as long to become ready as one alone.
            Self::FillForm(_)
            // What is large takes long to record, to read and to compress.
            | Self::FilesGet(_)
            | Self::HeapSnapshot(_)
            | Self::HeapSummary(_)
            | Self::HeapQuery(_)
            | Self::HeapObject(_)
            | Self::HeapCompare(_)
            | Self::CpuStop(_)
            | Self::CpuAnalyze(_)
            | Self::TraceStop(_)
            | Self::TraceAnalyze(_) => limits::LONG_OPERATION_DEADLINE,
            _ => limits::OPERATION_DEADLINE,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TAB: &str = "tab_00000000-0000-0000-0000-000000000000";

    #[test]
    fn unknown_fields_are_answered_with_the_valid_ones() {
        let error = Operation::named("click")
            .unwrap()
            .parse(json!({"tabID": TAB, "ref": "@e1", "speed": 1}))
            .unwrap_err();
        assert_eq!(error.code, ErrorCode::Invalid);
        for name in ["speed", "tabID", "ref", "button", "count", "modifiers"] {
            assert!(error.message.contains(name), "{}", error.message);
        }
    }

    #[test]
    fn wrong_types_name_the_field() {
        let error = Operation::named("snapshot")
            .unwrap()
            .parse(json!({"tabID": TAB, "depth": 21}))
            .unwrap_err();
        assert!(
            error.message.contains("depth") && error.message.contains("1 to 20"),
            "{}",
            error.message
        );
        let error = Operation::named("snapshot")
            .unwrap()
            .parse(json!({"tabID": "tab_x"}))
            .unwrap_err();
        assert!(error.message.contains("tabs.list"), "{}", error.message);
    }

    #[test]
    fn planned_operations_are_refused_clearly() {
        assert_eq!(
            Operation::named("lighthouse").unwrap_err().code,
            ErrorCode::Unsupported
        );
        assert_eq!(
            Operation::named("hoover").unwrap_err().code,
            ErrorCode::UnknownOperation
        );
        for planned in PLANNED {
            assert!(
                OPERATIONS
                    .iter()
                    .all(|operation| operation.name != *planned)
            );
        }
    }

    #[test]
    fn schemas_are_objects_without_references() {
        for operation in OPERATIONS.iter() {
            for schema in [operation.input_schema(), operation.output_schema()] {
                assert_eq!(
                    schema.get("type"),
                    Some(&json!("object")),
                    "{}",
                    operation.name
                );
                assert!(
                    !schema.as_value().to_string().contains("$ref"),
                    "{}",
                    operation.name
                );
            }
            assert!(!operation.description.is_empty());
        }
    }

    #[test]
    fn requests_keep_their_arguments() {
        let input = json!({"tabID": TAB, "ref": "e7", "modifiers": ["Shift"]});
        let request = Operation::named("click").unwrap().parse(input).unwrap();
        assert_eq!(request.name(), "click");
        assert_eq!(
            request.to_input(),
            json!({"tabID": TAB, "ref": "@e7", "modifiers": ["Shift"]})
        );
        assert_eq!(request.tab().unwrap().as_str(), TAB);
    }
}
