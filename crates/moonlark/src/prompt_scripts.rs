//! Prompt scripts: prompts that the project's authors write.
//!
//! A script is loaded as a tool's is: aside, and its last good version stays.
//! To clients it is a source that offers one prompt; who asks for it goes
//! through the gateway, as with the prompts of upstream servers.

mod prompt_source;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use moonlark_core::source_resources::SourceResources;
use moonlark_core::{Catalog, Problem, SourceLocation, Warning};
use moonlark_gateway::Gateway;
use moonlark_luau::LuauEngine;

use crate::scripts::{self, DiscoveredScript, ScriptKind, display_path};
use crate::source_selection::may_belong_to_source;
use moonlark_config::ProjectConfig;
use moonlark_config::config_file::LoadedConfig;

/// The scripts by their files.
pub(crate) type PromptScriptEntries = BTreeMap<PathBuf, Arc<PromptScriptEntry>>;

pub(crate) struct PromptScriptEntry {
    fingerprint: String,
    /// Its files, and why the newest version is not in use.
    inner: scripts::ScriptEntry,
    /// What the last version that loaded offers.
    offers: Option<Arc<SourceResources>>,
    /// The tools that it says it is about, by name.
    tools: Vec<String>,
    /// It misses a value that its settings name, so no version of it can be used.
    is_out_of_order: bool,
}

impl PromptScriptEntry {
    /// One that could not be loaded, for a reason that is not in its files.
    pub(crate) fn from_problem(
        found: &DiscoveredScript,
        fingerprint: String,
        loaded: &LoadedConfig,
        problem: Problem,
    ) -> PromptScriptEntry {
        let folder = scripts::script_folder(found, loaded).path;
        let inner = scripts::ScriptEntry {
            folder,
            problem: Some(problem),
            ..scripts::ScriptEntry::default()
        };
        let tools = Vec::new();
        PromptScriptEntry { fingerprint, inner, offers: None, tools, is_out_of_order: false }
    }

    /// The files it consists of.
    pub(crate) fn source_files(&self) -> impl Iterator<Item = PathBuf> {
        self.inner.source_files()
    }

    /// Why the newest version did not load.
    pub(crate) fn problem(&self) -> Option<&Problem> {
        self.inner.problem.as_ref()
    }

    /// Whether a version of it works.
    pub(crate) fn has_working_version(&self) -> bool {
        self.offers.is_some()
    }

    /// With the last version that loaded in the place of one that did not.
    pub(crate) fn with_last_good(mut self, old: Option<&PromptScriptEntry>) -> PromptScriptEntry {
        let is_broken = self.offers.is_none() && !self.is_out_of_order;
        if let Some(old) = old.filter(|_| is_broken) {
            self.offers.clone_from(&old.offers);
            self.tools.clone_from(&old.tools);
        }
        self
    }
}

/// What all of them offer.
pub(crate) fn collect_prompt_offers(entries: &PromptScriptEntries) -> Vec<Arc<SourceResources>> {
    entries.values().filter_map(|entry| entry.offers.clone()).collect()
}

/// Tools in `agent.tools` that do not exist. Those of a source that has not connected
/// are not known, so nothing is said of them.
pub(crate) fn unknown_tool_warnings(
    entries: &PromptScriptEntries,
    catalog: &Catalog,
    config: &ProjectConfig,
) -> Vec<Warning> {
    let servers = config.mcp_servers.iter().map(|(name, it)| (name, it.prefix.as_deref()));
    let apis = config.apis.iter().map(|(name, it)| (name, it.prefix.as_deref()));
    let is_connected = |source: &str| catalog.tools().iter().any(|it| it.source.name == source);
    let unconnected: Vec<(&String, Option<&str>)> =
        servers.chain(apis).filter(|(source, _)| !is_connected(source)).collect();
    let may_come = |tool: &str| {
        let mut sources = unconnected.iter();
        sources.any(|(source, prefix)| {
            // Without a prefix, any name may be one of its tools'.
            *prefix == Some("") || may_belong_to_source(tool, source, *prefix)
        })
    };
    let mut warnings = Vec::new();
    for entry in entries.values() {
        let Some(offers) = &entry.offers else { continue };
        for tool in entry.tools.iter().filter(|tool| !may_come(tool)) {
            let Err(unknown) = catalog.find_tool_for_agents(tool) else { continue };
            let message = format!("agent.tools names {tool}, which does not exist");
            let hint = unknown.hint.unwrap_or_else(|| "`moonlark tool list` has all".to_owned());
            warnings.push(
                Warning::new(message)
                    .at_location(SourceLocation::in_file(offers.source.name.clone()))
                    .with_hint(hint),
            );
        }
    }
    warnings
}

