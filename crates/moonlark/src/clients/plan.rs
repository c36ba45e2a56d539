//! What an import does to `moonlark.toml`: which servers go in under which name,
//! which are there already, which cannot.
//!
//! The text that is there stays byte for byte: new tables go behind it. TOML
//! allows that everywhere but in one case, which is refused.

use std::collections::{BTreeMap, BTreeSet};

use moonlark_core::{Place, Problem, Result};
use toml::{Table, Value};

use super::other_project::ProjectTable;
use super::secret::{self, Names, Spot};
use super::server::{Entry, Server};
use super::table;
use super::variables::needed;
use crate::config_file::Env;

pub(crate) struct Plan {
    pub(crate) servers: Vec<Planned>,
    /// The new text of the file.
    pub(crate) text: String,
    /// What is new in it, without secrets, for people.
    pub(crate) shown: String,
    /// The variables that the new tables need.
    pub(crate) variables: Vec<Variable>,
    /// The secrets that some of them stand for.
    pub(crate) secrets: BTreeMap<String, String>,
}

/// One entry of a client's file and what becomes of it.
pub(crate) struct Planned {
    /// The name there.
    pub(crate) from: String,
    /// The file it is from.
    pub(crate) file: String,
    pub(crate) fate: Fate,
}

pub(crate) enum Fate {
    /// Goes in under this name, without what the notes say.
    Added {
        name: String,
        notes: Vec<String>,
    },
    /// Is there under this name.
    There {
        name: String,
    },
    LeftOut {
        why: String,
    },
}

pub(crate) struct Variable {
    pub(crate) name: String,
    /// The tables that use it.
    pub(crate) servers: Vec<String>,
    /// It has a value at the moment.
    pub(crate) is_set: bool,
    /// It stands for a secret of the client's file, which goes into the secrets file.
    pub(crate) is_kept: bool,
}

/// What is to be taken over, each with the file it is from.
#[derive(Default)]
pub(crate) struct Imported {
    pub(crate) servers: Vec<(String, Entry)>,
    pub(crate) tables: Vec<(String, ProjectTable)>,
    /// Sections that are not taken over, and why.
    pub(crate) left_out: Vec<(String, (String, String))>,
}

/// Plan to put what is `imported` behind `text`, which is that of the file called
/// `label`.
pub(crate) fn make(
    text: &str,
    label: &str,
    imported: Imported,
    keep_secrets: bool,
    env: Env<'_>,
) -> Result<Plan> {
    let Imported { servers: found, tables, left_out } = imported;
    let there = parse(text, label)?;
    let existing = match there.get("mcp_servers") {
        Some(Value::Table(table)) => table.clone(),
        _ => Table::new(),
    };
    let reserved: Vec<String> = needed(text)
        .into_iter()
        .chain(found.iter().flat_map(|(_, entry)| match &entry.server {
            Ok(server) => texts(server).flat_map(needed).collect(),
            Err(_) => Vec::new(),
        }))
        .map(str::to_owned)
        .collect();
    let mut making = Making {
        existing,
        added: Vec::new(),
        added_tables: Vec::new(),
        names: Names::new(reserved.iter().map(String::as_str), env),
        secrets: BTreeMap::new(),
        keep_secrets,
        behind: String::new(),
        behind_shown: String::new(),
    };
    let servers: Vec<Planned> = found
        .into_iter()
        .map(|(file, entry)| {
            let fate = match entry.server {
                Ok(server) => making.add(&entry.name, server),
                Err(why) => Fate::LeftOut { why },
            };
            Planned { from: entry.name, file, fate }
        })
        .collect();
    let tables: Vec<Planned> = tables
        .into_iter()
        .map(|(file, table)| {
            let from = table.path.join(".");
            Planned { from, file, fate: making.add_table(table, &there) }
        })
        .collect();
    let left_out = left_out.into_iter().map(|(file, (from, why))| {
        let fate = Fate::LeftOut { why };
        Planned { from, file, fate }
    });
    let servers = servers.into_iter().chain(tables).chain(left_out).collect();

    let variables = variables(&making, env);
    let whole = join(text, &making.behind);
    check(&there, &whole, &making, label)?;
    let Making { behind_shown: shown, secrets, .. } = making;
    Ok(Plan { servers, text: whole, shown, variables, secrets })
}

