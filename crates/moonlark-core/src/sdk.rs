//! The SDK namespace, the catalog as scripts see it: `sdk.<source>.<function>`.
//!
//! The one table of names: what a script calls, what documentation prints and
//! what the type checker knows all come from here. Every name is a Luau
//! identifier; the name that the source itself uses is found as well, so that
//! `sdk["data-server"]["read-file"]` and `sdk.data_server.read_file` are one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::catalog::numbered_until_free;
use crate::nearest::nearest_name;
use crate::problem::{Problem, Result};
use crate::tool::{SourceKind, Tool, ToolExposure};
use crate::value::shorten_text;

/// What script tools are found under, whatever file they are in.
pub const SCRIPTS_SOURCE_NAME: &str = "tools";

/// What saved scripts are found under.
pub const SAVED_SCRIPTS_SOURCE_NAME: &str = "scripts";

/// The source of the built-ins that scripts have no use for.
pub const BUILTIN_SOURCE_NAME: &str = "moonlark";

#[derive(Default)]
pub struct Sdk {
    sources: Vec<SdkSource>,
    by_name: HashMap<String, usize>,
}

/// A source with the functions it gives to scripts.
pub struct SdkSource {
    /// As a Luau identifier.
    pub name: String,
    /// As the operator or the author wrote it.
    pub original: String,
    pub kind: SourceKind,
    pub functions: Vec<SdkFunction>,
    by_name: HashMap<String, usize>,
}

pub struct SdkFunction {
    /// As a Luau identifier.
    pub name: String,
    /// As the source calls it.
    pub original: String,
    pub tool: Arc<Tool>,
}

/// Tools with the names that their source has for them.
type NamedTools = Vec<(String, Arc<Tool>)>;

impl SdkFunction {
    /// Its name at the source, where the identifier has lost letters of it.
    pub fn unreadable_original(&self) -> Option<&str> {
        let is_readable = self.original.is_ascii() && to_identifier(&self.original) == self.name;
        (!is_readable).then_some(self.original.as_str())
    }
}

impl Sdk {
    /// The sources and functions of `tools`, each under a name of its own.
    pub fn new(tools: &[Arc<Tool>]) -> Sdk {
        let mut groups: Vec<(String, SourceKind, NamedTools)> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        for tool in tools.iter().filter(|tool| tool.expose != ToolExposure::Hidden) {
            let Some((source, name)) = sdk_location(tool) else { continue };
            let place = *places.entry(source.clone()).or_insert_with(|| {
                groups.push((source, tool.source.kind, Vec::new()));
                groups.len() - 1
            });
            groups[place].2.push((name, tool.clone()));
        }
        let names = unique_identifiers(groups.iter().map(|(original, ..)| original.as_str()));
        let sources: Vec<SdkSource> = groups
            .into_iter()
            .zip(names)
            .map(|((original, kind, tools), name)| SdkSource::new(name, original, kind, tools))
            .collect();
        Sdk::from_sources(sources)
    }

    /// From sources whose names are decided.
    pub fn from_sources(sources: Vec<SdkSource>) -> Sdk {
        let by_name =
            index_names(sources.iter().map(|it| (it.name.as_str(), it.original.as_str())));
        Sdk { sources, by_name }
    }

    /// Without what does not exist for some callers. All other names stay.
    #[must_use]
    pub(crate) fn retain_existing(mut self, exists: impl Fn(&Arc<Tool>) -> bool) -> Sdk {
        for source in &mut self.sources {
            source.functions.retain(|function| exists(&function.tool));
        }
        let left = self.sources.into_iter().filter(|source| !source.functions.is_empty());
        Sdk::from_sources(left.map(SdkSource::reindexed).collect())
    }

    pub fn sources(&self) -> &[SdkSource] {
        &self.sources
    }

    /// A source by its identifier or its own name.
    pub fn find_source(&self, name: &str) -> Option<&SdkSource> {
        self.by_name.get(name).map(|index| &self.sources[*index])
    }

    /// `source.function`, with or without `sdk.` before it, in either spelling.
    pub fn find_function(&self, path: &str) -> Result<(&SdkSource, &SdkFunction)> {
        let path = path.strip_prefix("sdk.").unwrap_or(path);
        let dots = path.char_indices().filter(|(_, letter)| *letter == '.');
        // Either part may have dots in its own name.
        let found =
            dots.map(|(at, _)| (&path[..at], &path[at + 1..])).find_map(|(source, name)| {
                let source = self.find_source(source)?;
                Some((source, source.find_function(name)?))
            });
        found.ok_or_else(|| self.unknown_path_problem(path))
    }

