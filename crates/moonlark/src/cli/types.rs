//! `moonlark types`: definitions of everything a script finds, and the
//! settings with which editors use them.
//!
//! The definitions are ours and are written anew. Settings belong to the
//! project: what is missing is added, nothing that is there is changed.

mod editor_settings;
mod json_merge;

use std::path::{Path, PathBuf};

use clap::Args;
use moonlark_core::Problem;
use moonlark_render::{luau, starlark};
use serde::Serialize;
use serde_json::{Value as Json, json};

use super::{
    CommandError, CommandResult, GlobalArgs, io_problem, load_config, path_label, print_json,
    print_line, working_dir,
};
use crate::knowledge_base::KnowledgeBase;
use editor_settings::EditorSettings;
use moonlark_state::state_folder::{prepare_state_folder, state_folder_path};
use moonlark_state::write_user_file;

/// No settings that a person wrote are larger.
const MAX_SETTINGS_BYTES: u64 = 1024 * 1024;

/// In the first line of what this command writes, so that it can tell its own
/// files from others of the same name.
const GENERATED_MARKER: &str = "Written by `moonlark types`";

#[derive(Args)]
pub(crate) struct TypesArgs {
    /// Where the definitions go (otherwise .moonlark/types in the project).
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// What editors read, one text for each language.
pub struct EditorDefinitions {
    pub luau: String,
    pub starlark: String,
}

/// The definitions of this version's modules.
pub fn editor_definitions() -> Result<EditorDefinitions, Problem> {
    let modules = moonlark_host::host_modules();
    let builtin = KnowledgeBase::default().knowledge_tools()?;
    let search = builtin
        .iter()
        .find(|tool| tool.name == "search")
        .ok_or_else(|| Problem::internal("there is no built-in search"))?;
    Ok(EditorDefinitions {
        luau: luau::tool_script_definitions(&modules, &search.input)?,
        starlark: starlark::python_stub(&modules, &search.input),
    })
}

impl TypesArgs {
    pub(crate) fn run(self, global: &GlobalArgs) -> CommandResult {
        let cwd = working_dir()?;
        let root = load_config(global)?.root;
        let out = match &self.out {
            Some(out) => cwd.join(out),
            None => {
                let state = state_folder_path(&root);
                prepare_state_folder(&state);
                state.join("types")
            }
        };
        let mut files = write_definitions(&root, &out)?;
        for wanted in editor_settings::wanted_settings(&root, &out) {
            files.push(update_settings(&root, &wanted)?);
        }
        if global.json {
            let files: Vec<Json> = files.iter().map(EditorFileReport::to_json).collect();
            print_json(&json!({ "files": files }));
        } else {
            files.iter().for_each(EditorFileReport::print_report);
        }
        Ok(())
    }
}

/// What became of one file.
struct EditorFileReport {
    path: String,
    did: EditorFileAction,
    /// Settings to add by hand.
    missing: Json,
    /// Why they were not added.
    because: &'static str,
}

#[derive(Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum EditorFileAction {
    Created,
    Updated,
    Unchanged,
    Left,
}

impl EditorFileReport {
    fn new(path: String, did: EditorFileAction) -> EditorFileReport {
        EditorFileReport { path, did, missing: Json::Null, because: "" }
    }

    fn print_report(&self) {
        let did = match self.did {
            EditorFileAction::Created => "Created",
            EditorFileAction::Updated => "Updated",
            EditorFileAction::Unchanged => "Unchanged:",
            EditorFileAction::Left => "Left alone:",
        };
        print_line(format!("{did} {}", self.path));
        if !self.missing.is_null() {
            print_line(format!("  {}; for Moonlark it should have:", self.because));
            for line in format!("{:#}", self.missing).lines() {
                print_line(format!("    {line}"));
            }
        }
    }

    fn to_json(&self) -> Json {
        let mut json = json!({ "path": self.path, "did": self.did });
        if !self.missing.is_null() {
            json["missing"] = self.missing.clone();
        }
        json
    }
}