struct Making<'a> {
    existing: Table,
    /// Name, as it was read, and as it is written.
    added: Vec<(String, Server, Server)>,
    /// As they are written.
    added_tables: Vec<ProjectTable>,
    names: Names<'a>,
    /// What each of the chosen variables stands for.
    secrets: BTreeMap<String, String>,
    keep_secrets: bool,
    behind: String,
    behind_shown: String,
}

impl Making<'_> {
    fn add(&mut self, from: &str, read: Server) -> Fate {
        let base = table::valid_name(from);
        let mut name = base.clone();
        for number in 2.. {
            let earlier = self.added.iter().find(|(other, ..)| *other == name);
            let same = match (earlier, self.existing.get(&name)) {
                (Some((_, other, _)), _) => *other == read,
                (None, Some(there)) => table::has_all(there, &as_value(&name, &self.hidden(&read))),
                (None, None) => break,
            };
            if same {
                return Fate::There { name };
            }
            name = format!("{base}-{number}");
        }
        let mut written = read.clone();
        if !self.keep_secrets {
            let (names, secrets) = (&mut self.names, &mut self.secrets);
            secret::replace(&mut written, &mut |spot, value| {
                let variable = names.choose(&name, spot, value);
                secrets.insert(variable.clone(), value.to_owned());
                format!("${{{variable}}}")
            });
        }
        let notes = read.notes.clone();
        push(&mut self.behind, &table::text(&name, &written));
        push(&mut self.behind_shown, &table::text(&name, &redacted(&written)));
        self.added.push((name.clone(), read, written));
        Fate::Added { name, notes }
    }

    /// A table goes in as it is, but for secrets, unless there is one of its name.
    fn add_table(&mut self, table: ProjectTable, there: &Table) -> Fate {
        let name = table.path.join(".");
        let find = |table: &Table, path: &[String]| {
            let (first, rest) = path.split_first()?;
            rest.iter().try_fold(table.get(first)?.clone(), |value, key| value.get(key).cloned())
        };
        let twice = self.added_tables.iter().any(|other| other.path == table.path);
        if twice || find(there, &table.path).is_some() {
            return Fate::There { name };
        }
        let mut shown = table.clone();
        hide_secrets(&mut shown.values, &mut |_, _| "[redacted]".to_owned());
        let mut written = table;
        if !self.keep_secrets {
            let (names, secrets) = (&mut self.names, &mut self.secrets);
            let owner = written.path.last().cloned().unwrap_or_default();
            hide_secrets(&mut written.values, &mut |key, value| {
                let variable = names.choose(&owner, &Spot { key, is_variable: false }, value);
                secrets.insert(variable.clone(), value.to_owned());
                format!("${{{variable}}}")
            });
            shown = written.clone();
        }
        push(&mut self.behind, &table::project_text(&written));
        push(&mut self.behind_shown, &table::project_text(&shown));
        let notes = written.notes.clone();
        self.added_tables.push(written);
        Fate::Added { name, notes }
    }

    /// As it would be written, whatever the variables are called.
    fn hidden(&self, server: &Server) -> Server {
        let mut hidden = server.clone();
        if !self.keep_secrets {
            secret::replace(&mut hidden, &mut |_, _| "${X}".to_owned());
        }
        hidden
    }
}

fn redacted(server: &Server) -> Server {
    let mut shown = server.clone();
    secret::replace(&mut shown, &mut |_, _| "[redacted]".to_owned());
    shown
}

fn as_value(name: &str, server: &Server) -> Value {
    let table: Table = toml::from_str(&table::text(name, server)).unwrap_or_default();
    table
        .get("mcp_servers")
        .and_then(|servers| servers.get(name))
        .cloned()
        .unwrap_or(Value::Boolean(false))
}

fn push(behind: &mut String, table: &str) {
    if !behind.is_empty() {
        behind.push('\n');
    }
    behind.push_str(table);
}

