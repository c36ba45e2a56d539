//! Lua tool scripts on disk: which there are, and what each may do.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use moonlark_core::grant::{Grant, Grants};
use moonlark_core::limits::Limits;
use moonlark_core::secret::{Secret, Secrets};
use moonlark_core::tool::Scope;
use moonlark_core::{Place, Problem, Result, Value};
use moonlark_luau::{MAX_SOURCE, Script};

use crate::config::{Config, ScriptTool};
use crate::config_file::Loaded;

/// A script that should be a tool.
#[derive(Debug)]
pub struct Found {
    pub path: PathBuf,
    /// Relative to the project where it lies inside.
    pub file: String,
    /// Its key under `[tools.script]`, if it has one.
    pub configured: Option<String>,
}

/// All scripts: those in the configuration by name, then those in the tools
/// folder by file name.
pub fn find(loaded: &Loaded) -> (Vec<Found>, Vec<Problem>) {
    let mut problems = Vec::new();
    let mut found: Vec<Found> = Vec::new();
    for (name, script) in &loaded.config.tools.script {
        let path = loaded.root.join(&script.path);
        found.push(Found {
            file: shown(&loaded.root, &path),
            path,
            configured: Some(name.clone()),
        });
    }
    let dir = loaded.root.join(&loaded.config.tools.dir);
    match in_folder(&dir) {
        Ok(paths) => {
            let taken: Vec<PathBuf> =
                found.iter().filter_map(|f| f.path.canonicalize().ok()).collect();
            for path in paths {
                if !path.canonicalize().is_ok_and(|path| taken.contains(&path)) {
                    found.push(Found { file: shown(&loaded.root, &path), path, configured: None });
                }
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => problems.push(
            Problem::bad_config(format!("the tools folder cannot be read: {error}"))
                .at(Place::file(loaded.config.tools.dir.clone())),
        ),
    }
    (found, problems)
}

fn in_folder(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut paths: Vec<PathBuf> = fs::read_dir(dir)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| is_script(path))
        .collect();
    paths.sort();
    Ok(paths)
}

/// Lua by its ending, and neither hidden, nor an editor's, nor a test.
pub fn is_script(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let stem = match name.rsplit_once('.') {
        Some((stem, "lua" | "luau")) => stem,
        _ => return false,
    };
    !stem.is_empty()
        && !stem.starts_with(['.', '_', '#'])
        && !stem.ends_with("_test")
        && !stem.ends_with(".d")
}

/// The text of a script; whatever is not a file of a sane size is a Problem.
pub fn read(found: &Found) -> Result<String> {
    let problem =
        |message: String| Problem::bad_script(message).at(Place::file(found.file.clone()));
    let kind = fs::metadata(&found.path)
        .map_err(|error| problem(format!("the script cannot be read: {}", reason(&error))))?;
    // Opening a pipe would wait for somebody to write.
    if !kind.is_file() {
        return Err(problem("the script is not a regular file".to_owned()));
    }
    let mut text = Vec::new();
    fs::File::open(&found.path)
        .and_then(|file| file.take(MAX_SOURCE as u64 + 1).read_to_end(&mut text))
        .map_err(|error| problem(format!("the script cannot be read: {}", reason(&error))))?;
    String::from_utf8(text).map_err(|error| {
        let line = error.as_bytes()[..error.utf8_error().valid_up_to()]
            .iter()
            .filter(|b| **b == b'\n')
            .count();
        Problem::bad_script("the script is not UTF-8 text")
            .at(Place::line(found.file.clone(), line as u32 + 1))
    })
}

fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".to_owned(),
        std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}

/// Everything that decides how a script behaves, besides its text.
pub fn prepare(found: &Found, text: String, config: &Config) -> Result<Script> {
    let stem = found.path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let settings = found.configured.as_ref().and_then(|name| config.tools.script.get(name));
    let name = found.configured.clone().unwrap_or_else(|| stem.to_owned());
    let owner = format!("tools.script.{name}");
    let dir = found.path.parent().map(Path::to_owned).unwrap_or_default();
    let grants = grants(settings, &owner)?;
    let limits = limits(config, &name, settings);
    let (values, secrets) = match settings {
        Some(settings) => (settings.config.values.clone(), secrets(settings)),
        None => Default::default(),
    };
    let scope = Scope {
        grants: Grants::authored(owner.clone(), dir.clone(), grants),
        limits: limits.clone(),
        config: Value::from_json(serde_json::Value::Object(values))?,
        secrets: Secrets::new(secrets.clone()),
    };
    let loading = Scope {
        grants: Grants::loading(owner, dir),
        limits,
        config: Value::Null,
        secrets: Secrets::new(secrets),
    };
    Ok(Script {
        file: found.file.clone(),
        text,
        configured: found.configured.clone(),
        scope: Arc::new(scope),
        loading: Arc::new(loading),
    })
}

fn grants(settings: Option<&ScriptTool>, owner: &str) -> Result<Vec<Grant>> {
    let allow = settings.map(|settings| settings.allow.as_slice()).unwrap_or_default();
    allow
        .iter()
        .map(|grant| {
            grant
                .parse()
                .map_err(|problem: Problem| problem.at(Place::file(format!("{owner}.allow"))))
        })
        .collect()
}

fn secrets(settings: &ScriptTool) -> Vec<Secret> {
    settings
        .config
        .secrets
        .iter()
        .map(|secret| Secret {
            key: secret.key.clone(),
            value: secret.expose().to_owned(),
            by_name: secret.by_name,
        })
        .collect()
}

/// The general limits, overridden for one tool. The script's own `timeout` is
/// the nearest to it and wins.
pub fn limits(config: &Config, name: &str, settings: Option<&ScriptTool>) -> Limits {
    let general = &config.limits;
    let own = general.tools.get(name);
    let bytes = |size: crate::config::Size| usize::try_from(size.bytes()).unwrap_or(usize::MAX);
    Limits {
        timeout: settings
            .and_then(|settings| settings.timeout)
            .or(own.and_then(|own| own.timeout))
            .unwrap_or(general.timeout)
            .duration(),
        memory: bytes(own.and_then(|own| own.memory).unwrap_or(general.memory)),
        calls: own.and_then(|own| own.calls).unwrap_or(general.calls),
        parallel: own.and_then(|own| own.parallel).unwrap_or(general.parallel),
        logs: own.and_then(|own| own.logs).unwrap_or(general.logs).bytes(),
        value: bytes(general.value),
        http_body: bytes(general.http_body),
    }
}

/// What, when it changes, makes the loaded tool out of date.
pub fn fingerprint(found: &Found, text: &str, config: &Config) -> String {
    let settings = found.configured.as_ref().and_then(|name| config.tools.script.get(name));
    let values = settings.map(|settings| (&settings.config.values, &settings.allow));
    let stem = found.path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let name = found.configured.as_deref().unwrap_or(stem);
    format!("{:?}\n{:?}\n{values:?}\n{text}", found.configured, limits(config, name, settings))
}

/// A path as a reader of messages knows it.
fn shown(root: &Path, path: &Path) -> String {
    let shown = path.strip_prefix(root).unwrap_or(path);
    shown.to_string_lossy().trim_start_matches("./").to_owned()
}

/// Tools by file, with what was wrong at the last attempt.
pub type Entries = BTreeMap<PathBuf, Entry>;

#[derive(Debug)]
pub struct Entry {
    pub fingerprint: String,
    /// The last version that loaded.
    pub tool: Option<Arc<moonlark_core::Tool>>,
    /// Why the newest version did not.
    pub problem: Option<Problem>,
}
