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
use super::{Done, Failure, Global, here, print, print_json, print_text, shown};
use crate::clients::entry::shown_token;
use crate::clients::file::{Found, first_there};
use crate::clients::places::Places;
use crate::clients::registration::Registration;
use crate::clients::{Client, diff};
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
    /// With --only: take this Moonlark of another project out of the client's file as well. May be given more than once.
    #[arg(long, value_name = "NAME", requires = "only")]
    drop: Vec<String>,
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
        let paths = if self.project {
            places.project_files(self.client)
        } else {
            places.user_files(self.client)
        };
        let Some(path) = first_there(&paths) else {
            let said = format!("{} has no file of a project", self.client.title());
            super::command().error(ErrorKind::ArgumentConflict, said).exit()
        };
        let file = Found::read(path, label(path, &cwd))?;
        let mut moved = None;
        if self.only {
            moved = Some(MovedServers::find(&self, &file, &places, global)?);
        }
        let outcome = if self.undo {
            self.take_out(&file)?
        } else {
            let config = config_file::in_effect(global.config.as_deref(), &cwd, &environment);
            // What is imported makes the file, if it is missing.
            let made = || Some(config_path(global, &cwd)).filter(|_| moved.is_some());
            let config = config.or_else(made);
            let entry = if self.http {
                self.http_entry(&file, global).await?
            } else {
                self.stdio_entry(config.as_deref(), moved.is_some())?
            };
            if let Some(moved) = &mut moved {
                moved.sort_others(&self, &entry, &file.label)?;
            }
            self.put_in(&file, &entry, config.is_some() || self.http, moved.as_ref())?
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
        Ok(self.client.entry(&self.name, &this_binary()?, &arguments, program_folders().as_deref()))
    }

    fn put_in(
        &self,
        file: &Found,
        entry: &Map<String, Json>,
        has_config: bool,
        moved: Option<&MovedServers>,
    ) -> Result<Outcome, Failure> {
        let place = self.registration(file);
        let names = moved.map(MovedServers::names).unwrap_or_default();
        let text = place.without_servers(file.text(), &names)?;
        let text = place.with_entry(&text, entry)?;
        let did = match (text == file.text(), place.find(file.text())?.is_some()) {
            (true, _) => Did::Unchanged,
            (false, true) => Did::Updated,
            (false, false) => Did::Installed,
        };
        let keep = (did != Did::Unchanged).then_some(Copy::Keep);
        let has_token = shown_token(&Json::Object(entry.clone())).is_some();
        Ok(Outcome {
            did,
            text: Some(text),
            copy: keep,
            has_config,
            has_token,
            left_in_copy: Vec::new(),
        })
    }

    fn take_out(&self, file: &Found) -> Result<Outcome, Failure> {
        let outcome = |did, text, copy| Outcome {
            did,
            text,
            copy,
            has_config: true,
            has_token: false,
            left_in_copy: Vec::new(),
        };
        let (text, place) = (file.text(), self.registration(file));
        let Some(entry) = place.find(text)? else {
            return Ok(outcome(Did::Nothing, file.text.clone(), None));
        };
        if !place.is_ours(&entry) {
            return Err(place.not_ours().into());
        }
        let copy = file.backup()?;
        let mut gone = place.server_names(copy.text());
        let now = place.server_names(text);
        gone.retain(|name| *name != self.name && !now.contains(name));
        // Nothing but our entry, and servers that made room for it, differs from before:
        // that is what comes back.
        let again = match &entry {
            Json::Object(entry) => place
                .without_servers(copy.text(), &gone)
                .and_then(|text| place.with_entry(&text, entry))
                .ok(),
            _ => None,
        };
        if again.as_deref() == Some(text) {
            return Ok(outcome(Did::Undone, copy.text, Some(Copy::Drop)));
        }
        let text = place.without_entry(text, copy.text())?;
        Ok(Outcome { left_in_copy: gone, ..outcome(Did::Undone, Some(text), None) })
    }

    /// Our entry in that file.
    fn registration<'a>(&'a self, file: &'a Found) -> Registration<'a> {
        let Install { client, name, .. } = self;
        Registration { client: *client, name, syntax: file.syntax(), label: &file.label }
    }
}

/// What is to be done with the client's file.
struct Outcome {
    did: Did,
    /// Its text afterwards; none for no file.
    text: Option<String>,
    copy: Option<Copy>,
    has_config: bool,
    /// Our entry shows a token, so that a new file is its owner's alone.
    has_token: bool,
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
            Some(text) => file.replace(text, self.has_token)?,
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
            print_text(format!("{diff}\n"));
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
        if self.outcome.has_token && self.install.project {
            print(format!("{label} holds a token: keep it out of what you commit"));
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
        let place = self.install.registration(self.file);
        let old = self.file.text.as_deref().map(|text| place.without_secrets(text));
        let new = self.outcome.text.as_deref().map(|text| place.without_secrets(text));
        diff::unified(old.as_deref(), new.as_deref(), &self.file.label, 3)
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
