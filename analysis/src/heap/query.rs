//! Questions about one snapshot.

use std::collections::HashMap;

use super::{EdgeKind, Heap, NodeKind, ROOT};

/// Steps of a path to the root that are told; longer ones are cut in the middle of a list nobody reads.
const PATH_MAX: usize = 50;

/// A class with what its objects take.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClassSum {
    /// As the Memory panel calls it.
    pub name: String,
    /// Objects.
    pub count: u64,
    /// Bytes of the objects themselves.
    pub self_bytes: u64,
    /// Bytes that would be free without them; what an object of the class dominates is counted once.
    pub retained_bytes: u64,
}

/// DOM nodes of one kind that are in no document and still held.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Detached {
    /// Such as `Detached HTMLDivElement`, or `<div>` as newer versions write.
    pub name: String,
    /// Nodes.
    pub count: u64,
}

/// A node, as lists tell it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NodeInfo {
    /// The number that V8 keeps for the object as long as it lives.
    pub id: u32,
    /// What the snapshot calls it.
    pub name: String,
    /// Its class.
    pub class: String,
    /// Bytes of itself.
    pub self_bytes: u64,
    /// Bytes that would be free without it.
    pub retained_bytes: u64,
    /// A DOM node in no document.
    pub detached: bool,
}

/// A reference from one node to another.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Link {
    /// The property, variable or index.
    pub name: String,
    /// It does not keep its target alive.
    pub weak: bool,
    /// The node at the other end.
    pub node: NodeInfo,
}

/// A step on the way to the root.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Retainer {
    /// The property, variable or index by which the node refers to the one before.
    pub name: String,
    /// The node.
    pub node: NodeInfo,
}

/// One object and its neighbourhood.
#[derive(Clone, Debug)]
pub struct Object {
    /// Itself.
    pub node: NodeInfo,
    /// What it refers to, the largest retained first.
    pub references: Vec<Link>,
    /// How many of these there are.
    pub references_total: usize,
    /// What refers to it.
    pub retainers: Vec<Link>,
    /// How many of these there are.
    pub retainers_total: usize,
    /// The node without which it would be gone.
    pub dominator: NodeInfo,
    /// A shortest way to the root, the next node first. Empty if only weak references lead to it.
    pub path: Vec<Retainer>,
}

/// A snapshot at a glance.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Nodes.
    pub nodes: usize,
    /// Edges.
    pub edges: usize,
    /// Bytes of all nodes.
    pub self_bytes: u64,
    /// The classes that retain most.
    pub classes: Vec<ClassSum>,
    /// How many classes there are.
    pub classes_total: usize,
    /// DOM nodes that are in no document.
    pub detached: Vec<Detached>,
    /// How many of these there are.
    pub detached_total: u64,
    /// The objects that retain most.
    pub largest: Vec<NodeInfo>,
}

impl Heap {
    fn info(&self, node: u32) -> NodeInfo {
        let at = node as usize;
        NodeInfo {
            id: self.nodes.id[at],
            name: self.name(node).to_owned(),
            class: self.class(node).to_owned(),
            self_bytes: self.nodes.self_size[at],
            retained_bytes: self.dominators.retained[at],
            detached: self.nodes.detached[at],
        }
    }

    /// Sums by class.
    pub(super) fn classes(&self) -> HashMap<&str, ClassSum> {
        let mut classes: HashMap<&str, ClassSum> = HashMap::new();
        for node in 0..self.nodes.len() {
            let name = self.class(node);
            let sum = classes.entry(name).or_insert_with(|| ClassSum {
                name: name.to_owned(),
                count: 0,
                self_bytes: 0,
                retained_bytes: 0,
            });
            sum.count += 1;
            sum.self_bytes = sum
                .self_bytes
                .saturating_add(self.nodes.self_size[node as usize]);
        }
        self.add_retained(&mut classes);
        classes
    }

