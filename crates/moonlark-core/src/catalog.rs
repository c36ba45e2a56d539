//! One immutable snapshot of all tools.
//!
//! A catalog is built aside and published whole; nothing changes one that
//! somebody may be looking at.

mod listed_names;
mod tool_names;
mod view;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use crate::module::Module;
use crate::nearest::nearest_name;
use crate::problem::{Problem, Result, SourceLocation, Warning};
use crate::sdk::{Sdk, to_identifier};
use crate::source_resources::{SourceHealth, SourceResources};
use crate::tool::{SourceKind, Tool, ToolExposure, ToolListing};
use crate::value::{Value, shorten_text};

pub use listed_names::{
    ListedNameChange, ListedNameReason, MAX_LISTED_NAME_CHARS, listed_name_variants,
    unreadable_original,
};
use listed_names::{listed_names, listed_prefix, wanted_name};
pub use tool_names::ToolNames;
pub use view::CatalogFilter;
use view::CatalogView;

#[derive(Default)]
pub struct Catalog {
    tools: Vec<Arc<Tool>>,
    by_name: HashMap<String, Arc<Tool>>,
    /// Scripts that stand in for a built-in.
    heirs: Vec<String>,
    /// What agents are shown, under the names they see.
    shown: Vec<(String, Arc<Tool>)>,
    /// Built-ins with nothing behind them.
    idle: Vec<String>,
    /// Whether agents have a use for scripts.
    code_mode: bool,
    /// Made when it is first asked for.
    sdk: OnceLock<Sdk>,
    /// Made when a rule or a grant first needs them.
    tool_names: OnceLock<ToolNames>,
    offers: Vec<Arc<SourceResources>>,
    /// What Moonlark offers itself, which depends on all of the above.
    own: Option<BuiltinResourcesFn>,
    /// What it was made of, if it is that of some callers.
    seen: Option<CatalogView>,
    /// Sources that are still connecting.
    connecting: Vec<ConnectingSource>,
    /// Scripts are being loaded for the first time: any name may still come.
    loading: bool,
    health: Vec<SourceHealth>,
    modules: Arc<Vec<Module>>,
    problems: Vec<Problem>,
}

/// What Moonlark offers beside the tools of a catalog.
pub type BuiltinResourcesFn = fn(&Catalog) -> Vec<Arc<SourceResources>>;

/// A source whose tools are not known yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectingSource {
    pub source: String,
    pub kind: SourceKind,
    /// What its tools are called with, such as `docs__`; any name may be its if
    /// that is empty.
    pub prefix: String,
    pub expose: ToolExposure,
    /// Its tools are in the catalog as they were an earlier time.
    pub is_remembered: bool,
}

impl ConnectingSource {
    fn may_provide(&self, name: &str) -> bool {
        let dotted = name.strip_prefix(&self.source).is_some_and(|rest| rest.starts_with('.'));
        dotted || name.starts_with(&self.prefix) || name.starts_with(&listed_prefix(&self.prefix))
    }

    /// Whether a pattern in a rule may match the name of one of its tools.
    pub fn may_be_meant_by(&self, pattern: &str) -> bool {
        let (literal, is_open) =
            pattern.split_once('*').map_or((pattern, false), |(literal, _)| (literal, true));
        let dotted = [format!("{}.", self.source), format!("{}.", to_identifier(&self.source))];
        let listed = [self.prefix.clone(), listed_prefix(&self.prefix)];
        let mut beginnings = dotted.iter().chain(&listed);
        beginnings.any(|it| literal.starts_with(it) || is_open && it.starts_with(literal))
    }
}

