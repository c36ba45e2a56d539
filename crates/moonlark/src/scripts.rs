//! Scripts on disk: which there are, and what each may do.

mod script_key;

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use moonlark_core::grant::{Grant, GrantSet};
use moonlark_core::limits::CallLimits;
use moonlark_core::secret::{SecretValue, Secrets};
use moonlark_core::source_resources::SourceResources;
use moonlark_core::tool::{CallScope, ToolExposure};
use moonlark_core::{Problem, ProblemCode, Result, SourceLocation, Tool, Value};
use moonlark_luau::{ConnectorScript, MAX_LUAU_SOURCE_BYTES, ScriptFile, ScriptFileReader};

pub(crate) use script_key::ScriptKey;

use crate::extensions::{self, ScriptFolder};
use crate::saved_scripts::SavedScriptProduct;
use moonlark_config::config_file::LoadedConfig;
use moonlark_config::{
    ConfigSecret, NetworkConfig, ProjectConfig, ScriptConfig, TimeoutSeconds, default_scan_timeout,
};

/// Scripts of one folder that are loaded, in the order of their names.
pub(crate) const MAX_SCRIPTS_PER_FOLDER: usize = 10_000;

/// A script found on disk.
#[derive(Debug, Clone)]
pub struct DiscoveredScript {
    pub path: PathBuf,
    /// Relative to the project where it lies inside.
    pub file: String,
    /// Its key under `[tools.script]` or `[extensions.script]`, if it has one.
    pub configured: Option<String>,
    pub kind: ScriptKind,
}

/// What a script is to become.
#[derive(Debug, Clone)]
pub enum ScriptKind {
    /// A Lua tool.
    Tool,
    /// A Starlark extension, one of the files of a folder.
    Extension(ScriptFolder),
    /// A Lua connector, which feeds the knowledge base.
    Connector,
    /// A Lua script with a table `agent`, which makes a prompt.
    Agent,
    /// An agent's script with a header, which makes it a function of `sdk.scripts`.
    Saved,
}

/// All scripts: those in the configuration by name, then those in the folders
/// by file name; tools first.
pub fn find_tools_and_extensions(loaded: &LoadedConfig) -> (Vec<DiscoveredScript>, Vec<Problem>) {
    let config = &loaded.config.tools;
    let configured = config.script.iter().map(|(name, it)| (name, &it.path));
    let (mut found, mut problems) =
        find_lua_scripts(loaded, "tools", &config.dir, configured, &ScriptKind::Tool);
    extensions::find_extensions(loaded, &mut found, &mut problems);
    (found, problems)
}

/// The Lua scripts of one kind: those of the configuration, by their names and paths, then
/// those in the folder `dir`. `label` is what messages call that folder.
pub(crate) fn find_lua_scripts<'a>(
    loaded: &LoadedConfig,
    label: &str,
    dir: &str,
    configured: impl Iterator<Item = (&'a String, &'a String)>,
    kind: &ScriptKind,
) -> (Vec<DiscoveredScript>, Vec<Problem>) {
    let script = |path: PathBuf, configured: Option<String>| {
        let file = display_path(&loaded.root, &path);
        DiscoveredScript { path, file, configured, kind: kind.clone() }
    };
    let mut found: Vec<DiscoveredScript> =
        configured.map(|(name, path)| script(loaded.root.join(path), Some(name.clone()))).collect();
    let named = found.iter().map(|it| it.path.as_path());
    let (paths, problems) = scripts_in_folder(&loaded.root, dir, label, named);
    found.extend(paths.into_iter().map(|path| script(path, None)));
    (found, problems)
}

