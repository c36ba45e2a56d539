//! From a file to a `ProjectConfig`: found, parsed, checked, expanded.
//!
//! A file is walked against the schema of the structs (`document_check.rs`), and what that finds
//! right is held to what no schema says (`config_builder.rs`), so every mistake in it is reported
//! at once, with its line. Which keys there are and what they mean is not known here
//! but in [`crate`].

mod config_builder;
mod config_finding;
mod config_search;
mod config_secrets;
mod document_check;
mod fault_hints;
mod key_path;
mod redacted_config;
#[cfg(test)]
mod tests;
mod value_sources;
mod variable_expansion;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use moonlark_core::problem::{Problem, SourceLocation};
use moonlark_state::EnvLookup;
use moonlark_state::secrets_file::{SecretsFile, secrets_file_path};
use moonlark_state::state_folder::{check_state_folder, state_folder_path};
use toml::de::DeTable;

use crate::{ProjectConfig, config_json_schema};
use config_builder::BuiltConfig;
use config_finding::ConfigFinding;
use config_search::{FoundConfigFile, find_config_file};
use document_check::AbsentConfigValue;
use value_sources::ValueSources;

pub use redacted_config::render_redacted_config;

/// The file's name wherever it is looked for.
pub const CONFIG_FILE_NAME: &str = "moonlark.toml";

/// No configuration that a person wrote is larger.
const MAX_CONFIG_FILE_BYTES: u64 = 1024 * 1024;

/// Whether what a configuration needs has to be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ValueRequirement {
    /// A source whose variable or file is not there is out of order. Without one that
    /// all of Moonlark needs, there is no configuration.
    #[default]
    ToRun,
    /// Only the text is looked at, as for a check or tests.
    Never,
}

/// A configuration and where it came from.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadedConfig {
    pub config: ProjectConfig,
    /// The file; none when everything is default.
    pub path: Option<PathBuf>,
    /// The project: what paths in the configuration are relative to.
    pub root: PathBuf,
    /// What is allowed and hardly meant.
    pub warnings: Vec<Problem>,
    /// Variables and files that are not there, where none is needed.
    pub unset: Vec<Problem>,
    /// Strings that stand as they are written, since they have no value.
    pub absent_texts: BTreeSet<String>,
    /// Files beside the configuration whose content is part of it.
    pub value_files: Vec<PathBuf>,
    /// Values for variables that are not in the environment.
    pub secrets: SecretsFile,
    /// Where Moonlark keeps what it must remember.
    pub state: PathBuf,
}

impl LoadedConfig {
    fn new(config: ProjectConfig, path: Option<PathBuf>, root: &Path) -> LoadedConfig {
        LoadedConfig {
            config,
            path,
            root: root.to_owned(),
            warnings: Vec::new(),
            unset: Vec::new(),
            absent_texts: BTreeSet::new(),
            value_files: vec![secrets_file_path(root)],
            secrets: SecretsFile::default(),
            state: state_folder_path(root),
        }
    }

    /// Whether somebody made this folder a project: by a file, by a folder of scripts,
    /// or by a server that ran there.
    pub fn is_project(&self) -> bool {
        self.path.is_some() || has_project_folder(&self.root, &self.config)
    }
}

/// Whether there is a folder of scripts in `root`, or what a server left there.
pub fn has_project_folder(root: &Path, config: &ProjectConfig) -> bool {
    let folders =
        [&config.tools.dir, &config.extensions.dir, &config.connectors.dir, &config.agents.dir];
    folders.into_iter().any(|folder| root.join(folder).is_dir()) || state_folder_path(root).is_dir()
}

/// Why there is no configuration: everything that was found in the file, in line order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RejectedConfig {
    pub errors: Vec<Problem>,
    /// What is allowed and hardly meant, as in [`LoadedConfig`].
    pub warnings: Vec<Problem>,
    /// Variables and files that are not there, where none is needed.
    pub unset: Vec<Problem>,
}

impl From<Problem> for RejectedConfig {
    fn from(problem: Problem) -> Self {
        vec![problem].into()
    }
}

