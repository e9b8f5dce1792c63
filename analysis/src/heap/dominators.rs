//! Who keeps whom alive: the dominator tree and retained sizes.
//!
//! The tree is built by the SEMI-NCA algorithm (Georgiadis 2005), which has no bad case worth fearing and no recursion. Which
//! edges count is as in Chrome's Memory panel: see [`Rules::retains`].

use super::strings::Strings;
use super::{EdgeKind, Edges, Incoming, Nodes, ROOT};

/// The tree, by node.
#[derive(Debug)]
pub(super) struct Dominators {
    /// The node without which this one would be gone; the root's is itself. Nodes that nothing retains hang on the root.
    pub(super) of: Vec<u32>,
    /// Bytes of the node and of all that it dominates.
    pub(super) retained: Vec<u64>,
}

/// Nothing.
const NONE: u32 = u32::MAX;

impl Dominators {
    pub(super) fn new(
        nodes: &Nodes,
        edges: &Edges,
        incoming: &Incoming,
        strings: &Strings,
    ) -> Self {
        let rules = Rules::new(nodes, edges, strings);
        let walk = Walk::new(nodes, edges, &rules);
        let tree = walk.tree(incoming, &rules);
        let count = nodes.name.len();
        let mut of = vec![ROOT; count];
        let mut retained = nodes.self_size.clone();
        for number in (1..walk.order.len()).rev() {
            let node = walk.order[number] as usize;
            let parent = walk.order[tree[number] as usize];
            of[node] = parent;
            // In preorder a dominator comes before what it dominates, so that this sum is complete.
            retained[parent as usize] = retained[parent as usize].saturating_add(retained[node]);
        }
        for node in 0..count {
            if walk.number[node] == NONE {
                retained[ROOT as usize] =
                    retained[ROOT as usize].saturating_add(nodes.self_size[node]);
            }
        }
        Self { of, retained }
    }
}

/// Which edges retain.
struct Rules<'a> {
    edges: &'a Edges,
    ids: &'a [u32],
    strings: &'a Strings,
    /// Nodes that the page owns, rather than the debugger or the browser alone.
    of_page: Vec<bool>,
}

impl<'a> Rules<'a> {
    fn new(nodes: &'a Nodes, edges: &'a Edges, strings: &'a Strings) -> Self {
        let mut of_page = vec![false; nodes.name.len()];
        let mut waiting = Vec::new();
        for edge in nodes.edges(ROOT) {
            let (kind, to) = (edges.kind[edge as usize], edges.to[edge as usize]);
            let name = strings.get(nodes.name[to as usize]);
            // Shortcuts from the root mark the page's global objects.
            let owned = match kind {
                EdgeKind::Shortcut => true,
                EdgeKind::Element => name == "(Document DOM trees)",
                _ => false,
            };
            if owned {
                waiting.push(to);
            }
        }
        while let Some(node) = waiting.pop() {
            if std::mem::replace(&mut of_page[node as usize], true) {
                continue;
            }
            for edge in nodes.edges(node) {
                let to = edges.to[edge as usize];
                if edges.kind[edge as usize] != EdgeKind::Weak && !of_page[to as usize] {
                    waiting.push(to);
                }
            }
        }
        Self {
            edges,
            ids: &nodes.id,
            strings,
            of_page,
        }
    }

    /// Whether `edge` from node `from` keeps its target alive for the purpose of sizes.
    fn retains(&self, from: u32, edge: u32) -> bool {
        let at = edge as usize;
        let to = self.edges.to[at];
        if from == to {
            return false;
        }
        match self.edges.kind[at] {
            EdgeKind::Weak => return false,
            // From the root they mark global objects; elsewhere they double other edges.
            EdgeKind::Shortcut if from != ROOT => return false,
            EdgeKind::Internal if self.is_second_owner(from, self.edges.name[at]) => return false,
            _ => {}
        }
        // What the debugger holds must not seem to keep what the page owns.
        from == ROOT || self.of_page[from as usize] || !self.of_page[to as usize]
    }