impl Catalog {
    /// Put `tools` together. Built-ins come first, then the order given; a name
    /// that is taken gets the next free number behind it, with a warning, so
    /// that no tool is lost. A script may stand in for a built-in that has
    /// nothing behind it yet (`replaceable`), under all its names.
    pub fn new(
        modules: Arc<Vec<Module>>,
        tools: Vec<Arc<Tool>>,
        replaceable: &[&str],
        problems: Vec<Problem>,
    ) -> Catalog {
        let mut catalog = Catalog { modules, problems, ..Catalog::default() };
        let (builtin, others): (Vec<_>, Vec<_>) =
            tools.into_iter().partition(|tool| tool.source.kind == SourceKind::Builtin);
        let mut inherited = Vec::new();
        for tool in builtin {
            let names = || std::iter::once(&tool.name).chain(&tool.aliases);
            let heir = others.iter().find(|other| names().any(|name| *name == other.name));
            match heir {
                Some(heir) if replaceable.contains(&tool.name.as_str()) => {
                    catalog.heirs.push(heir.name.clone());
                    inherited.extend(names().map(|name| (name.clone(), heir.clone())));
                }
                _ => catalog.add_tool(tool),
            }
        }
        for tool in others {
            catalog.add_tool(tool);
        }
        for (name, heir) in inherited {
            catalog.by_name.entry(name).or_insert(heir);
        }
        catalog.idle = replaceable.iter().map(|name| (*name).to_owned()).collect();
        catalog.update_listing();
        catalog
    }

    /// Only what scripts see of one, for whoever looks at scripts elsewhere.
    pub fn from_sdk(
        modules: Arc<Vec<Module>>,
        sdk: Sdk,
        connecting: Vec<ConnectingSource>,
    ) -> Catalog {
        Catalog { modules, connecting, sdk: OnceLock::from(sdk), ..Catalog::default() }
    }

    /// With something behind the built-ins that scripts may stand in for.
    #[must_use]
    pub fn with_backed_builtins(mut self) -> Self {
        self.idle.clear();
        self.update_listing();
        self
    }

    /// Whether there are built-ins with nothing behind them.
    pub fn has_unbacked_builtins(&self) -> bool {
        !self.idle.is_empty()
    }

    fn is_unbacked_builtin(&self, tool: &Tool) -> bool {
        tool.source.kind == SourceKind::Builtin && self.idle.contains(&tool.name)
    }

    /// Decide what agents are shown, under which names. A built-in with nothing
    /// behind it is not worth their context; calling it still says what is missing.
    fn update_listing(&mut self) {
        let auto = if self.is_direct_listing_shorter() {
            ToolExposure::Direct
        } else {
            ToolExposure::Code
        };
        let resolved =
            |tool: &Tool| if tool.expose == ToolExposure::Auto { auto } else { tool.expose };
        let connecting = self.connecting.iter().map(|it| it.expose);
        self.code_mode = (self.tools.iter().map(|it| resolved(it)).chain(connecting))
            .any(|expose| matches!(expose, ToolExposure::Code | ToolExposure::Both));
        let is_shown = |tool: &&Arc<Tool>| {
            let exposed = matches!(resolved(tool), ToolExposure::Direct | ToolExposure::Both);
            exposed
                && match &tool.shown {
                    ToolListing::ByName => !self.is_unbacked_builtin(tool),
                    ToolListing::InCodeMode => self.code_mode || self.is_requested_by_name(tool),
                    ToolListing::As(_) => true,
                    ToolListing::Not => false,
                }
        };
        let tools: Vec<&Arc<Tool>> = self.tools.iter().filter(is_shown).collect();
        // Callers who see less see it under the same names.
        let whole = self.seen.as_ref().map(|seen| &*seen.whole);
        let known: HashMap<*const Tool, &String> = (whole.into_iter())
            .flat_map(|whole| whole.shown.iter())
            .map(|(name, tool)| (Arc::as_ptr(tool), name))
            .collect();
        let by_name = &whole.unwrap_or(self).by_name;
        let unknown: Vec<&Arc<Tool>> =
            tools.iter().filter(|tool| !known.contains_key(&Arc::as_ptr(tool))).copied().collect();
        let mut made = listed_names(&unknown, |name, tool| {
            by_name.get(name).is_some_and(|it| !Arc::ptr_eq(it, tool))
        })
        .into_iter();
        let names: Vec<String> = (tools.iter())
            .map(|tool| match known.get(&Arc::as_ptr(tool)) {
                Some(name) => (*name).clone(),
                None => made.next().unwrap_or_else(|| tool.name.clone()),
            })
            .collect();
        self.shown = names.into_iter().zip(tools.into_iter().cloned()).collect();
        // A name that leads to a tool which does not exist for some callers leads them nowhere:
        // whoever has it from before must not call another tool by it.
        let whole = self.seen.as_ref().map(|seen| seen.whole.clone());
        let leads_elsewhere = |name: &str, tool: &Arc<Tool>| {
            let whole = whole.as_ref().and_then(|whole| whole.by_name.get(name));
            whole.is_some_and(|it| !Arc::ptr_eq(it, tool))
        };
        for (name, tool) in &self.shown {
            self.by_name.entry(name.clone()).or_insert_with(|| tool.clone());
        }
        // What a tool would be listed as leads to it as well; with the next number, as
        // before, if it is another's.
        let mut numbers: HashMap<&str, usize> = HashMap::new();
        for (_, tool) in &self.shown {
            let Some(wanted) = wanted_name(tool) else { continue };
            let number = numbers.entry(wanted).or_insert(1);
            let is_of_another = |name: &str| {
                leads_elsewhere(name, tool)
                    || self.by_name.get(name).is_some_and(|it| !Arc::ptr_eq(it, tool))
            };
            let name = loop {
                let name =
                    if *number == 1 { wanted.to_owned() } else { format!("{wanted}_{number}") };
                if !is_of_another(&name) {
                    break name;
                }
                *number += 1;
            };
            self.by_name.entry(name).or_insert_with(|| tool.clone());
        }
        for (_, tool) in &self.shown {
            for name in wanted_name(tool).into_iter().flat_map(listed_name_variants) {
                if !leads_elsewhere(&name, tool) {
                    self.by_name.entry(name).or_insert_with(|| tool.clone());
                }
            }
        }
    }

