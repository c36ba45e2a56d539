//! `${…}` in clients' files, and what it becomes in ours.
//!
//! Ours knows `${NAME}`, `${NAME:-default}` and `$${` for a literal `${`. What
//! only an editor can know (the file that is open, say) has no place there, and
//! then the server that needs it cannot be taken over.

use std::collections::BTreeMap;
use std::path::{MAIN_SEPARATOR_STR, Path, PathBuf};

use serde_json::Value as Json;

/// What is known about the file that texts come from.
pub(crate) struct Scope<'a> {
    pub(crate) dialect: Dialect,
    /// The project that the file is for.
    pub(crate) project: Option<PathBuf>,
    pub(crate) home: &'a Path,
    pub(crate) inputs: Inputs,
}

/// Whose file it is, as far as that changes what is in it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Dialect {
    /// Cursor, Claude Code and others that keep servers under `mcpServers`.
    Common,
    Vscode,
    Zed,
    Codex,
    Gemini,
    Qwen,
    Opencode,
    Continue,
    Cline,
    Goose,
}

/// How variables are written in a text.
#[derive(Clone, Copy, PartialEq)]
enum Notation {
    /// `${NAME}` and what editors know.
    Editor,
    /// Every text is as it stands.
    Literal,
    /// `$NAME`, `${NAME}`, `${NAME:-default}`
    Shell,
    /// `{env:NAME}`, `{file:PATH}`
    Opencode,
    /// `${{ secrets.NAME }}`
    Continue,
}

impl Dialect {
    /// Of commands, arguments and variables.
    fn of_command(self) -> Notation {
        match self {
            Dialect::Common | Dialect::Vscode | Dialect::Cline => Notation::Editor,
            Dialect::Zed | Dialect::Codex | Dialect::Goose => Notation::Literal,
            Dialect::Gemini | Dialect::Qwen => Notation::Shell,
            Dialect::Opencode => Notation::Opencode,
            Dialect::Continue => Notation::Continue,
        }
    }

    /// Of addresses and headers.
    fn of_address(self) -> Notation {
        match self {
            Dialect::Goose => Notation::Shell,
            other => other.of_command(),
        }
    }
}

/// What VS Code asks its user for, by id.
#[derive(Default, Clone)]
pub(crate) struct Inputs(BTreeMap<String, Input>);

#[derive(Clone)]
struct Input {
    asks: bool,
    default: Option<String>,
}

impl Inputs {
    pub(crate) fn read(list: &Json) -> Inputs {
        let read = |item: &Json| {
            let id = item["id"].as_str()?.to_owned();
            let kind = item["type"].as_str().unwrap_or_default();
            let default = match item["password"].as_bool() {
                Some(true) => None,
                _ => item["default"].as_str().filter(|text| !text.contains(['}', '$'])),
            };
            let asks = matches!(kind, "promptString" | "pickString");
            Some((id, Input { asks, default: default.map(str::to_owned) }))
        };
        Inputs(list.as_array().into_iter().flatten().filter_map(read).collect())
    }
}

impl Scope<'_> {
    /// A command, argument or variable for our configuration, or why there is none.
    pub(crate) fn translate(&self, text: &str) -> Result<String, String> {
        self.translate_from(self.dialect.of_command(), text)
    }

    /// The same for an address or a header.
    pub(crate) fn translate_address(&self, text: &str) -> Result<String, String> {
        self.translate_from(self.dialect.of_address(), text)
    }

    fn translate_from(&self, notation: Notation, text: &str) -> Result<String, String> {
        match notation {
            Notation::Literal => Ok(text.replace("${", "$${")),
            Notation::Shell => Ok(from_shell(text)),
            Notation::Opencode => from_braces(text),
            Notation::Continue => from_templates(text),
            Notation::Editor => self.translate_editor_variable(text),
        }
    }

    fn translate_editor_variable(&self, text: &str) -> Result<String, String> {
        let mut new = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            if before.ends_with('$') {
                return Err("it has a $ in front of ${…}, which cannot be written here".to_owned());
            }
            new.push_str(before);
            match after.split_once('}') {
                Some((inside, after)) => {
                    new.push_str(&self.variable(inside)?);
                    rest = after;
                }
                None => {
                    new.push_str("$${");
                    rest = after;
                }
            }
        }
        new.push_str(rest);
        Ok(new)
    }

    fn variable(&self, inside: &str) -> Result<String, String> {
        let literal = |path: &Path| path.display().to_string().replace("${", "$${");
        let unknown = || format!("it needs ${{{inside}}}, which only the editor knows");
        match inside {
            "workspaceFolder" | "workspaceRoot" | "cwd" => self
                .project
                .as_deref()
                .map(literal)
                .ok_or_else(|| format!("it needs ${{{inside}}}, and its file is of no project")),
            "workspaceFolderBasename" => {
                let name = self.project.as_deref().and_then(Path::file_name);
                name.map(|name| literal(Path::new(name))).ok_or_else(unknown)
            }
            "userHome" => Ok(literal(self.home)),
            "pathSeparator" | "/" => Ok(MAIN_SEPARATOR_STR.to_owned()),
            _ => match inside.split_once(':') {
                Some(("env", name)) if is_name(name) => Ok(format!("${{{name}}}")),
                Some(("input", id)) => self.input(id),
                Some((name, default)) if default.starts_with('-') && is_name(name) => {
                    // The first brace ended it, so this is half of a nested default.
                    match default.contains("${") {
                        true => Err(format!("the default of {name} has a variable of its own")),
                        false => Ok(format!("${{{inside}}}")),
                    }
                }
                Some(_) => Err(unknown()),
                None if self.dialect == Dialect::Vscode => Err(unknown()),
                None if is_name(inside) => Ok(format!("${{{inside}}}")),
                None => Ok(format!("$${{{inside}}}")),
            },
        }
    }

    fn input(&self, id: &str) -> Result<String, String> {
        match self.inputs.0.get(id) {
            None => Err(format!("it needs the input {id}, which its file does not define")),
            Some(input) if !input.asks => {
                Err(format!("it needs the input {id}, which a command of the editor gives"))
            }
            Some(input) => {
                let name = variable_name(&[id]);
                Ok(match &input.default {
                    Some(default) => format!("${{{name}:-{default}}}"),
                    None => format!("${{{name}}}"),
                })
            }
        }
    }
}

