//! Scripts on disk: which there are, and what each may do.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io::Read;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use moonlark_core::grant::{Grant, Grants};
use moonlark_core::limits::Limits;
use moonlark_core::secret::{Secret, Secrets};
use moonlark_core::tool::{Expose, Scope};
use moonlark_core::{Code, Place, Problem, Result, Value};
use moonlark_luau::{Files, MAX_SOURCE, Script};

use crate::config::{Config, ScriptConfig, Seconds, scan_timeout};
use crate::config_file::Loaded;
use crate::extensions::{self, Folder};

/// Scripts of one folder that are loaded, in the order of their names.
pub(crate) const MAX_SCRIPTS: usize = 10_000;

/// A script found on disk.
#[derive(Debug, Clone)]
pub struct Found {
    pub path: PathBuf,
    /// Relative to the project where it lies inside.
    pub file: String,
    /// Its key under `[tools.script]` or `[extensions.script]`, if it has one.
    pub configured: Option<String>,
    pub kind: Kind,
}

/// What a script is to become.
#[derive(Debug, Clone)]
pub enum Kind {
    /// A Lua tool.
    Tool,
    /// A Starlark extension, one of the files of a folder.
    Extension(Folder),
    /// A Lua connector, which feeds the knowledge base.
    Connector,
    /// A Lua script with a table `agent`, which makes a prompt.
    Agent,
}

impl Found {
    /// A Lua script outside what the project would find by itself.
    pub fn tool(path: PathBuf, file: String, configured: Option<String>) -> Self {
        Self { path, file, configured, kind: Kind::Tool }
    }
}

