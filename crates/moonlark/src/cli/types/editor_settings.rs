//! Which settings editors need, in which file.

use std::path::Path;

use serde_json::{Map, Value as Json, json};

pub(super) const LUAU_DEFINITIONS_FILE: &str = "moonlark.d.luau";

/// Pyright takes the names in a stub of this name for built in.
pub(super) const STARLARK_STUB_FILE: &str = "__builtins__.pyi";

/// What one settings file should say.
pub(super) struct EditorSettings {
    /// Its path in the project.
    pub(super) file: &'static str,
    pub(super) values: Map<String, Json>,
    /// Why it must not be made where it is not.
    pub(super) elsewhere: Option<&'static str>,
}

/// All of them, for definitions in the folder `out`.
pub(super) fn wanted_settings(root: &Path, out: &Path) -> Vec<EditorSettings> {
    let folder = path_setting(root, out);
    let definitions = path_setting(root, &out.join(LUAU_DEFINITIONS_FILE));
    vec![
        settings_for_file(
            ".vscode/settings.json",
            json!({
                "luau-lsp.platform.type": "standard",
                "luau-lsp.types.definitionFiles": { "@moonlark": definitions },
                "files.associations": { "*.star": "python" },
            }),
        ),
        settings_for_file(
            ".luaurc",
            json!({
                "languageMode": "strict",
                // `tool` is declared by the definitions and set by every script. As one of
                // `globals` it would be of any type.
                "lint": { "BuiltinGlobalWrite": false },
            }),
        ),
        EditorSettings {
            elsewhere: has_pyright_table(root)
                .then_some("it would take the place of [tool.pyright] in pyproject.toml"),
            ..settings_for_file(
                "pyrightconfig.json",
                json!({
                    "stubPath": folder,
                    // To Python, names that come from `load` come from nowhere.
                    "reportUndefinedVariable": "information",
                }),
            )
        },
    ]
}

fn settings_for_file(file: &'static str, values: Json) -> EditorSettings {
    let values = match values {
        Json::Object(values) => values,
        _ => Map::new(),
    };
    EditorSettings { file, values, elsewhere: None }
}

/// A path as editors read it: from the project, with slashes.
fn path_setting(root: &Path, path: &Path) -> String {
    let inside = path.strip_prefix(root).unwrap_or(path);
    let text = inside.to_string_lossy();
    if text.is_empty() { ".".to_owned() } else { text.into_owned() }
}

fn has_pyright_table(root: &Path) -> bool {
    let text = std::fs::read_to_string(root.join("pyproject.toml")).unwrap_or_default();
    text.lines().any(|line| line.trim_start().starts_with("[tool.pyright"))
}