/// `$NAME` is a variable as well as `${NAME}`.
fn from_shell(text: &str) -> String {
    let mut new = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        new.push_str(before);
        let braced = after.strip_prefix('{').and_then(|inside| inside.split_once('}'));
        let name_end = after.find(|letter: char| !is_name_letter(letter)).unwrap_or(after.len());
        let (bare, behind) = after.split_at(name_end);
        match braced {
            Some((inside, behind)) => {
                let name = inside.split(":-").next().unwrap_or_default();
                let default = inside[name.len()..].to_owned();
                // goose allows space around the name.
                let name = name.trim();
                let is_plain = is_name(name) && !default.contains('$');
                let sign = if is_plain { "$" } else { "$$" };
                let inside = if is_plain { format!("{name}{default}") } else { inside.to_owned() };
                new.push_str(&format!("{sign}{{{inside}}}"));
                rest = behind;
            }
            None if is_name(bare) => {
                new.push_str(&format!("${{{bare}}}"));
                rest = behind;
            }
            None => {
                new.push_str(if after.starts_with('{') { "$$" } else { "$" });
                rest = after;
            }
        }
    }
    new.push_str(rest);
    new
}

/// opencode's `{env:NAME}`.
fn from_braces(text: &str) -> Result<String, String> {
    let text = text.replace("${", "$${");
    if text.contains("{file:") {
        return Err("it needs {file:…}, a file whose content only opencode reads".to_owned());
    }
    let mut new = String::new();
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once("{env:") {
        new.push_str(before);
        match after.split_once('}') {
            Some((name, after)) if is_name(name.trim()) => {
                new.push_str(&format!("${{{}}}", name.trim()));
                rest = after;
            }
            _ => {
                new.push_str("{env:");
                rest = after;
            }
        }
    }
    Ok(new + rest)
}

/// Continue's `${{ secrets.NAME }}`.
fn from_templates(text: &str) -> Result<String, String> {
    let mut new = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${{") {
        new.push_str(&before.replace("${", "$${"));
        let (inside, after) = after.split_once("}}").ok_or("its ${{ is never closed")?;
        let inside = inside.trim();
        let name = inside.strip_prefix("secrets.").map(|name| variable_name(&[name]));
        let name =
            name.ok_or_else(|| format!("it needs ${{{{ {inside} }}}}, which only Continue knows"))?;
        new.push_str(&format!("${{{name}}}"));
        rest = after;
    }
    Ok(new + &rest.replace("${", "$${"))
}

/// The variables that a text of ours needs: those without a default.
pub(crate) fn needed(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        rest = after;
        if before.ends_with('$') {
            continue;
        }
        if let Some((name, after)) = after.split_once('}') {
            rest = after;
            if is_name(name) {
                names.push(name);
            }
        }
    }
    names
}

/// `API_KEY` from `["api", "key"]`: letters, digits and underscores.
pub(crate) fn variable_name(parts: &[&str]) -> String {
    let mut name = String::new();
    for letter in parts.join("_").chars() {
        match letter {
            letter if letter.is_ascii_alphanumeric() => name.push(letter.to_ascii_uppercase()),
            _ if name.is_empty() || name.ends_with('_') => {}
            _ => name.push('_'),
        }
    }
    let name = name.trim_end_matches('_');
    match name.starts_with(|letter: char| letter.is_ascii_digit()) || name.is_empty() {
        true => format!("MCP_{name}").trim_end_matches('_').to_owned(),
        false => name.to_owned(),
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|letter: char| letter.is_ascii_digit())
        && name.chars().all(is_name_letter)
}

