//! `${…}` in clients' files, and what it becomes in ours.
//!
//! Ours knows `${NAME}`, `${NAME:-default}` and `$${` for a literal `${`. What
//! only an editor can know (the file that is open, say) has no place there, and
//! then the server that needs it cannot be taken over.

use std::collections::BTreeMap;
use std::path::{MAIN_SEPARATOR_STR, Path, PathBuf};

use serde_json::Value as Json;

/// What is known about the file that texts come from.
pub(crate) struct VariableScope<'a> {
    pub dialect: ClientDialect,
    /// The project that the file is for.
    pub project: Option<PathBuf>,
    pub home: &'a Path,
    pub inputs: VscodeInputs,
}

/// Whose file it is, as far as that changes what is in it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum ClientDialect {
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
enum VariableNotation {
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

impl ClientDialect {
    /// Of commands, arguments and variables.
    fn command_notation(self) -> VariableNotation {
        match self {
            ClientDialect::Common | ClientDialect::Vscode | ClientDialect::Cline => {
                VariableNotation::Editor
            }
            ClientDialect::Zed | ClientDialect::Codex | ClientDialect::Goose => {
                VariableNotation::Literal
            }
            ClientDialect::Gemini | ClientDialect::Qwen => VariableNotation::Shell,
            ClientDialect::Opencode => VariableNotation::Opencode,
            ClientDialect::Continue => VariableNotation::Continue,
        }
    }

    /// Of addresses and headers.
    fn address_notation(self) -> VariableNotation {
        match self {
            ClientDialect::Goose => VariableNotation::Shell,
            other => other.command_notation(),
        }
    }
}

/// What VS Code asks its user for, by id.
#[derive(Default, Clone)]
pub(crate) struct VscodeInputs(BTreeMap<String, VscodeInput>);

#[derive(Clone)]
struct VscodeInput {
    asks: bool,
    default: Option<String>,
}

impl VscodeInputs {
    pub(crate) fn from_json(list: &Json) -> VscodeInputs {
        let read = |item: &Json| {
            let id = item["id"].as_str()?.to_owned();
            let kind = item["type"].as_str().unwrap_or_default();
            let default = match item["password"].as_bool() {
                Some(true) => None,
                _ => item["default"].as_str().filter(|text| !text.contains(['}', '$'])),
            };
            let asks = matches!(kind, "promptString" | "pickString");
            Some((id, VscodeInput { asks, default: default.map(str::to_owned) }))
        };
        VscodeInputs(list.as_array().into_iter().flatten().filter_map(read).collect())
    }
}

impl VariableScope<'_> {
    /// A command, argument or variable for our configuration, or why there is none.
    pub(crate) fn translate_text(&self, text: &str) -> Result<String, String> {
        self.translate_notation(self.dialect.command_notation(), text)
    }

    /// The same for an address or a header.
    pub(crate) fn translate_address(&self, text: &str) -> Result<String, String> {
        self.translate_notation(self.dialect.address_notation(), text)
    }

    fn translate_notation(&self, notation: VariableNotation, text: &str) -> Result<String, String> {
        match notation {
            VariableNotation::Literal => Ok(text.replace("${", "$${")),
            VariableNotation::Shell => Ok(translate_shell(text)),
            VariableNotation::Opencode => translate_opencode(text),
            VariableNotation::Continue => translate_continue(text),
            VariableNotation::Editor => self.translate_editor_variables(text),
        }
    }