fn write_definitions(root: &Path, out: &Path) -> Result<Vec<EditorFileReport>, CommandError> {
    let texts = editor_definitions()?;
    std::fs::create_dir_all(out)
        .map_err(|error| io_problem("make", &path_label(out, root), &error))?;
    let mut written = Vec::new();
    for (name, comment, text) in [
        (editor_settings::LUAU_DEFINITIONS_FILE, "--", texts.luau),
        (editor_settings::STARLARK_STUB_FILE, "#", texts.starlark),
    ] {
        let version = env!("CARGO_PKG_VERSION");
        let text = format!(
            "{comment} {GENERATED_MARKER} {version}: run it again after an update.\n\n{text}"
        );
        written.push(write_generated_file(root, &out.join(name), &text)?);
    }
    Ok(written)
}

/// Write a file that is ours, unless somebody else's has its name.
fn write_generated_file(
    root: &Path,
    path: &Path,
    text: &str,
) -> Result<EditorFileReport, CommandError> {
    let label = path_label(path, root);
    let did = match read_file(path, &label)? {
        None => EditorFileAction::Created,
        Some(there) if there == text => {
            return Ok(EditorFileReport::new(label, EditorFileAction::Unchanged));
        }
        Some(there) if there.lines().next().is_some_and(|line| line.contains(GENERATED_MARKER)) => {
            EditorFileAction::Updated
        }
        Some(_) => {
            return Err(Problem::bad_request(format!(
                "{label} is there already, and `moonlark types` did not write it"
            ))
            .with_hint("choose another folder with --out, or remove the file first")
            .into());
        }
    };
    write_user_file(path, text).map_err(|error| io_problem("write", &label, &error))?;
    Ok(EditorFileReport::new(label, did))
}

/// Add to a settings file what it lacks.
fn update_settings(root: &Path, wanted: &EditorSettings) -> Result<EditorFileReport, CommandError> {
    let path = root.join(wanted.file);
    let label = wanted.file.to_owned();
    let missing = |because| EditorFileReport {
        missing: Json::Object(wanted.values.clone()),
        because,
        ..EditorFileReport::new(label.clone(), EditorFileAction::Left)
    };
    let there = match read_file(&path, &label) {
        Ok(there) => there,
        Err(_) => return Ok(missing("it cannot be read")),
    };
    if there.is_none()
        && let Some(because) = wanted.elsewhere
    {
        return Ok(missing(because));
    }
    let Some(merged) =
        json_merge::merge_missing(there.as_deref().unwrap_or_default(), &wanted.values)
    else {
        return Ok(missing("it is not JSON, so nothing was added"));
    };
    let did = match (&merged.text, &there) {
        (None, _) => EditorFileAction::Unchanged,
        (Some(_), None) => EditorFileAction::Created,
        (Some(_), Some(_)) => EditorFileAction::Updated,
    };
    if let Some(text) = &merged.text {
        write_user_file(&path, text).map_err(|error| io_problem("write", &label, &error))?;
    }
    let missing = if merged.refused.is_empty() { Json::Null } else { merged.refused.into() };
    Ok(EditorFileReport {
        missing,
        because: "it says something else",
        ..EditorFileReport::new(label, did)
    })
}

/// The text of a file, if there is one.
fn read_file(path: &Path, label: &str) -> Result<Option<String>, Problem> {
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io_problem("read", label, &error)),
        Ok(file) if file.is_file() && file.len() <= MAX_SETTINGS_BYTES => {}
        Ok(_) => {
            let what = "is there, and it is no file of reasonable size";
            return Err(Problem::bad_request(format!("{label} {what}"))
                .with_hint("choose another folder with --out, or move it away first"));
        }
    }
    std::fs::read_to_string(path).map(Some).map_err(|error| io_problem("read", label, &error))
}