    /// Whether listing the tools that may be listed or not takes less than
    /// explaining how to call them from scripts. The others are listed anyway.
    fn is_direct_listing_shorter(&self) -> bool {
        if self.tools.iter().all(|tool| tool.expose != ToolExposure::Auto) {
            return false;
        }
        let of = |code_mode: bool| -> usize {
            let listed = |tool: &&Arc<Tool>| match tool.shown {
                ToolListing::Not => false,
                ToolListing::InCodeMode => code_mode,
                ToolListing::ByName | ToolListing::As(_) => {
                    !code_mode && tool.expose == ToolExposure::Auto
                }
            };
            self.tools.iter().filter(listed).map(|tool| estimate_listed_bytes(tool)).sum()
        };
        of(false) < of(true)
    }

    /// Whether agents have a use for scripts: something that is only, or also,
    /// to be called from there.
    pub fn has_code_mode(&self) -> bool {
        self.code_mode
    }

    /// The tools as scripts see them.
    pub fn sdk(&self) -> &Sdk {
        self.sdk.get_or_init(|| {
            let whole = self.seen.as_ref().map_or(&self.tools, |seen| &seen.whole.tools);
            let useful = whole.iter().filter(|tool| !self.is_unbacked_builtin(tool));
            let sdk = Sdk::new(&useful.cloned().collect::<Vec<_>>());
            if self.seen.is_none() { sdk } else { sdk.retain_existing(|tool| self.has_tool(tool)) }
        })
    }

    /// With what the sources offer beside tools, and those that have yet to say.
    #[must_use]
    pub fn with_source_resources(
        mut self,
        offers: Vec<Arc<SourceResources>>,
        connecting: Vec<ConnectingSource>,
    ) -> Self {
        (self.offers, self.connecting) = (offers, connecting);
        // Most clients ask once, at the beginning, which tools there are.
        if self
            .connecting
            .iter()
            .any(|it| matches!(it.expose, ToolExposure::Code | ToolExposure::Both))
        {
            self.update_listing();
        }
        self
    }

    /// With what Moonlark offers itself, after all else is known.
    #[must_use]
    pub fn with_builtin_resources(mut self, own: BuiltinResourcesFn) -> Self {
        let offers = own(&self);
        self.offers.extend(offers);
        self.own = Some(own);
        self
    }

    fn add_tool(&mut self, tool: Arc<Tool>) {
        let tool = match self.by_name.get(&tool.name) {
            None => tool,
            Some(first) => {
                let name = self.unused_name(&tool.name);
                let problem = Problem::bad_script(format!(
                    "{} and {} both define a tool named {}; the second is {name}",
                    first.source.name, tool.source.name, tool.name
                ));
                self.problems.push(
                    problem
                        .at_location(SourceLocation::in_file(tool.source.name.clone()))
                        .with_hint("rename one of them"),
                );
                Arc::new(tool.with_name(name))
            }
        };
        for alias in &tool.aliases {
            self.by_name.entry(alias.clone()).or_insert_with(|| tool.clone());
        }
        self.by_name.insert(tool.name.clone(), tool.clone());
        self.tools.push(tool);
    }

