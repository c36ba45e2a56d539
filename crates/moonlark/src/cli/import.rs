//! `moonlark import`: servers from another client's configuration into ours.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use moonlark_core::{Problem, ProblemCode, SourceLocation};
use serde_json::{Value as Json, json};

use super::{
    CommandError, CommandResult, GlobalArgs, display_path, env_variable, find_config_path,
    path_label, print_json, print_line, print_text, working_dir,
};
use moonlark_clients::config_paths::config_files_in;
use moonlark_clients::config_paths::{ClientConfigPaths, client_of_file};
use moonlark_clients::config_syntax::ConfigSyntax;
use moonlark_clients::import_plan::{
    self, ImportFate, ImportInput, ImportPlan, PlannedEntry, RequiredVariable,
};
use moonlark_clients::imported_server::{self, ClientFileOrigin, ImportedEntry, ImportedServer};
use moonlark_clients::{ClientApp, diff, other_project};
use moonlark_config::config_file::CONFIG_FILE_NAME;
use moonlark_config::config_json_schema;
use moonlark_state::secrets_file::{self, SecretsFile};
use moonlark_state::user_text_file::UserTextFile;

/// Nobody has more servers, and each is compared with all others.
const MAX_IMPORTED_SERVERS: usize = 1000;

#[derive(Args)]
pub(crate) struct ImportArgs {
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

impl ImportArgs {
    pub(crate) fn run(self, global: &GlobalArgs) -> CommandResult {
        let cwd = working_dir()?;
        let places = ClientConfigPaths::for_user(&cwd, &env_variable)?;
        let mut found = ImportInput::default();
        let client = ClientApp::from_str(&self.from, false).ok();
        for file in self.read_files(client, &places, &cwd)? {
            let client = client.or_else(|| client_of_file(&file.path));
            if ConfigSyntax::from_path(&file.path) == ConfigSyntax::Toml
                && client != Some(ClientApp::Codex)
            {
                let path = config_path(global, &cwd);
                add_other_project(&file, path.parent().unwrap_or(&cwd), &mut found)?;
            } else {
                found.servers.extend(read_servers(&file, client, &places)?);
            }
        }
        let import = PreparedImport::new(found, &self.from, self.keep_secrets, global, &cwd)?;
        if !self.dry_run {
            import.apply_changes()?;
        }
        let report = ImportReport {
            import: &import,
            dry_run: self.dry_run,
            label: import.secrets_label(&cwd),
        };
        if global.json {
            print_json(&report.to_json())
        } else {
            report.print_report()
        }
        Ok(())
    }

    /// The files that are there, read.
    fn read_files(
        &self,
        client: Option<ClientApp>,
        places: &ClientConfigPaths,
        cwd: &Path,
    ) -> Result<Vec<UserTextFile>, CommandError> {
        let Some(client) = client else {
            let file = UserTextFile::read(&cwd.join(&self.from), self.from.clone())?;
            if file.text.is_none() {
                return Err(Problem::new(ProblemCode::NotFound, "there is no such file")
                    .at_location(SourceLocation::in_file(&self.from))
                    .with_hint(format!("name a file, or one of {}", ClientApp::all_cli_names()))
                    .into());
            }
            return Ok(vec![file]);
        };
        let mut paths = places.all_files(client);
        for path in places.all_folders(client).iter().flat_map(|folder| config_files_in(folder)) {
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
        let mut files = Vec::new();
        for path in &paths {
            let file = UserTextFile::read(path, path_label(path, cwd))?;
            files.extend(file.text.is_some().then_some(file));
        }
        if files.is_empty() {
            let looked: Vec<String> = paths.iter().map(|path| path_label(path, cwd)).collect();
            let problem = Problem::new(
                ProblemCode::NotFound,
                format!("{} has no configuration", client.display_name()),
            );
            let hint = format!("name the file; looked for {}", looked.join(", "));
            return Err(problem.with_hint(hint).into());
        }
        Ok(files)
    }
}

/// What an import does, before it is done.
pub(super) struct PreparedImport {
    pub(super) plan: ImportPlan,
    /// Our configuration as it is.
    target: UserTextFile,
    root: PathBuf,
    keep_secrets: bool,
}

impl PreparedImport {
    /// `from` is what people know the servers by.
    pub(super) fn new(
        mut found: ImportInput,
        from: &str,
        keep_secrets: bool,
        global: &GlobalArgs,
        cwd: &Path,
    ) -> Result<PreparedImport, CommandError> {
        if found.servers.len() + found.tables.len() > MAX_IMPORTED_SERVERS {
            let hint = "copy those that you want into a file of its own";
            let said = format!("there are more than {MAX_IMPORTED_SERVERS} servers in it");
            return Err(Problem::limit_exceeded(said)
                .at_location(SourceLocation::in_file(from))
                .with_hint(hint)
                .into());
        }
        let path = config_path(global, cwd);
        for server in found.servers.iter_mut().filter_map(|(_, it)| it.server.as_mut().ok()) {
            drop_default_cwd(server, path.parent());
        }
        let target = UserTextFile::read(&path, path_label(&path, cwd))?;
        let root = path.parent().unwrap_or(cwd).to_owned();
        let secrets = SecretsFile::read(&root).0;
        let values =
            |name: &str| env_variable(name).or_else(|| Some(secrets.get(name)?.to_owned()));
        let plan =
            import_plan::plan_import(target.text(), &target.label, found, keep_secrets, &values)?;
        Ok(PreparedImport { plan, target, root, keep_secrets })
    }

