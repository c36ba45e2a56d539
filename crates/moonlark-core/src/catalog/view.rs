//! A filtered catalog: what some callers see, without what rules deny to them.
//!
//! What is denied does not exist there, so nothing that lists, searches, draws
//! or suggests has to know of rules. Names stay those of the whole catalog: a
//! script means the same whoever runs it.

use std::any::Any;
use std::sync::Arc;

use super::{Catalog, ConnectingSource, ToolNames};
use crate::sdk::BUILTIN_SOURCE_NAME;
use crate::source_resources::{SourceHealth, SourceResources};
use crate::tool::{Source, SourceKind, Tool};

/// What was made of a catalog, and for whom.
pub(super) struct CatalogView {
    pub(super) whole: Arc<Catalog>,
    filter: Box<dyn CatalogFilter>,
}

/// What decides which part of a catalog exists for some callers. It is made from the
/// whole catalog, and kept with what was made by it.
pub trait CatalogFilter: Any + Send + Sync {
    /// Whether a tool of the whole catalog exists.
    fn has_tool(&self, tool: &Tool) -> bool;

    /// Whether a tool may exist that is not of the whole catalog.
    fn allows_new_tool(&self, tool: &Tool, known: &ToolNames) -> bool;

    /// Whether a source exists, whatever becomes of its tools.
    fn allows_source(&self, source: &str, kind: SourceKind, known: &ToolNames) -> bool;

    /// Whether a source whose tools are not known yet may have one that exists.
    fn may_have_tools(&self, source: &ConnectingSource, known: &ToolNames) -> bool;

    /// Whether somebody asked for the very tool: then they have a use for it.
    fn is_requested_by_name(&self, tool: &Tool) -> bool;
}

impl Catalog {
    /// The part of this catalog that the filter leaves.
    pub fn view_for(self: &Arc<Self>, filter: Box<dyn CatalogFilter>) -> Catalog {
        let exists = |tool: &Arc<Tool>| filter.has_tool(tool);
        let own = |it: &Arc<SourceResources>| it.source.name == BUILTIN_SOURCE_NAME;
        let known = self.tool_names();
        let whole = |source: &str, kinds: &[SourceKind]| {
            kinds.iter().all(|kind| filter.allows_source(source, *kind, known))
        };
        let mut seen = Catalog {
            tools: self.tools.iter().filter(|tool| exists(tool)).cloned().collect(),
            by_name: (self.by_name.iter().filter(|(_, tool)| exists(tool)))
                .map(|(name, tool)| (name.clone(), tool.clone()))
                .collect(),
            heirs: self.heirs.clone(),
            loading: self.loading,
            idle: self.idle.clone(),
            offers: (self.offers.iter())
                .filter(|it| exists(&it.door) && !own(it))
                .cloned()
                .collect(),
            own: self.own,
            connecting: (self.connecting.iter())
                .filter(|it| filter.may_have_tools(it, known))
                .cloned()
                .collect(),
            health: (self.health.iter())
                .filter(|it| whole(&it.source, &self.source_kinds(&it.source)))
                .filter_map(|it| self.visible_health(it, exists))
                .collect(),
            modules: self.modules.clone(),
            problems: self.problems.clone(),
            ..Catalog::default()
        };
        seen.seen = Some(CatalogView { whole: self.clone(), filter });
        seen.update_listing();
        // What we offer ourselves says what there is.
        let mut own = self.own.map(|own| own(&seen)).unwrap_or_default();
        own.retain(|it| seen.allows_new_tool(&it.door));
        seen.offers.extend(own);
        seen
    }

    /// What this catalog was made by; none if it is whole.
    pub fn filter(&self) -> Option<&dyn CatalogFilter> {
        self.seen.as_ref().map(|seen| &*seen.filter)
    }

    /// Whether a source is there at all for these callers.
    pub fn knows_source(&self, source: &Source) -> bool {
        let filter = self.filter();
        filter.is_none_or(|it| it.allows_source(&source.name, source.kind, self.tool_names()))
    }

    /// Whether a tool of the whole catalog exists here.
    pub(super) fn has_tool(&self, tool: &Tool) -> bool {
        self.filter().is_none_or(|filter| filter.has_tool(tool))
    }

    fn allows_new_tool(&self, tool: &Tool) -> bool {
        self.filter().is_none_or(|filter| {
            filter.has_tool(tool) || filter.allows_new_tool(tool, self.tool_names())
        })
    }

    /// Whether these callers asked for the very tool.
    pub(super) fn is_requested_by_name(&self, tool: &Tool) -> bool {
        self.filter().is_some_and(|filter| filter.is_requested_by_name(tool))
    }

    /// What a source that connects is, or may be while it has no tools.
    fn source_kinds(&self, source: &str) -> Vec<SourceKind> {
        match self.tools.iter().find(|it| it.source.name == source) {
            Some(tool) => vec![tool.source.kind],
            None => vec![SourceKind::Upstream, SourceKind::Api],
        }
    }

    /// How a source is doing as far as it exists: none if none of its tools does.
    fn visible_health(
        &self,
        health: &SourceHealth,
        exists: impl Fn(&Arc<Tool>) -> bool,
    ) -> Option<SourceHealth> {
        let tools = self.tools.iter().filter(|it| it.source.name == health.source);
        let (seen, gone): (Vec<_>, Vec<_>) = tools.partition(|it| exists(it));
        let offers = self.offers.iter().find(|it| it.source.name == health.source);
        let offers =
            offers.is_some_and(|it| exists(&it.door)) && health.resources + health.prompts > 0;
        if gone.is_empty() {
            return Some(health.clone());
        }
        // What is wrong with tools names them.
        let less = SourceHealth { tools: seen.len(), flaws: Vec::new(), ..health.clone() };
        (offers || !seen.is_empty()).then_some(less)
    }
}
