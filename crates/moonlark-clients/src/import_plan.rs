//! Import plan: which servers go into `moonlark.toml` under which name, which are there
//! already, which cannot.
//!
//! The text that is there stays byte for byte: new tables go behind it. TOML
//! allows that everywhere but in one case, which is refused.

use std::collections::{BTreeMap, BTreeSet};

use moonlark_core::{Problem, Result, SourceLocation};
use toml::{Table, Value};

use super::client_variables::needed_variables;
use super::imported_server::{ImportedEntry, ImportedServer};
use super::other_project::ProjectTable;
use super::secret_detection::{self, SecretVariableNames};
use super::server_table;
use super::syntax_tree::TextFault;
use moonlark_state::EnvLookup;

pub struct ImportPlan {
    pub servers: Vec<PlannedEntry>,
    /// The new text of the file.
    pub text: String,
    /// What is new in it, without secrets, for people.
    pub shown: String,
    /// The variables that the new tables need.
    pub variables: Vec<RequiredVariable>,
    /// The secrets that some of them stand for.
    pub secrets: BTreeMap<String, String>,
}

/// One entry of a client's file and what becomes of it.
pub struct PlannedEntry {
    /// The name there.
    pub from: String,
    /// The file it is from.
    pub file: String,
    pub fate: ImportFate,
}

pub enum ImportFate {
    /// Goes in under this name, without what the notes say.
    Added {
        name: String,
        notes: Vec<String>,
        /// What is left to do about it.
        advice: Option<String>,
    },
    /// Is there under this name.
    There {
        name: String,
    },
    LeftOut {
        why: String,
    },
}

pub struct RequiredVariable {
    pub name: String,
    /// The tables that use it.
    pub servers: Vec<String>,
    /// It has a value at the moment.
    pub is_set: bool,
    /// It stands for a secret of the client's file, which goes into the secrets file.
    pub is_kept: bool,
}

/// What is to be taken over, each with the file it is from.
#[derive(Default)]
pub struct ImportInput {
    pub servers: Vec<(String, ImportedEntry)>,
    pub tables: Vec<(String, ProjectTable)>,
    /// Sections that are not taken over, and why.
    pub left_out: Vec<(String, (String, String))>,
}

/// Plan to put what is `imported` behind `text`, which is that of the file called
/// `label`.
pub fn plan_import(
    text: &str,
    label: &str,
    imported: ImportInput,
    keep_secrets: bool,
    env: EnvLookup<'_>,
) -> Result<ImportPlan> {
    let ImportInput { servers: found, tables, left_out } = imported;
    let there = parse_config(text, label)?;
    let existing = match there.get("mcp_servers") {
        Some(Value::Table(table)) => table.clone(),
        _ => Table::new(),
    };
    let reserved: Vec<String> = needed_variables(text)
        .into_iter()
        .chain(found.iter().flat_map(|(_, entry)| match &entry.server {
            Ok(server) => server_texts(server).flat_map(needed_variables).collect(),
            Err(_) => Vec::new(),
        }))
        .map(str::to_owned)
        .collect();
    let mut making = ImportPlanner {
        existing,
        added: Vec::new(),
        added_tables: Vec::new(),
        names: SecretVariableNames::new(reserved.iter().map(String::as_str), env),
        secrets: BTreeMap::new(),
        keep_secrets,
        behind: String::new(),
        behind_shown: String::new(),
    };
    let servers: Vec<PlannedEntry> = found
        .into_iter()
        .map(|(file, entry)| {
            let fate = match entry.server {
                Ok(server) => making.add_server(&entry.name, server),
                Err(why) => ImportFate::LeftOut { why },
            };
            PlannedEntry { from: entry.name, file, fate }
        })
        .collect();
    let tables: Vec<PlannedEntry> = tables
        .into_iter()
        .map(|(file, table)| {
            let from = table.path.join(".");
            PlannedEntry { from, file, fate: making.add_table(table, &there) }
        })
        .collect();
    let left_out = left_out.into_iter().map(|(file, (from, why))| {
        let fate = ImportFate::LeftOut { why };
        PlannedEntry { from, file, fate }
    });
    let servers = servers.into_iter().chain(tables).chain(left_out).collect();

    let variables = required_variables(&making, env);
    let whole = append_to_config(text, &making.behind);
    check_new_config(&there, &whole, &making, label)?;
    let ImportPlanner { behind_shown: shown, secrets, .. } = making;
    Ok(ImportPlan { servers, text: whole, shown, variables, secrets })
}

