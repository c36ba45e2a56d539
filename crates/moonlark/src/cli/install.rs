//! `moonlark install`: Moonlark as a server of another client, and out again.
//!
//! Only one entry of that client's file is ours. Everything else in it, comments
//! and layout included, stays as it is, unless Moonlark is to be the only one (`only`).
//! What a client is told that reaches a server over HTTP is in `http_address`.

mod http_address;
mod only;

use std::path::{Path, PathBuf};

use clap::Args;
use clap::error::ErrorKind;
use moonlark_core::{Code, Place, Problem};
use serde_json::{Map, Value as Json, json};

use super::import::{config_path, environment, label};
use super::{Done, Failure, Global, here, print, print_json, shown};
use crate::clients::file::Found;
use crate::clients::jsonc::{Fault, Kind, Node};
use crate::clients::places::Places;
use crate::clients::{Client, diff, edit, is_moonlark, jsonc, secret};
use crate::config_file;
use only::MovedServers;

#[derive(Args)]
pub(crate) struct Install {
    /// Who is to use Moonlark.
    client: Client,
    /// The name of the server there.
    #[arg(long, default_value = "moonlark", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    name: String,
    /// Use the client's file of this project instead of the user's.
    #[arg(long)]
    project: bool,
    /// Make it the client's only server: the others go into moonlark.toml, if they are not there, and out of the client's file.
    #[arg(long)]
    only: bool,
    /// Let the client use `moonlark serve` by its address, instead of starting `moonlark stdio`. Where callers need a token, one is made for it.
    #[arg(long)]
    http: bool,
    /// Show what would be done, and do nothing.
    #[arg(long)]
    dry_run: bool,
    /// Take it out again, and put back what was there before.
    #[arg(long, conflicts_with_all = ["only", "http"])]
    undo: bool,
}

impl Install {
    pub(crate) async fn run(self, global: &Global) -> Done {
        let cwd = here()?;
        let places = Places::find(&cwd, &environment)?;
        let path = match self.project {
            false => places.user_file(self.client),
            true => places.project_file(self.client).unwrap_or_else(|| {
                let said = format!("{} has no file of a project", self.client.title());
                super::command().error(ErrorKind::ArgumentConflict, said).exit()
            }),
        };
        let file = Found::read(&path, label(&path, &cwd))?;
        let moved = match self.only {
            true => Some(MovedServers::find(self.client, &file, &places, global)?),
            false => None,
        };
        let outcome = match self.undo {
            true => self.take_out(&file)?,
            false => {
                let config = config_file::in_effect(global.config.as_deref(), &cwd, &environment);
                // What is imported makes the file, if it is missing.
                let made = || Some(config_path(global, &cwd)).filter(|_| moved.is_some());
                let config = config.or_else(made);
                let entry = match self.http {
                    true => self.http_entry(&file, global).await?,
                    false => self.stdio_entry(config.as_deref(), moved.is_some())?,
                };
                self.put_in(&file, &entry, config.is_some() || self.http, moved.as_ref())?
            }
        };
        if !self.dry_run {
            if let Some(moved) = &moved {
                moved.import.carry_out()?;
            }
            outcome.carry_out(&file)?;
        }
        let report = Report { install: &self, file: &file, outcome: &outcome, moved: &moved };
        if global.json {
            print_json(&report.to_json())
        } else {
            report.say()
        }
        Ok(())
    }

    /// A server that starts in the empty environment of a client of the desktop.
    fn stdio_entry(
        &self,
        config: Option<&Path>,
        will_be_made: bool,
    ) -> Result<Map<String, Json>, Failure> {
        let arguments = arguments(config, will_be_made)?;
        Ok(self.client.entry(&this_binary()?, &arguments, program_folders().as_deref()))
    }

    fn put_in(
        &self,
        file: &Found,
        entry: &Map<String, Json>,
        has_config: bool,
        moved: Option<&MovedServers>,
    ) -> Result<Outcome, Failure> {
        let names = moved.map(|moved| moved.names.as_slice()).unwrap_or_default();
        let text = self.without_others(file.text(), names, &file.label)?;
        let text = self.with_entry(&text, entry, &file.label)?;
        let did = match (text == file.text(), self.is_there(file.text())) {
            (true, _) => Did::Unchanged,
            (false, true) => Did::Updated,
            (false, false) => Did::Installed,
        };
        let keep = (did != Did::Unchanged).then_some(Copy::Keep);
        Ok(Outcome { did, text: Some(text), copy: keep, has_config, left_in_copy: Vec::new() })
    }