/// The Lua scripts in the folder `dir`, in the order of their names, without those that
/// the configuration names already. A folder that is not there is empty.
fn scripts_in_folder<'a>(
    root: &Path,
    dir: &str,
    kind: &str,
    configured: impl Iterator<Item = &'a Path>,
) -> (Vec<PathBuf>, Vec<Problem>) {
    let mut paths = match list_lua_scripts(&root.join(dir)) {
        Ok(paths) => paths,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => {
            let problem = Problem::bad_config(format!("the {kind} folder cannot be read: {error}"))
                .at_location(SourceLocation::in_file(dir));
            return (Vec::new(), vec![problem]);
        }
    };
    let problem = too_many_scripts_problem(paths.len(), dir);
    paths.truncate(MAX_SCRIPTS_PER_FOLDER);
    let taken: HashSet<PathBuf> = configured.filter_map(|it| it.canonicalize().ok()).collect();
    if !taken.is_empty() {
        paths.retain(|path| !path.canonicalize().is_ok_and(|path| taken.contains(&path)));
    }
    (paths, problem.into_iter().collect())
}

/// A folder with more files than that is no collection of scripts.
pub(crate) fn too_many_scripts_problem(count: usize, folder: &str) -> Option<Problem> {
    (count > MAX_SCRIPTS_PER_FOLDER).then(|| {
        Problem::bad_config(format!(
            "the folder has more than {MAX_SCRIPTS_PER_FOLDER} scripts: only the first are loaded"
        ))
        .at_location(SourceLocation::in_file(folder))
        .with_hint("keep only scripts in it that are to be tools")
    })
}

fn list_lua_scripts(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    // By their names: paths are compared part by part, which is most of the work.
    let mut files: Vec<(OsString, PathBuf)> = fs::read_dir(dir)?
        .filter_map(Result::ok)
        .map(|entry| (entry.file_name(), entry.path()))
        .filter(|(_, path)| is_lua_script(path))
        .collect();
    files.sort_unstable();
    Ok(files.into_iter().map(|(_, path)| path).collect())
}

/// Lua by its ending, and neither hidden, nor an editor's, nor a test.
pub fn is_lua_script(path: &Path) -> bool {
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
pub(crate) fn read_script(path: &Path, file: &str) -> Result<String> {
    let kind = fs::metadata(path).map(|kind| kind.is_file());
    read_script_text(file, kind, || fs::File::open(path))
}

/// The same for a file opened in some other way.
pub fn read_script_text<F: Read>(
    file: &str,
    is_file: std::io::Result<bool>,
    open: impl FnOnce() -> std::io::Result<F>,
) -> Result<String> {
    read_text_up_to(file, MAX_LUAU_SOURCE_BYTES, is_file, open)
}

/// The same for a file that may be larger than a script. One that is larger than
/// `most` is cut a byte later, which whoever reads it notices.
pub fn read_text_up_to<F: Read>(
    file: &str,
    most: usize,
    is_file: std::io::Result<bool>,
    open: impl FnOnce() -> std::io::Result<F>,
) -> Result<String> {
    let problem =
        |message: String| Problem::bad_script(message).at_location(SourceLocation::in_file(file));
    let unreadable = |error: std::io::Error| {
        let mut problem =
            problem(format!("the script cannot be read: {}", describe_io_error(&error)));
        if error.kind() == std::io::ErrorKind::NotFound {
            problem.code = ProblemCode::NotFound;
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
        Problem::bad_script("the script is not UTF-8 text")
            .at_location(SourceLocation::at_line(file, line as u32 + 1))
    })
}

fn describe_io_error(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".to_owned(),
        std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}

/// What the configuration says of one script.
struct ScriptSettings<'a> {
    /// The script's name there, or the name it would have.
    name: String,
    /// The key whose `allow` would grant more.
    owner: String,
    timeout: Option<TimeoutSeconds>,
    allow: &'a [String],
    expose: ToolExposure,
    config: Option<&'a ScriptConfig>,
}

