//! The names that tools are listed under over MCP, made so that every model takes
//! them.
//!
//! OpenAI and Gemini take `[A-Za-z0-9_-]` up to 64 characters, Gemini only with a
//! letter in front, and one name that they refuse costs its client the whole
//! request. Clients put the name of the server before ours, so that less than 64
//! is left. What a name becomes depends on nothing but the name, and on another
//! tool only where both would have the same: it is the same on every machine and
//! after every restart.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::{Catalog, numbered_until_free};
use crate::tool::{Tool, ToolListing};

/// What OpenAI and Gemini take.
const MAX_MODEL_NAME_CHARS: usize = 64;
/// What Claude Code, Codex and others put before the name of a tool. Nobody knows
/// what a server is called in somebody's client; this is what `moonlark install`
/// calls it.
const CLIENT_PREFIX: &str = "mcp__moonlark__";
/// The longest name that is listed: 49.
pub const MAX_LISTED_NAME_CHARS: usize = MAX_MODEL_NAME_CHARS - CLIENT_PREFIX.len();
/// Hexadecimal digits at the end of a name that had to be shortened or told apart.
const NAME_HASH_CHARS: usize = 8;
/// What is kept of such a name, before `_` and the digits.
const MAX_KEPT_NAME_CHARS: usize = MAX_LISTED_NAME_CHARS - NAME_HASH_CHARS - 1;

/// A tool that is listed under another name than its source would have it.
pub struct ListedNameChange<'a> {
    pub tool: &'a Arc<Tool>,
    /// The name it would have, such as `docs__files.read`.
    pub wanted: String,
    pub listed: &'a str,
    pub reason: ListedNameReason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListedNameReason {
    /// Letters that models do not take.
    Characters,
    /// It begins with something else than a letter.
    FirstCharacter,
    Length,
    /// Another tool has the name.
    Taken,
}

impl ListedNameReason {
    pub fn as_str(self) -> &'static str {
        match self {
            ListedNameReason::Characters => "characters that models refuse",
            ListedNameReason::FirstCharacter => "it does not begin with a letter",
            ListedNameReason::Length => "too long",
            ListedNameReason::Taken => "another tool has that name",
        }
    }
}

/// The names that a tool whose source would have it listed as `wanted` may be known
/// by: as it is listed, and as it would be if names could have any length.
pub fn listed_name_variants(wanted: &str) -> [String; 2] {
    [listed_name(wanted), to_model_name(wanted)]
}

/// `name` as every model takes it.
pub(super) fn listed_name(name: &str) -> String {
    let plain = to_model_name(name);
    if plain.len() <= MAX_LISTED_NAME_CHARS { plain } else { with_name_hash(&plain, name) }
}

/// What names begin with whose beginning is `prefix`.
pub(super) fn listed_prefix(prefix: &str) -> String {
    let mut plain = if prefix.is_empty() { String::new() } else { to_model_name(prefix) };
    plain.truncate(MAX_KEPT_NAME_CHARS);
    plain
}

/// Only letters, digits, `_` and `-`, the first a letter.
fn to_model_name(name: &str) -> String {
    let known = |it: char| it.is_ascii_alphanumeric() || matches!(it, '_' | '-');
    let plain: String = name.chars().map(|it| if known(it) { it } else { '_' }).collect();
    match plain.chars().next() {
        Some(first) if first.is_ascii_alphabetic() => plain,
        Some('_' | '-') => format!("tool{plain}"),
        _ => format!("tool_{plain}"),
    }
}

/// The beginning of a name, and a hash of what tells it from all others.
fn with_name_hash(plain: &str, identity: &str) -> String {
    let digest = Sha256::digest(identity.as_bytes());
    let hash: String =
        digest.iter().take(NAME_HASH_CHARS / 2).map(|it| format!("{it:02x}")).collect();
    let kept = &plain[..plain.len().min(MAX_KEPT_NAME_CHARS)];
    format!("{}_{hash}", kept.trim_end_matches(['_', '-']))
}