/// All scripts: those in the configuration by name, then those in the folders
/// by file name; tools first.
pub fn find(loaded: &Loaded) -> (Vec<Found>, Vec<Problem>) {
    let mut problems = Vec::new();
    let mut found: Vec<Found> = Vec::new();
    for (name, script) in &loaded.config.tools.script {
        let path = loaded.root.join(&script.path);
        found.push(Found::tool(path.clone(), shown(&loaded.root, &path), Some(name.clone())));
    }
    let dir = loaded.root.join(&loaded.config.tools.dir);
    match in_folder(&dir) {
        Ok(paths) => {
            let taken: HashSet<PathBuf> =
                found.iter().filter_map(|f| f.path.canonicalize().ok()).collect();
            let is_taken = |path: &Path| {
                !taken.is_empty() && path.canonicalize().is_ok_and(|path| taken.contains(&path))
            };
            problems.extend(too_many(paths.len(), &loaded.config.tools.dir));
            for path in paths.into_iter().take(MAX_SCRIPTS).filter(|path| !is_taken(path)) {
                let file = shown(&loaded.root, &path);
                found.push(Found::tool(path, file, None));
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => problems.push(
            Problem::bad_config(format!("the tools folder cannot be read: {error}"))
                .at(Place::file(loaded.config.tools.dir.clone())),
        ),
    }
    extensions::find(loaded, &mut found, &mut problems);
    (found, problems)
}

/// A folder with more files than that is no collection of scripts.
pub(crate) fn too_many(count: usize, folder: &str) -> Option<Problem> {
    (count > MAX_SCRIPTS).then(|| {
        Problem::bad_config(format!(
            "the folder has more than {MAX_SCRIPTS} scripts: only the first are loaded"
        ))
        .at(Place::file(folder))
        .hint("keep only scripts in it that are to be tools")
    })
}

pub(crate) fn in_folder(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
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
fn read(path: &Path, file: &str) -> Result<String> {
    let kind = fs::metadata(path).map(|kind| kind.is_file());
    read_text(file, kind, || fs::File::open(path))
}

/// The same for a file opened in some other way.
pub fn read_text<F: Read>(
    file: &str,
    is_file: std::io::Result<bool>,
    open: impl FnOnce() -> std::io::Result<F>,
) -> Result<String> {
    read_within(file, MAX_SOURCE, is_file, open)
}

/// The same for a file that may be larger than a script. One that is larger than
/// `most` is cut a byte later, which whoever reads it notices.
pub fn read_within<F: Read>(
    file: &str,
    most: usize,
    is_file: std::io::Result<bool>,
    open: impl FnOnce() -> std::io::Result<F>,
) -> Result<String> {
    let problem = |message: String| Problem::bad_script(message).at(Place::file(file));
    let unreadable = |error: std::io::Error| {
        let mut problem = problem(format!("the script cannot be read: {}", reason(&error)));
        if error.kind() == std::io::ErrorKind::NotFound {
            problem.code = Code::NotFound;
        }
        problem
    };
    // Opening a pipe would wait for somebody to write.
    if !is_file.map_err(unreadable)? {
        return Err(problem("the script is not a regular file".to_owned()));
    }
    let mut text = Vec::new();
    open()
        .and_then(|file| file.take(most as u64 + 1).read_to_end(&mut text))
        .map_err(unreadable)?;
    String::from_utf8(text).map_err(|error| {
        let line = error.as_bytes()[..error.utf8_error().valid_up_to()]
            .iter()
            .filter(|b| **b == b'\n')
            .count();
        Problem::bad_script("the script is not UTF-8 text").at(Place::line(file, line as u32 + 1))
    })
}

fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".to_owned(),
        std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}

/// What the configuration says of one script.
struct Settings<'a> {
    /// The script's name there, or the name it would have.
    name: String,
    /// The key whose `allow` would grant more.
    owner: String,
    timeout: Option<Seconds>,
    allow: &'a [String],
    expose: Expose,
    config: Option<&'a ScriptConfig>,
}

impl<'a> Settings<'a> {
    fn of(found: &Found, config: &'a Config) -> Self {
        let stem = found.path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let name = found.configured.clone().unwrap_or_else(|| stem.to_owned());
        let configured = found.configured.as_ref();
        let (kind, own) = match &found.kind {
            Kind::Tool => {
                let own = configured.and_then(|name| config.tools.script.get(name));
                ("tools", own.map(|it| (it.timeout, &it.allow, it.expose, &it.config)))
            }
            Kind::Extension(_) => {
                let own = configured.and_then(|name| config.extensions.script.get(name));
                ("extensions", own.map(|it| (it.timeout, &it.allow, it.expose, &it.config)))
            }
            Kind::Connector => {
                let own = configured.and_then(|name| config.connectors.script.get(name));
                let own =
                    own.map(|it| (Some(it.timeout), &it.allow, Expose::default(), &it.config));
                ("connectors", own)
            }
            Kind::Agent => {
                let own = configured.and_then(|name| config.agents.script.get(name));
                let own = own.map(|it| (it.timeout, &it.allow, Expose::default(), &it.config));
                ("agents", own)
            }
        };
        let usual = matches!(found.kind, Kind::Connector).then(scan_timeout);
        Self {
            owner: format!("{kind}.script.{name}"),
            name,
            timeout: own.and_then(|(timeout, ..)| timeout).or(usual),
            allow: own.map(|(_, allow, ..)| allow.as_slice()).unwrap_or_default(),
            expose: own.map(|(.., expose, _)| expose).unwrap_or_default(),
            config: own.map(|(.., config)| config),
        }
    }

    fn grants(&self) -> Result<Vec<Grant>> {
        let read = |grant: &String| {
            grant.parse().map_err(|problem: Problem| {
                problem.at(Place::file(format!("{}.allow", self.owner)))
            })
        };
        // A variable that is not there grants nothing.
        let is_whole = |grant: &&String| !grant.contains("${");
        self.allow.iter().filter(is_whole).map(read).collect()
    }

    fn outage(&self) -> &'a [Problem] {
        self.config.map(|config| config.outage.as_slice()).unwrap_or_default()
    }

    fn secrets(&self) -> Vec<Secret> {
        let secrets = self.config.map(|config| config.secrets.as_slice()).unwrap_or_default();
        secrets
            .iter()
            .map(|secret| Secret {
                key: secret.key.clone(),
                value: secret.expose().to_owned(),
                by_name: secret.by_name,
            })
            .collect()
    }
}

/// What a script may do and use when it is called, and while it loads.
pub fn scopes(found: &Found, config: &Config) -> Result<(Scope, Scope)> {
    let settings = Settings::of(found, config);
    let dir = found.path.parent().map(Path::to_owned).unwrap_or_default();
    let limits = config.limits.of(&settings.name, settings.timeout);
    let values = settings.config.map(|config| config.values.clone()).unwrap_or_default();
    let secrets = Secrets::new(settings.secrets());
    let grants = Grants::authored(settings.owner.clone(), dir.clone(), settings.grants()?)
        .under(&config.network.rules());
    let shares = |grants: Grants| match &found.kind {
        Kind::Extension(folder) => grants.sharing(folder.path.clone()),
        _ => grants,
    };
    let grants = shares(grants);
    let scope = Scope {
        grants: match found.kind {
            // A connector or an agent does not say which commands it runs: what its operator
            // allows is enough.
            Kind::Connector | Kind::Agent => grants.for_test(&[]),
            _ => grants,
        },
        limits: limits.clone(),
        config: Value::from_json(serde_json::Value::Object(values))?,
        secrets: secrets.clone(),
    };
    // The time for calls says nothing about loading, which may have to start a process
    // first; nor does the long time of a scan.
    let timeout = config.limits.load.duration();
    let loading = Scope {
        grants: shares(Grants::loading(settings.owner, dir)),
        limits: Limits { timeout, ..limits },
        config: Value::Null,
        secrets,
    };
    Ok((scope, loading))
}