impl<'a> ScriptSettings<'a> {
    fn from_config(found: &DiscoveredScript, config: &'a ProjectConfig) -> Self {
        let stem = found.path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let name = found.configured.clone().unwrap_or_else(|| stem.to_owned());
        let configured = found.configured.as_ref();
        let (kind, own) = match &found.kind {
            ScriptKind::Tool => {
                let own = configured.and_then(|name| config.tools.script.get(name));
                ("tools", own.map(|it| (it.timeout, &it.allow, it.expose, &it.config)))
            }
            ScriptKind::Extension(_) => {
                let own = configured.and_then(|name| config.extensions.script.get(name));
                ("extensions", own.map(|it| (it.timeout, &it.allow, it.expose, &it.config)))
            }
            ScriptKind::Connector => {
                let own = configured.and_then(|name| config.connectors.script.get(name));
                let own = own
                    .map(|it| (Some(it.timeout), &it.allow, ToolExposure::default(), &it.config));
                ("connectors", own)
            }
            ScriptKind::Saved => {
                let expose = config.scripts.expose;
                return Self {
                    owner: "execute".to_owned(),
                    name,
                    timeout: None,
                    allow: &[],
                    expose,
                    config: None,
                };
            }
            ScriptKind::Agent => {
                let own = configured.and_then(|name| config.agents.script.get(name));
                let own =
                    own.map(|it| (it.timeout, &it.allow, ToolExposure::default(), &it.config));
                ("agents", own)
            }
        };
        let usual = matches!(found.kind, ScriptKind::Connector).then(default_scan_timeout);
        Self {
            owner: format!("{kind}.script.{name}"),
            name,
            timeout: own.and_then(|(timeout, ..)| timeout).or(usual),
            allow: own.map(|(_, allow, ..)| allow.as_slice()).unwrap_or_default(),
            expose: own.map(|(.., expose, _)| expose).unwrap_or_default(),
            config: own.map(|(.., config)| config),
        }
    }

    fn parse_grants(&self) -> Result<Vec<Grant>> {
        let read = |grant: &String| {
            grant.parse().map_err(|problem: Problem| {
                problem.at_location(SourceLocation::in_file(format!("{}.allow", self.owner)))
            })
        };
        // A variable that is not there grants nothing.
        let is_whole = |grant: &&String| !grant.contains("${");
        self.allow.iter().filter(is_whole).map(read).collect()
    }

    fn outage(&self) -> &'a [Problem] {
        self.config.map(|config| config.outage.as_slice()).unwrap_or_default()
    }

    fn secret_values(&self) -> Vec<SecretValue> {
        let secrets = self.config.map(|config| config.secrets.as_slice()).unwrap_or_default();
        secrets.iter().map(ConfigSecret::to_secret_value).collect()
    }
}

/// What a script may do and use when it is called, and while it loads.
pub fn script_scopes(
    found: &DiscoveredScript,
    config: &ProjectConfig,
) -> Result<(CallScope, CallScope)> {
    let settings = ScriptSettings::from_config(found, config);
    let dir = found.path.parent().map(Path::to_owned).unwrap_or_default();
    let limits = config.limits.for_tool(&settings.name, settings.timeout);
    let values = settings.config.map(|config| config.values.clone()).unwrap_or_default();
    let secrets = Secrets::new(settings.secret_values());
    let grants = GrantSet::for_authored_script(
        settings.owner.clone(),
        dir.clone(),
        settings.parse_grants()?,
    )
    .with_network_policy(&config.network.to_network_rules());
    let shares = |grants: GrantSet| match &found.kind {
        ScriptKind::Extension(folder) => grants.with_shared_dir(folder.path.clone()),
        _ => grants,
    };
    let grants = shares(grants);
    let scope = CallScope {
        grants: match found.kind {
            // A connector or an agent does not say which commands it runs: what its operator
            // allows is enough.
            ScriptKind::Connector | ScriptKind::Agent => grants.for_test(&[]),
            _ => grants,
        },
        limits: limits.clone(),
        config: Value::from_json(serde_json::Value::Object(values))?,
        secrets: secrets.clone(),
    };
    // The time for calls says nothing about loading, which may have to start a process
    // first; nor does the long time of a scan.
    let timeout = config.limits.load.to_duration();
    let loading = CallScope {
        grants: shares(GrantSet::for_loading_script(settings.owner, dir)),
        limits: CallLimits { timeout, ..limits },
        config: Value::Null,
        secrets,
    };
    Ok((scope, loading))
}

