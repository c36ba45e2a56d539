//! One immutable snapshot of all tools.
//!
//! A catalog is built aside and published whole; nothing changes one that
//! somebody may be looking at.

use std::collections::HashMap;
use std::sync::Arc;

use crate::module::Module;
use crate::nearest::nearest;
use crate::problem::{Code, Problem, Result};
use crate::tool::{SourceKind, Tool};
use crate::value::shorten;

#[derive(Default)]
pub struct Catalog {
    tools: Vec<Arc<Tool>>,
    by_name: HashMap<String, Arc<Tool>>,
    modules: Arc<Vec<Module>>,
    problems: Vec<Problem>,
}

impl Catalog {
    /// Put `tools` together. Built-ins come first, then the order given; a name
    /// that is taken gets the next free number behind it, with a warning, so
    /// that no tool is lost. A script may stand in for a built-in that has
    /// nothing behind it yet: `replaceable` names those.
    pub fn new(
        modules: Arc<Vec<Module>>,
        tools: Vec<Arc<Tool>>,
        replaceable: &[&str],
        mut problems: Vec<Problem>,
    ) -> Catalog {
        let (builtin, others): (Vec<_>, Vec<_>) =
            tools.into_iter().partition(|tool| tool.source.kind == SourceKind::Builtin);
        let taken_over = |tool: &Tool| {
            others.iter().any(|other| other.name == tool.name || tool.aliases.contains(&other.name))
                && replaceable.contains(&tool.name.as_str())
        };
        let builtin: Vec<_> = builtin.into_iter().filter(|tool| !taken_over(tool)).collect();

        let mut catalog =
            Catalog { modules, tools: Vec::new(), by_name: HashMap::new(), problems: Vec::new() };
        for tool in builtin.into_iter().chain(others) {
            let tool = match catalog.by_name.get(&tool.name) {
                None => tool,
                Some(first) => {
                    let name = catalog.free_name(&tool.name);
                    problems.push(
                        Problem::bad_script(format!(
                            "{} and {} both define a tool named {}; the second is {name}",
                            first.source.name, tool.source.name, tool.name
                        ))
                        .hint("rename one of them"),
                    );
                    Arc::new(tool.renamed(name))
                }
            };
            for alias in &tool.aliases {
                catalog.by_name.entry(alias.clone()).or_insert_with(|| tool.clone());
            }
            catalog.by_name.insert(tool.name.clone(), tool.clone());
            catalog.tools.push(tool);
        }
        catalog.problems = problems;
        catalog
    }

    pub fn find(&self, name: &str) -> Result<&Arc<Tool>> {
        self.by_name.get(name).ok_or_else(|| {
            let hint = nearest(name, self.by_name.keys().map(String::as_str));
            Problem::new(Code::NotFound, format!("no tool registered with name: {}", shorten(name)))
                .maybe_hint(hint.map(|near| format!("did you mean {near}?")))
        })
    }

    /// All tools, built-ins first, then by source.
    pub fn tools(&self) -> &[Arc<Tool>] {
        &self.tools
    }

    pub fn modules(&self) -> &Arc<Vec<Module>> {
        &self.modules
    }

    /// What is wrong with the sources this snapshot was made from.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    fn free_name(&self, name: &str) -> String {
        (2..)
            .map(|number| format!("{name}_{number}"))
            .find(|candidate| !self.by_name.contains_key(candidate))
            .unwrap_or_else(|| name.to_owned())
    }
}