fn is_name_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn scope(dialect: Dialect) -> Scope<'static> {
        let inputs = json!([
            {"id": "api-key", "type": "promptString", "password": true, "default": "x"},
            {"id": "region", "type": "pickString", "options": ["eu", "us"], "default": "eu"},
            {"id": "made", "type": "command", "command": "x.y"},
        ]);
        let project = Some(PathBuf::from("/w/shop"));
        Scope { dialect, project, home: Path::new("/home/a"), inputs: Inputs::read(&inputs) }
    }

    #[test]
    fn what_editors_know_is_written_out_and_variables_stay_variables() {
        for (text, expected) in [
            ("plain $X", "plain $X"),
            ("${workspaceFolder}/a", "/w/shop/a"),
            ("${workspaceFolderBasename}", "shop"),
            ("${userHome}${/}b", "/home/a/b"),
            ("Bearer ${env:TOKEN}", "Bearer ${TOKEN}"),
            ("${input:api-key}", "${API_KEY}"),
            ("${input:region}", "${REGION:-eu}"),
            ("${A:-b}", "${A:-b}"),
            ("a ${ b", "a $${ b"),
        ] {
            for dialect in [Dialect::Common, Dialect::Vscode] {
                assert_eq!(scope(dialect).translate(text).as_deref(), Ok(expected), "{text}");
            }
        }
        assert_eq!(scope(Dialect::Common).translate("${TOKEN}").unwrap(), "${TOKEN}");
        assert_eq!(scope(Dialect::Common).translate("${a b}").unwrap(), "$${a b}");
        assert_eq!(scope(Dialect::Zed).translate("${TOKEN}").unwrap(), "$${TOKEN}");
    }

    #[test]
    fn each_client_writes_variables_its_own_way() {
        for (dialect, text, expected) in [
            (Dialect::Gemini, "Bearer $TOKEN", "Bearer ${TOKEN}"),
            (Dialect::Gemini, "${A}-${B:-c}-$1 $$", "${A}-${B:-c}-$1 $$"),
            (Dialect::Qwen, "${a b} ${", "$${a b} $${"),
            (Dialect::Opencode, "Bearer {env:TOKEN} ${X}", "Bearer ${TOKEN} $${X}"),
            (Dialect::Opencode, "{a} {env:}", "{a} {env:}"),
            (
                Dialect::Continue,
                "Bearer ${{ secrets.api/my-key }} ${X}",
                "Bearer ${API_MY_KEY} $${X}",
            ),
            (Dialect::Codex, "${TOKEN} $X", "$${TOKEN} $X"),
            (Dialect::Goose, "$TOKEN", "$TOKEN"),
            (Dialect::Cline, "${env:TOKEN}", "${TOKEN}"),
        ] {
            assert_eq!(scope(dialect).translate(text).as_deref(), Ok(expected), "{text}");
        }
        let goose = scope(Dialect::Goose).translate_address("Bearer ${ TOKEN } $B").unwrap();
        assert_eq!(goose, "Bearer ${TOKEN} ${B}");
        for (dialect, text, reason) in [
            (
                Dialect::Opencode,
                "{file:~/.key}",
                "it needs {file:…}, a file whose content only opencode reads",
            ),
            (
                Dialect::Continue,
                "${{ inputs.X }}",
                "it needs ${{ inputs.X }}, which only Continue knows",
            ),
        ] {
            assert_eq!(scope(dialect).translate(text).unwrap_err(), reason);
        }
    }

    #[test]
    fn what_cannot_be_known_is_said() {
        for (text, reason) in [
            ("${file}", "it needs ${file}, which only the editor knows"),
            ("${command:x.y}", "it needs ${command:x.y}, which only the editor knows"),
            ("${input:none}", "it needs the input none, which its file does not define"),
            ("${input:made}", "it needs the input made, which a command of the editor gives"),
            ("${A:-${B}}", "the default of A has a variable of its own"),
            ("$${A}", "it has a $ in front of ${…}, which cannot be written here"),
        ] {
            assert_eq!(scope(Dialect::Vscode).translate(text).unwrap_err(), reason);
        }
        let nowhere = Scope { project: None, ..scope(Dialect::Common) };
        assert_eq!(
            nowhere.translate("${workspaceFolder}").unwrap_err(),
            "it needs ${workspaceFolder}, and its file is of no project"
        );
    }

    #[test]
    fn variables_without_a_default_are_needed() {
        assert_eq!(needed("a ${B} $${C} ${D:-e} ${F_1}${"), ["B", "F_1"]);
    }

    #[test]
    fn names_of_variables_are_made_of_what_there_is() {
        for (parts, name) in [
            (&["api-key"][..], "API_KEY"),
            (&["brave search", "X-Api-Key"], "BRAVE_SEARCH_X_API_KEY"),
            (&["7zip", "token"], "MCP_7ZIP_TOKEN"),
            (&["--"], "MCP"),
        ] {
            assert_eq!(variable_name(parts), name);
        }
    }
}