/// What the tests of a script may do: as much as the script, and `more`.
pub fn script_test_scope(
    found: &DiscoveredScript,
    config: &ProjectConfig,
    more: &[Grant],
) -> Result<CallScope> {
    let (mut scope, _) = script_scopes(found, config)?;
    scope.grants = scope.grants.for_test(more);
    Ok(scope)
}

/// The folder that `require` and `load()` of a script stay inside: that of its kind, or,
/// for a Lua script that is not in there, its own.
pub fn script_folder(found: &DiscoveredScript, loaded: &LoadedConfig) -> ScriptFolder {
    if let ScriptKind::Extension(folder) = &found.kind {
        return folder.clone();
    }
    let home = loaded.root.join(match found.kind {
        ScriptKind::Connector => &loaded.config.connectors.dir,
        ScriptKind::Agent => &loaded.config.agents.dir,
        ScriptKind::Saved => &loaded.config.scripts.dir,
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
    ScriptFolder { path, label, main }
}

/// The files of a script. A Lua script itself may be a link to elsewhere, for its user
/// put it there; what it requires may not.
pub fn script_files(found: &DiscoveredScript, folder: &ScriptFolder) -> ScriptFileReader {
    let others = extensions::folder_files(folder);
    if matches!(found.kind, ScriptKind::Extension(_)) {
        return others;
    }
    let (main, path, file) = (folder.main.clone(), found.path.clone(), found.file.clone());
    Arc::new(move |name| if name == main { read_script(&path, &file) } else { others(name) })
}

/// A Lua script, ready to be loaded.
pub fn prepare_script(found: &DiscoveredScript, loaded: &LoadedConfig) -> Result<ScriptFile> {
    let (scope, loading) = script_scopes(found, &loaded.config)?;
    let folder = script_folder(found, loaded);
    Ok(ScriptFile {
        files: script_files(found, &folder),
        file: found.file.clone(),
        folder: folder.label,
        main: folder.main,
        configured: found.configured.clone(),
        scope,
        loading: Arc::new(loading),
    })
}

/// What, besides its text, makes a loaded script out of date when it changes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ScriptLoadSettings {
    configured: Option<String>,
    limits: CallLimits,
    load: TimeoutSeconds,
    network: NetworkConfig,
    allow: Vec<String>,
    expose: ToolExposure,
    values: serde_json::Map<String, serde_json::Value>,
    outage: Vec<Problem>,
}

impl ScriptLoadSettings {
    pub(crate) fn exposure(&self) -> ToolExposure {
        self.expose
    }

    pub(crate) fn from_config(found: &DiscoveredScript, config: &ProjectConfig) -> Self {
        let settings = ScriptSettings::from_config(found, config);
        Self {
            configured: found.configured.clone(),
            limits: config.limits.for_tool(&settings.name, settings.timeout),
            load: config.limits.load,
            network: config.network.clone(),
            allow: settings.allow.to_vec(),
            expose: settings.expose,
            values: settings.config.map(|config| config.values.clone()).unwrap_or_default(),
            outage: settings.outage().to_vec(),
        }
    }
}

/// Why a script cannot be used: variables and files that its settings need and that
/// are not there.
pub fn script_outage<'a>(found: &DiscoveredScript, config: &'a ProjectConfig) -> &'a [Problem] {
    ScriptSettings::from_config(found, config).outage()
}

/// How agents reach the tools of a script.
pub fn script_exposure(found: &DiscoveredScript, config: &ProjectConfig) -> ToolExposure {
    ScriptSettings::from_config(found, config).expose
}

/// What a script gave and should not have: `rule` says what it must be.
pub(crate) fn wrong_kind_problem(rule: &str, given: &Value) -> Problem {
    Problem::tool_error(format!("{rule}, got {}", given.kind()))
}

/// A path as a reader of messages knows it.
pub(crate) fn display_path(root: &Path, path: &Path) -> String {
    let shown = path.strip_prefix(root).unwrap_or(path);
    shown.to_string_lossy().trim_start_matches("./").to_owned()
}

/// All scripts, with what was wrong at the last attempt to load each.
pub(crate) type ScriptEntries = BTreeMap<ScriptKey, Arc<ScriptEntry>>;

