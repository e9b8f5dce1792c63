//! Inputs of the operations that act on elements.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::operation::locator::Aim;
use crate::operation::scalar::{Bounded, Listed, Needle, Short, TabId, Typed};

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum MouseButton {
    #[default]
    Left,
    Right,
    Middle,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum Modifier {
    Alt,
    Control,
    Meta,
    Shift,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Click {
    #[serde(rename = "tabID")]
    pub tab_id: TabId,
    #[serde(rename = "ref")]
    pub element: Aim,
    /// Default left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub button: Option<MouseButton>,
    /// 2 for a double click.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<Bounded<1, 2>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modifiers: Vec<Modifier>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Hover {
    #[serde(rename = "tabID")]
    pub tab_id: TabId,
    #[serde(rename = "ref")]
    pub element: Aim,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Drag {
    #[serde(rename = "tabID")]
    pub tab_id: TabId,
    pub from: Aim,
    pub to: Aim,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fill {
    #[serde(rename = "tabID")]
    pub tab_id: TabId,
    #[serde(rename = "ref")]
    pub element: Aim,
    /// Replaces what the field holds.
    pub text: Typed,
}

/// Options that are to be selected, by value or, where no value fits, by label.
pub type OptionValues = Listed<Short, 1, 100>;

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Select {
    #[serde(rename = "tabID")]
    pub tab_id: TabId,
    #[serde(rename = "ref")]
    pub element: Aim,
    /// Values or labels; these and no others will be selected.
    pub values: OptionValues,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Check {
    #[serde(rename = "tabID")]
    pub tab_id: TabId,
    #[serde(rename = "ref")]
    pub element: Aim,
    pub checked: bool,
}

/// One field of a form.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
#[schemars(inline)]
pub enum FormField {
    /// As fill.
    Text {
        #[serde(rename = "ref")]
        element: Aim,
        value: Typed,
    },
    /// As select.
    Select {
        #[serde(rename = "ref")]
        element: Aim,
        values: OptionValues,
    },
    /// As check.
    Check {
        #[serde(rename = "ref")]
        element: Aim,
        checked: bool,
    },
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FillForm {
    #[serde(rename = "tabID")]
    pub tab_id: TabId,
    /// Filled in this order.
    pub fields: Listed<FormField, 1, 100>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Press {
    #[serde(rename = "tabID")]
    pub tab_id: TabId,
    /// A key or chord such as Enter, a, Control+A, Shift+Tab.
    pub key: Needle,
}

/// CSS pixels to scroll by.
pub type ScrollPixels = Bounded<-10_000, 10_000>;

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Scroll {
    #[serde(rename = "tabID")]
    pub tab_id: TabId,
    /// CSS pixels, down if positive.
    pub delta_y: ScrollPixels,
    /// CSS pixels, right if positive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delta_x: Option<ScrollPixels>,
    /// Turn the wheel over this element; default the middle of the viewport.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub element: Option<Aim>,
}
