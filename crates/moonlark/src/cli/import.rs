//! `moonlark import`: servers from another client's configuration into ours.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use moonlark_core::{Code, Place, Problem};
use serde_json::{Value as Json, json};

use super::{Done, Failure, Global, here, print, print_json, print_text, shown};
use crate::clients::config_text::ConfigSyntax;
use crate::clients::file::{Found, files_in};
use crate::clients::places::{Places, client_of};
use crate::clients::plan::{self, Fate, Imported, Plan, Planned, Variable};
use crate::clients::server::{self, Entry, FileOrigin, Server};
use crate::clients::{Client, diff, other_project};
use crate::config_file::{self, FILE_NAME};
use crate::secrets_file::{self, SecretsFile};

/// Nobody has more servers, and each is compared with all others.
const MOST: usize = 1000;

#[derive(Args)]
pub(crate) struct Import {
    /// A file with servers, a ctx.toml or toolscript.toml, or a client for all that it has:
    /// claude-desktop, cursor, vscode, zed, claude-code, codex, gemini, opencode, qwen,
    /// continue, windsurf, cline or goose.
    #[arg(value_name = "FILE|CLIENT")]
    from: String,
    /// Show what would be done, and do nothing.
    #[arg(long)]
    dry_run: bool,
    /// Write secrets into moonlark.toml, instead of into .moonlark/secrets.env.
    #[arg(long)]
    keep_secrets: bool,
}

impl Import {
    pub(crate) fn run(self, global: &Global) -> Done {
        let cwd = here()?;
        let places = Places::find(&cwd, &environment)?;
        let mut found = Imported::default();
        let client = Client::from_str(&self.from, false).ok();
        for file in self.files(client, &places, &cwd)? {
            let client = client.or_else(|| client_of(&file.path));
            if file.syntax() == ConfigSyntax::Toml && client != Some(Client::Codex) {
                let path = config_path(global, &cwd);
                read_project(&file, path.parent().unwrap_or(&cwd), &mut found)?;
            } else {
                found.servers.extend(servers(&file, client, &places)?);
            }
        }
        let import = PreparedImport::make(found, &self.from, self.keep_secrets, global, &cwd)?;
        if !self.dry_run {
            import.carry_out()?;
        }
        let report = Report { import: &import, dry_run: self.dry_run, label: import.label(&cwd) };
        if global.json {
            print_json(&report.to_json())
        } else {
            report.say()
        }
        Ok(())
    }