    /// The Problem of a name that is nobody's.
    fn unknown_path_problem(&self, path: &str) -> Problem {
        let (source, name) = path.split_once('.').unwrap_or((path, ""));
        match self.find_source(source) {
            Some(source) => source.unknown_function_problem(name),
            None => {
                let near = nearest_name(source, self.sources.iter().map(|it| it.name.as_str()));
                let message = format!("there is no source sdk.{}", shorten_text(source));
                Problem::not_found(message).with_optional_hint(match near {
                    Some(near) => Some(format!("did you mean sdk.{near}?")),
                    None if self.sources.is_empty() => None,
                    None => Some(format!("there are {}", list_some(&self.sources, |it| &it.name))),
                })
            }
        }
    }
}

impl SdkSource {
    fn new(name: String, original: String, kind: SourceKind, tools: NamedTools) -> Self {
        let names = unique_identifiers(tools.iter().map(|(original, _)| original.as_str()));
        let functions: Vec<SdkFunction> = tools
            .into_iter()
            .zip(names)
            .map(|((original, tool), name)| SdkFunction { name, original, tool })
            .collect();
        Self::from_functions(name, original, kind, functions)
    }

    /// From functions whose names are decided.
    pub fn from_functions(
        name: String,
        original: String,
        kind: SourceKind,
        functions: Vec<SdkFunction>,
    ) -> Self {
        let by_name =
            index_names(functions.iter().map(|it| (it.name.as_str(), it.original.as_str())));
        Self { name, original, kind, functions, by_name }
    }

    /// A function by its identifier or its own name.
    pub fn find_function(&self, name: &str) -> Option<&SdkFunction> {
        self.by_name.get(name).map(|index| &self.functions[*index])
    }

    /// The Problem of a function that it does not have.
    pub fn unknown_function_problem(&self, name: &str) -> Problem {
        let near = nearest_name(name, self.functions.iter().map(|it| it.name.as_str()));
        let message = format!("sdk.{} has no function {}", self.name, shorten_text(name));
        Problem::not_found(message).with_hint(match near {
            Some(near) => format!("did you mean sdk.{}.{near}?", self.name),
            None => format!("it has {}", list_some(&self.functions, |it| &it.name)),
        })
    }

    /// The same after functions have gone.
    fn reindexed(self) -> Self {
        Self::from_functions(self.name, self.original, self.kind, self.functions)
    }
}

/// The first few, for a sentence.
fn list_some<T>(all: &[T], name: fn(&T) -> &String) -> String {
    const MAX_LISTED_NAMES: usize = 12;
    let names: Vec<&str> = all.iter().take(MAX_LISTED_NAMES).map(|it| name(it).as_str()).collect();
    let more = all.len().saturating_sub(MAX_LISTED_NAMES);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{rest}", names.join(", "))
}

/// Where scripts find a tool: the source's name and its own there.
pub fn sdk_location(tool: &Tool) -> Option<(String, String)> {
    let source = &tool.source.name;
    match tool.source.kind {
        // What is there for agents, which need no script for it.
        SourceKind::Builtin if source == BUILTIN_SOURCE_NAME => None,
        // Under the shorter of its names, which is enough after the source's.
        SourceKind::Builtin => {
            let own = tool.aliases.first().unwrap_or(&tool.name);
            Some((source.clone(), own.clone()))
        }
        SourceKind::Host => None,
        SourceKind::Script => Some((SCRIPTS_SOURCE_NAME.to_owned(), tool.name.clone())),
        SourceKind::Extension => {
            let file = source.rsplit(['/', '\\']).next().unwrap_or(source);
            Some((file.strip_suffix(".star").unwrap_or(file).to_owned(), tool.name.clone()))
        }
        SourceKind::Upstream | SourceKind::Api | SourceKind::Saved => {
            let own = tool.name.strip_prefix(source).and_then(|rest| rest.strip_prefix('.'));
            Some((source.clone(), own.unwrap_or(&tool.name).to_owned()))
        }
    }
}

/// An identifier for each name, all different: a name that is one already keeps
/// it, whatever comes before it in the list.
fn unique_identifiers<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Vec<String> {
    let kept: HashSet<&str> = names.clone().filter(|name| to_identifier(name) == **name).collect();
    let mut taken: HashSet<String> = HashSet::new();
    names
        .map(|name| {
            let wanted = to_identifier(name);
            let is_taken = |it: &str| taken.contains(it) || (it != name && kept.contains(it));
            let found = numbered_until_free(&wanted, is_taken);
            taken.insert(found.clone());
            found
        })
        .collect()
}