impl From<Vec<Problem>> for RejectedConfig {
    fn from(errors: Vec<Problem>) -> Self {
        RejectedConfig { errors, ..RejectedConfig::default() }
    }
}

/// Load `explicit`, else the first file of the search order, else the defaults.
pub fn load_config(
    explicit: Option<&Path>,
    cwd: &Path,
    env: EnvLookup<'_>,
) -> Result<LoadedConfig, RejectedConfig> {
    load_config_with(ValueRequirement::ToRun, explicit, cwd, env)
}

/// The same, for whoever may do without the values of variables.
pub fn load_config_with(
    needed: ValueRequirement,
    explicit: Option<&Path>,
    cwd: &Path,
    env: EnvLookup<'_>,
) -> Result<LoadedConfig, RejectedConfig> {
    let Some(found) = find_config_file(explicit, cwd, env) else {
        check_state_folder(cwd)?;
        let (secrets, warnings) = SecretsFile::read(cwd);
        return Ok(LoadedConfig {
            secrets,
            warnings,
            ..LoadedConfig::new(ProjectConfig::default(), None, cwd)
        });
    };
    let bytes = read_config_file(&found)?;
    let text = decode_utf8(&bytes, &found.label)?;
    let root = found.path.parent().unwrap_or(cwd).to_owned();
    check_state_folder(&root)?;
    let (secrets, mut warnings) = SecretsFile::read(&root);
    let values = ValueSources::new(env, secrets.clone(), &root);
    let parsed = match parse_config_text(text, &found.label, &values, needed) {
        Ok(parsed) => parsed,
        Err(rejected) => {
            warnings.extend(rejected.warnings);
            return Err(RejectedConfig { warnings, ..rejected });
        }
    };
    warnings.extend(parsed.warnings);
    let mut loaded = LoadedConfig::new(parsed.config, Some(found.path.clone()), &root);
    loaded.value_files.extend(values.requested_files());
    let ParsedConfig { unset, absent_texts, .. } = parsed;
    Ok(LoadedConfig { warnings, unset, absent_texts, secrets, ..loaded })
}

/// A Problem unless `text` would be a configuration in the folder `root`.
pub fn check_config_text(text: &str, root: &Path, env: EnvLookup<'_>) -> Result<(), Problem> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (secrets, _) = SecretsFile::read(root);
    let values = ValueSources::new(env, secrets, root);
    match parse_config_text(text, CONFIG_FILE_NAME, &values, ValueRequirement::Never) {
        Ok(_) => Ok(()),
        Err(rejected) => Err(rejected
            .errors
            .into_iter()
            .next()
            .unwrap_or_else(|| Problem::bad_config("it is no configuration"))),
    }
}

/// The file that [`load_config`] would read, whatever is in it.
pub fn find_config_path(
    explicit: Option<&Path>,
    cwd: &Path,
    env: EnvLookup<'_>,
) -> Option<PathBuf> {
    find_config_file(explicit, cwd, env).map(|found| found.path)
}

fn read_config_file(found: &FoundConfigFile) -> Result<Vec<u8>, Problem> {
    let problem = |message: String| {
        Problem::bad_config(message).at_location(SourceLocation::in_file(found.label.as_str()))
    };
    let unreadable = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => problem("there is no such file".to_owned())
            .with_hint("check the path, and where it leads if it is a link"),
        io::ErrorKind::IsADirectory => problem("this is a directory, not a file".to_owned())
            .with_hint(format!("name the file in it, such as {CONFIG_FILE_NAME}")),
        _ => problem(format!("the file cannot be read: {error}"))
            .with_hint("check that it is a file which this user may read"),
    };

    // Opening a pipe waits until somebody writes. One that was named is meant, such as
    // `--config <(…)`.
    let kind = found.path.metadata().map_err(unreadable)?;
    if found.label == CONFIG_FILE_NAME && !kind.is_file() && !kind.is_dir() {
        return Err(problem("this is not a regular file".to_owned())
            .with_hint("put a file in its place, or name it with --config"));
    }
    let mut bytes = Vec::new();
    let file = File::open(&found.path).map_err(unreadable)?;
    file.take(MAX_CONFIG_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_CONFIG_FILE_BYTES {
        return Err(problem("the file is larger than 1 MB".to_owned())
            .with_hint("keep data in files of its own that a script reads"));
    }
    Ok(bytes)
}