    pub fn find_tool(&self, name: &str) -> Result<&Arc<Tool>> {
        self.by_name.get(name).ok_or_else(|| self.not_found_problem(name))
    }

    /// The same for agents, for whom what is hidden does not exist.
    pub fn find_tool_for_agents(&self, name: &str) -> Result<&Arc<Tool>> {
        let found = self.by_name.get(name).filter(|tool| tool.expose != ToolExposure::Hidden);
        found.ok_or_else(|| self.not_found_problem(name))
    }

    /// The Problem of a name that no tool has here.
    pub fn not_found_problem(&self, name: &str) -> Problem {
        if let Some(problem) =
            self.unreachable_source_problem(name).or_else(|| self.broken_script_problem(name))
        {
            return problem;
        }
        let known = self.by_name.iter();
        let known = known
            .filter(|(_, it)| it.expose != ToolExposure::Hidden && !self.is_unbacked_builtin(it));
        let near = nearest_name(name, known.map(|(name, _)| name.as_str()))
            .map(|near| format!("did you mean {near}?"));
        let renamed =
            self.renamed_tool(name).map(|tool| format!("the configuration calls it {}", tool.name));
        let hints: Vec<String> = match renamed {
            Some(renamed) => vec![renamed],
            // A tool of a script that does not load may have any name.
            None => self.broken_scripts_hint().into_iter().chain(near).collect(),
        };
        let message = format!("no tool registered with name: {}", shorten_text(name));
        let problem = Problem::not_found(message);
        if hints.is_empty() { problem } else { problem.with_hint(hints.join("; ")) }
    }

    /// The tool that its source calls `name`, and the configuration otherwise.
    fn renamed_tool(&self, name: &str) -> Option<&Arc<Tool>> {
        let is_called_so = |tool: &&Arc<Tool>| {
            let Some(original) = tool.original_name.as_deref() else { return false };
            let source = &tool.source.name;
            let rest = name.strip_prefix(source.as_str());
            let rest = rest.or_else(|| name.strip_prefix(&to_identifier(source)));
            let rest = rest.and_then(|it| it.strip_prefix('.').or_else(|| it.strip_prefix("__")));
            rest == Some(original)
        };
        let mut visible = self.tools.iter().filter(|tool| tool.expose != ToolExposure::Hidden);
        visible.find(is_called_so)
    }

    /// Which scripts do not load: the Problem of the only one, or how many there are.
    fn broken_scripts_hint(&self) -> Option<String> {
        let broken: Vec<&Problem> =
            self.problems.iter().filter(|problem| script_stem(problem).is_some()).collect();
        match broken.as_slice() {
            [] => None,
            [one] => Some(format!(
                "a script has a problem, and its tools may be missing: {}",
                one.to_line()
            )),
            many => Some(format!("{} scripts have problems: see `moonlark doctor`", many.len())),
        }
    }

    /// The Problem of a script that does not load, if the tool is named like its file.
    fn broken_script_problem(&self, name: &str) -> Option<Problem> {
        let wanted = to_identifier(name);
        let is_it = |problem: &&Problem| {
            let stem = script_stem(problem);
            stem.is_some_and(|stem| to_identifier(stem) == wanted)
        };
        let problem = self.problems.iter().find(is_it)?.clone();
        let message = format!("tool '{}' is not there: {}", shorten_text(name), problem.message);
        Some(problem.with_message(message))
    }

    /// The Problem of a tool whose source is known to be in trouble.
    fn unreachable_source_problem(&self, name: &str) -> Option<Problem> {
        let of = |health: &&SourceHealth| {
            let rest = name.strip_prefix(&health.source);
            rest.is_some_and(|rest| rest.starts_with('.') || rest.starts_with("__"))
        };
        let problem = self.health.iter().find(of)?.problem.clone()?;
        let message = format!("tool '{}' is not there: {}", shorten_text(name), problem.message);
        Some(problem.with_message(message))
    }