/// The name that a tool would be listed under if every name were taken by models.
pub(super) fn wanted_name(tool: &Tool) -> Option<&str> {
    match &tool.shown {
        ToolListing::ByName | ToolListing::InCodeMode => Some(&tool.name),
        ToolListing::As(name) => Some(name),
        ToolListing::Not => None,
    }
}

/// A name for each tool. A tool that has the very name keeps it, the first of
/// several; all others that would have the same are told apart by a hash of what
/// the catalog calls them. `is_of_another` says whether a name is some other tool's
/// in any case.
pub(super) fn listed_names(
    tools: &[&Arc<Tool>],
    is_of_another: impl Fn(&str, &Arc<Tool>) -> bool,
) -> Vec<String> {
    let wanted: Vec<&str> =
        tools.iter().map(|tool| wanted_name(tool).unwrap_or_default()).collect();
    let plain: Vec<String> = wanted.iter().map(|name| listed_name(name)).collect();
    // How many would get each name by a change; and which have it as it is.
    let mut changed: HashMap<&str, usize> = HashMap::new();
    let mut unchanged: HashSet<&str> = HashSet::new();
    for (wanted, plain) in wanted.iter().zip(&plain) {
        if wanted == plain {
            unchanged.insert(plain);
        } else {
            *changed.entry(plain).or_default() += 1;
        }
    }
    let mut taken: HashSet<String> = HashSet::new();
    let mut names = Vec::with_capacity(tools.len());
    for ((tool, wanted), plain) in tools.iter().zip(&wanted).zip(&plain) {
        let is_free = |name: &str, taken: &HashSet<String>| {
            !taken.contains(name) && !is_of_another(name, tool)
        };
        let is_contested = wanted != plain
            && (unchanged.contains(plain.as_str()) || changed.get(plain.as_str()) > Some(&1));
        let name = if !is_contested && is_free(plain, &taken) {
            plain.clone()
        } else {
            let apart = with_name_hash(plain, &tool.name);
            let is_taken = |name: &str| !is_free(name, &taken) || unchanged.contains(name);
            numbered_until_free(&apart, is_taken)
        };
        taken.insert(name.clone());
        names.push(name);
    }
    names
}

impl Catalog {
    /// The tools that are listed under another name than their source would have
    /// it, and why.
    pub fn listed_name_changes(&self) -> impl Iterator<Item = ListedNameChange<'_>> {
        self.shown.iter().filter_map(|(listed, tool)| {
            let wanted = wanted_name(tool)?;
            let reason = listed_name_reason(wanted, listed)?;
            Some(ListedNameChange { tool, wanted: wanted.to_owned(), listed, reason })
        })
    }
}

/// The name of a tool at its source, where the listed name has lost letters of it.
pub fn unreadable_original<'a>(tool: &'a Tool, listed: &str) -> Option<&'a str> {
    let wanted = wanted_name(tool)?;
    let is_readable = wanted.is_ascii() && to_model_name(wanted) == listed;
    (!is_readable).then(|| tool.original_name.as_deref().unwrap_or(wanted))
}