fn decode_utf8<'a>(bytes: &'a [u8], label: &str) -> Result<&'a str, Vec<Problem>> {
    match str::from_utf8(bytes) {
        // Editors on Windows write a mark first; it is no part of line 1.
        Ok(text) => Ok(text.strip_prefix('\u{feff}').unwrap_or(text)),
        Err(error) => {
            let valid = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
            let problem =
                Problem::bad_config("the file is not UTF-8 text").with_hint("save it as UTF-8");
            Err(config_finding::locate_findings(
                vec![ConfigFinding::at_offset(valid.len(), problem)],
                label,
                &valid,
            ))
        }
    }
}

/// A text that is a configuration.
struct ParsedConfig {
    config: ProjectConfig,
    warnings: Vec<Problem>,
    unset: Vec<Problem>,
    absent_texts: BTreeSet<String>,
}

fn parse_config_text(
    text: &str,
    label: &str,
    values: &ValueSources<'_>,
    needed: ValueRequirement,
) -> Result<ParsedConfig, RejectedConfig> {
    let place = |findings| config_finding::locate_findings(findings, label, text);
    let document =
        DeTable::parse(text).map_err(|error| place(vec![syntax_error_finding(&error, text)]))?;
    let schema = config_json_schema();
    let mut checked = document_check::check_document(schema, document.get_ref(), text, values);
    let mut errors = std::mem::take(&mut checked.findings);
    let warnings = place(std::mem::take(&mut checked.warnings));
    let BuiltConfig { mut config, faults, absent } =
        match config_builder::build_config(schema, &checked, values) {
            Ok(built) => built,
            Err(problem) => {
                // What is wrong with the text is why, if anything is.
                if errors.is_empty() {
                    errors.push(ConfigFinding { offset: None, problem });
                }
                return Err(RejectedConfig { errors: place(errors), warnings, unset: Vec::new() });
            }
        };
    errors.extend(faults);
    let mut absent: Vec<AbsentConfigValue> = checked.absent.into_iter().chain(absent).collect();
    absent.sort_by_key(|it| it.finding.offset);
    let mut sources = Vec::new();
    let mut of_sources = Vec::new();
    let absent_texts = absent.iter().map(|it| it.text.clone()).collect();
    for AbsentConfigValue { key, finding, .. } in absent {
        match (needed, key.source_table()) {
            (ValueRequirement::ToRun, None) => errors.push(finding),
            (_, source) => {
                sources.push(source);
                of_sources.push(finding);
            }
        }
    }
    if !errors.is_empty() {
        let unset = if needed == ValueRequirement::Never { of_sources } else { Vec::new() };
        return Err(RejectedConfig { errors: place(errors), warnings, unset: place(unset) });
    }
    let outages = place(of_sources);
    if needed == ValueRequirement::Never {
        return Ok(ParsedConfig { config, warnings, unset: outages, absent_texts });
    }
    for (source, problem) in sources.iter().zip(outages) {
        if let Some(source) = source {
            config_builder::record_outage(&mut config, source, problem);
        }
    }
    Ok(ParsedConfig { config, warnings, unset: Vec::new(), absent_texts })
}

/// The error's own form quotes the line, which may hold a secret: only its
/// message, which quotes nothing, is taken.
fn syntax_error_finding(error: &toml::de::Error, text: &str) -> ConfigFinding {
    let key = error.span().and_then(|span| text.get(span)).unwrap_or_default();
    let problem = match error.message() {
        "duplicate key" => Problem::bad_config(format!("duplicate key {key}"))
            .with_hint("a key may be set once; remove one of the two"),
        message => Problem::bad_config(format!("not valid TOML: {message}"))
            .with_hint("check the quotes, brackets and equals signs here and just before"),
    };
    ConfigFinding { offset: error.span().map(|span| span.start), problem }
}
