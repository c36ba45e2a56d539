//! `fs`: the files of the script's own directory.
//!
//! Functions and their documentation; [`confined_dir`] is the part that touches the
//! disk and keeps inside.

mod confined_dir;
mod directory_walk;
#[cfg(all(test, unix))]
mod tests;

use std::path::Path;

use jiff::Timestamp;
use moonlark_core::grant::AllowedDir;
use moonlark_core::value::TextOrBytes;
use moonlark_core::{Module, Problem, Result, Value};
use moonlark_gateway::Call;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use confined_dir::check_relative_path;
pub(crate) use confined_dir::{ConfinedDir, open_script_dir};

/// The examples are run in a directory that holds one file, `notes.txt`, with the
/// line `Buy tea`.
pub(crate) fn module() -> Module {
    Module::new("fs", "Read and write files in the script's own directory.")
        .async_function("read", "Read a file.", read)
        .example(json!({"path": "notes.txt"}), json!("Buy tea\n"))
        .fails(json!({"path": "../x"}), "leave the script's directory")
        .fails(json!({"path": "/etc/hostname"}), "leave the script's directory")
        .fails(json!({"path": "data/missing.txt"}), "no file data/missing.txt")
        .async_function(
            "list",
            "The sorted names of the files and directories in a directory. With a glob such as \
             **/*.md, the paths below the directory that match it.",
            list,
        )
        .positional_params(&["dir", "glob"])
        .example(json!({}), json!(["notes.txt"]))
        .example(json!({"dir": ".", "glob": "**/*.txt"}), json!(["notes.txt"]))
        .example(json!({"dir": ".", "glob": "**/*.md"}), json!([]))
        .fails(json!({"dir": ".."}), "leave the script's directory")
        .fails(json!({"dir": ".", "glob": "[a"}), "the glob is not valid")
        .async_function("exists", "Whether there is a file or directory with this path.", exists)
        .example(json!({"path": "notes.txt"}), json!(true))
        .example(json!({"path": "missing.txt"}), json!(false))
        .fails(json!({"path": "../x"}), "leave the script's directory")
        .async_function("stat", "Size, time of change and kind of a file or directory.", stat)
        .mocked_example(
            json!({"path": "notes.txt"}),
            json!({"size": 8, "modified": "2026-01-05T09:30:00Z", "kind": "file"}),
        )
        .fails(json!({"path": "missing.txt"}), "no file missing.txt")
        .async_function(
            "write",
            "Write a file, whole or not at all. Directories on the way to it are made.",
            write,
        )
        .needs("fs:write")
        .with_idempotent_effects()
        .example(json!({"path": "reports/today.txt", "data": "All is well.\n"}), json!(null))
        .fails(json!({"path": "../x", "data": ""}), "leave the script's directory")
        .fails(json!({"path": "other.lua", "data": ""}), "may not change scripts")
        .async_function("remove", "Remove a file or an empty directory.", remove)
        .needs("fs:write")
        .with_side_effects()
        .example(json!({"path": "notes.txt"}), json!(null))
        .fails(json!({"path": "../x"}), "leave the script's directory")
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FsPathArgs {
    /// The path, relative to the script's directory.
    path: String,
}

async fn read(call: Call, args: FsPathArgs) -> Result<TextOrBytes> {
    let most = call.limits().value;
    let dir = call.grants().check_dir("fs.read")?;
    spawn_blocking_in_dir("fs.read", dir, move |dir| dir.read_file(&args.path, most))
        .await
        .map(TextOrBytes)
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FsListArgs {
    /// The directory, relative to the script's; that itself when not given.
    dir: Option<String>,
    /// Which paths: `*` and `?` stay within a name, `**` goes into directories.
    glob: Option<String>,
}

async fn list(call: Call, args: FsListArgs) -> Result<Vec<String>> {
    let at = args.dir.unwrap_or_else(|| ".".to_owned());
    let dir = call.grants().check_dir("fs.list")?;
    spawn_blocking_in_dir("fs.list", dir, move |dir| {
        directory_walk::list_paths(dir, &at, args.glob.as_deref())
    })
    .await
}

async fn exists(call: Call, args: FsPathArgs) -> Result<bool> {
    let dir = call.grants().check_dir("fs.exists")?;
    spawn_blocking_in_dir("fs.exists", dir, move |dir| dir.exists(&args.path)).await
}

/// What is at a path.
#[derive(JsonSchema)]
#[schemars(inline)]
struct FsStat {
    /// Size in bytes.
    size: i64,
    /// When it was last changed, as RFC 3339.
    modified: Option<String>,
    /// `file`, `directory` or `other`.
    kind: &'static str,
}

impl From<FsStat> for Value {
    fn from(stat: FsStat) -> Self {
        Value::from_fields([
            ("size", stat.size.into()),
            ("modified", stat.modified.into()),
            ("kind", stat.kind.into()),
        ])
    }
}

async fn stat(call: Call, args: FsPathArgs) -> Result<FsStat> {
    let dir = call.grants().check_dir("fs.stat")?;
    let found = spawn_blocking_in_dir("fs.stat", dir, move |dir| dir.metadata(&args.path)).await?;
    let modified = found.modified().ok().map(cap_std::time::SystemTime::into_std);
    Ok(FsStat {
        size: i64::try_from(found.len()).unwrap_or(i64::MAX),
        modified: modified.and_then(|time| Timestamp::try_from(time).ok()).map(|at| at.to_string()),
        kind: match found {
            _ if found.is_file() => "file",
            _ if found.is_dir() => "directory",
            _ => "other",
        },
    })
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FsWriteArgs {
    /// The path, relative to the script's directory.
    path: String,
    /// What the file shall hold.
    data: TextOrBytes,
}

async fn write(call: Call, args: FsWriteArgs) -> Result<()> {
    check_relative_path("fs.write", &args.path)?;
    refuse_code_file("fs.write", &args.path)?;
    let dir = call.grants().check_writable_dir("fs.write")?;
    spawn_blocking_in_dir("fs.write", dir, move |dir| dir.write_file(&args.path, &args.data.0))
        .await
}

async fn remove(call: Call, args: FsPathArgs) -> Result<()> {
    check_relative_path("fs.remove", &args.path)?;
    refuse_code_file("fs.remove", &args.path)?;
    let dir = call.grants().check_writable_dir("fs.remove")?;
    spawn_blocking_in_dir("fs.remove", dir, move |dir| dir.remove_entry(&args.path)).await
}

/// Whether it would run, or decide what may: a script that may write its data
/// may not write tools.
pub(crate) fn is_code_file(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    matches!(ending.to_ascii_lowercase().as_str(), "lua" | "luau" | "star" | "toml")
}

fn refuse_code_file(what: &str, path: &str) -> Result<()> {
    if is_code_file(path.as_ref()) {
        return Err(Problem::denied(format!("{what} may not change scripts or configuration"))
            .with_hint("write data under another ending"));
    }
    Ok(())
}

/// Disks block, and a directory may lie on a network: never on an async thread.
pub(crate) async fn spawn_blocking_in_dir<T: Send + 'static>(
    what: &'static str,
    dir: AllowedDir,
    work: impl FnOnce(&ConfinedDir) -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(move || work(&ConfinedDir::open(what, &dir)?))
        .await
        .unwrap_or_else(|error| Err(Problem::internal(format!("{what} did not finish: {error}"))))
}
