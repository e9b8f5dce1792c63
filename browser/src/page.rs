//! The page as agents see it: its outline, and the elements that refs name.
//!
//! A script of ours ([`script`]) sits in an isolated world of every frame that was looked at
//! ([`world`]). It walks what is rendered, keeps the elements that it told, and answers what an action
//! must know: is the element there, seen, enabled, hit by the pointer. This side joins the frames
//! ([`outline`]), hands out refs ([`refs`]), finds what a locator describes ([`locate`]), and translates coordinates
//! between frames ([`geometry`]).
//!
//! Closed shadow roots are seen where they belong to custom elements. Not seen: those of ordinary
//! elements, what `aria-owns` re-parents, and the content of plug-ins.

pub(crate) mod element;
pub(crate) mod geometry;
mod locate;
pub(crate) mod outline;
pub(crate) mod refs;
mod script;
pub(crate) mod world;

pub(crate) use self::element::element_rect;
pub(crate) use self::refs::RefTable;
