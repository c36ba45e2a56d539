//! `moonlark install`: Moonlark as a server of another client, and out again.
//!
//! Only one entry of that client's file is ours. Everything else in it, comments
//! and layout included, stays as it is, unless Moonlark is to be the only one (`only`).
//! What a client is told that reaches a server over HTTP is in `http_address`, what becomes
//! of its token in `released_tokens`.

mod http_address;
mod moved_servers;
mod released_tokens;

use std::path::{Path, PathBuf};

use clap::Args;
use clap::error::ErrorKind;
use moonlark_core::{Problem, ProblemCode, SourceLocation};
use serde::Serialize;
use serde_json::{Map, Value as Json, json};

use super::import::config_path;
use super::{
    CommandError, CommandResult, GlobalArgs, display_path, env_variable, find_config_path,
    path_label, print_json, print_line, print_text, working_dir,
};
use moonlark_clients::config_paths::ClientConfigPaths;
use moonlark_clients::config_paths::first_existing;
use moonlark_clients::config_syntax::ConfigSyntax;
use moonlark_clients::registration::ClientRegistration;
use moonlark_clients::server_entry::{config_argument, shown_token};
use moonlark_clients::{ClientApp, diff};
use moonlark_state::user_text_file::UserTextFile;
use moved_servers::MovedServers;
use released_tokens::ReleasedToken;

#[derive(Args)]
pub(crate) struct InstallArgs {
    /// The client to register Moonlark with.
    client: ClientApp,
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
    /// Replace an entry of this name that belongs to another project.
    #[arg(long)]
    replace: bool,
    /// Show what would be done, and do nothing.
    #[arg(long)]
    dry_run: bool,
    /// Take it out again, and put back what was there before.
    #[arg(long, conflicts_with_all = ["only", "http", "replace"])]
    undo: bool,
}

impl InstallArgs {
    pub(crate) async fn run(self, global: &GlobalArgs) -> CommandResult {
        let cwd = working_dir()?;
        let places = ClientConfigPaths::for_user(&cwd, &env_variable)?;
        let paths = if self.project {
            places.project_files(self.client)
        } else {
            places.user_files(self.client)
        };
        let Some(path) = first_existing(&paths) else {
            let said = format!("{} has no file of a project", self.client.display_name());
            super::clap_command().error(ErrorKind::ArgumentConflict, said).exit()
        };
        let file = UserTextFile::read(path, path_label(path, &cwd))?;
        let (mut moved, mut new_token) = (None, None);
        if self.only {
            moved = Some(MovedServers::find_in_file(&self, &file, &places, global)?);
        }
        let outcome = if self.undo {
            self.plan_undo(&file)?
        } else {
            // What is imported makes the file, if it is missing.
            let made = || Some(config_path(global, &cwd)).filter(|_| moved.is_some());
            let config = find_config_path(global, &cwd).or_else(made);
            self.check_same_project(&file, config.as_deref())?;
            let entry = if self.http {
                let (entry, made) = self.http_entry(&file, global).await?;
                new_token = made;
                entry
            } else {
                self.stdio_entry(config.as_deref(), moved.is_some())?
            };
            if let Some(moved) = &mut moved {
                moved.decide_other_moonlarks(&self, &entry, &file.label)?;
            }
            self.plan_install(&file, &entry, config.is_some() || self.http, moved.as_ref())?
        };
        let released = ReleasedToken::find_all(&self, &file, &outcome, global)?;
        let is_narrowed = outcome.has_token && file.text.is_some() && file.is_shared();
        if !self.dry_run {
            if let Some(moved) = &moved {
                moved.import.apply_changes()?;
            }
            outcome.apply_to_file(&file, &self.registration_in(&file))?;
            if let Some(token) = &mut new_token {
                token.mark_written();
            }
            released.iter().try_for_each(ReleasedToken::take_back)?;
        }
        let report = InstallReport {
            install: &self,
            file: &file,
            outcome: &outcome,
            moved: &moved,
            released: &released,
            is_narrowed,
        };
        if global.json {
            print_json(&report.to_json())
        } else {
            report.print_report()
        }
        Ok(())
    }

    /// A server that starts in the empty environment of a client of the desktop.
    fn stdio_entry(
        &self,
        config: Option<&Path>,
        will_be_made: bool,
    ) -> Result<Map<String, Json>, CommandError> {
        let arguments = stdio_arguments(config, will_be_made)?;
        Ok(self.client.stdio_entry(
            &self.name,
            &binary_path()?,
            &arguments,
            program_search_path().as_deref(),
        ))
    }