/// Prompts of which clients get only the first.
pub(crate) fn prompt_name_collisions<'a>(
    entries: impl Iterator<Item = (&'a PromptScriptEntry, &'a str)>,
) -> Vec<Problem> {
    let mut names: BTreeMap<String, &str> = BTreeMap::new();
    let mut problems = Vec::new();
    for (entry, file) in entries {
        let Some(name) = entry.offers.as_deref().and_then(prompt_source::offered_prompt_name)
        else {
            continue;
        };
        if let Some(first) = names.insert(name.to_owned(), file) {
            let message = format!("{first} and {file} both make a prompt named {name}");
            problems.push(
                Problem::bad_script(message)
                    .at_location(SourceLocation::in_file(file.to_owned()))
                    .with_hint("rename one of them: clients get the first"),
            );
        }
    }
    problems
}

/// The script at `path`, whatever the project would call it.
pub(crate) fn discovered_prompt_script(
    path: PathBuf,
    file: String,
    configured: Option<String>,
) -> DiscoveredScript {
    DiscoveredScript { path, file, configured, kind: ScriptKind::Agent }
}

/// Those of the configuration by name, then those in the folder.
pub(crate) fn find_prompt_scripts(loaded: &LoadedConfig) -> (Vec<DiscoveredScript>, Vec<Problem>) {
    let config = &loaded.config.agents;
    let mut problems = Vec::new();
    let mut found: Vec<DiscoveredScript> = Vec::new();
    for (name, it) in &config.script {
        let path = loaded.root.join(&it.path);
        let file = display_path(&loaded.root, &path);
        found.push(discovered_prompt_script(path, file, Some(name.clone())));
    }
    let paths = match scripts::list_lua_scripts(&loaded.root.join(&config.dir)) {
        Ok(mut paths) => {
            problems.extend(scripts::too_many_scripts_problem(paths.len(), &config.dir));
            paths.truncate(scripts::MAX_SCRIPTS_PER_FOLDER);
            paths
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        Err(error) => {
            let problem = format!("the agents folder cannot be read: {error}");
            problems.push(
                Problem::bad_config(problem)
                    .at_location(SourceLocation::in_file(config.dir.clone())),
            );
            Vec::new()
        }
    };
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let taken: Vec<PathBuf> = found.iter().map(|it| real(&it.path)).collect();
    for path in paths.into_iter().filter(|path| !taken.contains(&real(path))) {
        let file = display_path(&loaded.root, &path);
        found.push(discovered_prompt_script(path, file, None));
    }
    (found, problems)
}

/// Whether it has not changed since it was loaded.
pub(crate) fn is_prompt_script_unchanged(
    old: &PromptScriptEntry,
    found: &DiscoveredScript,
    fingerprint: &str,
    loaded: &LoadedConfig,
) -> bool {
    if old.fingerprint != fingerprint || old.inner.texts.is_empty() {
        return false;
    }
    let files = scripts::script_files(found, &scripts::script_folder(found, loaded));
    let same = |(file, was): (&String, &String)| files(file).unwrap_or_default() == *was;
    old.inner.texts.iter().all(same)
}

/// Load it, whatever was there before.
pub(crate) async fn load_prompt_script(
    found: &DiscoveredScript,
    fingerprint: String,
    loaded: &LoadedConfig,
    luau: &LuauEngine,
    gateway: &Gateway,
) -> PromptScriptEntry {
    let folder = scripts::script_folder(found, loaded);
    let mut inner =
        scripts::ScriptEntry { folder: folder.path.clone(), ..scripts::ScriptEntry::default() };
    let outage = scripts::script_outage(found, &loaded.config).first().cloned();
    let is_out_of_order = outage.is_some();
    let mut tools = Vec::new();
    let outcome = match scripts::prepare_script(found, loaded) {
        Ok(script) => {
            let scope = Arc::new(script.scope.clone());
            let (agent, texts) = luau.load_prompt(script, gateway).await;
            inner.texts = texts;
            match outage {
                Some(problem) => agent.and(Err(problem)),
                None => agent.and_then(|agent| {
                    tools.clone_from(&agent.header.tools);
                    prompt_source::offer_prompt(found, agent, scope)
                }),
            }
        }
        Err(problem) => {
            let text = scripts::script_files(found, &folder)(&folder.main).unwrap_or_default();
            inner.texts.insert(folder.main.clone(), text);
            Err(problem)
        }
    };
    let offers = match outcome {
        Ok(offers) => Some(Arc::new(offers)),
        Err(problem) => {
            inner.problem = Some(problem);
            None
        }
    };
    PromptScriptEntry { fingerprint, inner, offers, tools, is_out_of_order }
}
