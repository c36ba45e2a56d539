//! `moonlark types`: definitions of everything a script finds, and the
//! settings with which editors use them.
//!
//! The definitions are ours and are written anew. Settings belong to the
//! project: what is missing is added, nothing that is there is changed.

mod json_text;
mod settings;

use std::path::{Path, PathBuf};

use clap::Args;
use moonlark_core::render::{luau, starlark};
use moonlark_core::{Place, Problem};
use serde_json::{Value as Json, json};

use super::{Done, Failure, Global, here, print, print_json, shown};
use crate::config_file;
use crate::knowledge::KnowledgeBase;
use crate::state_folder::{prepare_state_folder, state_folder};
use settings::Settings;

/// No settings that a person wrote are larger.
const LARGEST: u64 = 1024 * 1024;

/// In the first line of what this command writes, so that it can tell its own
/// files from others of the same name.
const OURS: &str = "Written by `moonlark types`";

#[derive(Args)]
pub(crate) struct Types {
    /// Where the definitions go (otherwise .moonlark/types in the project).
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// What editors read, one text for each language.
pub struct Definitions {
    pub luau: String,
    pub starlark: String,
}

/// The definitions of this version's modules.
pub fn definitions() -> Result<Definitions, Problem> {
    let modules = moonlark_host::all();
    let builtin = KnowledgeBase::default().tools()?;
    let search = builtin
        .iter()
        .find(|tool| tool.name == "search")
        .ok_or_else(|| Problem::internal("there is no built-in search"))?;
    Ok(Definitions {
        luau: luau::definitions(&modules, &search.input)?,
        starlark: starlark::stub(&modules, &search.input),
    })
}

impl Types {
    pub(crate) fn run(self, global: &Global) -> Done {
        let cwd = here()?;
        let root =
            config_file::load(global.config.as_deref(), &cwd, &|key| std::env::var(key).ok())?.root;
        let out = match &self.out {
            Some(out) => cwd.join(out),
            None => {
                let state = state_folder(&root);
                prepare_state_folder(&state);
                state.join("types")
            }
        };
        let mut files = write_definitions(&root, &out)?;
        for wanted in settings::all(&root, &out) {
            files.push(adjust(&root, &wanted)?);
        }
        if global.json {
            let files: Vec<Json> = files.iter().map(Written::to_json).collect();
            print_json(&json!({ "files": files }));
        } else {
            files.iter().for_each(Written::say);
        }
        Ok(())
    }
}

/// What became of one file.
struct Written {
    path: String,
    did: Did,
    /// Settings to add by hand.
    missing: Json,
    /// Why they were not added.
    because: &'static str,
}

#[derive(Clone, Copy, PartialEq)]
enum Did {
    Created,
    Updated,
    Unchanged,
    Left,
}

impl Written {
    fn new(path: String, did: Did) -> Written {
        Written { path, did, missing: Json::Null, because: "" }
    }

    fn say(&self) {
        let did = match self.did {
            Did::Created => "Created",
            Did::Updated => "Updated",
            Did::Unchanged => "Unchanged:",
            Did::Left => "Left alone:",
        };
        print(format!("{did} {}", self.path));
        if !self.missing.is_null() {
            print(format!("  {}; for Moonlark it should have:", self.because));
            for line in format!("{:#}", self.missing).lines() {
                print(format!("    {line}"));
            }
        }
    }

    fn to_json(&self) -> Json {
        let did = match self.did {
            Did::Created => "created",
            Did::Updated => "updated",
            Did::Unchanged => "unchanged",
            Did::Left => "left",
        };
        let mut json = json!({ "path": self.path, "did": did });
        if !self.missing.is_null() {
            json["missing"] = self.missing.clone();
        }
        json
    }
}

fn write_definitions(root: &Path, out: &Path) -> Result<Vec<Written>, Failure> {
    let texts = definitions()?;
    std::fs::create_dir_all(out).map_err(|error| cannot("make", &label(root, out), &error))?;
    let mut written = Vec::new();
    for (name, comment, text) in
        [(settings::LUAU_FILE, "--", texts.luau), (settings::STARLARK_FILE, "#", texts.starlark)]
    {
        let version = env!("CARGO_PKG_VERSION");
        let text = format!("{comment} {OURS} {version}: run it again after an update.\n\n{text}");
        written.push(write_own(root, &out.join(name), &text)?);
    }
    Ok(written)
}

/// Write a file that is ours, unless somebody else's has its name.
fn write_own(root: &Path, path: &Path, text: &str) -> Result<Written, Failure> {
    let label = label(root, path);
    let did = match read(path, &label)? {
        None => Did::Created,
        Some(there) if there == text => return Ok(Written::new(label, Did::Unchanged)),
        Some(there) if there.lines().next().is_some_and(|line| line.contains(OURS)) => Did::Updated,
        Some(_) => {
            return Err(Problem::bad_request(format!(
                "{label} is there already, and `moonlark types` did not write it"
            ))
            .hint("choose another folder with --out, or remove the file first")
            .into());
        }
    };
    std::fs::write(path, text).map_err(|error| cannot("write", &label, &error))?;
    Ok(Written::new(label, did))
}

/// Add to a settings file what it lacks.
fn adjust(root: &Path, wanted: &Settings) -> Result<Written, Failure> {
    let path = root.join(wanted.file);
    let label = wanted.file.to_owned();
    let missing = |because| Written {
        missing: Json::Object(wanted.values.clone()),
        because,
        ..Written::new(label.clone(), Did::Left)
    };
    let there = match read(&path, &label) {
        Ok(there) => there,
        Err(_) => return Ok(missing("it cannot be read")),
    };
    if there.is_none()
        && let Some(because) = wanted.elsewhere
    {
        return Ok(missing(because));
    }
    let Some(merged) = json_text::merge(there.as_deref().unwrap_or_default(), &wanted.values)
    else {
        return Ok(missing("it is not JSON, so nothing was added"));
    };
    let did = match (&merged.text, &there) {
        (None, _) => Did::Unchanged,
        (Some(_), None) => Did::Created,
        (Some(_), Some(_)) => Did::Updated,
    };
    if let Some(text) = &merged.text {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|error| cannot("write", &label, &error))?;
        }
        std::fs::write(&path, text).map_err(|error| cannot("write", &label, &error))?;
    }
    let missing = if merged.refused.is_empty() { Json::Null } else { merged.refused.into() };
    Ok(Written { missing, because: "it says something else", ..Written::new(label, did) })
}

/// The text of a file, if there is one.
fn read(path: &Path, label: &str) -> Result<Option<String>, Problem> {
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(cannot("read", label, &error)),
        Ok(file) if file.is_file() && file.len() <= LARGEST => {}
        Ok(_) => {
            let what = "is there, and it is no file of reasonable size";
            return Err(Problem::bad_request(format!("{label} {what}"))
                .hint("choose another folder with --out, or move it away first"));
        }
    }
    std::fs::read_to_string(path).map(Some).map_err(|error| cannot("read", label, &error))
}

fn cannot(what: &str, label: &str, error: &std::io::Error) -> Problem {
    Problem::unavailable(format!("cannot {what} it: {error}")).at(Place::file(label))
}

/// The path as people in the project know it.
fn label(root: &Path, path: &Path) -> String {
    shown(path.strip_prefix(root).unwrap_or(path))
}
