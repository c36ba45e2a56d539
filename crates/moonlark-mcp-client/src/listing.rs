//! Lists of an upstream: tools, resources and prompts, read to the end and converted.
//!
//! One entry that is wrong costs that entry, never the list.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use moonlark_core::secret::Secrets;
use moonlark_core::source_resources::SourceResources;
use moonlark_core::tool::{Source, SourceKind};
use moonlark_core::value::{Object, shorten_text};
use moonlark_core::{Problem, Result, Tool, Value};

use crate::connection::{McpConnection, McpPeer, McpRequestOptions};
use crate::definition_text::{clean_entry, text_field};
use crate::json_rpc::{RequestFailure, RpcError};
use crate::name_mapping::{is_app_uri, tool_app_uri};
use crate::pins;
use crate::upstream_settings::UpstreamSettings;
use crate::upstream_state::UpstreamState;
use crate::upstream_tool;
use moonlark_core::foreign_text::{MAX_INSTRUCTIONS_BYTES, clean_text};
use moonlark_core::tool_config::ToolPattern;

/// Entries of one list. More than that is no list for anybody.
const MAX_LIST_ENTRIES: usize = 50_000;
/// Problems that are told of one by one.
const MAX_LISTING_PROBLEMS: usize = 20;
/// Pages of one list.
const MAX_LIST_PAGES: usize = 5_000;

/// One bit for each list that a server may say has changed.
pub(crate) const TOOLS_LIST_BIT: u8 = 1;
pub(crate) const RESOURCES_LIST_BIT: u8 = 2;
pub(crate) const PROMPTS_LIST_BIT: u8 = 4;
pub(crate) const ALL_LIST_BITS: u8 = 7;

/// Of each list in [`McpLists`]: its bit, the capability and the method that it comes
/// by, and what it is called in the answer and in our files.
pub(crate) const MCP_LIST_KINDS: [(u8, &str, &str, &str, &str); 4] = [
    (TOOLS_LIST_BIT, "tools", "tools/list", "tools", "tools"),
    (RESOURCES_LIST_BIT, "resources", "resources/list", "resources", "resources"),
    (RESOURCES_LIST_BIT, "resources", "resources/templates/list", "resourceTemplates", "templates"),
    (PROMPTS_LIST_BIT, "prompts", "prompts/list", "prompts", "prompts"),
];

/// What is offered to the catalog.
#[derive(Default)]
pub(crate) struct UpstreamOffering {
    pub(crate) tools: Vec<Arc<Tool>>,
    pub(crate) offers: Option<Arc<SourceResources>>,
    pub(crate) problems: Vec<Problem>,
    /// As the server listed them, to compare and to keep.
    pub(crate) lists: McpLists,
    /// All of it is known from an earlier time only.
    pub(crate) is_remembered: bool,
}

pub(crate) type McpListEntries = Option<Arc<Vec<Object>>>;

/// The lists as they were read; none where one was not read.
#[derive(Default, Clone)]
pub(crate) struct McpLists {
    pub(crate) tools: McpListEntries,
    pub(crate) resources: McpListEntries,
    pub(crate) templates: McpListEntries,
    pub(crate) prompts: McpListEntries,
    /// Entries that could not be read at all.
    pub(crate) problems: Vec<Problem>,
}

impl McpLists {
    /// In the order of [`MCP_LIST_KINDS`].
    pub(crate) fn each(&self) -> [&McpListEntries; 4] {
        [&self.tools, &self.resources, &self.templates, &self.prompts]
    }

    pub(crate) fn each_mut(&mut self) -> [&mut McpListEntries; 4] {
        [&mut self.tools, &mut self.resources, &mut self.templates, &mut self.prompts]
    }

    /// A server that echoes what it was given shows it to everybody who reads what it
    /// offers.
    fn redact_secrets(&mut self, secrets: &Secrets) {
        for entry in self.each_mut().into_iter().flatten().flat_map(Arc::make_mut) {
            if let Value::Object(clean) =
                secrets.redact_result(Value::Object(std::mem::take(entry)))
            {
                *entry = clean;
            }
        }
    }
}

