//! `moonlark install --only`: the other servers of a client go behind Moonlark.
//!
//! A server leaves the client's file when the project has it, or gets it now. What
//! cannot be taken over stays where it is, and is named; so does a Moonlark of another
//! project, which is the user's to decide about (`--drop`).

use moonlark_core::{Problem, SourceLocation};
use serde_json::{Map, Value as Json, json};

use super::InstallArgs;
use crate::cli::import::{ImportReport, PreparedImport, parse_client_file, read_named_file};
use crate::cli::{CommandError, GlobalArgs, display_path, print_line, working_dir};
use moonlark_clients::config_paths::ClientConfigPaths;
use moonlark_clients::import_plan::{ImportFate, ImportInput, PlannedEntry};
use moonlark_clients::imported_server::{self, ClientFileOrigin};
use moonlark_clients::registration::is_moonlark_named;
use moonlark_clients::server_entry::{config_argument, reached_url};
use moonlark_state::user_text_file::UserTextFile;

/// The other servers of a client's file.
pub(super) struct MovedServers {
    pub(super) import: PreparedImport,
    /// Those that are in our configuration now.
    taken: Vec<String>,
    /// Moonlark under other names.
    others: Vec<OtherMoonlark>,
    secrets_label: String,
}

/// An entry that starts or reaches Moonlark under another name than the one to install.
struct OtherMoonlark {
    name: String,
    entry: Json,
    fate: OtherMoonlarkFate,
}

#[derive(Clone, Copy, PartialEq)]
enum OtherMoonlarkFate {
    /// Another project, which stays.
    Kept,
    /// Another project, which the user wants out.
    Dropped,
    /// The same project once more.
    Duplicate,
}

impl MovedServers {
    pub(super) fn find_in_file(
        install: &InstallArgs,
        file: &UserTextFile,
        places: &ClientConfigPaths,
        global: &GlobalArgs,
    ) -> Result<MovedServers, CommandError> {
        let whole = parse_client_file(file)?.unwrap_or_default();
        // Only what the client reads for every project: its other tables are not ours to empty.
        let mut document = Map::new();
        for key in [install.client.servers_key(), "inputs"] {
            document.extend(whole.get(key).map(|value| (key.to_owned(), value.clone())));
        }
        let mut others = take_moonlark_entries(document.get_mut(install.client.servers_key()));
        others.retain(|other| other.name != install.name);
        let project = places.project_of(&file.path);
        let origin =
            ClientFileOrigin { client: Some(install.client), project, home: places.home() };
        let document = Json::Object(document);
        let entries = imported_server::read_entries(&document, origin, &read_named_file);
        let entries = entries.unwrap_or_default().into_iter();
        let servers = entries.map(|entry| (file.label.clone(), entry)).collect();
        let found = ImportInput { servers, ..ImportInput::default() };
        let cwd = working_dir()?;
        let import = PreparedImport::new(found, &file.label, false, global, &cwd)?;
        let is_taken =
            |planned: &&PlannedEntry| !matches!(planned.fate, ImportFate::LeftOut { .. });
        let taken = import.plan.servers.iter().filter(is_taken).map(|it| it.from.clone()).collect();
        let secrets_label = import.secrets_label(&cwd);
        Ok(MovedServers { import, taken, others, secrets_label })
    }