    /// The files that are there, read.
    fn files(
        &self,
        client: Option<Client>,
        places: &Places,
        cwd: &Path,
    ) -> Result<Vec<Found>, Failure> {
        let Some(client) = client else {
            let file = Found::read(&cwd.join(&self.from), self.from.clone())?;
            if file.text.is_none() {
                return Err(Problem::new(Code::NotFound, "there is no such file")
                    .at(Place::file(&self.from))
                    .hint(format!("name a file, or one of {}", Client::words()))
                    .into());
            }
            return Ok(vec![file]);
        };
        let mut paths = places.all_files(client);
        for path in places.all_folders(client).iter().flat_map(|folder| files_in(folder)) {
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
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

/// What an import does, before it is done.
pub(super) struct PreparedImport {
    pub(super) plan: Plan,
    /// Our configuration as it is.
    target: Found,
    root: PathBuf,
    keep_secrets: bool,
}

impl PreparedImport {
    /// `from` is what people know the servers by.
    pub(super) fn make(
        mut found: Imported,
        from: &str,
        keep_secrets: bool,
        global: &Global,
        cwd: &Path,
    ) -> Result<PreparedImport, Failure> {
        if found.servers.len() + found.tables.len() > MOST {
            let hint = "copy those that you want into a file of its own";
            let said = format!("there are more than {MOST} servers in it");
            return Err(Problem::limit(said).at(Place::file(from)).hint(hint).into());
        }
        let path = config_path(global, cwd);
        for server in found.servers.iter_mut().filter_map(|(_, it)| it.server.as_mut().ok()) {
            drop_cwd(server, path.parent());
        }
        let target = Found::read(&path, label(&path, cwd))?;
        let root = path.parent().unwrap_or(cwd).to_owned();
        let secrets = SecretsFile::read(&root).0;
        let values = |name: &str| environment(name).or_else(|| Some(secrets.get(name)?.to_owned()));
        let plan = plan::make(target.text(), &target.label, found, keep_secrets, &values)?;
        Ok(PreparedImport { plan, target, root, keep_secrets })
    }

    pub(super) fn changes(&self) -> bool {
        self.plan.text != self.target.text()
    }

    pub(super) fn carry_out(&self) -> Done {
        if self.changes() {
            // First of all: the new tables need them.
            secrets_file::add_secrets(&self.root, &self.plan.secrets)?;
            self.target.replace(&self.plan.text, self.keep_secrets)?;
        }
        Ok(())
    }

    /// The file of secrets, as people in this folder know it.
    pub(super) fn label(&self, cwd: &Path) -> String {
        label(&secrets_file::secrets_path(&self.root), cwd)
    }
}

/// Our configuration file, there or not.
pub(super) fn config_path(global: &Global, cwd: &Path) -> PathBuf {
    config_file::in_effect(global.config.as_deref(), cwd, &environment)
        .unwrap_or_else(|| cwd.join(FILE_NAME))
}

pub(super) fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// What a project of another system has.
fn read_project(file: &Found, root: &Path, found: &mut Imported) -> Done {
    let folder = file.path.parent().unwrap_or(root);
    let project = other_project::read(file.text(), &file.label, folder, root)?;
    let of_file = || file.label.clone();
    found.servers.extend(project.servers.into_iter().map(|it| (of_file(), it)));
    found.tables.extend(project.tables.into_iter().map(|it| (of_file(), it)));
    found.left_out.extend(project.left_out.into_iter().map(|it| (of_file(), it)));
    Ok(())
}

/// The servers of one file, each with the file's name.
fn servers(
    file: &Found,
    client: Option<Client>,
    places: &Places,
) -> Result<Vec<(String, Entry)>, Failure> {
    let root = file.syntax().parse(file.text());
    let root = root.map_err(|fault| fault.problem(file.text(), &file.label))?;
    let Some(root) = root else { return Ok(Vec::new()) };
    let project = places.project_of(&file.path);
    let origin = FileOrigin { client, project, home: places.home() };
    let read_file = |path: &Path| Found::read(path, shown(path)).ok()?.text;
    let entries = match server::all(&root.to_json(), origin, &read_file) {
        Some(entries) => entries,
        // Settings that have no servers are nothing wrong; another file is.
        None if client.is_some() || is_settings(&file.path) => Vec::new(),
        None => {
            return Err(Problem::bad_request(
                "this is no configuration of MCP servers that is known",
            )
            .at(Place::file(&file.label))
            .hint("it should have mcpServers, servers, mcp.servers, context_servers, mcp_servers, mcp or extensions")
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
pub(super) struct Report<'a> {
    pub(super) import: &'a PreparedImport,
    pub(super) dry_run: bool,
    /// Of the file of secrets.
    pub(super) label: String,
}

impl Report<'_> {
    pub(super) fn say(&self) {
        if let Some(diff) = self.diff() {
            print_text(format!("{diff}\n"));
        }
        let names = |planned: &Planned| match &planned.fate {
            Fate::Added { name, .. } if *name == planned.from => Some(name.clone()),
            Fate::Added { name, .. } => Some(format!("{name} ({})", planned.from)),
            _ => None,
        };
        let added: Vec<String> = self.import.plan.servers.iter().filter_map(names).collect();
        let did = if self.dry_run { "Would add to" } else { "Added to" };
        match (added.is_empty(), self.import.plan.servers.is_empty()) {
            (false, _) => {
                print(format!("{did} {}: {}", self.import.target.label, added.join(", ")))
            }
            (true, false) => print(format!("Nothing to add to {}", self.import.target.label)),
            (true, true) => print("There are no servers to import"),
        }
        for planned in &self.import.plan.servers {
            let from = &planned.from;
            match &planned.fate {
                Fate::Added { notes, .. } if !notes.is_empty() => {
                    print(format!("  {from}: without {}", notes.join(", ")));
                }
                Fate::Added { .. } => {}
                Fate::There { name } => print(format!("  {from}: there already, as {name}")),
                Fate::LeftOut { why } => print(format!("  {from}: left out, {why}")),
            }
        }
        let (kept, others): (Vec<&Variable>, Vec<&Variable>) =
            self.import.plan.variables.iter().partition(|variable| variable.is_kept);
        if !kept.is_empty() {
            let did = if self.dry_run { "Would keep" } else { "Kept" };
            print(format!("{did} secrets in {}, for you alone:", self.label));
        }
        for variable in kept {
            print(format!("  {} for {}", variable.name, variable.servers.join(", ")));
        }
        if !others.is_empty() {
            print(format!("Set these variables, or add them to {}:", self.label));
        }
        for variable in others {
            let set = if variable.is_set { " (has a value in this shell)" } else { "" };
            print(format!("  {} for {}{set}", variable.name, variable.servers.join(", ")));
        }
        if self.import.keep_secrets && self.import.changes() {
            print(format!(
                "{} may hold secrets now: keep it to yourself",
                self.import.target.label
            ));
        }
    }

    pub(super) fn to_json(&self) -> Json {
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
            .import
            .plan
            .variables
            .iter()
            .map(|it| json!({ "name": it.name, "for": it.servers, "set": it.is_set, "kept": it.is_kept }))
            .collect();
        json!({
            "file": self.import.target.label,
            "changed": self.import.changes() && !self.dry_run,
            "dry_run": self.dry_run,
            "servers": self.import.plan.servers.iter().map(server).collect::<Vec<_>>(),
            "variables": variables,
            "secrets_file": (!self.import.plan.secrets.is_empty()).then_some(&self.label),
            "diff": self.diff(),
        })
    }

    /// Only what is new: the lines before it may hold secrets.
    fn diff(&self) -> Option<String> {
        let old = self.import.target.text.as_ref().map(|text| {
            match text.is_empty() || text.ends_with('\n') {
                true => text.clone(),
                false => format!("{text}\n"),
            }
        });
        let new = plan::join(old.as_deref().unwrap_or_default(), &self.import.plan.shown);
        self.import
            .changes()
            .then(|| diff::unified(old.as_deref(), Some(&new), &self.import.target.label, 0))?
    }
}
