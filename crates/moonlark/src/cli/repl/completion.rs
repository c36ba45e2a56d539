//! What can follow what is typed: sources, functions, arguments, modules, words
//! of the language, all from the catalog as it is now.
//!
//! It reads Luau only as far as it must: which brackets are open, and what was
//! called with them.

use moonlark_core::Catalog;
use moonlark_core::module::ScriptLanguage;
use moonlark_core::sdk::SdkSource;
use moonlark_render::luau::luau_type;
use moonlark_render::script_functions::SCRIPT_FUNCTIONS;

/// One way to go on.
#[derive(Debug, PartialEq)]
pub(super) struct CompletionCandidate {
    /// What takes the place of the word so far.
    pub(super) text: String,
    /// What stands in the list.
    pub(super) shown: String,
}

/// The candidates for the end of `text`, and where the word begins that they
/// replace.
pub(super) fn complete_entry(text: &str, catalog: &Catalog) -> (usize, Vec<CompletionCandidate>) {
    let Some(open) = open_brackets(text) else { return (text.len(), Vec::new()) };
    let path_start = text.len() - trailing_match(text, |it| is_word_char(it) || it == '.').len();
    let path = &text[path_start..];
    let word_start = path_start + path.rfind('.').map_or(0, |dot| dot + 1);
    let word = &text[word_start..];
    let candidates = match path.rsplit_once('.') {
        None if text[..path_start].ends_with(':') => name_candidates(["await()"]),
        None => {
            let arguments = open.last().and_then(|open| argument_candidates(text, open, catalog));
            arguments.unwrap_or_else(|| global_candidates(catalog))
        }
        Some((owner, _)) => member_candidates(owner, catalog),
    };
    let fitting = candidates.into_iter().filter(|it| it.text.starts_with(word)).collect();
    (word_start, fitting)
}

fn is_word_char(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// The longest end of `text` of such letters.
fn trailing_match(text: &str, fits: impl Fn(char) -> bool) -> &str {
    let start = text.char_indices().rev().take_while(|(_, it)| fits(*it)).last();
    start.map_or("", |(start, _)| &text[start..])
}

/// A bracket that is not closed.
struct OpenBracket {
    bracket: char,
    at: usize,
    /// Where what is being typed in it begins: after it, or after a comma.
    item: usize,
}

/// All of them, outermost first; none inside a string or a comment.
fn open_brackets(text: &str) -> Option<Vec<OpenBracket>> {
    let mut open: Vec<OpenBracket> = Vec::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '(' | '{' | '[' => open.push(OpenBracket { bracket: letter, at, item: at + 1 }),
            ')' | '}' | ']' => {
                open.pop();
            }
            ',' | ';' => {
                if let Some(last) = open.last_mut() {
                    last.item = at + 1;
                }
            }
            '"' | '\'' | '`' => loop {
                match letters.next()?.1 {
                    '\\' => {
                        letters.next();
                    }
                    end if end == letter => break,
                    _ => {}
                }
            },
            '-' if text[at..].starts_with("--") => {
                letters.find(|(_, letter)| *letter == '\n')?;
            }
            _ => {}
        }
    }
    Some(open)
}

/// The argument names of the function whose table is open, if a name can stand
/// here.
fn argument_candidates(
    text: &str,
    open: &OpenBracket,
    catalog: &Catalog,
) -> Option<Vec<CompletionCandidate>> {
    if open.bracket != '{' || !text[open.item..].trim_start().chars().all(is_word_char) {
        return None;
    }
    let before = text[..open.at].trim_end();
    let called = before.strip_suffix('(').unwrap_or(before).trim_end();
    let name = trailing_match(called, |it| is_word_char(it) || it == '.');
    let (_, function) = catalog.sdk().find_function(name).ok()?;
    let properties = function.tool.input.json().get("properties")?.as_object()?;
    let given = &text[open.at + 1..open.item];
    let argument = |(name, schema): (&String, &serde_json::Value)| CompletionCandidate {
        text: format!("{name} = "),
        shown: format!("{name}: {}", luau_type(schema)),
    };
    Some(
        properties
            .iter()
            .filter(|(name, _)| !is_argument_given(given, name))
            .map(argument)
            .collect(),
    )
}

/// Whether `name = …` is among the arguments so far.
fn is_argument_given(arguments: &str, name: &str) -> bool {
    arguments.match_indices(name).any(|(at, _)| {
        let before = arguments[..at].chars().next_back();
        let after = arguments[at + name.len()..].trim_start();
        !before.is_some_and(is_word_char) && after.starts_with('=') && !after.starts_with("==")
    })
}

/// What `owner.` may be followed by.
fn member_candidates(owner: &str, catalog: &Catalog) -> Vec<CompletionCandidate> {
    let sdk = catalog.sdk();
    if owner == "sdk" {
        return name_candidates(sdk.sources().iter().map(|source| source.name.as_str()));
    }
    if let Some(library) = LUAU_LIBRARIES.iter().find(|(name, _)| *name == owner) {
        return name_candidates(library.1.split(' '));
    }
    // A module comes before a source of its name.
    let module = catalog.modules().iter().find(|module| module.name == owner);
    if let Some(module) = module {
        let own = format!("{owner}.");
        let functions = module.functions.iter().map(|function| function.tool.name.as_str());
        let functions = functions.filter_map(|name| name.strip_prefix(&own));
        return name_candidates(
            functions.chain(module.constants.iter().map(|constant| constant.name)),
        );
    }
    let source = sdk.find_source(owner.strip_prefix("sdk.").unwrap_or(owner));
    source.map(function_candidates).unwrap_or_default()
}

