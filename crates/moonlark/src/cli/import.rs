//! `moonlark import`: servers from another client's configuration into ours.

use std::path::Path;

use clap::{Args, ValueEnum};
use moonlark_core::{Code, Place, Problem};
use serde_json::{Value as Json, json};

use super::{Done, Failure, Global, here, print, shown};
use crate::clients::file::Found;
use crate::clients::places::{Places, project_of};
use crate::clients::plan::{self, Fate, Plan, Planned};
use crate::clients::server::{self, Entry, Server};
use crate::clients::{Client, diff, jsonc};
use crate::config_file::{self, FILE_NAME};

/// Nobody has more servers, and each is compared with all others.
const MOST: usize = 1000;

#[derive(Args)]
pub(crate) struct Import {
    /// A file with servers, or claude-desktop, cursor, vscode, zed or claude-code for that client's.
    #[arg(value_name = "FILE|CLIENT")]
    from: String,
    /// Show what would be done, and do nothing.
    #[arg(long)]
    dry_run: bool,
    /// Write secrets into the file instead of variables.
    #[arg(long)]
    keep_secrets: bool,
}

impl Import {
    pub(crate) fn run(self, global: &Global) -> Done {
        let cwd = here()?;
        let env = |name: &str| std::env::var(name).ok();
        let places = Places::find(&cwd, &env)?;
        let mut found = Vec::new();
        for file in self.files(&places, &cwd)? {
            found.extend(servers(&file, &places)?);
        }
        if found.len() > MOST {
            let hint = "copy those that you want into a file of its own";
            let said = format!("there are more than {MOST} servers in it");
            return Err(Problem::limit(said).at(Place::file(&self.from)).hint(hint).into());
        }
        let path = config_file::in_effect(global.config.as_deref(), &cwd, &env)
            .unwrap_or_else(|| cwd.join(FILE_NAME));
        for server in found.iter_mut().filter_map(|(_, entry)| entry.server.as_mut().ok()) {
            drop_cwd(server, path.parent());
        }
        let target = Found::read(&path, label(&path, &cwd))?;
        let plan = plan::make(target.text(), &target.label, found, self.keep_secrets, &env)?;
        let changes = plan.text != target.text();
        if changes && !self.dry_run {
            target.replace(&plan.text, self.keep_secrets)?;
        }
        let report = Report {
            plan,
            before: target.text,
            file: target.label,
            changes,
            dry_run: self.dry_run,
            keep_secrets: self.keep_secrets,
        };
        if global.json {
            print(&report.to_json().to_string())
        } else {
            report.say()
        }
        Ok(())
    }

    /// The files that are there, read.
    fn files(&self, places: &Places, cwd: &Path) -> Result<Vec<Found>, Failure> {
        let Ok(client) = Client::from_str(&self.from, false) else {
            let file = Found::read(&cwd.join(&self.from), self.from.clone())?;
            if file.text.is_none() {
                let clients: Vec<String> =
                    Client::value_variants().iter().map(|client| client.word()).collect();
                return Err(Problem::new(Code::NotFound, "there is no such file")
                    .at(Place::file(&self.from))
                    .hint(format!("name a file, or one of {}", clients.join(", ")))
                    .into());
            }
            return Ok(vec![file]);
        };
        let paths = places.all_files(client);
        let mut files = Vec::new();
        for path in &paths {
            let file = Found::read(path, label(path, cwd))?;
            files.extend(file.text.is_some().then_some(file));
        }
        if files.is_empty() {
            let looked: Vec<String> = paths.iter().map(|path| label(path, cwd)).collect();
            let problem =
                Problem::new(Code::NotFound, format!("{} has no configuration", client.title()));
            let hint = format!("name the file; looked for {}", looked.join(", "));
            return Err(problem.hint(hint).into());
        }
        Ok(files)
    }
}

/// The servers of one file, each with the file's name.
fn servers(file: &Found, places: &Places) -> Result<Vec<(String, Entry)>, Failure> {
    let root =
        jsonc::parse(file.text()).map_err(|fault| fault.problem(file.text(), &file.label))?;
    let Some(root) = root else { return Ok(Vec::new()) };
    // The user's own files lie in folders of the same name.
    let project = project_of(&file.path).filter(|project| *project != places.home());
    let read_file = |path: &Path| Found::read(path, shown(path)).ok()?.text;
    let entries = server::all(&root.to_json(), project, places.home(), &read_file);
    let entries = match entries {
        Some(entries) => entries,
        // Settings that have no servers are nothing wrong; another file is.
        None if is_settings(&file.path) => Vec::new(),
        None => {
            return Err(Problem::bad_request(
                "this is no configuration of MCP servers that is known",
            )
            .at(Place::file(&file.label))
            .hint("it should have mcpServers, servers, mcp.servers or context_servers")
            .into());
        }
    };
    Ok(entries.into_iter().map(|entry| (file.label.clone(), entry)).collect())
}