/// What the tests of a script may do: as much as the script, and `more`.
pub fn test_scope(found: &Found, config: &Config, more: &[Grant]) -> Result<Scope> {
    let (mut scope, _) = scopes(found, config)?;
    scope.grants = scope.grants.for_test(more);
    Ok(scope)
}

/// The folder that a Lua script's `require` stays inside: that of its kind, or,
/// for a script that is not in there, its own.
pub fn folder(found: &Found, loaded: &Loaded) -> Folder {
    let home = loaded.root.join(match found.kind {
        Kind::Connector => &loaded.config.connectors.dir,
        Kind::Agent => &loaded.config.agents.dir,
        _ => &loaded.config.tools.dir,
    });
    let inside = |path: &Path| path.components().all(|part| matches!(part, Component::Normal(_)));
    let below = found.path.strip_prefix(&home).ok().filter(|path| inside(path));
    let (path, main) = match below {
        Some(below) => (home, below),
        None => (
            found.path.parent().map(Path::to_owned).unwrap_or_default(),
            found.path.file_name().map(Path::new).unwrap_or(&found.path),
        ),
    };
    let main = main.to_string_lossy().into_owned();
    let label = found.file.strip_suffix(&main).unwrap_or_default().trim_end_matches('/').to_owned();
    Folder { path, label, main }
}

/// The files of a Lua script. The script itself may be a link to elsewhere,
/// for its user put it there; what it requires may not.
pub fn files(found: &Found, folder: &Folder) -> Files {
    let others = extensions::files(folder);
    let (main, path, file) = (folder.main.clone(), found.path.clone(), found.file.clone());
    Arc::new(move |name| if name == main { read(&path, &file) } else { others(name) })
}

/// A Lua script, ready to be loaded.
pub fn prepare(found: &Found, loaded: &Loaded) -> Result<Script> {
    let (scope, loading) = scopes(found, &loaded.config)?;
    let folder = folder(found, loaded);
    Ok(Script {
        files: files(found, &folder),
        file: found.file.clone(),
        folder: folder.label,
        main: folder.main,
        configured: found.configured.clone(),
        scope,
        loading: Arc::new(loading),
    })
}

/// What, besides its text, makes a loaded script out of date when it changes.
pub fn fingerprint(found: &Found, config: &Config) -> String {
    let settings = Settings::of(found, config);
    let values = settings.config.map(|config| &config.values);
    let limits = config.limits.of(&settings.name, settings.timeout);
    let outage = settings.outage();
    let Settings { allow, expose, .. } = settings;
    let (configured, network, load) = (&found.configured, &config.network, config.limits.load);
    format!(
        "{configured:?}\n{limits:?}\n{load:?}\n{network:?}\n{allow:?}\n{expose:?}\n{values:?}\n{outage:?}"
    )
}

/// Why a script cannot be used: variables and files that its settings need and that
/// are not there.
pub fn outage<'a>(found: &Found, config: &'a Config) -> &'a [Problem] {
    Settings::of(found, config).outage()
}

/// How agents reach the tools of a script.
pub fn expose(found: &Found, config: &Config) -> Expose {
    Settings::of(found, config).expose
}

/// A path as a reader of messages knows it.
pub(crate) fn shown(root: &Path, path: &Path) -> String {
    let shown = path.strip_prefix(root).unwrap_or(path);
    shown.to_string_lossy().trim_start_matches("./").to_owned()
}

/// Scripts by file, with what was wrong at the last attempt.
pub type Entries = BTreeMap<PathBuf, Arc<Entry>>;

#[derive(Debug, Default, Clone)]
pub struct Entry {
    pub fingerprint: String,
    /// The folder its files are in.
    pub folder: PathBuf,
    /// The files it consists of, by their paths in there.
    pub texts: BTreeMap<String, String>,
    /// The last version that loaded.
    pub tools: Vec<Arc<moonlark_core::Tool>>,
    /// It loads, but is there for others to load.
    pub library: bool,
    /// Why the newest version did not load.
    pub problem: Option<Problem>,
}

impl Entry {
    /// The files it consists of, or would.
    pub fn files(&self) -> impl Iterator<Item = PathBuf> {
        self.texts.keys().map(|name| self.folder.join(name))
    }
}