/// Read the lists that are asked for.
pub(crate) async fn read_lists(link: &McpConnection, lists: u8) -> Result<McpLists> {
    let (mut read, mut problems) = (McpLists::default(), Vec::new());
    for (list, (bit, capability, method, key, _)) in read.each_mut().into_iter().zip(MCP_LIST_KINDS)
    {
        if lists & bit != 0 {
            *list = Some(if link.peer().capabilities.contains_key(capability) {
                read_all_pages(link, method, key, &mut problems).await?
            } else {
                Arc::default()
            });
        }
    }
    Ok(McpLists { problems, ..read })
}

/// All pages of one list.
async fn read_all_pages(
    link: &McpConnection,
    method: &str,
    key: &str,
    problems: &mut Vec<Problem>,
) -> Result<Arc<Vec<Object>>> {
    let mut entries = Vec::new();
    let mut cursors = HashSet::new();
    let mut cursor: Option<Value> = None;
    for number in 1..=MAX_LIST_PAGES {
        let mut params = Object::new();
        if let Some(cursor) = cursor.take() {
            params.insert("cursor".to_owned(), cursor);
        }
        let mut page = match link.send_request(method, params, McpRequestOptions::default()).await {
            Ok(page) => page,
            // It says it has such a list, and has none.
            Err(RequestFailure::Refused(rpc)) if rpc.code == RpcError::METHOD_NOT_FOUND => break,
            Err(RequestFailure::Refused(rpc)) => {
                return Err(Problem::unavailable(format!("{method}: {}", rpc.message)));
            }
            Err(
                RequestFailure::NotSent(problem)
                | RequestFailure::Lost(problem)
                | RequestFailure::Unauthorized(problem),
            ) => return Err(problem),
        };
        let listed = match page.swap_remove(key) {
            Some(Value::Array(listed)) => listed,
            _ => return Err(Problem::unavailable(format!("{method} was answered without {key}"))),
        };
        for entry in listed {
            match entry {
                Value::Object(entry) => entries.push(entry),
                // See `parse_outcome`: that is what is left of it.
                _ => problems.push(Problem::bad_script(format!(
                    "an entry of {method} is left out: it is no object, or nests too deep"
                ))),
            }
        }
        cursor = page.swap_remove("nextCursor");
        let Some(Value::Str(next)) = &cursor else { break };
        if number == MAX_LIST_PAGES
            || entries.len() > MAX_LIST_ENTRIES
            || !cursors.insert(next.clone())
        {
            problems.push(Problem::bad_script(format!(
                "{method} never ends: only the first {} are used",
                entries.len().min(MAX_LIST_ENTRIES)
            )));
            break;
        }
    }
    entries.truncate(MAX_LIST_ENTRIES);
    Ok(Arc::new(entries))
}