    /// The file without servers that are behind Moonlark from now on.
    fn without_others(&self, text: &str, names: &[String], label: &str) -> Result<String, Failure> {
        let mut text = text.to_owned();
        for name in names {
            let path = [self.client.servers_key(), name.as_str()];
            text = edit::remove(&text, &path).map_err(|fault| fault.problem(&text, label))?;
        }
        Ok(text)
    }

    /// Key by key, so that an `env` that somebody added to our entry stays.
    fn with_entry(
        &self,
        text: &str,
        entry: &Map<String, Json>,
        label: &str,
    ) -> Result<String, Failure> {
        let path = self.path();
        let wrong = |text: &str, fault: Fault| fault.problem(text, label);
        let root = jsonc::parse(text).map_err(|fault| wrong(text, fault))?;
        let there = root.as_ref().and_then(|root| root.find(&path)).map(Node::to_json);
        let put = |text: &str, path: &[&str], value: &Json| {
            edit::put(text, path, value).map_err(|fault| wrong(text, fault))
        };
        let same_way = |there: &Json| {
            ["command", "url"].iter().all(|key| there[key].is_string() == entry.contains_key(*key))
        };
        match there {
            None | Some(Json::Null) => Ok(put(text, &path, &Json::Object(entry.clone()))?),
            Some(there) if !self.is_ours(&there) => Err(self.not_ours(label).into()),
            Some(there) if !same_way(&there) => Ok(put(text, &path, &Json::Object(entry.clone()))?),
            Some(_) => {
                let mut text = text.to_owned();
                for (key, value) in entry {
                    let path = [path[0], path[1], key.as_str()];
                    match value {
                        Json::Object(inner) => {
                            for (key, value) in inner {
                                text = put(&text, &[path[0], path[1], path[2], key], value)?;
                            }
                        }
                        value => text = put(&text, &path, value)?,
                    }
                }
                Ok(text)
            }
        }
    }

    fn take_out(&self, file: &Found) -> Result<Outcome, Failure> {
        let outcome = |did, text, copy| Outcome {
            did,
            text,
            copy,
            has_config: true,
            left_in_copy: Vec::new(),
        };
        let text = file.text();
        let root = jsonc::parse(text).map_err(|fault| fault.problem(text, &file.label))?;
        let Some(entry) = root.as_ref().and_then(|root| root.find(&self.path())) else {
            return Ok(outcome(Did::Nothing, file.text.clone(), None));
        };
        let entry = entry.to_json();
        if !self.is_ours(&entry) {
            return Err(self.not_ours(&file.label).into());
        }
        let copy = file.backup()?;
        let names = |text: &str| only::server_names(self.client, text);
        let mut gone = names(copy.text());
        let now = names(text);
        gone.retain(|name| *name != self.name && !now.contains(name));
        // Nothing but our entry, and servers that made room for it, differs from before:
        // that is what comes back.
        let again = match &entry {
            Json::Object(entry) => self
                .without_others(copy.text(), &gone, &copy.label)
                .and_then(|text| self.with_entry(&text, entry, &copy.label))
                .ok(),
            _ => None,
        };
        if again.as_deref() == Some(text) {
            return Ok(outcome(Did::Undone, copy.text, Some(Copy::Drop)));
        }
        let text =
            self.without_entry(text, &copy).map_err(|fault| fault.problem(text, &file.label))?;
        Ok(Outcome { left_in_copy: gone, ..outcome(Did::Undone, Some(text), None) })
    }

    /// Whether an entry of that name starts or reaches Moonlark.
    fn is_ours(&self, entry: &Json) -> bool {
        let by_name = || self.name.contains("moonlark") && http_address::is_local(entry);
        is_moonlark(entry) || by_name()
    }

