//! From a checked document to a [`Config`]: read into the structs, its secrets noted,
//! and held to the rules that no schema says.
//!
//! A document with mistakes is built as far as it goes, so that all of them are
//! reported in one round.

use std::collections::BTreeMap;

use moonlark_core::grant::Grant;
use moonlark_core::policy::Rate;
use moonlark_core::problem::Problem;
use moonlark_core::value::{ReadError, Value};

use super::check::{AbsentValue, Checked};
use super::fault_hints::fault_hint;
use super::finding::Finding;
use super::key_path::KeyPath;
use super::secret;
use super::values::ValueSources;
use crate::config::{Config, Hidden, McpServer, Secret, fixed_arguments};
use crate::env_text::parse_env_text;

/// No file of variables that a person wrote is larger.
const MAX_ENV_FILE_BYTES: u64 = 1024 * 1024;

pub(super) struct Built {
    pub(super) config: Config,
    /// What is wrong with it.
    pub(super) faults: Vec<Finding>,
    /// What is not there for one source.
    pub(super) absent: Vec<AbsentValue>,
}

/// What has passed the check deserialises; a difference between the two would
/// be a defect, and is reported with the key.
pub(super) fn build(
    schema: &serde_json::Value,
    checked: &Checked,
    values: &ValueSources<'_>,
) -> Result<Built, Problem> {
    let defect = |message: String| {
        Problem::bad_config(message)
            .hint("the reference of the configuration says what this key takes")
    };
    let value = Value::from_json(checked.value.clone());
    let value = value.map_err(|problem| defect(problem.message))?;
    let mut config: Config =
        value.read().map_err(|ReadError { path, message }| defect(format!("{path}: {message}")))?;
    note_secrets(&mut config, checked);
    let absent = read_env_files(&mut config, checked, values);
    let finding = |(key, fault): (KeyPath, Fault)| {
        let message = match fault.follows_key {
            true => format!("{key} {}", fault.message),
            false => format!("{key}: {}", fault.message),
        };
        let hint = fault.hint.unwrap_or_else(|| fault_hint(schema, &key, &fault.message));
        Finding {
            offset: offset_of(checked, &key),
            problem: Problem::bad_config(message).hint(hint),
        }
    };
    let counts = |(key, fault): &(KeyPath, Fault)| !is_known(checked, key, fault);
    let faults = faults(&config).into_iter().filter(counts).map(finding).collect();
    Ok(Built { config, faults, absent })
}

/// Put a source out of order: it stays in the configuration, and says why it is not used.
pub(super) fn note_outage(config: &mut Config, source: &KeyPath, problem: Problem) {
    let names: Vec<&str> = source.names().collect();
    let outage = match names.as_slice() {
        ["tools", _, name] => config.tools.script.get_mut(*name).map(|it| &mut it.config.outage),
        ["extensions", _, name] => {
            config.extensions.script.get_mut(*name).map(|it| &mut it.config.outage)
        }
        ["agents", _, name] => config.agents.script.get_mut(*name).map(|it| &mut it.config.outage),
        ["connectors", "script", name] => {
            config.connectors.script.get_mut(*name).map(|it| &mut it.config.outage)
        }
        ["connectors", "filesystem", name] => {
            config.connectors.filesystem.get_mut(*name).map(|it| &mut it.outage)
        }
        ["connectors", "git", name] => {
            config.connectors.git.get_mut(*name).map(|it| &mut it.outage)
        }
        ["mcp_servers", name] => config.mcp_servers.get_mut(*name).map(|it| &mut it.outage),
        ["knowledge"] => Some(&mut config.knowledge.outage),
        ["apis", name] => config.apis.get_mut(*name).map(|it| &mut it.outage),
        _ => None,
    };
    if let Some(outage) = outage {
        outage.push(problem);
    }
}

/// Of what says where a server is and how it is started, not every variable is a secret:
/// without the path of a program, no message would make sense.
fn says_where(key: &str) -> bool {
    ["args", "url", "base_url", "spec"].iter().any(|place| key.starts_with(place))
}