    /// Whether every script may call it: a built-in, or what stands in for one.
    /// Not those that run scripts, which may do more than the one that calls.
    pub fn is_callable_by_all(&self, tool: &Tool) -> bool {
        let builtin =
            tool.source.kind == SourceKind::Builtin && tool.shown != ToolListing::InCodeMode;
        builtin || self.heirs.contains(&tool.name)
    }

    /// All tools, built-ins first, then by source.
    pub fn tools(&self) -> &[Arc<Tool>] {
        &self.tools
    }

    /// The callers that have tools of their own.
    pub fn tool_owners(&self) -> HashSet<Arc<str>> {
        self.tools.iter().filter_map(|tool| tool.owner.clone()).collect()
    }

    /// The same without what is hidden from agents, or of no use to them.
    pub fn tools_for_agents(&self) -> impl Iterator<Item = &Arc<Tool>> {
        let of_use = |tool: &Tool| {
            tool.shown != ToolListing::InCodeMode
                || self.code_mode
                || self.is_requested_by_name(tool)
        };
        self.tools.iter().filter(move |tool| of_use(tool) && tool.expose != ToolExposure::Hidden)
    }

    /// The tools that agents are shown, under the names they see.
    pub fn listed_tools(&self) -> &[(String, Arc<Tool>)] {
        &self.shown
    }

    /// What the sources offer beside tools.
    pub fn source_resources(&self) -> &[Arc<SourceResources>] {
        &self.offers
    }

    /// The sources that are still connecting.
    pub fn connecting_sources(&self) -> &[ConnectingSource] {
        &self.connecting
    }

    /// Not all scripts are in it yet: they are being loaded for the first time.
    /// Later loads replace what is there, and nobody has to wait for them.
    #[must_use]
    pub fn with_loading(mut self, loading: bool) -> Self {
        self.loading = loading;
        self
    }

    /// Whether scripts are being loaded for the first time.
    pub fn is_loading(&self) -> bool {
        self.loading
    }

    /// Whether there are sources whose tools are not known at all.
    pub fn awaits_sources(&self) -> bool {
        self.connecting.iter().any(|it| !it.is_remembered)
    }

    /// Whether the tool may come from a script that is being loaded, or from a
    /// source that is still connecting.
    pub fn awaits_tool(&self, name: &str) -> bool {
        (self.loading || !self.connecting.is_empty())
            && !self.by_name.contains_key(name)
            && (self.loading || self.connecting.iter().any(|it| it.may_provide(name)))
    }

    /// The Problem of a call that has waited long enough.
    pub fn still_connecting_problem(&self, name: &str) -> Problem {
        let why = match self.connecting.iter().find(|it| it.may_provide(name)) {
            Some(source) => format!("'{}' is still connecting", source.source),
            None => "scripts are still being loaded".to_owned(),
        };
        Problem::unavailable(format!("tool '{}' is not there yet: {why}", shorten_text(name)))
            .with_hint("try again in a moment; `moonlark doctor` says what it waits for")
    }

    /// With how the sources that connect are doing.
    #[must_use]
    pub fn with_health(mut self, health: Vec<SourceHealth>) -> Self {
        self.health = health;
        self
    }

    pub fn health(&self) -> &[SourceHealth] {
        &self.health
    }

    pub fn modules(&self) -> &Arc<Vec<Module>> {
        &self.modules
    }

    /// What the authors of tools might write otherwise.
    pub fn warnings(&self) -> impl Iterator<Item = &Warning> {
        self.tools.iter().flat_map(|tool| &tool.warnings)
    }

    /// What is wrong with the sources this snapshot was made from.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    fn unused_name(&self, name: &str) -> String {
        numbered_until_free(name, |name| self.by_name.contains_key(name))
    }
}

/// The name, without folder and ending, of the script that a Problem is about.
fn script_stem(problem: &Problem) -> Option<&str> {
    let file = &*problem.place.as_ref()?.file;
    let name = file.rsplit(['/', '\\']).next()?;
    let (stem, ending) = name.rsplit_once('.')?;
    matches!(ending, "lua" | "luau" | "star").then_some(stem)
}

