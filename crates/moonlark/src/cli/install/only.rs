//! `moonlark install --only`: the other servers of a client go behind Moonlark.
//!
//! A server leaves the client's file when the project has it, or gets it now. What
//! cannot be taken over stays where it is, and is named.

use std::path::Path;

use serde_json::{Map, Value as Json, json};

use crate::cli::import::{PreparedImport, Report};
use crate::cli::{Failure, Global, here, shown};
use crate::clients::file::Found;
use crate::clients::places::{Places, project_of};
use crate::clients::plan::{Fate, Imported, Planned};
use crate::clients::{Client, jsonc, server};

/// The other servers of a client's file.
pub(super) struct MovedServers {
    pub(super) import: PreparedImport,
    /// Those that leave the file.
    pub(super) names: Vec<String>,
    secrets_label: String,
}

impl MovedServers {
    pub(super) fn find(
        client: Client,
        file: &Found,
        places: &Places,
        global: &Global,
    ) -> Result<MovedServers, Failure> {
        let root =
            jsonc::parse(file.text()).map_err(|fault| fault.problem(file.text(), &file.label))?;
        let whole = root.map(|root| root.to_json()).unwrap_or_default();
        // Only what the client reads for every project: its other tables are not ours to empty.
        let mut document = Map::new();
        for key in [client.servers_key(), "inputs"] {
            document.extend(whole.get(key).map(|value| (key.to_owned(), value.clone())));
        }
        let project = project_of(&file.path).filter(|project| *project != places.home());
        let read_file = |path: &Path| Found::read(path, shown(path)).ok()?.text;
        let entries = server::all(&Json::Object(document), project, places.home(), &read_file);
        let entries = entries.unwrap_or_default().into_iter();
        let servers = entries.map(|entry| (file.label.clone(), entry)).collect();
        let found = Imported { servers, ..Imported::default() };
        let cwd = here()?;
        let import = PreparedImport::make(found, &file.label, false, global, &cwd)?;
        let taken = |planned: &&Planned| !matches!(planned.fate, Fate::LeftOut { .. });
        let names = import.plan.servers.iter().filter(taken).map(|it| it.from.clone()).collect();
        let secrets_label = import.label(&cwd);
        Ok(MovedServers { import, names, secrets_label })
    }

    pub(super) fn say(&self, dry_run: bool) {
        self.report(dry_run).say();
    }

    pub(super) fn to_json(&self, dry_run: bool) -> Json {
        json!({ "servers": self.names, "import": self.report(dry_run).to_json() })
    }

    fn report(&self, dry_run: bool) -> Report<'_> {
        Report { import: &self.import, dry_run, label: self.secrets_label.clone() }
    }
}

/// The servers of a client's file, in its order.
pub(super) fn server_names(client: Client, text: &str) -> Vec<String> {
    let root = jsonc::parse(text).ok().flatten();
    let servers = root.as_ref().and_then(|root| root.find(&[client.servers_key()]));
    let members = servers.map(|servers| servers.members()).unwrap_or_default();
    members.iter().map(|member| member.key.clone()).collect()
}