    pub(super) fn has_changes(&self) -> bool {
        self.plan.text != self.target.text()
    }

    pub(super) fn apply_changes(&self) -> CommandResult {
        if self.has_changes() {
            // First of all: the new tables need them.
            secrets_file::add_secrets(&self.root, &self.plan.secrets)?;
            self.target.replace_text(&self.plan.text, self.writes_secrets())?;
        }
        Ok(())
    }

    /// Whether secrets go into our configuration: there is more than people are shown.
    fn writes_secrets(&self) -> bool {
        let shown = || import_plan::append_to_config(self.target.text(), &self.plan.shown);
        self.keep_secrets && self.plan.text != shown()
    }

    /// The file of secrets, as people in this folder know it.
    pub(super) fn secrets_label(&self, cwd: &Path) -> String {
        path_label(&secrets_file::secrets_file_path(&self.root), cwd)
    }
}

/// Our configuration file, there or not.
pub(super) fn config_path(global: &GlobalArgs, cwd: &Path) -> PathBuf {
    find_config_path(global, cwd).unwrap_or_else(|| cwd.join(CONFIG_FILE_NAME))
}

/// What a project of another system has.
fn add_other_project(file: &UserTextFile, root: &Path, found: &mut ImportInput) -> CommandResult {
    let folder = file.path.parent().unwrap_or(root);
    let project = other_project::read_other_project(
        file.text(),
        &file.label,
        folder,
        root,
        config_json_schema().clone(),
    )?;
    let of_file = || file.label.clone();
    found.servers.extend(project.servers.into_iter().map(|it| (of_file(), it)));
    found.tables.extend(project.tables.into_iter().map(|it| (of_file(), it)));
    found.left_out.extend(project.left_out.into_iter().map(|it| (of_file(), it)));
    Ok(())
}

/// The servers of one file, each with the file's name.
fn read_servers(
    file: &UserTextFile,
    client: Option<ClientApp>,
    places: &ClientConfigPaths,
) -> Result<Vec<(String, ImportedEntry)>, CommandError> {
    let Some(document) = parse_client_file(file)? else { return Ok(Vec::new()) };
    let project = places.project_of(&file.path);
    let origin = ClientFileOrigin { client, project, home: places.home() };
    let entries = match imported_server::read_entries(&document, origin, &read_named_file) {
        Some(entries) => entries,
        // Settings that have no servers are nothing wrong; another file is.
        None if document.is_object() && (client.is_some() || is_settings_file(&file.path)) => {
            Vec::new()
        }
        None => {
            return Err(Problem::bad_request(
                "this is no configuration of MCP servers that is known",
            )
            .at_location(SourceLocation::in_file(&file.label))
            .with_hint("it should have mcpServers, servers, mcp.servers, context_servers, mcp_servers, mcp or extensions")
            .into());
        }
    };
    Ok(entries.into_iter().map(|entry| (file.label.clone(), entry)).collect())
}

/// What is in the file; none if it is empty.
pub(super) fn parse_client_file(file: &UserTextFile) -> Result<Option<Json>, Problem> {
    let root = ConfigSyntax::from_path(&file.path).parse(file.text());
    let root = root.map_err(|fault| fault.to_problem(file.text(), &file.label))?;
    Ok(root.map(|root| root.to_json()))
}

/// A file that an entry names.
pub(super) fn read_named_file(path: &Path) -> Option<String> {
    UserTextFile::read(path, display_path(path)).ok()?.text
}

/// Our servers start in the folder of our file anyway.
fn drop_default_cwd(server: &mut ImportedServer, folder: Option<&Path>) {
    if server.cwd.as_deref().map(Path::new) == folder {
        server.cwd = None;
    }
}

/// Files that hold more than servers.
fn is_settings_file(path: &Path) -> bool {
    let names = ["settings.json", ".claude.json", "claude_desktop_config.json"];
    names.iter().any(|name| path.ends_with(name))
}

/// What came of it.
pub(super) struct ImportReport<'a> {
    pub(super) import: &'a PreparedImport,
    pub(super) dry_run: bool,
    /// Of the file of secrets.
    pub(super) label: String,
}

impl ImportReport<'_> {
    pub(super) fn print_report(&self) {
        if let Some(diff) = self.config_diff() {
            print_text(format!("{diff}\n"));
        }
        let names = |planned: &PlannedEntry| match &planned.fate {
            ImportFate::Added { name, .. } if *name == planned.from => Some(name.clone()),
            ImportFate::Added { name, .. } => Some(format!("{name} ({})", planned.from)),
            _ => None,
        };
        let added: Vec<String> = self.import.plan.servers.iter().filter_map(names).collect();
        let did = if self.dry_run { "Would add to" } else { "Added to" };
        match (added.is_empty(), self.import.plan.servers.is_empty()) {
            (false, _) => {
                print_line(format!("{did} {}: {}", self.import.target.label, added.join(", ")))
            }
            (true, false) => print_line(format!("Nothing to add to {}", self.import.target.label)),
            (true, true) => print_line("There are no servers to import"),
        }
        for planned in &self.import.plan.servers {
            let from = &planned.from;
            match &planned.fate {
                ImportFate::Added { notes, advice, .. } => {
                    if !notes.is_empty() {
                        print_line(format!("  {from}: without {}", notes.join(", ")));
                    }
                    if let Some(advice) = advice {
                        print_line(format!("  {from}: {advice}"));
                    }
                }
                ImportFate::There { name } => {
                    print_line(format!("  {from}: there already, as {name}"))
                }
                ImportFate::LeftOut { why } => print_line(format!("  {from}: left out, {why}")),
            }
        }
        let (kept, others): (Vec<&RequiredVariable>, Vec<&RequiredVariable>) =
            self.import.plan.variables.iter().partition(|variable| variable.is_kept);
        if !kept.is_empty() {
            let did = if self.dry_run { "Would keep" } else { "Kept" };
            print_line(format!("{did} secrets in {}, for you alone:", self.label));
        }
        for variable in kept {
            print_line(format!("  {} for {}", variable.name, variable.servers.join(", ")));
        }
        if !others.is_empty() {
            print_line(format!("Set these variables, or add them to {}:", self.label));
        }
        for variable in others {
            let set = if variable.is_set { " (has a value in this shell)" } else { "" };
            print_line(format!("  {} for {}{set}", variable.name, variable.servers.join(", ")));
        }
        if self.import.writes_secrets() {
            let (label, is) =
                (&self.import.target.label, if self.dry_run { "would be" } else { "is now" });
            print_line(format!(
                "{label} holds secrets: it {is} readable by you alone; keep it out of what you commit"
            ));
        }
    }