struct ImportPlanner<'a> {
    existing: Table,
    /// Name, as it was read, and as it is written.
    added: Vec<(String, ImportedServer, ImportedServer)>,
    /// As they are written.
    added_tables: Vec<ProjectTable>,
    names: SecretVariableNames<'a>,
    /// What each of the chosen variables stands for.
    secrets: BTreeMap<String, String>,
    keep_secrets: bool,
    behind: String,
    behind_shown: String,
}

impl ImportPlanner<'_> {
    fn add_server(&mut self, from: &str, read: ImportedServer) -> ImportFate {
        let base = server_table::to_valid_name(from);
        let mut name = base.clone();
        for number in 2.. {
            let earlier = self.added.iter().find(|(other, ..)| *other == name);
            let same = match (earlier, self.existing.get(&name)) {
                (Some((_, other, _)), _) => *other == read,
                (None, Some(there)) => server_table::has_all_values(
                    there,
                    &server_as_toml(&name, &self.with_hidden_secrets(&read)),
                ),
                (None, None) => break,
            };
            if same {
                return ImportFate::There { name };
            }
            name = format!("{base}-{number}");
        }
        let mut written = read.clone();
        if !self.keep_secrets {
            let mut stand_in = |key: &str, value: &str| self.keep_secret(&name, key, value);
            secret_detection::replace_secrets(&mut written, &mut stand_in);
        }
        let notes = read.notes.clone();
        append_table(&mut self.behind, &server_table::server_table_text(&name, &written));
        append_table(
            &mut self.behind_shown,
            &server_table::server_table_text(&name, &redact_server(&written)),
        );
        self.added.push((name.clone(), read, written));
        ImportFate::Added { name, notes, advice: None }
    }

    /// A table goes in as it is, but for secrets, unless there is one of its name.
    fn add_table(&mut self, table: ProjectTable, there: &Table) -> ImportFate {
        let name = table.path.join(".");
        let twice = self.added_tables.iter().any(|other| other.path == table.path);
        if twice || find_table(there, &table.path).is_some() {
            return ImportFate::There { name };
        }
        let mut shown = table.clone();
        replace_table_secrets(&mut shown.values, &mut |_, _| "[redacted]".to_owned());
        let mut written = table;
        if !self.keep_secrets {
            let owner = written.path.last().cloned().unwrap_or_default();
            let mut stand_in = |key: &str, value: &str| self.keep_secret(&owner, key, value);
            replace_table_secrets(&mut written.values, &mut stand_in);
            shown = written.clone();
        }
        append_table(&mut self.behind, &server_table::project_table_text(&written));
        append_table(&mut self.behind_shown, &server_table::project_table_text(&shown));
        let (notes, advice) = (written.notes.clone(), written.advice.clone());
        self.added_tables.push(written);
        ImportFate::Added { name, notes, advice }
    }

    /// What stands in the place of a secret of `owner`.
    fn keep_secret(&mut self, owner: &str, key: &str, value: &str) -> String {
        let variable = self.names.choose_name(owner, key, value);
        self.secrets.insert(variable.clone(), value.to_owned());
        format!("${{{variable}}}")
    }

    /// As it would be written, whatever the variables are called.
    fn with_hidden_secrets(&self, server: &ImportedServer) -> ImportedServer {
        let mut hidden = server.clone();
        if !self.keep_secrets {
            secret_detection::replace_secrets(&mut hidden, &mut |_, _| "${X}".to_owned());
        }
        hidden
    }
}

fn redact_server(server: &ImportedServer) -> ImportedServer {
    let mut shown = server.clone();
    secret_detection::replace_secrets(&mut shown, &mut |_, _| "[redacted]".to_owned());
    shown
}

fn server_as_toml(name: &str, server: &ImportedServer) -> Value {
    let table: Table =
        toml::from_str(&server_table::server_table_text(name, server)).unwrap_or_default();
    table
        .get("mcp_servers")
        .and_then(|servers| servers.get(name))
        .cloned()
        .unwrap_or(Value::Boolean(false))
}

fn append_table(behind: &mut String, table: &str) {
    if !behind.is_empty() {
        behind.push('\n');
    }
    behind.push_str(table);
}