fn listed_name_reason(wanted: &str, listed: &str) -> Option<ListedNameReason> {
    let plain = to_model_name(wanted);
    if wanted == listed {
        None
    } else if !wanted.is_ascii() {
        Some(ListedNameReason::Characters)
    } else if listed_name(wanted) != listed {
        Some(ListedNameReason::Taken)
    } else if plain != listed {
        Some(ListedNameReason::Length)
    } else if plain.len() != wanted.len() {
        Some(ListedNameReason::FirstCharacter)
    } else {
        Some(ListedNameReason::Characters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Schema;
    use crate::tool::{Source, SourceKind};
    use crate::tool_body::SealedBody;

    fn tool(source: &str, name: &str, prefix: &str) -> Arc<Tool> {
        let of = Arc::new(Source { kind: SourceKind::Upstream, name: source.to_owned() });
        let schema = Schema::description_only(serde_json::Map::new());
        let body = SealedBody::empty();
        let mut tool = Tool::new(format!("{source}.{name}"), of, schema, body);
        tool.shown = ToolListing::As(format!("{prefix}{name}"));
        Arc::new(tool)
    }

    fn catalog(tools: &[Arc<Tool>]) -> Catalog {
        Catalog::new(Arc::default(), tools.to_vec(), &[], Vec::new())
    }

    fn listed(tools: &[Arc<Tool>]) -> Vec<(String, String)> {
        let catalog = catalog(tools);
        catalog
            .listed_tools()
            .iter()
            .map(|(name, tool)| (tool.name.clone(), name.clone()))
            .collect()
    }

    #[test]
    fn a_name_is_made_of_what_every_model_takes() {
        for (name, expected) in [
            ("docs__read_file", "docs__read_file"),
            ("docs__read file/ü", "docs__read_file__"),
            ("notes.move", "notes_move"),
            ("1digit", "tool_1digit"),
            ("-dash", "tool-dash"),
            ("_private", "tool_private"),
            ("", "tool_"),
            ("漢字", "tool__"),
            (
                "github__repos/list-pull-requests-associated-with-commit-and-more",
                "github__repos_list-pull-requests-associa_bf293df0",
            ),
        ] {
            let made = listed_name(name);
            assert!(made.len() <= MAX_LISTED_NAME_CHARS, "{made}");
            assert_eq!(made, expected);
        }
        assert_eq!(CLIENT_PREFIX.len() + MAX_LISTED_NAME_CHARS, 64);
    }

    #[test]
    fn names_that_would_be_one_are_told_apart_whatever_the_order() {
        let (dotted, slashed) = (tool("a", "x.y", "a__"), tool("a", "x/y", "a__"));
        let plain = tool("a", "x_y", "a__");
        let mut all = listed(&[dotted.clone(), plain.clone(), slashed.clone()]);
        all.sort();
        let mut turned = listed(&[slashed.clone(), dotted.clone(), plain.clone()]);
        turned.sort();
        assert_eq!(all, turned);
        let names: Vec<&str> = all.iter().map(|(_, listed)| listed.as_str()).collect();
        assert_eq!(names, ["a__x_y_92eaf4e6", "a__x_y_5a0b3d6f", "a__x_y"]);
        assert_eq!(listed(&[slashed]), [("a.x/y".to_owned(), "a__x_y".to_owned())]);
    }

    #[test]
    fn of_tools_with_the_very_same_name_the_first_keeps_it_and_the_rest_do_not_move() {
        let [a, b, c] = ["a", "b", "c"].map(|source| tool(source, "read", ""));
        let all = listed(&[a.clone(), b, c.clone()]);
        assert_eq!(all[0].1, "read");
        assert!(all[1].1.starts_with("read_") && all[2].1.starts_with("read_"), "{all:?}");
        // One that is gone for a while does not pass its name on to another.
        assert_eq!(listed(&[a, c])[1], all[2]);
    }

    #[test]
    fn the_original_is_said_of_a_name_that_has_lost_letters() {
        let tools = [
            tool("files", "files.read", "files__"),
            tool("shop", "поиск", "shop__"),
            tool("shop", "удали", "shop__"),
            tool("api", &"long".repeat(20), "api__"),
        ];
        let catalog = catalog(&tools);
        let said: Vec<Option<&str>> = (catalog.listed_tools().iter())
            .map(|(listed, tool)| unreadable_original(tool, listed))
            .collect();
        let long = format!("api__{}", "long".repeat(20));
        assert_eq!(said, [None, Some("shop__поиск"), Some("shop__удали"), Some(long.as_str())]);
    }

    #[test]
    fn every_name_a_tool_has_had_leads_to_it() {
        let long = "an operation whose name says all there is to say about it";
        let tools = [tool("api", long, "api__"), tool("files", "files.read", "files__")];
        let catalog = catalog(&tools);
        for (tool, (listed, _)) in tools.iter().zip(catalog.listed_tools()) {
            let ToolListing::As(wanted) = &tool.shown else { unreachable!("set above") };
            for name in [&tool.name, wanted, listed, &to_model_name(wanted)] {
                assert!(Arc::ptr_eq(catalog.find_tool(name).unwrap(), tool), "{name}");
            }
        }
        let changes: Vec<_> = catalog.listed_name_changes().map(|it| it.reason).collect();
        assert_eq!(changes, [ListedNameReason::Length, ListedNameReason::Characters]);
    }
}
