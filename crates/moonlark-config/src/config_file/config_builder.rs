//! From a checked document to a [`Config`]: read into the structs, its secrets noted,
//! and held to the rules that no schema says.
//!
//! A document with mistakes is built as far as it goes, so that all of them are
//! reported in one round.

use std::collections::BTreeMap;

use moonlark_core::grant::Grant;
use moonlark_core::problem::Problem;
use moonlark_core::value::{Value, ValueReadError};
use moonlark_gateway::policy::CallRate;

use super::config_finding::ConfigFinding;
use super::config_secrets;
use super::document_check::{AbsentConfigValue, CheckedDocument};
use super::fault_hints::fault_hint;
use super::key_path::ConfigKeyPath;
use super::value_sources::ValueSources;
use crate::{
    ConfigSecret, McpServerConfig, ProjectConfig, RedactedString, find_tool_faults, fixed_arguments,
};
use moonlark_state::env_text::parse_env_text;

/// No file of variables that a person wrote is larger.
const MAX_ENV_FILE_BYTES: u64 = 1024 * 1024;

pub(super) struct BuiltConfig {
    pub(super) config: ProjectConfig,
    /// What is wrong with it.
    pub(super) faults: Vec<ConfigFinding>,
    /// What is not there for one source.
    pub(super) absent: Vec<AbsentConfigValue>,
}

/// What has passed the check deserialises; a difference between the two would
/// be a defect, and is reported with the key.
pub(super) fn build_config(
    schema: &serde_json::Value,
    checked: &CheckedDocument,
    values: &ValueSources<'_>,
) -> Result<BuiltConfig, Problem> {
    let defect = |message: String| {
        Problem::bad_config(message)
            .with_hint("the reference of the configuration says what this key takes")
    };
    let value = Value::from_json(checked.value.clone());
    let value = value.map_err(|problem| defect(problem.message))?;
    let mut config: ProjectConfig = value
        .deserialize_into()
        .map_err(|ValueReadError { path, message }| defect(format!("{path}: {message}")))?;
    record_secrets(&mut config, checked);
    let absent = read_env_files(&mut config, checked, values);
    let finding = |(key, fault): (ConfigKeyPath, ConfigFault)| {
        let message = if fault.follows_key {
            format!("{key} {}", fault.message)
        } else {
            format!("{key}: {}", fault.message)
        };
        let hint = fault.hint.unwrap_or_else(|| fault_hint(schema, &key, &fault.message));
        ConfigFinding {
            offset: key_offset(checked, &key),
            problem: Problem::bad_config(message).with_hint(hint),
        }
    };
    let counts =
        |(key, fault): &(ConfigKeyPath, ConfigFault)| !is_follow_up_fault(checked, key, fault);
    let faults = find_config_faults(&config).into_iter().filter(counts).map(finding).collect();
    Ok(BuiltConfig { config, faults, absent })
}

/// Put a source out of order: it stays in the configuration, and says why it is not used.
/// All that it misses is one Problem, so that whoever calls it learns of all at once.
pub(super) fn record_outage(config: &mut ProjectConfig, source: &ConfigKeyPath, problem: Problem) {
    let names: Vec<&str> = source.key_names().collect();
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
    match outage.map(|outage| (outage.pop(), outage)) {
        Some((Some(first), outage)) => outage.push(merge_outages(first, problem)),
        Some((None, outage)) => outage.push(problem),
        None => {}
    }
}

fn merge_outages(first: Problem, second: Problem) -> Problem {
    let message = format!("{}; {}", first.message, second.message);
    let hint = match (&first.hint, second.hint) {
        (Some(one), Some(other)) if *one != other => Some(format!("{one}; {other}")),
        (Some(one), _) => Some(one.clone()),
        (None, other) => other,
    };
    first.with_message(message).with_optional_hint(hint)
}

/// Of what says where a server is and how it is started, not every variable is a secret:
/// without the path of a program, no message would make sense.
fn is_location_key(key: &str) -> bool {
    ["args", "url", "base_url", "spec"].iter().any(|place| key.starts_with(place))
}