/// A script that was loaded, or could not be.
#[derive(Clone)]
pub(crate) struct ScriptEntry {
    pub(crate) found: DiscoveredScript,
    pub(crate) settings: ScriptLoadSettings,
    /// The folder its files are in.
    pub(crate) folder: PathBuf,
    /// The files it consists of, by their paths in there.
    pub(crate) texts: BTreeMap<String, String>,
    /// What the last version that loaded has.
    pub(crate) product: Option<ScriptProduct>,
    /// Why the newest version is not in use, or not of use.
    pub(crate) problem: Option<Problem>,
}

/// What a script has for the project.
#[derive(Clone)]
pub(crate) enum ScriptProduct {
    Tools(Vec<Arc<Tool>>),
    /// Nothing by itself: it is there for others to load.
    Library,
    Connector(ConnectorScript, Arc<CallScope>),
    Prompt(Arc<PromptProduct>),
    Saved(Arc<SavedScriptProduct>),
    /// A script that others run by its file.
    Plain,
}

impl ScriptProduct {
    /// Whether it consists of tools, or helps others to.
    pub(crate) fn is_callable(&self) -> bool {
        matches!(self, ScriptProduct::Tools(_) | ScriptProduct::Library)
    }
}

/// A prompt, and the tools that it says it is about.
pub(crate) struct PromptProduct {
    pub(crate) offers: Arc<SourceResources>,
    pub(crate) tools: Vec<String>,
}

impl ScriptEntry {
    /// One that is still to be loaded.
    pub(crate) fn new(
        found: DiscoveredScript,
        settings: ScriptLoadSettings,
        loaded: &LoadedConfig,
    ) -> ScriptEntry {
        let folder = script_folder(&found, loaded).path;
        let texts = BTreeMap::new();
        ScriptEntry { found, settings, folder, texts, product: None, problem: None }
    }

    /// The files it consists of, or would.
    pub(crate) fn source_files(&self) -> impl Iterator<Item = PathBuf> {
        self.texts.keys().map(|name| self.folder.join(name)).chain([self.found.path.clone()])
    }

    /// Whether this is one of them.
    pub(crate) fn has_source_file(&self, path: &Path) -> bool {
        let below = path.strip_prefix(&self.folder).ok().and_then(Path::to_str);
        self.found.path == path || below.is_some_and(|name| self.texts.contains_key(name))
    }

    pub(crate) fn tools(&self) -> &[Arc<Tool>] {
        match &self.product {
            Some(ScriptProduct::Tools(tools)) => tools,
            _ => &[],
        }
    }

    pub(crate) fn prompt(&self) -> Option<&PromptProduct> {
        match &self.product {
            Some(ScriptProduct::Prompt(prompt)) => Some(prompt),
            _ => None,
        }
    }

    pub(crate) fn saved_script(&self) -> Option<&Arc<SavedScriptProduct>> {
        match &self.product {
            Some(ScriptProduct::Saved(script)) => Some(script),
            _ => None,
        }
    }

    pub(crate) fn is_library(&self) -> bool {
        matches!(self.product, Some(ScriptProduct::Library))
    }

    /// Put the last version that loaded in the place of one that did not, unless no
    /// version can be used for want of a value. Whether it was.
    pub(crate) fn keep_last_good(&mut self, old: Option<&ScriptEntry>) -> bool {
        let is_broken = self.product.is_none() && self.settings.outage.is_empty();
        let old = old.filter(|_| is_broken).and_then(|old| old.product.clone());
        let is_kept = old.is_some();
        self.product = self.product.take().or(old);
        is_kept
    }

    /// Whether neither its settings nor any of its files has changed since it was loaded.
    pub(crate) fn is_unchanged(
        &self,
        found: &DiscoveredScript,
        settings: &ScriptLoadSettings,
        loaded: &LoadedConfig,
    ) -> bool {
        if self.settings != *settings || self.found.path != found.path || self.texts.is_empty() {
            return false;
        }
        let files = script_files(found, &script_folder(found, loaded));
        self.texts.iter().all(|(file, was)| files(file).unwrap_or_default() == *was)
    }
}
