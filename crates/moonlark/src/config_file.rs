//! From a file to a [`Config`]: found, parsed, checked, expanded.
//!
//! A file is walked against the schema of the structs (`check`), so every
//! mistake in it is reported at once, with its line. Which keys there are and
//! what they mean is not known here but in [`crate::config`].

mod check;
mod expand;
mod finding;
mod key_path;
mod secret;
mod show;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use moonlark_core::policy::Rate;
use moonlark_core::problem::{Place, Problem};
use moonlark_core::value::{ReadError, Value};
use toml::de::DeTable;

use crate::config::{Config, Hidden, schema};
use check::Checked;
use finding::Finding;
use key_path::KeyPath;

pub use show::show;

/// The file's name wherever it is looked for.
pub const FILE_NAME: &str = "moonlark.toml";

/// No configuration that a person wrote is larger.
const MAX_BYTES: u64 = 1024 * 1024;

/// How a variable of the environment is looked up.
pub type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A configuration and where it came from.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    pub config: Config,
    /// The file; none when everything is default.
    pub path: Option<PathBuf>,
    /// The project: what paths in the configuration are relative to.
    pub root: PathBuf,
}

/// Load `explicit`, else the first file of the search order, else the defaults.
/// The error is every problem of that file, in line order.
pub fn load(explicit: Option<&Path>, cwd: &Path, env: Env<'_>) -> Result<Loaded, Vec<Problem>> {
    let Some(found) = find(explicit, cwd, env) else {
        return Ok(Loaded { config: Config::default(), path: None, root: cwd.to_owned() });
    };
    let bytes = read(&found).map_err(|problem| vec![problem])?;
    let text = decode(&bytes, &found.label)?;
    let config =
        parse(text, env).map_err(|findings| finding::place(findings, &found.label, text))?;
    let root = found.path.parent().unwrap_or(cwd).to_owned();
    Ok(Loaded { config, path: Some(found.path), root })
}

/// The file that [`load`] would read, whatever is in it.
pub fn in_effect(explicit: Option<&Path>, cwd: &Path, env: Env<'_>) -> Option<PathBuf> {
    find(explicit, cwd, env).map(|found| found.path)
}

struct Found {
    path: PathBuf,
    /// The path as the reader knows it.
    label: String,
}

fn find(explicit: Option<&Path>, cwd: &Path, env: Env<'_>) -> Option<Found> {
    if let Some(path) = explicit {
        return Some(Found { path: cwd.join(path), label: path.display().to_string() });
    }
    let local = cwd.join(FILE_NAME);
    if is_there(&local) {
        return Some(Found { path: local, label: FILE_NAME.to_owned() });
    }
    let path = config_home(env)?.join("moonlark").join(FILE_NAME);
    is_there(&path).then(|| Found { label: path.display().to_string(), path })
}

/// A file that is there but cannot be read, or a dangling link, counts as there:
/// its owner meant it, and silently running on defaults would hide the mistake.
fn is_there(path: &Path) -> bool {
    match path.symlink_metadata() {
        Ok(_) => true,
        Err(error) => {
            !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
        }
    }
}

/// Relative values are ignored, as the XDG specification asks.
fn config_home(env: Env<'_>) -> Option<PathBuf> {
    let absolute = |name| env(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")))
}

fn read(found: &Found) -> Result<Vec<u8>, Problem> {
    let problem =
        |message: String| Problem::bad_config(message).at(Place::file(found.label.as_str()));
    let unreadable = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => problem("there is no such file".to_owned())
            .hint("check the path, and where it leads if it is a link"),
        io::ErrorKind::IsADirectory => problem("this is a directory, not a file".to_owned())
            .hint(format!("name the file in it, such as {FILE_NAME}")),
        _ => problem(format!("the file cannot be read: {error}"))
            .hint("check that it is a file which this user may read"),
    };

    let mut bytes = Vec::new();
    let file = File::open(&found.path).map_err(unreadable)?;
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(problem("the file is larger than 1 MB".to_owned())
            .hint("keep data in files of its own that a script reads"));
    }
    Ok(bytes)
}

fn decode<'a>(bytes: &'a [u8], label: &str) -> Result<&'a str, Vec<Problem>> {
    match str::from_utf8(bytes) {
        // Editors on Windows write a mark first; it is no part of line 1.
        Ok(text) => Ok(text.strip_prefix('\u{feff}').unwrap_or(text)),
        Err(error) => {
            let valid = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
            let problem =
                Problem::bad_config("the file is not UTF-8 text").hint("save it as UTF-8");
            Err(finding::place(vec![Finding::at(valid.len(), problem)], label, &valid))
        }
    }
}

fn parse(text: &str, env: Env<'_>) -> Result<Config, Vec<Finding>> {
    let document = DeTable::parse(text).map_err(|error| vec![syntax(&error, text)])?;
    let checked = check::check(&schema(), document.get_ref(), env)?;
    build(checked)
}

/// The error's own form quotes the line, which may hold a secret: only its
/// message, which quotes nothing, is taken.
fn syntax(error: &toml::de::Error, text: &str) -> Finding {
    let key = error.span().and_then(|span| text.get(span)).unwrap_or_default();
    let problem = match error.message() {
        "duplicate key" => Problem::bad_config(format!("duplicate key {key}"))
            .hint("a key may be set once; remove one of the two"),
        message => Problem::bad_config(format!("not valid TOML: {message}"))
            .hint("check the quotes, brackets and equals signs here and just before"),
    };
    Finding { offset: error.span().map(|span| span.start), problem }
}