fn index_names<'a>(
    names: impl Iterator<Item = (&'a str, &'a str)> + Clone,
) -> HashMap<String, usize> {
    let mut index: HashMap<String, usize> = HashMap::new();
    for (place, (name, _)) in names.clone().enumerate() {
        index.insert(name.to_owned(), place);
    }
    for (place, (_, original)) in names.enumerate() {
        index.entry(original.to_owned()).or_insert(place);
    }
    index
}

/// Words that cannot be names. `goto` can, but not in the Lua that agents know.
const RESERVED_WORDS: [&str; 22] = [
    "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "goto", "if", "in",
    "local", "nil", "not", "or", "repeat", "return", "then", "true", "until", "while",
];

/// `data-server` as `data_server`, `123service` as `_123service`, `while` as
/// `_while`.
pub fn to_identifier(name: &str) -> String {
    let mut text: String =
        name.chars().map(|it| if it.is_ascii_alphanumeric() { it } else { '_' }).collect();
    let first = text.chars().next();
    if first.is_none_or(|first| first.is_ascii_digit()) || RESERVED_WORDS.contains(&text.as_str()) {
        text.insert(0, '_');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Schema;
    use crate::tool::Source;
    use crate::tool_body::SealedBody;

    fn tool(kind: SourceKind, source: &str, name: &str) -> Arc<Tool> {
        let source = Arc::new(Source { kind, name: source.to_owned() });
        let schema = Schema::description_only(serde_json::Map::new());
        Arc::new(Tool::new(name, source, schema, SealedBody::empty()))
    }

    fn names(sdk: &Sdk) -> Vec<String> {
        let of = |source: &SdkSource| {
            let functions = source.functions.iter();
            functions.map(|it| format!("{}.{}", source.name, it.name)).collect::<Vec<_>>()
        };
        sdk.sources().iter().flat_map(of).collect()
    }

    #[test]
    fn names_become_identifiers_by_the_seeds_rules() {
        for (name, expected) in [
            ("data-server", "data_server"),
            ("my.api", "my_api"),
            ("123service", "_123service"),
            ("while", "_while"),
            ("goto", "_goto"),
            ("größe", "gr__e"),
            ("", "_"),
            ("fine_1", "fine_1"),
        ] {
            assert_eq!(to_identifier(name), expected, "{name}");
        }
    }

    #[test]
    fn a_name_that_is_an_identifier_keeps_it_and_others_get_numbers() {
        let found = unique_identifiers(["get-sum", "get_sum", "get.sum", "get_sum_2"].into_iter());
        assert_eq!(found, ["get_sum_3", "get_sum", "get_sum_4", "get_sum_2"]);
    }

    #[test]
    fn every_kind_of_source_has_its_place() {
        let sdk = Sdk::new(&[
            tool(SourceKind::Builtin, "moonlark", "execute"),
            tool(SourceKind::Builtin, "knowledge", "search"),
            tool(SourceKind::Script, "tools/a.luau", "echo"),
            tool(SourceKind::Script, "tools/b.luau", "create-ticket"),
            tool(SourceKind::Extension, "extensions/git/hub.star", "issues"),
            tool(SourceKind::Upstream, "data-server", "data-server.read-file"),
            tool(SourceKind::Upstream, "data-server", "data-server.read.all"),
        ]);
        assert_eq!(
            names(&sdk),
            [
                "knowledge.search",
                "tools.echo",
                "tools.create_ticket",
                "hub.issues",
                "data_server.read_file",
                "data_server.read_all"
            ]
        );
        for path in [
            "data_server.read_all",
            "data-server.read.all",
            "sdk.data-server.read_all",
            "sdk.data_server.read.all",
        ] {
            assert_eq!(
                sdk.find_function(path).unwrap().1.tool.name,
                "data-server.read.all",
                "{path}"
            );
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_nearest() {
        let sdk = Sdk::new(&[tool(SourceKind::Upstream, "files", "files.read_file")]);
        let problem = |path| sdk.find_function(path).map(|_| ()).unwrap_err().to_string();
        assert_eq!(
            problem("files.raed_file"),
            "error[not_found]: sdk.files has no function raed_file\nhint: did you mean sdk.files.read_file?"
        );
        assert_eq!(
            problem("flies.read_file"),
            "error[not_found]: there is no source sdk.flies\nhint: did you mean sdk.files?"
        );
        assert_eq!(
            problem("github.issues"),
            "error[not_found]: there is no source sdk.github\nhint: there are files"
        );
    }
}
