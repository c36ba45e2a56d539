//! The next catalog of a project: put together from scripts, upstream servers, APIs and
//! built-in tools, and published with the rules and limits of the same configuration.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use moonlark_core::{Catalog, Problem, SourceLocation};
use moonlark_gateway::gateway::SnapshotUpdate;

use super::script_loading::ScriptFileUseCounts;
use super::{Project, ProjectState};
use crate::{builtin, connectors, effective_policy, prompt_scripts, saved_scripts, source_names};

impl Project {
    /// Make the tools and problems of scripts and configuration what they are now, and
    /// publish them.
    pub(super) fn compose_catalog(&self, state: &mut ProjectState) {
        let found = state.found.iter().map(|(key, file)| (key, file.as_str()));
        let sources = connectors::list_knowledge_sources(&state.loaded, found, &state.scripts);
        let mut problems = state.folder_problems.clone();
        let configured = sources.iter().filter(|it| it.kind() != "script");
        problems.extend(configured.filter_map(|it| it.problem.clone()));
        problems.extend(state.loaded.config.knowledge.outage.iter().cloned());
        self.knowledge.apply_config(&state.loaded, sources);
        problems.extend(self.knowledge.renew_search_tool(&mut state.builtin).err());
        let mut tools = state.builtin.clone();
        let has_saved = state.scripts.values().any(|it| it.saved_script().is_some());
        let old = state.execute.as_ref();
        match builtin::make_execute_tool(&self.luau, &state.loaded, has_saved, old) {
            Ok(execute) => state.execute = Some(execute),
            Err(problem) => problems.push(problem),
        }
        tools.extend(state.execute.iter().map(|it| it.tool.clone()));
        match self.saved_scripts.tools_for_agents(&state.loaded) {
            Ok(more) => tools.extend(more),
            Err(problem) => problems.push(problem),
        }
        let libraries = (!state.loading).then(|| ScriptFileUseCounts::count_uses(&state.scripts));
        let mut agent_problems = Vec::new();
        for (key, file) in &state.found {
            let is_of_agent = saved_scripts::is_saved_by_agent(key, &state.loaded);
            let problems = if is_of_agent { &mut agent_problems } else { &mut problems };
            let Some(entry) = state.scripts.get(key) else {
                problems.extend(still_loading_problem(state.loading, file));
                continue;
            };
            problems.extend(libraries.as_ref().and_then(|it| it.unused_library_problem(entry)));
            tools.extend(entry.tools().iter().cloned());
            if let (Some(saved), Some(execute)) = (entry.saved_script(), &state.execute) {
                let expose = entry.settings.exposure();
                match saved.make_tool(&self.luau, file, expose, &execute.settings) {
                    Ok(tool) => tools.push(tool),
                    Err(problem) => problems.push(problem),
                }
            }
            problems.extend(entry.problem.clone());
        }
        let prompts = state
            .found
            .iter()
            .filter_map(|(key, file)| Some((state.scripts.get(key)?.prompt()?, file.as_str())));
        problems.extend(prompt_scripts::prompt_name_collisions(prompts));
        problems.extend(state.config_problems.iter().cloned());
        (state.tools, state.problems) = (tools, problems);
        state.agent_problems = agent_problems;
        self.publish_catalog(state);
        self.saved_scripts
            .note_published(state.scripts.values().filter_map(|it| it.saved_script()));
    }

    /// Put the next catalog together, and publish it with the rules and limits of the same
    /// configuration, if anything of it is new.
    pub(super) fn publish_catalog(&self, state: &ProjectState) {
        let (mut tools, mut problems) = (state.tools.clone(), state.problems.clone());
        let upstreams = self.upstreams.current_offerings();
        let apis = self.apis.current_offerings();
        tools.extend(upstreams.tools.into_iter().chain(apis.tools));
        problems.extend(upstreams.problems.into_iter().chain(apis.problems));
        let connecting = [upstreams.connecting, apis.connecting].concat();
        let mut health = [upstreams.health, apis.health].concat();
        let config = &state.loaded.config;
        let names = config.mcp_servers.keys().chain(config.apis.keys()).map(String::as_str);
        for (source, problem) in source_names::source_name_collisions(names) {
            let of = health.iter_mut().filter(|it| it.source == source);
            of.for_each(|it| it.flaws.push(problem.clone()));
            problems.push(problem);
        }
        let catalog =
            Catalog::new(self.modules.clone(), tools, &builtin::REPLACEABLE_TOOL_NAMES, problems)
                .with_source_resources(
                    [prompt_scripts::collect_prompt_offers(&state.scripts), upstreams.offers]
                        .concat(),
                    connecting,
                );
        let catalog = if self.knowledge.has_sources_or_documents() {
            catalog.with_backed_builtins()
        } else {
            catalog
        };
        let catalog = catalog
            .with_builtin_resources(moonlark_discovery::discovery_resources)
            .with_health(health);
        let reads_documents =
            self.awaits_documents.load(Ordering::Acquire) && self.apis.is_reading_files();
        let catalog = catalog.with_loading(state.loading || reads_documents);
        let before = self.gateway.catalog();
        let same_tools = before.tools().len() == catalog.tools().len()
            && before.tools().iter().zip(catalog.tools()).all(|(a, b)| Arc::ptr_eq(a, b))
            && before.has_unbacked_builtins() == catalog.has_unbacked_builtins()
            && before.is_loading() == catalog.is_loading();
        let same_offers = before.source_resources().len() == catalog.source_resources().len()
            && before.source_resources().iter().zip(catalog.source_resources()).all(|(a, b)| {
                // Our own say nothing that the tools do not.
                Arc::ptr_eq(a, b) || (a.uris == b.uris && a.source.name == "moonlark")
            })
            && before.connecting_sources() == catalog.connecting_sources()
            && before.health() == catalog.health();
        let is_same = same_tools && same_offers && before.problems() == catalog.problems();
        let artifacts = usize::try_from(config.limits.artifacts.bytes());
        self.gateway.publish(SnapshotUpdate {
            catalog: (!is_same).then_some(catalog),
            policy: Some(effective_policy::build_policy(&state.loaded)),
            identity: Some(config.server.server_identity()),
            admission: Some(config.limits.admission_limits()),
            max_artifact_bytes: Some(artifacts.unwrap_or(usize::MAX)),
        });
    }
}

/// The Problem of a script that callers no longer wait for.
fn still_loading_problem(first: bool, file: &str) -> Option<Problem> {
    let problem = || {
        Problem::unavailable("the script is still being loaded")
            .at_location(SourceLocation::in_file(file.to_owned()))
    };
    (!first).then(problem)
}