    fn translate_editor_variables(&self, text: &str) -> Result<String, String> {
        let mut new = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            if before.ends_with('$') {
                return Err("it has a $ in front of ${…}, which cannot be written here".to_owned());
            }
            new.push_str(before);
            match after.split_once('}') {
                Some((inside, after)) => {
                    new.push_str(&self.translate_variable(inside)?);
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

    fn translate_variable(&self, inside: &str) -> Result<String, String> {
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
                Some(("env", name)) if is_variable_name(name) => Ok(format!("${{{name}}}")),
                Some(("input", id)) => self.translate_input(id),
                Some((name, default)) if default.starts_with('-') && is_variable_name(name) => {
                    // The first brace ended it, so this is half of a nested default.
                    if default.contains("${") {
                        Err(format!("the default of {name} has a variable of its own"))
                    } else {
                        Ok(format!("${{{inside}}}"))
                    }
                }
                Some(_) => Err(unknown()),
                None if self.dialect == ClientDialect::Vscode => Err(unknown()),
                None if is_variable_name(inside) => Ok(format!("${{{inside}}}")),
                None => Ok(format!("$${{{inside}}}")),
            },
        }
    }

    fn translate_input(&self, id: &str) -> Result<String, String> {
        match self.inputs.0.get(id) {
            None => Err(format!("it needs the input {id}, which its file does not define")),
            Some(input) if !input.asks => {
                Err(format!("it needs the input {id}, which a command of the editor gives"))
            }
            Some(input) => {
                let name = to_variable_name(&[id]);
                Ok(match &input.default {
                    Some(default) => format!("${{{name}:-{default}}}"),
                    None => format!("${{{name}}}"),
                })
            }
        }
    }
}

/// `$NAME` is a variable as well as `${NAME}`.
fn translate_shell(text: &str) -> String {
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
                let is_plain = is_variable_name(name) && !default.contains('$');
                let sign = if is_plain { "$" } else { "$$" };
                let inside = if is_plain { format!("{name}{default}") } else { inside.to_owned() };
                new.push_str(&format!("{sign}{{{inside}}}"));
                rest = behind;
            }
            None if is_variable_name(bare) => {
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
fn translate_opencode(text: &str) -> Result<String, String> {
    let text = text.replace("${", "$${");
    if text.contains("{file:") {
        return Err("it needs {file:…}, a file whose content only opencode reads".to_owned());
    }
    let mut new = String::new();
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once("{env:") {
        new.push_str(before);
        match after.split_once('}') {
            Some((name, after)) if is_variable_name(name.trim()) => {
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
fn translate_continue(text: &str) -> Result<String, String> {
    let mut new = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${{") {
        new.push_str(&before.replace("${", "$${"));
        let (inside, after) = after.split_once("}}").ok_or("its ${{ is never closed")?;
        let inside = inside.trim();
        let name = inside.strip_prefix("secrets.").map(|name| to_variable_name(&[name]));
        let name =
            name.ok_or_else(|| format!("it needs ${{{{ {inside} }}}}, which only Continue knows"))?;
        new.push_str(&format!("${{{name}}}"));
        rest = after;
    }
    Ok(new + &rest.replace("${", "$${"))
}

/// The variables that a text of ours needs: those without a default.
pub(crate) fn needed_variables(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        rest = after;
        if before.ends_with('$') {
            continue;
        }
        if let Some((name, after)) = after.split_once('}') {
            rest = after;
            if is_variable_name(name) {
                names.push(name);
            }
        }
    }
    names
}

/// `API_KEY` from `["api", "key"]`: letters, digits and underscores.
pub(crate) fn to_variable_name(parts: &[&str]) -> String {
    let mut name = String::new();
    for letter in parts.join("_").chars() {
        match letter {
            letter if letter.is_ascii_alphanumeric() => name.push(letter.to_ascii_uppercase()),
            _ if name.is_empty() || name.ends_with('_') => {}
            _ => name.push('_'),
        }
    }
    let name = name.trim_end_matches('_');
    if name.starts_with(|letter: char| letter.is_ascii_digit()) || name.is_empty() {
        format!("MCP_{name}").trim_end_matches('_').to_owned()
    } else {
        name.to_owned()
    }
}

fn is_variable_name(name: &str) -> bool {
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

    fn scope(dialect: ClientDialect) -> VariableScope<'static> {
        let inputs = json!([
            {"id": "api-key", "type": "promptString", "password": true, "default": "x"},
            {"id": "region", "type": "pickString", "options": ["eu", "us"], "default": "eu"},
            {"id": "made", "type": "command", "command": "x.y"},
        ]);
        let project = Some(PathBuf::from("/w/shop"));
        VariableScope {
            dialect,
            project,
            home: Path::new("/home/a"),
            inputs: VscodeInputs::from_json(&inputs),
        }
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
            for dialect in [ClientDialect::Common, ClientDialect::Vscode] {
                assert_eq!(scope(dialect).translate_text(text).as_deref(), Ok(expected), "{text}");
            }
        }
        assert_eq!(scope(ClientDialect::Common).translate_text("${TOKEN}").unwrap(), "${TOKEN}");
        assert_eq!(scope(ClientDialect::Common).translate_text("${a b}").unwrap(), "$${a b}");
        assert_eq!(scope(ClientDialect::Zed).translate_text("${TOKEN}").unwrap(), "$${TOKEN}");
    }

    #[test]
    fn each_client_writes_variables_its_own_way() {
        for (dialect, text, expected) in [
            (ClientDialect::Gemini, "Bearer $TOKEN", "Bearer ${TOKEN}"),
            (ClientDialect::Gemini, "${A}-${B:-c}-$1 $$", "${A}-${B:-c}-$1 $$"),
            (ClientDialect::Qwen, "${a b} ${", "$${a b} $${"),
            (ClientDialect::Opencode, "Bearer {env:TOKEN} ${X}", "Bearer ${TOKEN} $${X}"),
            (ClientDialect::Opencode, "{a} {env:}", "{a} {env:}"),
            (
                ClientDialect::Continue,
                "Bearer ${{ secrets.api/my-key }} ${X}",
                "Bearer ${API_MY_KEY} $${X}",
            ),
            (ClientDialect::Codex, "${TOKEN} $X", "$${TOKEN} $X"),
            (ClientDialect::Goose, "$TOKEN", "$TOKEN"),
            (ClientDialect::Cline, "${env:TOKEN}", "${TOKEN}"),
        ] {
            assert_eq!(scope(dialect).translate_text(text).as_deref(), Ok(expected), "{text}");
        }
        let goose = scope(ClientDialect::Goose).translate_address("Bearer ${ TOKEN } $B").unwrap();
        assert_eq!(goose, "Bearer ${TOKEN} ${B}");
        for (dialect, text, reason) in [
            (
                ClientDialect::Opencode,
                "{file:~/.key}",
                "it needs {file:…}, a file whose content only opencode reads",
            ),
            (
                ClientDialect::Continue,
                "${{ inputs.X }}",
                "it needs ${{ inputs.X }}, which only Continue knows",
            ),
        ] {
            assert_eq!(scope(dialect).translate_text(text).unwrap_err(), reason);
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
            assert_eq!(scope(ClientDialect::Vscode).translate_text(text).unwrap_err(), reason);
        }
        let nowhere = VariableScope { project: None, ..scope(ClientDialect::Common) };
        assert_eq!(
            nowhere.translate_text("${workspaceFolder}").unwrap_err(),
            "it needs ${workspaceFolder}, and its file is of no project"
        );
    }

    #[test]
    fn variables_without_a_default_are_needed() {
        assert_eq!(needed_variables("a ${B} $${C} ${D:-e} ${F_1}${"), ["B", "F_1"]);
    }

    #[test]
    fn names_of_variables_are_made_of_what_there_is() {
        for (parts, name) in [
            (&["api-key"][..], "API_KEY"),
            (&["brave search", "X-Api-Key"], "BRAVE_SEARCH_X_API_KEY"),
            (&["7zip", "token"], "MCP_7ZIP_TOKEN"),
            (&["--"], "MCP"),
        ] {
            assert_eq!(to_variable_name(parts), name);
        }
    }
}
