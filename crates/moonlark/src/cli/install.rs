//! `moonlark install`: Moonlark as a server of another client, and out again.
//!
//! Only one entry of that client's file is ours. Everything else in it, comments
//! and layout included, stays as it is.

use std::path::{Path, PathBuf};

use clap::Args;
use clap::error::ErrorKind;
use moonlark_core::{Code, Place, Problem};
use serde_json::{Map, Value as Json, json};

use super::import::label;
use super::{Done, Failure, Global, here, print, shown};
use crate::clients::file::Found;
use crate::clients::jsonc::{Fault, Kind, Node};
use crate::clients::places::Places;
use crate::clients::{Client, diff, edit, is_moonlark, jsonc, secret};
use crate::config_file;

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
    /// Show what would be done, and do nothing.
    #[arg(long)]
    dry_run: bool,
    /// Take it out again, and put back what was there before.
    #[arg(long)]
    undo: bool,
}

impl Install {
    pub(crate) fn run(self, global: &Global) -> Done {
        let cwd = here()?;
        let env = |name: &str| std::env::var(name).ok();
        let places = Places::find(&cwd, &env)?;
        let path = match self.project {
            false => places.user_file(self.client),
            true => places.project_file(self.client).unwrap_or_else(|| {
                let said = format!("{} has no file of a project", self.client.title());
                super::command().error(ErrorKind::ArgumentConflict, said).exit()
            }),
        };
        let file = Found::read(&path, label(&path, &cwd))?;
        let outcome = match self.undo {
            true => self.take_out(&file)?,
            false => {
                let config = config_file::in_effect(global.config.as_deref(), &cwd, &env);
                self.put_in(&file, config.as_deref())?
            }
        };
        if !self.dry_run {
            outcome.carry_out(&file)?;
        }
        let report = Report { install: &self, file: &file, outcome: &outcome };
        if global.json {
            print(&report.to_json().to_string())
        } else {
            report.say()
        }
        Ok(())
    }

    fn put_in(&self, file: &Found, config: Option<&Path>) -> Result<Outcome, Failure> {
        let entry = self.client.entry(&this_binary()?, &arguments(config)?);
        let text = self.with_entry(file.text(), &entry, &file.label)?;
        let did = match (text == file.text(), self.is_there(file.text())) {
            (true, _) => Did::Unchanged,
            (false, true) => Did::Updated,
            (false, false) => Did::Installed,
        };
        let keep = (did != Did::Unchanged).then_some(Copy::Keep);
        Ok(Outcome { did, text: Some(text), copy: keep, has_config: config.is_some() })
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
        let starts = |there: &Json| there["command"].is_string();
        match there {
            None | Some(Json::Null) => Ok(put(text, &path, &Json::Object(entry.clone()))?),
            Some(there) if !is_moonlark(&there) => Err(self.not_ours(label).into()),
            Some(there) if !starts(&there) => Ok(put(text, &path, &Json::Object(entry.clone()))?),
            Some(_) => {
                let mut text = text.to_owned();
                for (key, value) in entry {
                    text = put(&text, &[path[0], path[1], key.as_str()], value)?;
                }
                Ok(text)
            }
        }
    }

    fn take_out(&self, file: &Found) -> Result<Outcome, Failure> {
        let outcome = |did, text, copy| Outcome { did, text, copy, has_config: true };
        let text = file.text();
        let root = jsonc::parse(text).map_err(|fault| fault.problem(text, &file.label))?;
        let Some(entry) = root.as_ref().and_then(|root| root.find(&self.path())) else {
            return Ok(outcome(Did::Nothing, file.text.clone(), None));
        };
        let entry = entry.to_json();
        if !is_moonlark(&entry) {
            return Err(self.not_ours(&file.label).into());
        }
        let copy = file.backup()?;
        // Nothing but our entry differs from before: that is what comes back.
        let again = match &entry {
            Json::Object(entry) => self.with_entry(copy.text(), entry, &copy.label).ok(),
            _ => None,
        };
        if again.as_deref() == Some(text) {
            return Ok(outcome(Did::Undone, copy.text, Some(Copy::Drop)));
        }
        let text =
            self.without_entry(text, &copy).map_err(|fault| fault.problem(text, &file.label))?;
        Ok(outcome(Did::Undone, Some(text), None))
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
}

impl Report<'_> {
    fn say(&self) {
        let Install { client, name, dry_run, .. } = self.install;
        let (title, label) = (client.title(), &self.file.label);
        if let Some(diff) = self.diff() {
            print(&format!("{diff}\n"));
        }
        let would = if *dry_run { "Would be: " } else { "" };
        print(&match self.outcome.did {
            Did::Installed => format!("{would}Registered with {title} as {name}, in {label}"),
            Did::Updated => format!("{would}Updated {name} of {title}, in {label}"),
            Did::Unchanged => format!("Nothing to do: {title} has {name} already, in {label}"),
            Did::Undone => format!("{would}Took {name} out of {title}, in {label}"),
            Did::Nothing => format!("Nothing to undo: {title} has no {name}, in {label}"),
        });
        if *dry_run {
            return;
        }
        if matches!(self.outcome.did, Did::Installed | Did::Updated | Did::Undone) {
            if let Some(copy) = self.copy() {
                print(&format!("The file from before is kept as {copy}"));
            }
            print(&format!("Restart {title} for the change to count"));
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
        json!({
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

fn arguments(config: Option<&Path>) -> Result<Vec<String>, Failure> {
    let mut args = vec!["stdio".to_owned()];
    if let Some(config) = config {
        if !config.is_file() {
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