    /// Adds to each class what its objects retain, leaving out those that another object of the class dominates: a walk down
    /// the dominator tree that remembers the classes above.
    fn add_retained<'a>(&'a self, classes: &mut HashMap<&'a str, ClassSum>) {
        let count = self.nodes.name.len();
        // Children of the tree by parent, as one linked list for each.
        let mut first = vec![u32::MAX; count];
        let mut next = vec![u32::MAX; count];
        for node in (1..self.nodes.len()).rev() {
            let parent = self.dominators.of[node as usize] as usize;
            next[node as usize] = first[parent];
            first[parent] = node;
        }
        let mut above: HashMap<&str, u32> = HashMap::new();
        let mut path = vec![(ROOT, first[ROOT as usize])];
        *above.entry(self.class(ROOT)).or_default() += 1;
        if let Some(sum) = classes.get_mut(self.class(ROOT)) {
            sum.retained_bytes = self.dominators.retained[ROOT as usize];
        }
        while let Some((node, child)) = path.last_mut() {
            if *child == u32::MAX {
                if let Some(times) = above.get_mut(self.class(*node)) {
                    *times -= 1;
                }
                path.pop();
                continue;
            }
            let here = *child;
            *child = next[here as usize];
            let class = self.class(here);
            let times = above.entry(class).or_default();
            if *times == 0
                && let Some(sum) = classes.get_mut(class)
            {
                sum.retained_bytes = sum
                    .retained_bytes
                    .saturating_add(self.dominators.retained[here as usize]);
            }
            *times += 1;
            path.push((here, first[here as usize]));
        }
    }

    /// The snapshot at a glance, with at most `limit` entries a list.
    pub fn summary(&self, limit: usize) -> Summary {
        let mut classes: Vec<_> = self.classes().into_values().collect();
        classes.sort_unstable_by(|a, b| {
            (b.retained_bytes, b.self_bytes, &a.name).cmp(&(
                a.retained_bytes,
                a.self_bytes,
                &b.name,
            ))
        });
        let classes_total = classes.len();
        classes.truncate(limit);
        let mut detached: HashMap<&str, u64> = HashMap::new();
        for node in 0..self.nodes.len() {
            if self.nodes.detached[node as usize]
                && self.nodes.kind[node as usize] == NodeKind::Native
            {
                *detached.entry(self.name(node)).or_default() += 1;
            }
        }
        let detached_total = detached.values().sum();
        let mut detached: Vec<_> = detached
            .into_iter()
            .map(|(name, count)| Detached {
                name: name.to_owned(),
                count,
            })
            .collect();
        detached.sort_unstable_by(|a, b| (b.count, &a.name).cmp(&(a.count, &b.name)));
        detached.truncate(limit);
        let largest = self.largest(limit, |node| {
            !matches!(self.nodes.kind[node as usize], NodeKind::Synthetic)
        });
        Summary {
            nodes: self.nodes(),
            edges: self.edges(),
            self_bytes: self
                .nodes
                .self_size
                .iter()
                .fold(0, |sum: u64, size| sum.saturating_add(*size)),
            classes,
            classes_total,
            detached,
            detached_total,
            largest,
        }
    }

    /// The `limit` nodes that `fits` which retain most.
    fn largest(&self, limit: usize, fits: impl Fn(u32) -> bool) -> Vec<NodeInfo> {
        let mut found: Vec<u32> = (1..self.nodes.len()).filter(|node| fits(*node)).collect();
        let retained = |node: &u32| self.dominators.retained[*node as usize];
        let order = |a: &u32, b: &u32| (retained(b), a).cmp(&(retained(a), b));
        if found.len() > limit && limit > 0 {
            found.select_nth_unstable_by(limit - 1, order);
        }
        found.truncate(limit);
        found.sort_unstable_by(order);
        found.into_iter().map(|node| self.info(node)).collect()
    }

    /// The nodes whose name or class holds `text`, in any case, and how many there are; those that retain most first.
    pub fn query(&self, text: &str, limit: usize) -> (Vec<NodeInfo>, usize) {
        let needle = text.to_lowercase();
        let mut known: HashMap<u32, bool> = HashMap::new();
        let mut total = 0;
        let mut fits = vec![false; self.nodes()];
        for node in 1..self.nodes.len() {
            let at = node as usize;
            let named = *known
                .entry(self.nodes.name[at])
                .or_insert_with(|| self.name(node).to_lowercase().contains(&needle));
            fits[at] = named || self.class(node).to_lowercase().contains(&needle);
            total += usize::from(fits[at]);
        }
        (self.largest(limit, |node| fits[node as usize]), total)
    }

    /// The object with the V8 number `id`, with at most `limit` references and retainers.
    pub fn object(&self, id: u32, limit: usize) -> Option<Object> {
        let node = self.nodes.id.iter().position(|known| *known == id)?;
        let node = u32::try_from(node).ok()?;
        let mut references: Vec<_> = self
            .nodes
            .edges(node)
            .map(|edge| (edge, self.edges.to[edge as usize]))
            .collect();
        let mut retainers: Vec<_> = self.incoming.of(node).collect();
        let totals = (references.len(), retainers.len());
        let most =
            |(_, node): &(u32, u32)| std::cmp::Reverse(self.dominators.retained[*node as usize]);
        references.sort_by_key(most);
        retainers.sort_by_key(|(edge, _)| self.edges.kind[*edge as usize] == EdgeKind::Weak);
        let links = |list: Vec<(u32, u32)>| {
            let links = list.into_iter().take(limit).map(|(edge, node)| Link {
                name: self.edge_name(edge),
                weak: self.edges.kind[edge as usize] == EdgeKind::Weak,
                node: self.info(node),
            });
            links.collect()
        };
        Some(Object {
            node: self.info(node),
            references: links(references),
            references_total: totals.0,
            retainers: links(retainers),
            retainers_total: totals.1,
            dominator: self.info(self.dominators.of[node as usize]),
            path: self.path(node),
        })
    }

    fn edge_name(&self, edge: u32) -> String {
        let name = self.edges.name[edge as usize];
        match self.edges.kind[edge as usize] {
            EdgeKind::Element | EdgeKind::Hidden => format!("[{name}]"),
            _ => self.strings.get(name).to_owned(),
        }
    }

    /// A shortest way from `node` to the root over references that are not weak.
    fn path(&self, node: u32) -> Vec<Retainer> {
        // By node: the node that is nearer to `node`, and the edge that leads there.
        let mut seen: HashMap<u32, (u32, u32)> = HashMap::new();
        let mut row = vec![node];
        while !row.is_empty() && !seen.contains_key(&ROOT) {
            let mut further = Vec::new();
            for nearer in row {
                for (edge, from) in self.incoming.of(nearer) {
                    if from != node
                        && self.edges.kind[edge as usize] != EdgeKind::Weak
                        && !seen.contains_key(&from)
                    {
                        seen.insert(from, (nearer, edge));
                        further.push(from);
                    }
                }
            }
            row = further;
        }
        let mut path = Vec::new();
        let mut at = ROOT;
        while at != node
            && let Some((nearer, edge)) = seen.get(&at)
        {
            path.push(Retainer {
                name: self.edge_name(*edge),
                node: self.info(at),
            });
            at = *nearer;
        }
        path.reverse();
        path.truncate(PATH_MAX);
        path
    }
}
