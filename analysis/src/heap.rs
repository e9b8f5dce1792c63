//! V8 heap snapshots (`.heapsnapshot`): the graph of a page's JavaScript heap.
//!
//! [`Heap::read`] parses one as a stream into flat arrays, some 25 bytes a node and 17 an edge. Retained sizes follow the
//! rules of Chrome's Memory panel: weak edges retain nothing, and what only the debugger holds does not keep the page's
//! objects.

mod compare;
mod dominators;
mod parse;
mod query;
mod scan;
mod strings;

pub use self::compare::{ClassChange, compare};
pub use self::parse::{HeapError, Limits};
pub use self::query::{ClassSum, Detached, Link, NodeInfo, Object, Retainer, Summary};

use self::dominators::Dominators;
use self::strings::Strings;

/// Index of the root node in a snapshot.
const ROOT: u32 = 0;

/// What a node is, of those kinds that matter here (V8 `HeapGraphNode::Type`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum NodeKind {
    Hidden,
    Object,
    Native,
    Code,
    Closure,
    RegExp,
    Synthetic,
    /// Another one, by its place in the list of type names.
    Other(u8),
}

/// What an edge is, of those kinds that matter here (V8 `HeapGraphEdge::Type`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum EdgeKind {
    Element,
    Hidden,
    Internal,
    Shortcut,
    Weak,
    /// A context variable or a property.
    Named,
}

/// A parsed snapshot.
#[derive(Debug)]
pub struct Heap {
    nodes: Nodes,
    edges: Edges,
    strings: Strings,
    /// Names of node types, by their number in [`NodeKind::Other`].
    type_names: Vec<String>,
    /// Edges by the node that they lead to.
    incoming: Incoming,
    dominators: Dominators,
}

/// Columns of the nodes.
#[derive(Debug, Default)]
struct Nodes {
    kind: Vec<NodeKind>,
    name: Vec<u32>,
    id: Vec<u32>,
    self_size: Vec<u64>,
    /// The first edge of each node, and one more for the end.
    first_edge: Vec<u32>,
    /// The DOM node is not in a document (V8 `detachedness` 2).
    detached: Vec<bool>,
}

/// Columns of the edges.
#[derive(Debug, Default)]
struct Edges {
    kind: Vec<EdgeKind>,
    /// A string for kinds with names, else an index.
    name: Vec<u32>,
    to: Vec<u32>,
}

/// For each node the edges that lead to it.
#[derive(Debug, Default)]
struct Incoming {
    /// The first place of each node, and one more for the end.
    first: Vec<u32>,
    /// The edges.
    edge: Vec<u32>,
    /// The nodes that they come from.
    from: Vec<u32>,
}

impl Nodes {
    fn len(&self) -> u32 {
        // The parser allows fewer than `u32::MAX` nodes.
        u32::try_from(self.name.len()).unwrap_or(u32::MAX)
    }

    fn edges(&self, node: u32) -> std::ops::Range<u32> {
        let at = node as usize;
        self.first_edge[at]..self.first_edge[at + 1]
    }
}

impl Incoming {
    fn new(nodes: &Nodes, edges: &Edges) -> Self {
        let count = nodes.name.len();
        let mut first = vec![0_u32; count + 1];
        for to in &edges.to {
            first[*to as usize + 1] += 1;
        }
        for at in 1..first.len() {
            first[at] += first[at - 1];
        }
        let mut next = first.clone();
        let mut edge = vec![0; edges.to.len()];
        let mut from = vec![0; edges.to.len()];
        for node in 0..nodes.len() {
            for number in nodes.edges(node) {
                let to = edges.to[number as usize] as usize;
                let place = next[to] as usize;
                next[to] += 1;
                edge[place] = number;
                from[place] = node;
            }
        }
        Self { first, edge, from }
    }

    /// Edge and node that it comes from.
    fn of(&self, node: u32) -> impl Iterator<Item = (u32, u32)> {
        let range = self.first[node as usize] as usize..self.first[node as usize + 1] as usize;
        let edges = self.edge[range.clone()].iter().copied();
        edges.zip(self.from[range].iter().copied())
    }
}

impl Heap {
    /// Nodes.
    pub fn nodes(&self) -> usize {
        self.nodes.name.len()
    }

    /// Edges.
    pub fn edges(&self) -> usize {
        self.edges.to.len()
    }

    /// Bytes that the parsed snapshot takes, about: what a cache counts.
    pub fn memory(&self) -> usize {
        self.nodes() * 44 + self.edges() * 17 + self.strings.memory()
    }

    fn name(&self, node: u32) -> &str {
        self.strings.get(self.nodes.name[node as usize])
    }

    /// The class under which the Memory panel lists a node.
    fn class(&self, node: u32) -> &str {
        match self.nodes.kind[node as usize] {
            NodeKind::Object | NodeKind::Native => self.name(node),
            NodeKind::Hidden => "(system)",
            NodeKind::Code => "(compiled code)",
            NodeKind::Closure => "Function",
            NodeKind::RegExp => "RegExp",
            NodeKind::Synthetic => "(synthetic)",
            NodeKind::Other(number) => self
                .type_names
                .get(usize::from(number))
                .map_or("(unknown)", String::as_str),
        }
    }
}