    /// An entry of this name may belong to another project, whose tools the client would
    /// lose. One whose configuration file is gone is no project any more.
    fn check_same_project(&self, file: &UserTextFile, config: Option<&Path>) -> CommandResult {
        let there = self.registration_in(file).find_entry(file.text())?;
        let other = there.as_ref().and_then(config_argument).filter(|other| other.is_file());
        let Some(other) = other.filter(|_| !self.replace) else { return Ok(()) };
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if config.is_some_and(|config| real(config) == real(&other)) {
            return Ok(());
        }
        let (name, title) = (&self.name, self.client.display_name());
        let other = display_path(&other);
        Err(Problem::bad_request(format!("{name} of {title} serves another project: {other}"))
            .at_location(SourceLocation::in_file(&*file.label))
            .with_hint(
                "nothing was changed; --name NAME adds this project beside it, and --replace \
                 puts this project in its place",
            )
            .into())
    }

    fn plan_install(
        &self,
        file: &UserTextFile,
        entry: &Map<String, Json>,
        has_config: bool,
        moved: Option<&MovedServers>,
    ) -> Result<InstallOutcome, CommandError> {
        let place = self.registration_in(file);
        let names = moved.map(MovedServers::removed_names).unwrap_or_default();
        let text = place.without_servers(file.text(), &names)?;
        let text = place.with_entry(&text, entry)?;
        let did = match (text == file.text(), place.find_entry(file.text())?.is_some()) {
            (true, _) => InstallAction::Unchanged,
            (false, true) => InstallAction::Updated,
            (false, false) => InstallAction::Installed,
        };
        let copy = (did != InstallAction::Unchanged).then_some(BackupAction::Keep);
        let has_token = shown_token(&Json::Object(entry.clone())).is_some();
        let (text, left_in_copy) = (Some(text), Vec::new());
        Ok(InstallOutcome { did, text, copy, has_config, has_token, left_in_copy })
    }

    fn plan_undo(&self, file: &UserTextFile) -> Result<InstallOutcome, CommandError> {
        let outcome = |did, text, copy| InstallOutcome {
            did,
            text,
            copy,
            has_config: true,
            has_token: false,
            left_in_copy: Vec::new(),
        };
        let (text, place) = (file.text(), self.registration_in(file));
        let Some(entry) = place.find_entry(text)? else {
            return Ok(outcome(InstallAction::Nothing, file.text.clone(), None));
        };
        if !place.is_ours(&entry) {
            return Err(place.not_ours_problem().into());
        }
        let copy = file.read_backup()?;
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
            return Ok(outcome(InstallAction::Undone, copy.text, Some(BackupAction::Drop)));
        }
        let text = place.without_entry(text, copy.text())?;
        Ok(InstallOutcome {
            left_in_copy: gone,
            ..outcome(InstallAction::Undone, Some(text), None)
        })
    }

    /// Our entry in that file.
    fn registration_in<'a>(&'a self, file: &'a UserTextFile) -> ClientRegistration<'a> {
        let InstallArgs { client, name, .. } = self;
        ClientRegistration {
            client: *client,
            name,
            syntax: ConfigSyntax::from_path(&file.path),
            label: &file.label,
        }
    }
}

/// What is to be done with the client's file.
struct InstallOutcome {
    did: InstallAction,
    /// Its text afterwards; none for no file.
    text: Option<String>,
    copy: Option<BackupAction>,
    has_config: bool,
    /// Our entry shows a token, so that the file becomes its owner's alone.
    has_token: bool,
    /// Servers of the copy that were not put back, since more has changed.
    left_in_copy: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum InstallAction {
    Installed,
    Updated,
    Unchanged,
    Undone,
    /// There was nothing to undo.
    Nothing,
}

/// What becomes of the copy from before.
#[derive(Clone, Copy, PartialEq)]
enum BackupAction {
    Keep,
    /// The file is as it was, so the copy says nothing more.
    Drop,
}

impl InstallOutcome {
    fn apply_to_file(&self, file: &UserTextFile, entry: &ClientRegistration<'_>) -> CommandResult {
        if self.text == file.text {
            // It may be from before, or from somebody who shared it since.
            return if self.has_token { Ok(file.make_private()?) } else { Ok(()) };
        }
        if self.copy == Some(BackupAction::Keep) {
            file.create_backup(entry.holds_secret(file.text()))?;
            let copy = file.read_backup()?;
            if entry.holds_secret(copy.text()) {
                copy.make_private()?;
            }
        }
        match &self.text {
            Some(text) => file.replace_text(text, self.has_token)?,
            None => file.remove_file()?,
        }
        if self.copy == Some(BackupAction::Drop) {
            let copy = file.read_backup()?;
            if self.text.is_some() {
                file.restore_permissions(&copy)?;
            }
            copy.remove_if_exists()?;
        }
        Ok(())
    }
}

struct InstallReport<'a> {
    install: &'a InstallArgs,
    file: &'a UserTextFile,
    outcome: &'a InstallOutcome,
    moved: &'a Option<MovedServers>,
    released: &'a [ReleasedToken],
    /// Others could read the file, which has a token now.
    is_narrowed: bool,
}