/// Make what was read into what callers see; without a `peer`, it was read an earlier
/// time. What was not read stays as it was,
/// and so does what is the same as before, unless the server `said` it changed.
pub(crate) fn build_offering(
    shared: &Arc<UpstreamState>,
    mut read: McpLists,
    peer: Option<&McpPeer>,
    said: bool,
) -> UpstreamOffering {
    let secrets = &shared.settings.scope.secrets;
    read.redact_secrets(secrets);
    let old = shared.current_offering();
    let kind = SourceKind::Upstream;
    let source = Arc::new(Source { kind, name: shared.settings.name().to_owned() });
    let mut problems = std::mem::take(&mut read.problems);
    let tools = match &read.tools {
        Some(tools) if said || Some(tools) != old.lists.tools.as_ref() => {
            build_tools(shared, &source, tools, &mut problems)
        }
        _ => {
            problems.extend(old.problems.iter().cloned());
            old.tools.clone()
        }
    };
    let was = old.offers.as_deref();
    let names = &shared.names;
    let before = &old.lists;
    let keep_or_rename = |read: &McpListEntries,
                          before: &McpListEntries,
                          was: Option<&Arc<Vec<Object>>>,
                          key: &str,
                          rename: &dyn Fn(&str) -> String| match was {
        Some(was) if read.is_none() || (!said && read == before) => was.clone(),
        _ => rename_entries(read, key, rename),
    };
    let (uri, prompt) =
        (|uri: &str| names.uri_to_caller(uri), |name: &str| names.prompt_to_caller(name));
    let (resources, templates, prompts) =
        (was.map(|it| &it.resources), was.map(|it| &it.templates), was.map(|it| &it.prompts));
    let resources = keep_or_rename(&read.resources, &before.resources, resources, "uri", &uri);
    let templates =
        keep_or_rename(&read.templates, &before.templates, templates, "uriTemplate", &uri);
    let prompts = keep_or_rename(&read.prompts, &before.prompts, prompts, "name", &prompt);
    let known = || was.map(|it| (it.capabilities.clone(), it.instructions.clone()));
    let (capabilities, instructions) = match peer {
        Some(peer) => {
            let instructions = peer.instructions.as_deref();
            let instructions = instructions.map(|text| {
                clean_text(&secrets.redact_text(text), MAX_INSTRUCTIONS_BYTES).into_owned()
            });
            (Arc::new(peer.capabilities.clone()), instructions)
        }
        None => known().unwrap_or_default(),
    };
    let app_uris = collect_app_uris(&tools, &resources, &templates);
    let offers = SourceResources {
        app_uris: Arc::new(app_uris),
        uris: names.uris.clone(),
        names: names.prompts.clone(),
        resources,
        templates,
        prompts,
        capabilities,
        instructions,
        door: match was {
            Some(was) => was.door.clone(),
            None => Arc::new(upstream_tool::build_passthrough_tool(shared, &source)),
        },
        watcher: shared.watching.clone(),
        source,
    };
    for (list, before) in read.each_mut().into_iter().zip(old.lists.each()) {
        if list.is_none() {
            list.clone_from(before);
        }
    }
    let is_remembered = peer.is_none();
    UpstreamOffering { tools, offers: Some(Arc::new(offers)), problems, lists: read, is_remembered }
}

/// The pages of apps: those that are listed, and those that tools name.
fn collect_app_uris(
    tools: &[Arc<Tool>],
    resources: &[Object],
    templates: &[Object],
) -> BTreeSet<String> {
    let of_tools = tools.iter().filter_map(|tool| tool_app_uri(tool.definition.as_deref()?));
    let listed = resources.iter().map(|it| text_field(it, "uri"));
    let templates = templates.iter().map(|it| text_field(it, "uriTemplate"));
    let all = of_tools.chain(listed).chain(templates).filter(|uri| is_app_uri(uri));
    all.map(str::to_owned).collect()
}

fn build_tools(
    shared: &Arc<UpstreamState>,
    source: &Arc<Source>,
    definitions: &[Object],
    problems: &mut Vec<Problem>,
) -> Vec<Arc<Tool>> {
    let settings = &shared.settings;
    problems.extend(unused_setting_problems(settings, definitions));
    let wanted: Vec<Object> =
        definitions.iter().filter(|it| is_tool_wanted(settings, it)).cloned().collect();
    let (approved, held) = pins::partition_approved(settings, &wanted);
    problems.extend(held);
    let mut tools = Vec::with_capacity(approved.len());
    let mut names: HashMap<&str, &Object> = HashMap::new();
    for definition in approved {
        let name = text_field(definition, "name");
        match names.entry(name) {
            Entry::Vacant(entry) => _ = entry.insert(definition),
            Entry::Occupied(first) if !name.is_empty() => {
                problems.push(duplicate_tool_problem(source, name, *first.get() == definition));
                continue;
            }
            Entry::Occupied(_) => {}
        }
        match upstream_tool::build_tool(shared, source, definition.clone()) {
            Ok((tool, problem)) => {
                tools.push(Arc::new(tool));
                problems.extend(problem);
            }
            Err(problem) => problems.push(problem),
        }
    }
    let own_names = tools
        .iter()
        .filter_map(|tool: &Arc<Tool>| tool.name.strip_prefix(&*source.name)?.strip_prefix('.'));
    problems.extend(settings.source_key().name_collision_problems(own_names));
    // They are read by people: what is wrong with a thousand tools is wrong once.
    if problems.len() > MAX_LISTING_PROBLEMS {
        let more = problems.len() - MAX_LISTING_PROBLEMS;
        problems.truncate(MAX_LISTING_PROBLEMS);
        problems.push(Problem::bad_script(format!(
            "upstream '{}' has {more} more problems of this kind",
            source.name
        )));
    }
    tools
}