fn function_candidates(source: &SdkSource) -> Vec<CompletionCandidate> {
    name_candidates(source.functions.iter().map(|function| function.name.as_str()))
}

fn global_candidates(catalog: &Catalog) -> Vec<CompletionCandidate> {
    let modules = catalog.modules();
    let modules = modules
        .iter()
        .filter(|it| it.is_for_language(ScriptLanguage::Luau) && it.name != "testing");
    let mut names: Vec<&str> = modules.map(|module| module.name).collect();
    names.extend(catalog.sdk().sources().iter().map(|source| source.name.as_str()));
    names.extend(LUAU_LIBRARIES.iter().map(|(name, _)| *name));
    names.extend(LUAU_WORDS.split_whitespace());
    names.extend(SCRIPT_FUNCTIONS.iter().map(|helper| helper.name));
    names.sort_unstable();
    names.dedup();
    name_candidates(names)
}

fn name_candidates<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<CompletionCandidate> {
    let candidate =
        |name: &str| CompletionCandidate { text: name.to_owned(), shown: name.to_owned() };
    names.into_iter().map(candidate).collect()
}

/// The words of the language and what every agent script finds.
const LUAU_WORDS: &str = "
    and break continue do else elseif end false for function if in local nil not or repeat return
    then true until while
    assert error ipairs last next pairs pcall print
    sdk select tonumber tostring type unpack xpcall";

const LUAU_LIBRARIES: [(&str, &str); 6] = [
    ("bit32", "band bnot bor bxor lshift rshift"),
    ("coroutine", "create isyieldable resume running status wrap yield"),
    ("math", "abs ceil clamp floor huge max min pi pow random round sqrt"),
    ("string", "byte char find format gmatch gsub len lower match rep reverse split sub upper"),
    ("table", "clear clone concat create find freeze insert pack remove sort unpack"),
    ("utf8", "char codepoint codes len"),
];

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use moonlark_core::schema::Schema;
    use moonlark_core::tool::{Source, SourceKind};
    use moonlark_core::{Tool, Value};
    use moonlark_gateway::tool_body::ToolBody;
    use serde_json::{Value as Json, json};

    use super::*;

    fn tool(kind: SourceKind, source: &str, name: &str, properties: Json) -> Arc<Tool> {
        let source = Arc::new(Source { kind, name: source.to_owned() });
        let Json::Object(schema) = json!({"type": "object", "properties": properties}) else {
            unreachable!()
        };
        let schema = Schema::compile(schema).unwrap();
        Arc::new(Tool::new(name, source, schema, ToolBody::from_fn(|_, _| Ok(Value::Null))))
    }

    fn catalog() -> Catalog {
        let path = json!({"path": {"type": "string"}, "head": {"type": "integer"}});
        let tools = vec![
            tool(SourceKind::Upstream, "my-files", "my-files.read-file", path.clone()),
            tool(SourceKind::Upstream, "my-files", "my-files.write_file", path),
            tool(SourceKind::Script, "tools/greet.lua", "greet", json!({})),
        ];
        Catalog::new(Arc::new(moonlark_host::host_modules()), tools, &[], Vec::new())
    }

    /// The candidates for the end of `text`, each as it would then read.
    fn check(text: &str, expected: &[&str]) {
        let (start, candidates) = complete_entry(text, &catalog());
        let read: Vec<String> =
            candidates.iter().map(|it| format!("{}{}", &text[..start], it.text)).collect();
        assert_eq!(read, expected, "{text}");
    }

    #[test]
    fn sources_and_functions_are_completed() {
        check("return sdk.", &["return sdk.my_files", "return sdk.tools"]);
        check("sdk.my_files.r", &["sdk.my_files.read_file"]);
        check("my_files.", &["my_files.read_file", "my_files.write_file"]);
        check("sdk.tools.gr", &["sdk.tools.greet"]);
        check("sdk.nobody.", &[]);
    }

    #[test]
    fn argument_names_are_completed_where_one_can_stand() {
        let all = ["sdk.my_files.read_file({ path = ", "sdk.my_files.read_file({ head = "];
        check("sdk.my_files.read_file({ ", &all);
        check("sdk.my_files.read_file{pa", &["sdk.my_files.read_file{path = "]);
        check(
            "my_files.read_file({ path = \"a,{b\", ",
            &["my_files.read_file({ path = \"a,{b\", head = "],
        );
        let (_, candidates) = complete_entry("sdk.my_files.read_file({ p", &catalog());
        assert_eq!(candidates[0].shown, "path: string");
        // A value, not a name.
        check(
            "sdk.my_files.read_file({ path = my_f",
            &["sdk.my_files.read_file({ path = my_files"],
        );
    }

    #[test]
    fn modules_words_and_libraries_are_completed() {
        check("json.dec", &["json.decode"]);
        check("awa", &["await_all", "await_any"]);
        check("local a = str", &["local a = string"]);
        check("string.sp", &["string.split"]);
        check("whi", &["while"]);
        check("my_files.read_file({}):aw", &["my_files.read_file({}):await()"]);
    }

    #[test]
    fn nothing_is_completed_in_strings_and_comments() {
        check("print(\"sdk.", &[]);
        check("-- sdk.", &[]);
        check("-- a\nsdk.t", &["-- a\nsdk.tools"]);
        check("print(\"a\\\" sdk.", &[]);
    }
}
