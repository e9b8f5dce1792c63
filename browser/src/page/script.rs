//! The script that looks at a page for us. It runs in an isolated world of each frame: it sees the
//! page's elements, and the page's own script sees nothing of it.

/// Its source, an expression whose value is the object that [`super::world::World`] calls.
///
/// The files share one function body, so that they can use each other's declarations.
pub(super) const SOURCE: &str = concat!(
    "(() => {\n'use strict';\n",
    include_str!("script/elements.js"),
    include_str!("script/roles.js"),
    include_str!("script/names.js"),
    include_str!("script/states.js"),
    include_str!("script/outline.js"),
    include_str!("script/pointer.js"),
    include_str!("script/fields.js"),
    include_str!("script/choices.js"),
    include_str!("script/wheel.js"),
    include_str!("script/locate.js"),
    include_str!("script/api.js"),
    "})()"
);