/// About how many bytes a tool takes in a list.
fn estimate_listed_bytes(tool: &Tool) -> usize {
    match &tool.definition {
        Some(definition) => {
            Value::Object(definition.as_ref().clone()).to_json_lossy().to_string().len()
        }
        None => {
            let schema = serde_json::to_string(&**tool.input.json()).map_or(0, |text| text.len());
            tool.name.len() + tool.description.len() + schema + 40
        }
    }
}

/// `name`, or with the first number behind it that makes it free.
pub fn numbered_until_free(name: &str, taken: impl Fn(&str) -> bool) -> String {
    let numbered = (2..).map(|number| format!("{name}_{number}"));
    std::iter::once(name.to_owned())
        .chain(numbered)
        .find(|candidate| !taken(candidate))
        .unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Schema;
    use crate::tool::Source;
    use crate::tool_body::SealedBody;

    fn catalog(problems: Vec<Problem>) -> Catalog {
        let source = Arc::new(Source { kind: SourceKind::Upstream, name: "fs".to_owned() });
        let schema = Schema::description_only(serde_json::Map::new());
        let body = SealedBody::empty();
        let tool = Tool::new("fs.read_text_file", source, schema, body);
        Catalog::new(Arc::default(), vec![Arc::new(tool)], &[], problems)
    }

    fn not_found(catalog: &Catalog, name: &str) -> String {
        catalog.find_tool(name).map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn an_unknown_tool_is_answered_with_what_is_true_of_it() {
        // A source that is down is no script.
        let down = Problem::unavailable("'tracker' cannot be reached");
        assert_eq!(
            not_found(&catalog(vec![down.clone()]), "fs.read_txt_file"),
            "error[not_found]: no tool registered with name: fs.read_txt_file\nhint: did you mean fs.read_text_file?"
        );
        assert_eq!(
            not_found(&catalog(vec![down]), "something"),
            "error[not_found]: no tool registered with name: something"
        );
        let broken = Problem::bad_script("Expected 'end'")
            .at_location(SourceLocation::at_line("tools/create-ticket.lua", 3));
        let catalog = catalog(vec![broken.with_hint("write end")]);
        assert_eq!(
            not_found(&catalog, "create_ticket"),
            "error[bad_script]: tool 'create_ticket' is not there: Expected 'end'\n  --> tools/create-ticket.lua:3\nhint: write end"
        );
        assert_eq!(
            not_found(&catalog, "other"),
            "error[not_found]: no tool registered with name: other\nhint: a script has a problem, and its tools may be missing: tools/create-ticket.lua:3: Expected 'end'"
        );
        assert_eq!(
            not_found(&catalog, "fs.read_txt_file"),
            "error[not_found]: no tool registered with name: fs.read_txt_file\nhint: a script has a problem, and its tools may be missing: tools/create-ticket.lua:3: Expected 'end'; did you mean fs.read_text_file?"
        );
    }

    #[test]
    fn of_several_broken_scripts_only_the_number_is_said() {
        let broken = |file: &str| {
            Problem::bad_script("Expected 'end'").at_location(SourceLocation::at_line(file, 3))
        };
        let catalog = catalog(vec![broken("tools/a.lua"), broken("extensions/b.star")]);
        assert_eq!(
            not_found(&catalog, "other"),
            "error[not_found]: no tool registered with name: other\nhint: 2 scripts have problems: see `moonlark doctor`"
        );
    }

    #[test]
    fn a_tool_that_the_configuration_renamed_is_named_under_its_old_name() {
        let source = Arc::new(Source { kind: SourceKind::Upstream, name: "my-fs".to_owned() });
        let schema = Schema::description_only(serde_json::Map::new());
        let body = SealedBody::empty();
        let mut tool = Tool::new("my-fs.read", source, schema, body);
        tool.original_name = Some("read_text_file".to_owned());
        let catalog = Catalog::new(Arc::default(), vec![Arc::new(tool)], &[], Vec::new());
        for name in ["my-fs.read_text_file", "my_fs.read_text_file", "my-fs__read_text_file"] {
            assert_eq!(
                not_found(&catalog, name),
                format!(
                    "error[not_found]: no tool registered with name: {name}\nhint: the configuration calls it my-fs.read"
                )
            );
        }
    }
}