    /// A value in a `WeakMap` is held by key and table together, and has an edge from either; the table's counts.
    fn is_second_owner(&self, from: u32, name: u32) -> bool {
        let name = self.strings.get(name);
        let Some((_, table)) = name.rsplit_once(" pair in WeakMap (table @") else {
            return false;
        };
        if !name.contains("part of key (") {
            return false;
        }
        let table = table
            .strip_suffix(')')
            .and_then(|id| id.parse::<u32>().ok());
        table.is_some_and(|id| self.ids[from as usize] != id)
    }
}

/// A walk in depth from the root over the edges that retain.
struct Walk {
    /// Nodes in preorder.
    order: Vec<u32>,
    /// The place of each node in it, or [`NONE`].
    number: Vec<u32>,
    /// By place: the place of the node that it was reached from.
    parent: Vec<u32>,
}

impl Walk {
    fn new(nodes: &Nodes, edges: &Edges, rules: &Rules<'_>) -> Self {
        let count = nodes.name.len();
        let mut walk = Self {
            order: Vec::with_capacity(count),
            number: vec![NONE; count],
            parent: Vec::with_capacity(count),
        };
        walk.enter(ROOT, 0);
        // A node's place, and its next edge.
        let mut path = vec![(0_u32, nodes.edges(ROOT).start)];
        while let Some((place, next)) = path.last_mut() {
            let node = walk.order[*place as usize];
            if *next == nodes.edges(node).end {
                path.pop();
                continue;
            }
            let edge = *next;
            *next += 1;
            let to = edges.to[edge as usize];
            if walk.number[to as usize] == NONE && rules.retains(node, edge) {
                let from = *place;
                let entered = walk.enter(to, from);
                path.push((entered, nodes.edges(to).start));
            }
        }
        walk
    }

    fn enter(&mut self, node: u32, parent: u32) -> u32 {
        let place = u32::try_from(self.order.len()).unwrap_or(NONE);
        self.number[node as usize] = place;
        self.order.push(node);
        self.parent.push(parent);
        place
    }

    /// The dominator of each place, as a place.
    fn tree(&self, incoming: &Incoming, rules: &Rules<'_>) -> Vec<u32> {
        let count = u32::try_from(self.order.len()).unwrap_or(NONE);
        let mut forest = Forest {
            ancestor: self.parent.clone(),
            label: (0..count).collect(),
            semi: (0..count).collect(),
            path: Vec::new(),
        };
        for place in (1..count).rev() {
            let mut semi = self.parent[place as usize];
            for (edge, from) in incoming.of(self.order[place as usize]) {
                let source = self.number[from as usize];
                if source != NONE && rules.retains(from, edge) {
                    let best = forest.best(source, place + 1);
                    semi = semi.min(forest.semi[best as usize]);
                }
            }
            forest.semi[place as usize] = semi;
        }
        let mut dominator = self.parent.clone();
        for place in 1..count as usize {
            while dominator[place] > forest.semi[place] {
                dominator[place] = dominator[dominator[place] as usize];
            }
        }
        dominator
    }
}

/// The part of the walk that was worked through, with compressed paths.
struct Forest {
    ancestor: Vec<u32>,
    label: Vec<u32>,
    semi: Vec<u32>,
    path: Vec<u32>,
}

impl Forest {
    /// The place with the smallest semidominator on the way from `place` up to those that are worked through, which begin at
    /// `linked`.
    fn best(&mut self, place: u32, linked: u32) -> u32 {
        if self.ancestor[place as usize] < linked {
            return self.label[place as usize];
        }
        let mut top = place;
        while self.ancestor[top as usize] >= linked {
            self.path.push(top);
            top = self.ancestor[top as usize];
        }
        let root = self.ancestor[top as usize];
        let mut best = self.label[top as usize];
        while let Some(below) = self.path.pop() {
            self.ancestor[below as usize] = root;
            let label = &mut self.label[below as usize];
            if self.semi[best as usize] < self.semi[*label as usize] {
                *label = best;
            } else {
                best = *label;
            }
        }
        best
    }
}
