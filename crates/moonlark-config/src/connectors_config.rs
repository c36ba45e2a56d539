//! `[connectors]`: where the knowledge base gets its documents.

use std::collections::{BTreeMap, BTreeSet};

use globset::Glob;
use moonlark_core::Problem;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{ByteSize, ScriptConfig, TimeoutSeconds};

/// What the knowledge base is made from. `moonlark sync` brings it up to date.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ConnectorsConfig {
    /// The folder whose `*.lua` and `*.luau` files are connectors.
    #[schemars(length(min = 1))]
    pub dir: String,
    /// Folders of files, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub filesystem: BTreeMap<String, FilesystemSourceConfig>,
    /// Git repositories, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub git: BTreeMap<String, GitSourceConfig>,
    /// Connector scripts with a configuration of their own, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub script: BTreeMap<String, ScriptConnectorConfig>,
}

/// The folder `NAME`: every file in it that is text, Markdown, HTML, source
/// code, PDF or DOCX is a document. What `.gitignore`, `.ignore` and
/// `.moonlarkignore` name is left out, and links are not followed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FilesystemSourceConfig {
    /// The folder.
    #[schemars(length(min = 1), example = &"docs")]
    pub root: String,
    /// Only files that match one of these globs, seen from `root`; when empty,
    /// all.
    #[serde(default)]
    #[schemars(example = ["**/*.md"])]
    pub include: Vec<String>,
    /// Not files that match one of these.
    #[serde(default)]
    #[schemars(example = ["drafts/**"])]
    pub exclude: Vec<String>,
    /// Also files and folders whose names begin with a dot.
    #[serde(default)]
    pub hidden: bool,
    /// Larger files are skipped, and reported.
    #[serde(default = "default_max_file_size")]
    pub max_file: ByteSize,
    /// Where the same files are on the web, for the links of what is found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1), example = &"https://docs.example.com")]
    pub url: Option<String>,
    /// While serving, follow changes as they are made, and first those that were
    /// made meanwhile.
    #[serde(default = "default_true")]
    pub watch: bool,
    /// Variables and files that it needs and that are not there.
    #[serde(skip)]
    pub outage: Vec<Problem>,
}

/// The repository `NAME`: the files of one commit, as for `filesystem`. It is
/// read by the `git` of this machine, which also knows how to log in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GitSourceConfig {
    /// Where it is fetched from: anything that `git clone` takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1), example = &"https://github.com/acme/handbook.git")]
    pub url: Option<String>,
    /// A repository on this machine, in place of `url`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1), example = &"../handbook")]
    pub path: Option<String>,
    /// The branch or tag; when not set, the repository's own default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1), example = &"main")]
    pub branch: Option<String>,
    /// Only files that match one of these globs; when empty, all.
    #[serde(default)]
    #[schemars(example = ["**/*.md"])]
    pub include: Vec<String>,
    /// Not files that match one of these.
    #[serde(default)]
    #[schemars(example = ["vendor/**"])]
    pub exclude: Vec<String>,
    /// Larger files are skipped, and reported.
    #[serde(default = "default_max_file_size")]
    pub max_file: ByteSize,
    /// Variables and files that it needs and that are not there.
    #[serde(skip)]
    pub outage: Vec<Problem>,
}

/// The connector script `NAME`. Every key that is not listed here is the
/// script's own and reaches it as the argument of `connector.scan`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScriptConnectorConfig {
    /// The script file.
    #[schemars(length(min = 1), example = &"connectors/issues.luau")]
    pub path: String,
    /// Timeout of a scan, in seconds.
    #[serde(default = "default_scan_timeout")]
    pub timeout: TimeoutSeconds,
    /// What the script may reach, as grants such as `net:api.github.com`,
    /// `env:NAME` and `tool:jira.*`.
    #[serde(default)]
    #[schemars(example = ["net:api.github.com"])]
    pub allow: Vec<String>,
    /// All other keys. They are never serialised, since some are secrets.
    #[serde(flatten, skip_serializing)]
    #[schemars(with = "Map<String, Value>")]
    pub config: ScriptConfig,
}

impl Default for ConnectorsConfig {
    fn default() -> Self {
        Self {
            dir: "connectors".to_owned(),
            filesystem: BTreeMap::new(),
            git: BTreeMap::new(),
            script: BTreeMap::new(),
        }
    }
}

fn default_max_file_size() -> ByteSize {
    ByteSize::from_mib(20)
}

/// Scans wait for the web, page by page.
pub fn default_scan_timeout() -> TimeoutSeconds {
    TimeoutSeconds::new(300)
}

fn default_true() -> bool {
    true
}

/// What no schema says. The way to the key, and what is wrong.
impl ConnectorsConfig {
    pub fn find_faults(&self) -> Vec<(Vec<&str>, String)> {
        let mut faults = Vec::new();
        let mut taken = BTreeSet::new();
        let names = (self.filesystem.keys().map(|name| ("filesystem", name)))
            .chain(self.git.keys().map(|name| ("git", name)))
            .chain(self.script.keys().map(|name| ("script", name)));
        for (kind, name) in names {
            let plain = |it: char| it.is_ascii_alphanumeric() || matches!(it, '_' | '-');
            if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
                let message = "the name may have letters, digits, - and _, and at most 64 of them";
                faults.push((vec![kind, name], message.to_owned()));
            }
            if !taken.insert(name) {
                let message =
                    "another connector has the same name, which is how searches tell them apart";
                faults.push((vec![kind, name], message.to_owned()));
            }
        }
        for (name, git) in &self.git {
            match (&git.url, &git.path) {
                (Some(_), Some(_)) => faults
                    .push((vec!["git", name, "url"], "url and path exclude each other".into())),
                (None, None) => {
                    faults.push((vec!["git", name], "needs either url or path".into()));
                }
                _ => {}
            }
        }
        let globs = (self.filesystem.iter())
            .map(|(name, it)| ("filesystem", name, &it.include, &it.exclude))
            .chain(self.git.iter().map(|(name, it)| ("git", name, &it.include, &it.exclude)));
        for (kind, name, include, exclude) in globs {
            for (key, globs) in [("include", include), ("exclude", exclude)] {
                let wrong = globs.iter().filter_map(|glob| Glob::new(glob).err());
                faults.extend(wrong.map(|error| (vec![kind, name, key], error.to_string())));
            }
        }
        faults
    }
}