    /// Decide about other entries of Moonlark, now that ours is known.
    pub(super) fn decide_other_moonlarks(
        &mut self,
        install: &InstallArgs,
        ours: &Map<String, Json>,
        label: &str,
    ) -> Result<(), CommandError> {
        let ours = Json::Object(ours.clone());
        for other in &mut self.others {
            let same_config = config_argument(&ours).is_some()
                && config_argument(&ours) == config_argument(&other.entry);
            let same_url =
                reached_url(&ours).is_some() && reached_url(&ours) == reached_url(&other.entry);
            other.fate = if same_config || same_url {
                OtherMoonlarkFate::Duplicate
            } else if install.drop.contains(&other.name) {
                OtherMoonlarkFate::Dropped
            } else {
                OtherMoonlarkFate::Kept
            };
        }
        let is_other = |name: &&String| !self.others.iter().any(|other| other.name == **name);
        if let Some(unknown) = install.drop.iter().find(is_other) {
            let names: Vec<&str> = self.others.iter().map(|other| other.name.as_str()).collect();
            let hint = match names.as_slice() {
                [] => "it has no other Moonlark; leave --drop out".to_owned(),
                names => format!("nothing was changed; it has {}", names.join(", ")),
            };
            let message =
                format!("{unknown} is no other Moonlark of {}", install.client.display_name());
            return Err(Problem::bad_request(message)
                .at_location(SourceLocation::in_file(label))
                .with_hint(hint)
                .into());
        }
        Ok(())
    }

    /// Those that leave the file.
    pub(super) fn removed_names(&self) -> Vec<String> {
        let others = self.others.iter().filter(|other| other.fate != OtherMoonlarkFate::Kept);
        self.taken.iter().cloned().chain(others.map(|other| other.name.clone())).collect()
    }

    pub(super) fn print_report(&self, dry_run: bool) {
        self.import_report(dry_run).print_report();
        let would = if dry_run { "Would be taken" } else { "Taken" };
        for other in &self.others {
            let (name, what) = (&other.name, other.describe_project());
            print_line(&match other.fate {
                OtherMoonlarkFate::Kept => {
                    format!("Left in: {name}, {what}; --drop {name} takes it out as well")
                }
                OtherMoonlarkFate::Dropped => format!("{would} out: {name}, {what}"),
                OtherMoonlarkFate::Duplicate => {
                    format!("{would} out: {name}, the same Moonlark once more")
                }
            });
        }
    }

    pub(super) fn to_json(&self, dry_run: bool) -> Json {
        let other = |other: &OtherMoonlark| {
            let did = if other.fate == OtherMoonlarkFate::Kept { "kept" } else { "removed" };
            let config = config_argument(&other.entry).map(|config| display_path(&config));
            let url = reached_url(&other.entry);
            json!({ "name": other.name, "config": config, "url": url, "did": did })
        };
        json!({
            "servers": self.removed_names(),
            "other_moonlarks": self.others.iter().map(other).collect::<Vec<_>>(),
            "import": self.import_report(dry_run).to_json(),
        })
    }

    fn import_report(&self, dry_run: bool) -> ImportReport<'_> {
        ImportReport { import: &self.import, dry_run, label: self.secrets_label.clone() }
    }
}

impl OtherMoonlark {
    /// What it is, for people.
    fn describe_project(&self) -> String {
        let config = config_argument(&self.entry).map(|config| display_path(&config));
        let place = config.or_else(|| reached_url(&self.entry).map(str::to_owned));
        match place {
            Some(place) => format!("Moonlark for {place}"),
            None => "Moonlark for the folder that it is started in".to_owned(),
        }
    }
}

/// Take every entry of Moonlark out of `servers`: it is nothing to import.
fn take_moonlark_entries(servers: Option<&mut Json>) -> Vec<OtherMoonlark> {
    let kept =
        |name: String, entry: Json| OtherMoonlark { name, entry, fate: OtherMoonlarkFate::Kept };
    let mut others = Vec::new();
    match servers {
        Some(Json::Object(servers)) => servers.retain(|name, entry| {
            let is_other = is_moonlark_named(name, entry);
            others.extend(is_other.then(|| kept(name.clone(), entry.clone())));
            !is_other
        }),
        Some(Json::Array(servers)) => servers.retain(|entry| {
            let name = entry["name"].as_str().unwrap_or_default();
            let is_other = is_moonlark_named(name, entry);
            others.extend(is_other.then(|| kept(name.to_owned(), entry.clone())));
            !is_other
        }),
        _ => {}
    }
    others
}
