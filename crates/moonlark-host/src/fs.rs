//! `fs`: the files of the script's own directory.
//!
//! Functions and their documentation; [`confined`] is the part that touches the
//! disk and keeps inside.

mod confined;
#[cfg(all(test, unix))]
mod tests;
mod walk;

use jiff::Timestamp;
use moonlark_core::grant::AllowedDir;
use moonlark_core::value::Bytes;
use moonlark_core::{Call, Module, Problem, Result, Value};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

pub(crate) use confined::Confined;
use confined::check;

pub(crate) fn module() -> Module {
    Module::new("fs", "Read and write files in the script's own directory.")
        .waiting("read", "Read a file.", read)
        .fails(json!({"path": "../x"}), "leave the script's directory")
        .fails(json!({"path": "/etc/hostname"}), "leave the script's directory")
        .fails(json!({"path": "data/missing.txt"}), "no file data/missing.txt")
        .waiting(
            "list",
            "The sorted names of the files and directories in a directory. With a glob such as \
             **/*.md, the paths below the directory that match it.",
            list,
        )
        .positional(&["dir", "glob"])
        .example(json!({}), json!([]))
        .example(json!({"dir": ".", "glob": "**/*.md"}), json!([]))
        .fails(json!({"dir": ".."}), "leave the script's directory")
        .fails(json!({"dir": ".", "glob": "[a"}), "the glob is not valid")
        .waiting("exists", "Whether there is a file or directory with this path.", exists)
        .example(json!({"path": "missing.txt"}), json!(false))
        .example(json!({"path": "."}), json!(true))
        .fails(json!({"path": "../x"}), "leave the script's directory")
        .waiting("stat", "Size, time of change and kind of a file or directory.", stat)
        .fails(json!({"path": "missing.txt"}), "no file missing.txt")
        .waiting(
            "write",
            "Write a file, whole or not at all. Directories on the way to it are made.",
            write,
        )
        .needs("fs:write")
        .sets()
        .fails(json!({"path": "../x", "data": ""}), "leave the script's directory")
        .fails(json!({"path": "other.lua", "data": ""}), "may not change scripts")
        .waiting("remove", "Remove a file or an empty directory.", remove)
        .needs("fs:write")
        .changes()
        .fails(json!({"path": "../x"}), "leave the script's directory")
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct At {
    /// The path, relative to the script's directory.
    path: String,
}

async fn read(call: Call, args: At) -> Result<Bytes> {
    let most = call.limits().value;
    let dir = call.grants().dir("fs.read")?;
    blocking("fs.read", dir, move |dir| dir.read(&args.path, most)).await.map(Bytes)
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct List {
    /// The directory, relative to the script's; that itself when not given.
    #[serde(default)]
    dir: Option<String>,
    /// Which paths: `*` and `?` stay within a name, `**` goes into directories.
    #[serde(default)]
    glob: Option<String>,
}

async fn list(call: Call, args: List) -> Result<Vec<String>> {
    let at = args.dir.unwrap_or_else(|| ".".to_owned());
    let dir = call.grants().dir("fs.list")?;
    blocking("fs.list", dir, move |dir| match args.glob {
        None => walk::names(dir, &at),
        Some(glob) => walk::matching(dir, &at, &glob),
    })
    .await
}

async fn exists(call: Call, args: At) -> Result<bool> {
    let dir = call.grants().dir("fs.exists")?;
    blocking("fs.exists", dir, move |dir| dir.exists(&args.path)).await
}

/// What is at a path.
#[derive(JsonSchema)]
#[schemars(inline)]
struct Stat {
    /// Size in bytes.
    size: i64,
    /// When it was last changed, as RFC 3339.
    modified: Option<String>,
    /// `file`, `directory` or `other`.
    kind: &'static str,
}

impl From<Stat> for Value {
    fn from(stat: Stat) -> Self {
        Value::object([
            ("size", stat.size.into()),
            ("modified", stat.modified.into()),
            ("kind", stat.kind.into()),
        ])
    }
}

async fn stat(call: Call, args: At) -> Result<Stat> {
    let dir = call.grants().dir("fs.stat")?;
    let found = blocking("fs.stat", dir, move |dir| dir.metadata(&args.path)).await?;
    let modified = found.modified().ok().map(cap_std::time::SystemTime::into_std);
    Ok(Stat {
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
struct Write {
    /// The path, relative to the script's directory.
    path: String,
    /// What the file shall hold.
    data: Bytes,
}

async fn write(call: Call, args: Write) -> Result<()> {
    check("fs.write", &args.path)?;
    spare_code("fs.write", &args.path)?;
    let dir = call.grants().writable_dir("fs.write")?;
    blocking("fs.write", dir, move |dir| dir.write(&args.path, &args.data.0)).await
}

async fn remove(call: Call, args: At) -> Result<()> {
    check("fs.remove", &args.path)?;
    spare_code("fs.remove", &args.path)?;
    let dir = call.grants().writable_dir("fs.remove")?;
    blocking("fs.remove", dir, move |dir| dir.remove(&args.path)).await
}

/// Files that would run, or decide what may: a script that may write its data
/// may not write tools.
fn spare_code(what: &str, path: &str) -> Result<()> {
    let path = std::path::Path::new(path);
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    if matches!(ending.to_ascii_lowercase().as_str(), "lua" | "luau" | "star" | "toml") {
        return Err(Problem::denied(format!("{what} may not change scripts or configuration"))
            .hint("write data under another ending"));
    }
    Ok(())
}

/// Disks block, and a directory may lie on a network: never on an async thread.
pub(crate) async fn blocking<T: Send + 'static>(
    what: &'static str,
    dir: AllowedDir,
    work: impl FnOnce(&Confined) -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(move || work(&Confined::open(what, &dir)?))
        .await
        .unwrap_or_else(|error| Err(Problem::internal(format!("{what} did not finish: {error}"))))
}