impl InstallReport<'_> {
    fn print_report(&self) {
        let InstallArgs { client, name, dry_run, .. } = self.install;
        let (title, label) = (client.display_name(), &self.file.label);
        if let Some(diff) = self.file_diff() {
            print_text(format!("{diff}\n"));
        }
        let would = if *dry_run { "Would be: " } else { "" };
        print_line(&match self.outcome.did {
            InstallAction::Installed => {
                format!("{would}Registered with {title} as {name}, in {label}")
            }
            InstallAction::Updated => format!("{would}Updated {name} of {title}, in {label}"),
            InstallAction::Unchanged => {
                format!("Nothing to do: {title} has {name} already, in {label}")
            }
            InstallAction::Undone => format!("{would}Took {name} out of {title}, in {label}"),
            InstallAction::Nothing => format!("Nothing to undo: {title} has no {name}, in {label}"),
        });
        if let Some(moved) = self.moved {
            moved.print_report(*dry_run);
        }
        self.released.iter().for_each(|token| token.print_report(*dry_run));
        if self.is_narrowed {
            let is = if *dry_run { "would be" } else { "is now" };
            print_line(format!("{label} holds a token: it {is} readable by you alone (mode 600)"));
        }
        if *dry_run {
            return;
        }
        if matches!(
            self.outcome.did,
            InstallAction::Installed | InstallAction::Updated | InstallAction::Undone
        ) {
            if let Some(copy) = self.backup_label() {
                print_line(format!("The file from before is kept as {copy}"));
            }
            print_line(format!("Restart {title} to apply the change"));
        }
        if !self.outcome.left_in_copy.is_empty() {
            print_line(format!(
                "Not put back, since more has changed: {}; the copy has them",
                self.outcome.left_in_copy.join(", ")
            ));
        }
        if self.outcome.has_token && self.install.project {
            print_line(format!("{label} holds a token: keep it out of what you commit"));
        }
        if !self.outcome.has_config {
            print_line(
                "There is no moonlark.toml, so it serves the folder that the client starts it in",
            );
            print_line(
                "Make one (an empty file will do) and run this again to say which project it is",
            );
        }
    }

    fn to_json(&self) -> Json {
        let moved = self.moved.as_ref().map(|moved| moved.to_json(self.install.dry_run));
        json!({
            "moved": moved,
            "client": self.install.client.cli_name(),
            "name": self.install.name,
            "file": display_path(&self.file.path),
            "did": self.outcome.did,
            "dry_run": self.install.dry_run,
            "backup": self.backup_label(),
            "made_private": self.is_narrowed,
            "tokens": self.released.iter().map(ReleasedToken::to_json).collect::<Vec<_>>(),
            "diff": self.file_diff(),
        })
    }

    /// The copy, if there is one now.
    fn backup_label(&self) -> Option<String> {
        let path = self.file.backup_path();
        let label = format!("{}.moonlark-backup", self.file.label);
        path.is_file().then_some(label)
    }

    fn file_diff(&self) -> Option<String> {
        let place = self.install.registration_in(self.file);
        let old = self.file.text.as_deref().map(|text| place.without_secrets(text));
        let new = self.outcome.text.as_deref().map(|text| place.without_secrets(text));
        diff::unified_diff(old.as_deref(), new.as_deref(), &self.file.label, 3)
    }
}

/// The path of this binary, as a client has to write it.
fn binary_path() -> Result<String, CommandError> {
    let path = std::env::current_exe().map_err(|error| {
        Problem::unavailable(format!("the path of this program is not known: {error}"))
    })?;
    Ok(utf8_path(&path)?)
}

/// The folders of programs that this shell knows: servers are started by `npx`, `uvx`
/// and the like, and a client of the desktop finds none of them.
fn program_search_path() -> Option<String> {
    let mut folders: Vec<PathBuf> = Vec::new();
    for folder in std::env::split_paths(&std::env::var_os("PATH")?) {
        if folder.is_absolute() && folder.is_dir() && !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    std::env::join_paths(folders).ok()?.into_string().ok().filter(|path| !path.is_empty())
}

fn stdio_arguments(config: Option<&Path>, will_be_made: bool) -> Result<Vec<String>, CommandError> {
    let mut args = vec!["stdio".to_owned()];
    if let Some(config) = config {
        if !will_be_made && !config.is_file() {
            return Err(Problem::new(ProblemCode::NotFound, "there is no such file")
                .at_location(SourceLocation::in_file(display_path(config)))
                .with_hint("name the moonlark.toml of the project with --config")
                .into());
        }
        let config: PathBuf = std::path::absolute(config)?;
        args.extend(["--config".to_owned(), utf8_path(&config)?]);
    }
    Ok(args)
}

fn utf8_path(path: &Path) -> Result<String, Problem> {
    path.to_str().map(str::to_owned).ok_or_else(|| {
        Problem::bad_request("the path is not UTF-8, so JSON cannot hold it")
            .at_location(SourceLocation::in_file(display_path(path)))
            .with_hint("move it to a folder with another name")
    })
}