/// `behind` at the end of `text`, with its kind of newlines.
pub(crate) fn join(text: &str, behind: &str) -> String {
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
fn check(there: &Table, whole: &str, making: &Making<'_>, label: &str) -> Result<()> {
    let Ok(new) = toml::from_str::<Table>(whole) else {
        return Err(Problem::bad_config(
            "mcp_servers is written as one value, so no table can follow",
        )
        .at(Place::file(label))
        .hint("nothing was changed; write its servers as tables: [mcp_servers.NAME]"));
    };
    let kept =
        there.iter().all(|(key, value)| new.get(key).is_some_and(|new| has_all_of(new, value)));
    let has =
        |name: &str| new.get("mcp_servers").is_some_and(|servers| servers.get(name).is_some());
    let tables = making.added_tables.iter().all(|table| {
        let (first, rest) = (new.get(&table.path[0]), &table.path[1..]);
        rest.iter().fold(first, |value, key| value?.get(key)).is_some()
    });
    match kept && tables && making.added.iter().all(|(name, ..)| has(name)) {
        true => Ok(()),
        false => Err(Problem::internal("the new configuration would not say what it should")
            .at(Place::file(label))),
    }
}

fn has_all_of(new: &Value, old: &Value) -> bool {
    match (new, old) {
        (Value::Table(new), Value::Table(old)) => {
            old.iter().all(|(key, old)| new.get(key).is_some_and(|new| has_all_of(new, old)))
        }
        (new, old) => new == old,
    }
}

fn parse(text: &str, label: &str) -> Result<Table> {
    toml::from_str(text).map_err(|error: toml::de::Error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|letter| *letter != '\n').count() + 1;
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        // Only its message: the rest quotes the line, which may hold a secret.
        Problem::bad_config(format!("not valid TOML: {}", error.message()))
            .at(Place::column(label, number(line), number(column)))
            .hint("nothing was changed; mend the file and run this again")
    })
}

fn variables(making: &Making<'_>, env: Env<'_>) -> Vec<Variable> {
    let added = &making.added;
    let in_tables: Vec<(String, Vec<String>)> = (making.added_tables.iter())
        .map(|table| (table.path.join("."), strings(&Value::Table(table.values.clone()))))
        .collect();
    let of_tables = in_tables.iter().flat_map(|(_, texts)| texts).map(String::as_str);
    let of_servers = added.iter().flat_map(|(.., server)| texts(server));
    let names: BTreeSet<&str> = of_servers.chain(of_tables).flat_map(needed).collect();
    let uses = |name: &str, server: &Server| texts(server).any(|text| needed(text).contains(&name));
    let uses_too =
        |name: &str, texts: &[String]| texts.iter().any(|text| needed(text).contains(&name));
    let variable = |name: &str| Variable {
        name: name.to_owned(),
        servers: added
            .iter()
            .filter(|(.., server)| uses(name, server))
            .map(|(server, ..)| format!("mcp_servers.{server}"))
            .chain(in_tables.iter().filter(|it| uses_too(name, &it.1)).map(|it| it.0.clone()))
            .collect(),
        is_set: env(name).is_some(),
        is_kept: making.secrets.contains_key(name),
    };
    names.into_iter().map(variable).collect()
}

/// Every text in a value.
fn strings(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(items) => items.iter().flat_map(strings).collect(),
        Value::Table(table) => table.values().flat_map(strings).collect(),
        _ => Vec::new(),
    }
}

/// Replace the texts of a table that are secret by their key or by their look.
fn hide_secrets(table: &mut Table, stand_in: &mut dyn FnMut(&str, &str) -> String) {
    for (key, value) in table {
        match value {
            // That key names a variable.
            Value::String(_) if key.ends_with("_env") => {}
            Value::String(text) if secret::is_secret(key, text) => *text = stand_in(key, text),
            Value::Table(inner) => hide_secrets(inner, stand_in),
            _ => {}
        }
    }
}

fn texts(server: &Server) -> impl Iterator<Item = &str> {
    let pairs = server.env.iter().chain(&server.headers).map(|(_, value)| value);
    let single = server.command.iter().chain(&server.url).chain(&server.cwd);
    single.chain(&server.args).chain(pairs).map(String::as_str)
}

#[cfg(test)]
mod tests;