/// Of what says where a server is and how it is started, not every variable is a secret:
/// without the path of a program, no message would make sense.
fn says_where(key: &str) -> bool {
    ["args", "url", "base_url", "spec"].iter().any(|place| key.starts_with(place))
}

/// What has passed the check deserialises; a difference between the two would
/// be a defect, and is reported with the key.
fn build(checked: Checked) -> Result<Config, Vec<Finding>> {
    let defect = |message: String| {
        let problem = Problem::bad_config(message)
            .hint("the reference of the configuration says what this key takes");
        vec![Finding { offset: None, problem }]
    };
    let value = Value::from_json(checked.value).map_err(|problem| defect(problem.message))?;
    let mut config: Config =
        value.read().map_err(|ReadError { path, message }| defect(format!("{path}: {message}")))?;
    let tools = config.tools.script.iter_mut().map(|(name, it)| ("tools", name, &mut it.config));
    let extensions =
        config.extensions.script.iter_mut().map(|(name, it)| ("extensions", name, &mut it.config));
    let connectors =
        config.connectors.script.iter_mut().map(|(name, it)| ("connectors", name, &mut it.config));
    for (table, name, own) in tools.chain(extensions).chain(connectors) {
        let table = KeyPath::of([table, "script", name]);
        own.secrets = secret::secrets(&table, &own.values, &checked.expanded);
    }
    for (name, server) in &mut config.mcp_servers {
        let table = KeyPath::of(["mcp_servers", name]);
        let values = |of: &BTreeMap<String, Hidden>| -> serde_json::Value {
            of.iter()
                .map(|(key, value)| (key.clone(), value.0.clone().into()))
                .collect::<serde_json::Map<_, _>>()
                .into()
        };
        let own = serde_json::Map::from_iter([
            ("env".to_owned(), values(&server.env)),
            ("headers".to_owned(), values(&server.headers)),
            ("url".to_owned(), server.url.clone().into()),
            ("args".to_owned(), server.args.clone().into()),
        ]);
        server.secrets = secret::secrets(&table, &own, &checked.expanded);
        server.secrets.retain(|it| it.by_name || !says_where(&it.key));
    }
    let frozen = config.frozen_params.clone().into_iter().collect();
    let frozen = serde_json::Map::from_iter([("frozen_params".to_owned(), frozen)]);
    config.secrets = secret::secrets(&KeyPath::of([]), &frozen, &checked.expanded);
    for (name, api) in &mut config.apis {
        let table = KeyPath::of(["apis", name]);
        let own = api.secret_values();
        api.secrets = secret::secrets(&table, &own, &checked.expanded);
        api.secrets.retain(|it| it.by_name || !says_where(&it.key));
        api.secrets.extend_from_slice(&config.secrets);
    }
    let servers =
        config.mcp_servers.iter().map(|(name, it)| ("mcp_servers", name, it.faults(name)));
    let apis = config.apis.iter().map(|(name, it)| ("apis", name, it.faults(name)));
    let of_tables = servers.chain(apis).flat_map(|(table, name, faults)| {
        let table = KeyPath::of([table, name]);
        faults.into_iter().map(move |(key, message)| {
            let key = if key.is_empty() { table.clone() } else { table.with(key) };
            (key, message)
        })
    });
    let mut faults: Vec<(KeyPath, String)> = of_tables.collect();
    let single = [
        ("server", config.server.auth.faults()),
        ("store", config.store.faults()),
        ("knowledge", config.knowledge.faults()),
        ("network", config.network.faults()),
        ("telemetry", config.telemetry.faults()),
        ("log", config.log.faults()),
    ];
    for (table, found) in single {
        let below =
            |key: &str| key.split('.').fold(KeyPath::of([table]), |path, key| path.with(key));
        faults.extend(found.into_iter().map(|(key, message)| (below(key), message)));
    }
    for (path, message) in config.connectors.faults() {
        let table = KeyPath::of(["connectors"]);
        faults.push((path.iter().fold(table, |path, key| path.with(key)), message));
    }
    for (index, rule) in config.policy.rules.iter().enumerate() {
        let mut table = KeyPath::of(["policy", "rules"]);
        table.index(index);
        faults.extend(rule.faults().into_iter().map(|(key, fault)| (table.with(key), fault)));
    }
    let tools = config.tools.script.iter().map(|(name, it)| ("tools", name, &it.rate));
    let extensions =
        config.extensions.script.iter().map(|(name, it)| ("extensions", name, &it.rate));
    for (table, name, rate) in tools.chain(extensions) {
        let fault = rate.as_ref().and_then(|rate| rate.parse::<Rate>().err());
        faults.extend(fault.map(|fault| (KeyPath::of([table, "script", name, "rate"]), fault)));
    }
    let finding = |(key, message)| {
        let problem = Problem::bad_config(format!("{key}: {message}"))
            .hint("the reference of the configuration says which keys go together");
        Finding { offset: None, problem }
    };
    let faults: Vec<Finding> = faults.into_iter().map(finding).collect();
    if faults.is_empty() { Ok(config) } else { Err(faults) }
}