    /// The file as it is now, with what `copy` has in the place of our entry.
    fn without_entry(&self, text: &str, copy: &Found) -> Result<String, Fault> {
        let path = self.path();
        let before = jsonc::parse(copy.text()).ok().flatten();
        let before = before.as_ref();
        if let Some(entry) = before.and_then(|before| before.find(&path)) {
            let now = jsonc::parse(text)?;
            let Some(ours) = now.as_ref().and_then(|now| now.find(&path)) else {
                return Ok(text.to_owned());
            };
            let entry = &copy.text()[entry.span.clone()];
            return Ok(format!("{}{entry}{}", &text[..ours.span.start], &text[ours.span.end..]));
        }
        let text = edit::remove(text, &path)?;
        let left = jsonc::parse(&text)?;
        let servers = left.as_ref().and_then(|root| root.find(&path[..1]));
        let empty = servers
            .is_some_and(|servers| matches!(&servers.kind, Kind::Object(all) if all.is_empty()));
        let made_by_us = before.is_none_or(|before| before.get(path[0]).is_none());
        if empty && made_by_us { edit::remove(&text, &path[..1]) } else { Ok(text) }
    }

    fn path(&self) -> [&str; 2] {
        [self.client.servers_key(), &self.name]
    }

    fn is_there(&self, text: &str) -> bool {
        jsonc::parse(text).ok().flatten().is_some_and(|root| root.find(&self.path()).is_some())
    }

    fn not_ours(&self, label: &str) -> Problem {
        let message = format!("there is a server {} already, and it is not Moonlark", self.name);
        Problem::bad_request(message)
            .at(Place::file(label))
            .hint("nothing was changed; choose another name with --name")
    }
}

/// What is to be done with the client's file.
struct Outcome {
    did: Did,
    /// Its text afterwards; none for no file.
    text: Option<String>,
    copy: Option<Copy>,
    has_config: bool,
    /// Servers of the copy that were not put back, since more has changed.
    left_in_copy: Vec<String>,
}

#[derive(Clone, Copy, PartialEq)]
enum Did {
    Installed,
    Updated,
    Unchanged,
    Undone,
    /// There was nothing to undo.
    Nothing,
}

/// What becomes of the copy from before.
#[derive(Clone, Copy, PartialEq)]
enum Copy {
    Keep,
    /// The file is as it was, so the copy says nothing more.
    Drop,
}

impl Outcome {
    fn carry_out(&self, file: &Found) -> Done {
        if self.text == file.text {
            return Ok(());
        }
        if self.copy == Some(Copy::Keep) {
            file.back_up()?;
        }
        match &self.text {
            Some(text) => file.replace(text, false)?,
            None => file.remove()?,
        }
        if self.copy == Some(Copy::Drop) {
            file.backup()?.remove_if_there()?;
        }
        Ok(())
    }
}

struct Report<'a> {
    install: &'a Install,
    file: &'a Found,
    outcome: &'a Outcome,
    moved: &'a Option<MovedServers>,
}

impl Report<'_> {
    fn say(&self) {
        let Install { client, name, dry_run, .. } = self.install;
        let (title, label) = (client.title(), &self.file.label);
        if let Some(diff) = self.diff() {
            print(format!("{diff}\n"));
        }
        let would = if *dry_run { "Would be: " } else { "" };
        print(&match self.outcome.did {
            Did::Installed => format!("{would}Registered with {title} as {name}, in {label}"),
            Did::Updated => format!("{would}Updated {name} of {title}, in {label}"),
            Did::Unchanged => format!("Nothing to do: {title} has {name} already, in {label}"),
            Did::Undone => format!("{would}Took {name} out of {title}, in {label}"),
            Did::Nothing => format!("Nothing to undo: {title} has no {name}, in {label}"),
        });
        if let Some(moved) = self.moved {
            moved.say(*dry_run);
        }
        if *dry_run {
            return;
        }
        if matches!(self.outcome.did, Did::Installed | Did::Updated | Did::Undone) {
            if let Some(copy) = self.copy() {
                print(format!("The file from before is kept as {copy}"));
            }
            print(format!("Restart {title} for the change to count"));
        }
        if !self.outcome.left_in_copy.is_empty() {
            print(format!(
                "Not put back, since more has changed: {}; the copy has them",
                self.outcome.left_in_copy.join(", ")
            ));
        }
        if !self.outcome.has_config {
            print(
                "There is no moonlark.toml, so it serves the folder that the client starts it in",
            );
            print("Make one (an empty file will do) and run this again to say which project it is");
        }
    }

    fn to_json(&self) -> Json {
        let did = match self.outcome.did {
            Did::Installed => "installed",
            Did::Updated => "updated",
            Did::Unchanged => "unchanged",
            Did::Undone => "undone",
            Did::Nothing => "nothing",
        };
        let moved = self.moved.as_ref().map(|moved| moved.to_json(self.install.dry_run));
        json!({
            "moved": moved,
            "client": self.install.client.word(),
            "name": self.install.name,
            "file": shown(&self.file.path),
            "did": did,
            "dry_run": self.install.dry_run,
            "backup": self.copy(),
            "diff": self.diff(),
        })
    }

    /// The copy, if there is one now.
    fn copy(&self) -> Option<String> {
        let path = self.file.backup_path();
        let label = format!("{}.moonlark-backup", self.file.label);
        path.is_file().then_some(label)
    }

    fn diff(&self) -> Option<String> {
        let old = self.file.text.as_deref().map(without_secrets);
        let new = self.outcome.text.as_deref().map(without_secrets);
        diff::unified(old.as_deref(), new.as_deref(), &self.file.label, 3)
    }
}

