//! The names of a catalog's tools: own names, aliases, listed names and those in scripts.
//!
//! A rule that misses a tool because of a spelling lets through what it is to
//! stop, so rules look at all names: the tool's own, the one its source uses,
//! and every name the catalog or `sdk` made, numbered ones included. What only
//! permits something must not reach further than it says: it looks at names
//! that lead to this tool and to no other.

use std::collections::HashMap;
use std::sync::Arc;

use super::Catalog;
use crate::tool::Tool;

/// Which tool each name of a catalog leads to.
pub struct ToolNames {
    /// Addresses of tools; the catalog keeps them from being used again.
    holders: HashMap<String, usize>,
    names: HashMap<usize, Vec<String>>,
    /// The identifiers that `sdk` made for sources, by their own name.
    sources: HashMap<String, String>,
}

impl ToolNames {
    fn new(catalog: &Catalog) -> ToolNames {
        let mut holders: HashMap<String, usize> =
            catalog.by_name.iter().map(|(name, tool)| (name.clone(), tool_address(tool))).collect();
        let mut sources = HashMap::new();
        for source in catalog.sdk().sources() {
            sources.insert(source.original.clone(), source.name.clone());
            for function in &source.functions {
                for source in [&source.name, &source.original] {
                    for name in [&function.name, &function.original] {
                        let holder = tool_address(&function.tool);
                        holders.entry(format!("{source}.{name}")).or_insert(holder);
                    }
                }
            }
        }
        // A variant that answers with everything is the same tool.
        let variants: HashMap<usize, usize> = (catalog.tools.iter())
            .filter_map(|tool| Some((tool_address(tool), tool_address(tool.raw.as_ref()?))))
            .collect();
        let mut names: HashMap<usize, Vec<String>> = HashMap::new();
        for (name, holder) in &holders {
            names.entry(*holder).or_default().push(name.clone());
            if let Some(variant) = variants.get(holder) {
                names.entry(*variant).or_default().push(name.clone());
            }
        }
        names.values_mut().for_each(|names| names.sort_unstable());
        ToolNames { holders, names, sources }
    }

    /// The names that the catalog and `sdk` gave to a tool.
    pub fn names_of(&self, tool: &Tool) -> &[String] {
        self.names.get(&std::ptr::from_ref(tool).addr()).map_or(&[], Vec::as_slice)
    }

    /// Whether a name leads to some other tool.
    pub fn belongs_to_another(&self, name: &str, tool: &Tool) -> bool {
        let mine = |holder: &usize| {
            *holder == std::ptr::from_ref(tool).addr()
                || self.names_of(tool).binary_search_by(|it| it.as_str().cmp(name)).is_ok()
        };
        self.holders.get(name).is_some_and(|holder| !mine(holder))
    }

    /// The identifier that scripts know a source by.
    pub fn source_identifier(&self, source: &str) -> Option<&str> {
        self.sources.get(source).map(String::as_str)
    }
}

impl Catalog {
    /// The names of the whole catalog, whoever sees less of it.
    pub fn tool_names(&self) -> &ToolNames {
        match &self.seen {
            Some(seen) => seen.whole.tool_names(),
            None => self.tool_names.get_or_init(|| ToolNames::new(self)),
        }
    }
}

fn tool_address(tool: &Arc<Tool>) -> usize {
    Arc::as_ptr(tool).addr()
}