fn record_secrets(config: &mut ProjectConfig, checked: &CheckedDocument) {
    let tools = config.tools.script.iter_mut().map(|(name, it)| ("tools", name, &mut it.config));
    let extensions =
        config.extensions.script.iter_mut().map(|(name, it)| ("extensions", name, &mut it.config));
    let connectors =
        config.connectors.script.iter_mut().map(|(name, it)| ("connectors", name, &mut it.config));
    let agents = config.agents.script.iter_mut().map(|(name, it)| ("agents", name, &mut it.config));
    for (table, name, own) in tools.chain(extensions).chain(connectors).chain(agents) {
        let table = ConfigKeyPath::from_keys([table, "script", name]);
        own.secrets = config_secrets::collect_secrets(&table, &own.values, &checked.expanded);
    }
    for (name, server) in &mut config.mcp_servers {
        let table = ConfigKeyPath::from_keys(["mcp_servers", name]);
        let values = |of: &BTreeMap<String, RedactedString>| -> serde_json::Value {
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
        server.secrets = config_secrets::collect_secrets(&table, &own, &checked.expanded);
        server.secrets.retain(|it| it.by_name || !is_location_key(&it.key));
    }
    let frozen = config.frozen_params.clone().into_iter().collect();
    let frozen = serde_json::Map::from_iter([("frozen_params".to_owned(), frozen)]);
    config.secrets =
        config_secrets::collect_secrets(&ConfigKeyPath::from_keys([]), &frozen, &checked.expanded);
    for (name, api) in &mut config.apis {
        let table = ConfigKeyPath::from_keys(["apis", name]);
        let own = api.secret_values();
        api.secrets = config_secrets::collect_secrets(&table, &own, &checked.expanded);
        api.secrets.retain(|it| it.by_name || !is_location_key(&it.key));
        api.secrets.extend_from_slice(&config.secrets);
    }
}

/// The variables of `env_file` join those of `env`, which come first.
fn read_env_files(
    config: &mut ProjectConfig,
    checked: &CheckedDocument,
    values: &ValueSources<'_>,
) -> Vec<AbsentConfigValue> {
    let mut absent = Vec::new();
    for (name, server) in &mut config.mcp_servers {
        let key = ConfigKeyPath::from_keys(["mcp_servers", name, "env_file"]);
        let Some(path) = server.env_file.clone() else { continue };
        if checked.left_out.contains(&key) {
            continue;
        }
        if let Err(why) = read_env_file(server, &path, values) {
            let problem = Problem::bad_config(format!("{key} cannot be used: {why}"))
                .with_hint("the path is seen from the folder of the configuration file; variables are written NAME=value, one in each line");
            absent.push(AbsentConfigValue {
                text: path,
                finding: ConfigFinding { offset: key_offset(checked, &key), problem },
                key,
            });
        }
    }
    absent
}

fn read_env_file(
    server: &mut McpServerConfig,
    path: &str,
    values: &ValueSources<'_>,
) -> Result<(), String> {
    let parsed = parse_env_text(&values.read_text_file(path, MAX_ENV_FILE_BYTES)?);
    if let Some(line) = parsed.bad_lines.first() {
        return Err(format!("its line {line} is no variable"));
    }
    for (name, value) in parsed.variables {
        if !value.is_empty() {
            server.secrets.push(ConfigSecret::new(format!("env.{name}"), value.as_str(), true));
        }
        server.env.entry(name).or_insert(RedactedString(value));
    }
    Ok(())
}

/// What is wrong with a key.
struct ConfigFault {
    message: String,
    hint: Option<String>,
    /// The message reads on from the name of the key.
    follows_key: bool,
}

impl From<String> for ConfigFault {
    fn from(message: String) -> Self {
        ConfigFault { message, hint: None, follows_key: false }
    }
}

/// What no schema says.
fn find_config_faults(config: &ProjectConfig) -> Vec<(ConfigKeyPath, ConfigFault)> {
    let mut faults: Vec<(ConfigKeyPath, ConfigFault)> = Vec::new();
    let servers = (config.mcp_servers.iter())
        .map(|(name, it)| ("mcp_servers", name, it.find_faults(name), &it.tools));
    let apis = config.apis.iter().map(|(name, it)| ("apis", name, it.find_faults(name), &it.tools));
    for (section, name, found, tools) in servers.chain(apis) {
        let table = ConfigKeyPath::from_keys([section, name]);
        faults.extend(found.into_iter().map(|(key, message)| {
            let key = if key.is_empty() { table.clone() } else { table.with_key(key) };
            (key, message.into())
        }));
        faults.extend(find_tool_faults(tools).into_iter().map(|fault| {
            let key = ConfigKeyPath::from_keys([section, name, "tools", fault.tool, fault.key]);
            let hint = Some(fault.hint.to_owned());
            (key, ConfigFault { message: fault.message, hint, follows_key: false })
        }));
    }
    for (name, api) in &config.apis {
        faults.extend(api.find_token_url_faults().map(|(scheme, message)| {
            let key = ConfigKeyPath::from_keys(["apis", name, "auth", scheme, "token_url"]);
            (key, message.into())
        }));
    }
    let single = [
        ("server", config.server.auth.find_faults()),
        ("store", config.store.find_faults()),
        ("knowledge", config.knowledge.find_faults()),
        ("network", config.network.find_faults()),
        ("telemetry", config.telemetry.find_faults()),
        ("log", config.log.find_faults()),
    ];
    for (table, found) in single {
        let below = |key: &str| {
            key.split('.').fold(ConfigKeyPath::from_keys([table]), |path, key| path.with_key(key))
        };
        faults.extend(found.into_iter().map(|(key, message)| (below(key), message.into())));
    }
    for (path, message) in config.connectors.find_faults() {
        let table = ConfigKeyPath::from_keys(["connectors"]);
        faults.push((path.iter().fold(table, |path, key| path.with_key(key)), message.into()));
    }
    for (index, rule) in config.policy.rules.iter().enumerate() {
        let mut table = ConfigKeyPath::from_keys(["policy", "rules"]);
        table.push_index(index);
        let found = rule.find_faults().into_iter();
        faults.extend(found.map(|(key, message)| (table.with_key(key), message.into())));
    }
    let tools = config.tools.script.iter().map(|(name, it)| ("tools", name, &it.rate));
    let extensions =
        config.extensions.script.iter().map(|(name, it)| ("extensions", name, &it.rate));
    for (table, name, rate) in tools.chain(extensions) {
        let fault = rate.as_ref().and_then(|rate| rate.parse::<CallRate>().err());
        let key = ConfigKeyPath::from_keys([table, "script", name, "rate"]);
        faults.extend(fault.map(|message| (key, message.into())));
    }
    faults.extend(find_grant_faults(config));
    faults
}

/// Of scripts, what is no grant in `allow`.
fn find_grant_faults(config: &ProjectConfig) -> Vec<(ConfigKeyPath, ConfigFault)> {
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
                let mut key = ConfigKeyPath::from_keys([table, "script", name, "allow"]);
                key.push_index(index);
                let Problem { message, hint, .. } = problem;
                faults.push((key, ConfigFault { message, hint, follows_key: false }));
            }
        }
    }
    faults
}

/// Whether the fault only follows from what was found before, or from a value that is
/// not there.
fn is_follow_up_fault(checked: &CheckedDocument, key: &ConfigKeyPath, fault: &ConfigFault) -> bool {
    let left_out = &checked.left_out;
    let asks_for_key = fault.message.starts_with("needs ");
    (1..=key.depth()).any(|depth| left_out.contains(&key.first_segments(depth)))
        || left_out.range(key.clone()..).take_while(|it| it.is_within(key)).any(|below| {
            let of_no_source = key.with_key("key").source_table().is_none();
            below.depth() == key.depth() + 1
                && (asks_for_key || below.is_array_item() || of_no_source)
        })
}

/// Where the key stands, or else the table that it should be in.
fn key_offset(checked: &CheckedDocument, key: &ConfigKeyPath) -> Option<usize> {
    (1..=key.depth())
        .rev()
        .find_map(|depth| checked.offsets.get(&key.first_segments(depth)).copied())
}