/// `behind` at the end of `text`, with its kind of newlines.
pub fn append_to_config(text: &str, behind: &str) -> String {
    if behind.is_empty() {
        return text.to_owned();
    }
    let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let gap = match text {
        "" => String::new(),
        text if text.trim().is_empty() => String::new(),
        text if text.ends_with('\n') => newline.to_owned(),
        _ => newline.repeat(2),
    };
    format!("{text}{gap}{}", behind.replace('\n', newline))
}

/// The new text says all that the old one did, and the servers on top.
fn check_new_config(
    there: &Table,
    whole: &str,
    making: &ImportPlanner<'_>,
    label: &str,
) -> Result<()> {
    let Ok(new) = toml::from_str::<Table>(whole) else {
        return Err(Problem::bad_config(
            "mcp_servers is written as one value, so no table can follow",
        )
        .at_location(SourceLocation::in_file(label))
        .with_hint("nothing was changed; write its servers as tables: [mcp_servers.NAME]"));
    };
    let kept =
        there.iter().all(|(key, value)| new.get(key).is_some_and(|new| contains_toml(new, value)));
    let has =
        |name: &str| new.get("mcp_servers").is_some_and(|servers| servers.get(name).is_some());
    let mut tables = making.added_tables.iter();
    let tables = tables.all(|table| find_table(&new, &table.path).is_some());
    if kept && tables && making.added.iter().all(|(name, ..)| has(name)) {
        Ok(())
    } else {
        Err(Problem::internal("the new configuration would not say what it should")
            .at_location(SourceLocation::in_file(label)))
    }
}

fn find_table<'a>(whole: &'a Table, path: &[String]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    rest.iter().try_fold(whole.get(first)?, |value, key| value.get(key))
}

fn contains_toml(new: &Value, old: &Value) -> bool {
    match (new, old) {
        (Value::Table(new), Value::Table(old)) => {
            old.iter().all(|(key, old)| new.get(key).is_some_and(|new| contains_toml(new, old)))
        }
        (new, old) => new == old,
    }
}

fn parse_config(text: &str, label: &str) -> Result<Table> {
    toml::from_str(text).map_err(|error: toml::de::Error| {
        // Only its message: the rest quotes the line, which may hold a secret.
        let at = error.span().map_or(0, |span| span.start);
        let fault = TextFault::new(at, format!("not valid TOML: {}", error.message()));
        fault.to_problem(text, label)
    })
}

fn required_variables(making: &ImportPlanner<'_>, env: EnvLookup<'_>) -> Vec<RequiredVariable> {
    let servers = making.added.iter().map(|(name, _, server)| {
        let texts = server_texts(server).map(str::to_owned).collect();
        (format!("mcp_servers.{name}"), texts)
    });
    let tables = (making.added_tables.iter())
        .map(|table| (table.path.join("."), collect_strings(&Value::Table(table.values.clone()))));
    let tables: Vec<(String, Vec<String>)> = servers.chain(tables).collect();
    let mut users: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (table, texts) in &tables {
        let names: BTreeSet<&str> = texts.iter().flat_map(|it| needed_variables(it)).collect();
        names.into_iter().for_each(|name| users.entry(name).or_default().push(table.clone()));
    }
    let variable = |(name, servers): (&str, Vec<String>)| RequiredVariable {
        name: name.to_owned(),
        servers,
        is_set: env(name).is_some(),
        is_kept: making.secrets.contains_key(name),
    };
    users.into_iter().map(variable).collect()
}

/// Every text in a value.
fn collect_strings(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(items) => items.iter().flat_map(collect_strings).collect(),
        Value::Table(table) => table.values().flat_map(collect_strings).collect(),
        _ => Vec::new(),
    }
}

/// Replace the texts of a table that are secret by their key or by their look.
fn replace_table_secrets(table: &mut Table, stand_in: &mut dyn FnMut(&str, &str) -> String) {
    for (key, value) in table {
        match value {
            // That key names a variable.
            Value::String(_) if key.ends_with("_env") => {}
            Value::String(text) if secret_detection::is_secret(key, text) => {
                *text = stand_in(key, text)
            }
            Value::Table(inner) => replace_table_secrets(inner, stand_in),
            _ => {}
        }
    }
}

fn server_texts(server: &ImportedServer) -> impl Iterator<Item = &str> {
    let pairs = server.env.iter().chain(&server.headers).map(|(_, value)| value);
    let single = server.command.iter().chain(&server.url).chain(&server.cwd);
    single.chain(&server.args).chain(pairs).map(String::as_str)
}

#[cfg(test)]
mod tests;