/// Our servers start in the folder of our file anyway.
fn drop_cwd(server: &mut Server, folder: Option<&Path>) {
    if server.cwd.as_deref().map(Path::new) == folder {
        server.cwd = None;
    }
}

/// Files that hold more than servers.
fn is_settings(path: &Path) -> bool {
    let names = ["settings.json", ".claude.json", "claude_desktop_config.json"];
    names.iter().any(|name| path.ends_with(name))
}

/// The path as people in this folder know it.
pub(super) fn label(path: &Path, cwd: &Path) -> String {
    shown(path.strip_prefix(cwd).unwrap_or(path))
}

/// What came of it.
struct Report {
    plan: Plan,
    /// The text as it was.
    before: Option<String>,
    file: String,
    changes: bool,
    dry_run: bool,
    keep_secrets: bool,
}

impl Report {
    fn say(&self) {
        if let Some(diff) = self.diff() {
            print(&format!("{diff}\n"));
        }
        let names = |planned: &Planned| match &planned.fate {
            Fate::Added { name, .. } if *name == planned.from => Some(name.clone()),
            Fate::Added { name, .. } => Some(format!("{name} ({})", planned.from)),
            _ => None,
        };
        let added: Vec<String> = self.plan.servers.iter().filter_map(names).collect();
        let did = if self.dry_run { "Would add to" } else { "Added to" };
        match (added.is_empty(), self.plan.servers.is_empty()) {
            (false, _) => print(&format!("{did} {}: {}", self.file, added.join(", "))),
            (true, false) => print(&format!("Nothing to add to {}", self.file)),
            (true, true) => print("There are no servers to import"),
        }
        for planned in &self.plan.servers {
            let from = &planned.from;
            match &planned.fate {
                Fate::Added { notes, .. } if !notes.is_empty() => {
                    print(&format!("  {from}: without {}", notes.join(", ")));
                }
                Fate::Added { .. } => {}
                Fate::There { name } => print(&format!("  {from}: there already, as {name}")),
                Fate::LeftOut { why } => print(&format!("  {from}: left out, {why}")),
            }
        }
        if !self.plan.variables.is_empty() {
            print("Set these variables before Moonlark starts again:");
        }
        for variable in &self.plan.variables {
            let set = if variable.is_set { " (has a value now)" } else { "" };
            print(&format!("  {} for {}{set}", variable.name, variable.servers.join(", ")));
        }
        if self.keep_secrets && self.changes {
            print(&format!("{} may hold secrets now: keep it to yourself", self.file));
        }
    }

    fn to_json(&self) -> Json {
        let server = |planned: &Planned| {
            let mut json = json!({ "from": planned.from, "file": planned.file });
            match &planned.fate {
                Fate::Added { name, notes } => {
                    json["did"] = json!("added");
                    json["name"] = json!(name);
                    json["without"] = json!(notes);
                }
                Fate::There { name } => {
                    json["did"] = json!("unchanged");
                    json["name"] = json!(name);
                }
                Fate::LeftOut { why } => {
                    json["did"] = json!("left");
                    json["why"] = json!(why);
                }
            }
            json
        };
        let variables: Vec<Json> = self
            .plan
            .variables
            .iter()
            .map(|it| json!({ "name": it.name, "for": it.servers, "set": it.is_set }))
            .collect();
        json!({
            "file": self.file,
            "changed": self.changes && !self.dry_run,
            "dry_run": self.dry_run,
            "servers": self.plan.servers.iter().map(server).collect::<Vec<_>>(),
            "variables": variables,
            "diff": self.diff(),
        })
    }

    /// Only what is new: the lines before it may hold secrets.
    fn diff(&self) -> Option<String> {
        let old = self.before.as_ref().map(|text| match text.is_empty() || text.ends_with('\n') {
            true => text.clone(),
            false => format!("{text}\n"),
        });
        let new = plan::join(old.as_deref().unwrap_or_default(), &self.plan.shown);
        self.changes.then(|| diff::unified(old.as_deref(), Some(&new), &self.file, 0))?
    }
}