fn note_secrets(config: &mut Config, checked: &Checked) {
    let tools = config.tools.script.iter_mut().map(|(name, it)| ("tools", name, &mut it.config));
    let extensions =
        config.extensions.script.iter_mut().map(|(name, it)| ("extensions", name, &mut it.config));
    let connectors =
        config.connectors.script.iter_mut().map(|(name, it)| ("connectors", name, &mut it.config));
    let agents = config.agents.script.iter_mut().map(|(name, it)| ("agents", name, &mut it.config));
    for (table, name, own) in tools.chain(extensions).chain(connectors).chain(agents) {
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
            ("tools".to_owned(), fixed_arguments(&server.tools)),
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
}

/// The variables of `env_file` join those of `env`, which come first.
fn read_env_files(
    config: &mut Config,
    checked: &Checked,
    values: &ValueSources<'_>,
) -> Vec<AbsentValue> {
    let mut absent = Vec::new();
    for (name, server) in &mut config.mcp_servers {
        let key = KeyPath::of(["mcp_servers", name, "env_file"]);
        let Some(path) = server.env_file.clone() else { continue };
        if checked.left_out.contains(&key) {
            continue;
        }
        if let Err(why) = read_env_file(server, &path, values) {
            let problem = Problem::bad_config(format!("{key} cannot be used: {why}"))
                .hint("the path is seen from the folder of the configuration file; variables are written NAME=value, one in each line");
            absent.push(AbsentValue {
                text: path,
                finding: Finding { offset: offset_of(checked, &key), problem },
                key,
            });
        }
    }
    absent
}

fn read_env_file(
    server: &mut McpServer,
    path: &str,
    values: &ValueSources<'_>,
) -> Result<(), String> {
    let parsed = parse_env_text(&values.read_text(path, MAX_ENV_FILE_BYTES)?);
    if let Some(line) = parsed.bad_lines.first() {
        return Err(format!("its line {line} is no variable"));
    }
    for (name, value) in parsed.variables {
        if !value.is_empty() {
            server.secrets.push(Secret::new(format!("env.{name}"), value.as_str(), true));
        }
        server.env.entry(name).or_insert(Hidden(value));
    }
    Ok(())
}

/// What is wrong with a key.
struct Fault {
    message: String,
    hint: Option<String>,
    /// The message reads on from the name of the key.
    follows_key: bool,
}

impl From<String> for Fault {
    fn from(message: String) -> Self {
        Fault { message, hint: None, follows_key: false }
    }
}

/// What no schema says.
fn faults(config: &Config) -> Vec<(KeyPath, Fault)> {
    let mut faults: Vec<(KeyPath, Fault)> = Vec::new();
    let servers =
        config.mcp_servers.iter().map(|(name, it)| ("mcp_servers", name, it.faults(name)));
    let apis = config.apis.iter().map(|(name, it)| ("apis", name, it.faults(name)));
    for (table, name, found) in servers.chain(apis) {
        let table = KeyPath::of([table, name]);
        faults.extend(found.into_iter().map(|(key, message)| {
            let key = if key.is_empty() { table.clone() } else { table.with(key) };
            (key, message.into())
        }));
    }
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
        faults.extend(found.into_iter().map(|(key, message)| (below(key), message.into())));
    }
    for (path, message) in config.connectors.faults() {
        let table = KeyPath::of(["connectors"]);
        faults.push((path.iter().fold(table, |path, key| path.with(key)), message.into()));
    }
    for (index, rule) in config.policy.rules.iter().enumerate() {
        let mut table = KeyPath::of(["policy", "rules"]);
        table.index(index);
        let found = rule.faults().into_iter();
        faults.extend(found.map(|(key, message)| (table.with(key), message.into())));
    }
    let tools = config.tools.script.iter().map(|(name, it)| ("tools", name, &it.rate));
    let extensions =
        config.extensions.script.iter().map(|(name, it)| ("extensions", name, &it.rate));
    for (table, name, rate) in tools.chain(extensions) {
        let fault = rate.as_ref().and_then(|rate| rate.parse::<Rate>().err());
        let key = KeyPath::of([table, "script", name, "rate"]);
        faults.extend(fault.map(|message| (key, message.into())));
    }
    faults.extend(bad_grants(config));
    faults
}

/// Of scripts, what is no grant in `allow`.
fn bad_grants(config: &Config) -> Vec<(KeyPath, Fault)> {
    let tools = config.tools.script.iter().map(|(name, it)| ("tools", name, &it.allow));
    let extensions =
        config.extensions.script.iter().map(|(name, it)| ("extensions", name, &it.allow));
    let connectors =
        config.connectors.script.iter().map(|(name, it)| ("connectors", name, &it.allow));
    let agents = config.agents.script.iter().map(|(name, it)| ("agents", name, &it.allow));
    let mut faults = Vec::new();
    for (table, name, allow) in tools.chain(extensions).chain(connectors).chain(agents) {
        for (index, grant) in allow.iter().enumerate() {
            if let Err(problem) = grant.parse::<Grant>() {
                let mut key = KeyPath::of([table, "script", name, "allow"]);
                key.index(index);
                let Problem { message, hint, .. } = problem;
                faults.push((key, Fault { message, hint, follows_key: false }));
            }
        }
    }
    faults
}

/// Whether the fault only follows from what was found before, or from a value that is
/// not there.
fn is_known(checked: &Checked, key: &KeyPath, fault: &Fault) -> bool {
    let left_out = &checked.left_out;
    let asks_for_key = fault.message.starts_with("needs ");
    (1..=key.depth()).any(|depth| left_out.contains(&key.first(depth)))
        || left_out.range(key.clone()..).take_while(|it| it.is_within(key)).any(|below| {
            let of_no_source = key.with("key").source_table().is_none();
            below.depth() == key.depth() + 1 && (asks_for_key || below.is_item() || of_no_source)
        })
}

/// Where the key stands, or else the table that it should be in.
fn offset_of(checked: &Checked, key: &KeyPath) -> Option<usize> {
    (1..=key.depth()).rev().find_map(|depth| checked.offsets.get(&key.first(depth)).copied())
}