/// The lines around ours may be those of a server with a token.
fn without_secrets(text: &str) -> String {
    let mut spans = Vec::new();
    if let Ok(Some(root)) = jsonc::parse(text) {
        collect(&root, "", &mut spans);
    }
    let mut text = text.to_owned();
    for span in spans.into_iter().rev() {
        text.replace_range(span, "\"[redacted]\"");
    }
    text
}

/// The spans of secret texts under `key`, in order. As deep as the parser went.
fn collect(node: &Node, key: &str, spans: &mut Vec<std::ops::Range<usize>>) {
    match &node.kind {
        Kind::Object(members) => {
            members.iter().for_each(|member| collect(&member.value, &member.key, spans));
        }
        Kind::Array(items) => {
            let mut before = "";
            for item in items {
                match &item.kind {
                    Kind::Scalar(Json::String(text)) => {
                        if secret::is_secret_argument(before, text) {
                            spans.push(item.span.clone());
                        }
                        before = text;
                    }
                    _ => collect(item, key, spans),
                }
            }
        }
        Kind::Scalar(Json::String(text)) if secret::is_secret(key, text) => {
            spans.push(node.span.clone());
        }
        Kind::Scalar(_) => {}
    }
}

/// The path of this binary, as a client has to write it.
fn this_binary() -> Result<String, Failure> {
    let path = std::env::current_exe().map_err(|error| {
        Problem::unavailable(format!("the path of this program is not known: {error}"))
    })?;
    Ok(text_of(&path)?)
}

/// The folders of programs that this shell knows: servers are started by `npx`, `uvx`
/// and the like, and a client of the desktop finds none of them.
fn program_folders() -> Option<String> {
    let mut folders: Vec<PathBuf> = Vec::new();
    for folder in std::env::split_paths(&std::env::var_os("PATH")?) {
        if folder.is_absolute() && folder.is_dir() && !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    std::env::join_paths(folders).ok()?.into_string().ok().filter(|path| !path.is_empty())
}

fn arguments(config: Option<&Path>, will_be_made: bool) -> Result<Vec<String>, Failure> {
    let mut args = vec!["stdio".to_owned()];
    if let Some(config) = config {
        if !will_be_made && !config.is_file() {
            return Err(Problem::new(Code::NotFound, "there is no such file")
                .at(Place::file(shown(config)))
                .hint("name the moonlark.toml of the project with --config")
                .into());
        }
        let config: PathBuf = std::path::absolute(config)?;
        args.extend(["--config".to_owned(), text_of(&config)?]);
    }
    Ok(args)
}

fn text_of(path: &Path) -> Result<String, Problem> {
    path.to_str().map(str::to_owned).ok_or_else(|| {
        Problem::bad_request("the path is not UTF-8, so JSON cannot hold it")
            .at(Place::file(shown(path)))
            .hint("move it to a folder with another name")
    })
}