/// Whether the operator wants a tool.
fn is_tool_wanted(settings: &UpstreamSettings, definition: &Object) -> bool {
    let (name, tags) = (text_field(definition, "name"), definition_tags(definition));
    let fits = |pattern: &ToolPattern| pattern.matches_tool(name, &tags);
    (settings.include.is_empty() || settings.include.iter().any(fits))
        && !settings.exclude.iter().any(fits)
}

/// Patterns and tables of the configuration that are about no tool.
fn unused_setting_problems(settings: &UpstreamSettings, definitions: &[Object]) -> Vec<Problem> {
    let key = settings.source_key();
    let names = || definitions.iter().map(|it| text_field(it, "name"));
    let tags = definitions.iter().flat_map(definition_tags).map(|tag| format!("tag:{tag}"));
    let tags: BTreeSet<String> = tags.collect();
    let mut problems = Vec::new();
    for (word, patterns) in [("include", &settings.include), ("exclude", &settings.exclude)] {
        let fits = |pattern: &ToolPattern| {
            definitions
                .iter()
                .any(|it| pattern.matches_tool(text_field(it, "name"), &definition_tags(it)))
        };
        for pattern in patterns.iter().filter(|pattern| !fits(pattern)) {
            let known = names().chain(tags.iter().map(String::as_str));
            problems.push(key.unmatched_pattern_problem(word, &pattern.to_string(), known));
        }
    }
    for tool in settings.tools.keys().filter(|tool| !names().any(|name| name == tool.as_str())) {
        problems.push(key.unknown_tool_problem(tool, names()));
    }
    problems
}

/// What the author of a tool filed it under: `_meta.tags`, or that of a framework,
/// such as `_meta.fastmcp.tags`.
fn definition_tags(definition: &Object) -> Vec<&str> {
    let Some(Value::Object(meta)) = definition.get("_meta") else { return Vec::new() };
    let lists = meta.get("tags").into_iter().chain(meta.values().filter_map(|it| it.get("tags")));
    let tags = lists.filter_map(|list| match list {
        Value::Array(tags) => Some(tags.iter().filter_map(Value::as_str)),
        _ => None,
    });
    tags.flatten().collect()
}

/// A call names the tool, so a second one of the same name cannot be called: under
/// another name it would be the first again, past the rules for that.
fn duplicate_tool_problem(source: &Source, name: &str, same: bool) -> Problem {
    let how = if same { "" } else { ", and describes it in two ways: the first is used" };
    Problem::bad_script(format!(
        "upstream '{}' lists tool {} twice{how}",
        source.name,
        shorten_text(name)
    ))
}

fn rename_entries(
    list: &McpListEntries,
    key: &str,
    rename: &dyn Fn(&str) -> String,
) -> Arc<Vec<Object>> {
    let mut list = list.as_deref().cloned().unwrap_or_default();
    for entry in &mut list {
        if let Some(Value::Str(name)) = entry.get_mut(key) {
            *name = rename(name);
        }
        clean_entry(entry);
    }
    Arc::new(list)
}