    pub(super) fn to_json(&self) -> Json {
        let server = |planned: &PlannedEntry| {
            let mut json = json!({ "from": planned.from, "file": planned.file });
            match &planned.fate {
                ImportFate::Added { name, notes, advice } => {
                    json["did"] = json!("added");
                    json["name"] = json!(name);
                    json["without"] = json!(notes);
                    if let Some(advice) = advice {
                        json["advice"] = json!(advice);
                    }
                }
                ImportFate::There { name } => {
                    json["did"] = json!("unchanged");
                    json["name"] = json!(name);
                }
                ImportFate::LeftOut { why } => {
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
            "changed": self.import.has_changes() && !self.dry_run,
            "dry_run": self.dry_run,
            "servers": self.import.plan.servers.iter().map(server).collect::<Vec<_>>(),
            "variables": variables,
            "secrets_file": (!self.import.plan.secrets.is_empty()).then_some(&self.label),
            "diff": self.config_diff(),
        })
    }

    /// Only what is new: the lines before it may hold secrets.
    fn config_diff(&self) -> Option<String> {
        let old = self.import.target.text.as_ref().map(|text| {
            if text.is_empty() || text.ends_with('\n') { text.clone() } else { format!("{text}\n") }
        });
        let new = import_plan::append_to_config(
            old.as_deref().unwrap_or_default(),
            &self.import.plan.shown,
        );
        self.import
            .has_changes()
            .then(|| diff::unified_diff(old.as_deref(), Some(&new), &self.import.target.label, 0))?
    }
}
