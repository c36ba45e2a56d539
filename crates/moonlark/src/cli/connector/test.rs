//! `moonlark connector test`: one script, and what it finds.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use moonlark_core::value::Object;
use moonlark_core::{Problem, Result, Value};
use moonlark_knowledge::{
    ItemContent, ScanFinding, ScanOutcome, SourceConnector, SourceItem, SourceScan,
};
use serde_json::{Value as Json, json};
use tokio::sync::mpsc;

use crate::cli::script_lookup::{self, no_table_problem};
use crate::cli::{
    CommandError, CommandResult, GlobalArgs, display_path, format_count, open_project,
    parse_key_value, print_json, print_line, working_dir,
};
use crate::connectors::ScriptedConnector;
use crate::project::Project;
use crate::scripts::{self, DiscoveredScript, ScriptKind};

#[derive(Args)]
pub(crate) struct ConnectorTestArgs {
    /// The script.
    path: PathBuf,
    /// A key of its configuration; values that are not text are written as JSON.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = parse_key_value)]
    values: Vec<(String, String)>,
    /// Take the settings of this entry under [connectors.script].
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// Initial value of `state`, as JSON.
    #[arg(long, value_name = "JSON")]
    state: Option<String>,
    /// How many items to show.
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    limit: usize,
}

/// What a scan found, the first few by name.
#[derive(Default)]
struct ScanTally {
    items: u64,
    gone: u64,
    first: Vec<SourceItem>,
    failed: Vec<(String, Problem)>,
}

impl ConnectorTestArgs {
    pub(crate) async fn run(self, global: &GlobalArgs) -> CommandResult {
        let say = |line: &str| {
            if !global.json {
                print_line(line);
            }
        };
        let project = open_project(global).await?;
        let source = self.load_connector(&project).await?;
        let label = display_path(&self.path);
        say(&format!("Testing connector: {} ({label})", source.name));
        say("  ✓ Script loaded");
        say("  ✓ connector.scan defined");
        let state = match &self.state {
            Some(text) => Value::parse_json(text.as_bytes())?,
            None => Value::Null,
        };
        let started = Instant::now();
        let (scanned, tally) = scan_source(&source, state, self.limit).await;
        let took = started.elapsed().as_secs_f64();
        if global.json {
            print_json(&scan_json(&scanned, &tally)?);
            let well = scanned.is_ok() && tally.failed.is_empty();
            return if well { Ok(()) } else { Err(CommandError::Said) };
        }
        let gone = if tally.gone > 0 { format!(", {} gone", tally.gone) } else { String::new() };
        let found = format_count(tally.items, "item");
        let mark = if scanned.is_ok() { "✓" } else { "✗" };
        say(&format!("  {mark} Found {found}{gone} in {took:.1}s"));
        for item in &tally.first {
            say(&format!("      {}", item_outline(item)));
        }
        for (name, problem) in &tally.failed {
            say(&format!("  ✗ {name}: {}", problem.message));
            problem.hint.iter().for_each(|hint| say(&format!("      hint: {hint}")));
        }
        let ScanOutcome { complete, state } = scanned?;
        say(if complete {
            "  ✓ The scan is complete: documents that it did not name are removed"
        } else {
            "  ✓ The scan is incremental: what it did not name stays"
        });
        if state != Value::Null && state != Value::Object(Object::new()) {
            say(&format!("  ✓ state = {}", state.to_json_lossy()));
        }
        if tally.failed.is_empty() { Ok(()) } else { Err(CommandError::Said) }
    }

    async fn load_connector(&self, project: &Project) -> Result<ScriptedConnector, CommandError> {
        let loaded = project.loaded_config().await;
        let names = &loaded.config.connectors.script;
        if let Some(name) = self.source.as_ref().filter(|name| !names.contains_key(*name)) {
            let names = names.keys().map(String::as_str);
            return Err(no_table_problem("connectors", name, names).into());
        }
        let whole = working_dir()?.join(&self.path);
        let entry =
            self.source.clone().or_else(|| script_lookup::find_config_entry(&whole, &loaded));
        let entry = entry.filter(|name| names.contains_key(name));
        let found = DiscoveredScript {
            path: whole,
            file: display_path(&self.path),
            configured: entry.clone(),
            kind: ScriptKind::Connector,
        };
        if let Some(problem) = scripts::script_outage(&found, &loaded.config).first() {
            // What --set gives stands in for what is not there.
            let key = |set: &(String, String)| problem.message.contains(&format!(".{} ", set.0));
            if !self.values.iter().any(key) {
                return Err(problem.clone().into());
            }
        }
        let mut prepared = scripts::prepare_script(&found, &loaded)?;
        if !self.values.is_empty() {
            let mut config = match std::mem::take(&mut prepared.scope.config) {
                Value::Object(config) => config,
                _ => Object::new(),
            };
            for (key, text) in &self.values {
                let value = Value::parse_json(text.as_bytes());
                config.insert(key.clone(), value.unwrap_or_else(|_| text.clone().into()));
            }
            prepared.scope.config = Value::Object(config);
        }
        let scope = Arc::new(prepared.scope.clone());
        let script = project.luau.load_connector(prepared, &project.gateway).await.0?;
        let stem = || self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let name = entry.or(script.name.clone()).unwrap_or_else(stem);
        let gateway = project.gateway.clone();
        Ok(ScriptedConnector { name, script, scope, gateway, full: false })
    }
}

async fn scan_source(
    source: &ScriptedConnector,
    state: Value,
    limit: usize,
) -> (Result<ScanOutcome>, ScanTally) {
    let (out, mut found) = mpsc::channel(16);
    let known = Arc::new(|_: &str| None);
    let scanning = Arc::new(source.clone()).scan(SourceScan { known, state, out });
    let counting = async {
        let mut tally = ScanTally::default();
        while let Some(found) = found.recv().await {
            match found {
                ScanFinding::Item(item) => {
                    tally.items += 1;
                    if tally.first.len() < limit {
                        tally.first.push(*item);
                    }
                }
                ScanFinding::Gone(_) => tally.gone += 1,
                ScanFinding::Failed(name, problem) if tally.failed.len() < limit.max(1) => {
                    tally.failed.push((name, problem));
                }
                _ => {}
            }
        }
        tally
    };
    tokio::join!(scanning, counting)
}

/// `ENG-1: Fix the log-in, 1204 characters`
fn item_outline(item: &SourceItem) -> String {
    let title = item.title.as_deref().map(|title| format!(": {title}")).unwrap_or_default();
    let size = match &item.content {
        ItemContent::Text(text) => format_count(text.chars().count(), "character"),
        ItemContent::Bytes(bytes) => format_count(bytes.len(), "byte"),
    };
    format!("{}{title}, {size}", item.source_id)
}

fn scan_json(scanned: &Result<ScanOutcome>, tally: &ScanTally) -> Result<Json> {
    let items: Vec<Json> = tally.first.iter().map(item_json).collect::<Result<_>>()?;
    let failed: Vec<Json> = tally
        .failed
        .iter()
        .map(|(name, problem)| json!({ "item": name, "error": problem.to_json() }))
        .collect();
    let mut object =
        json!({ "found": tally.items, "gone": tally.gone, "items": items, "failed": failed });
    match scanned {
        Ok(scanned) => {
            object["complete"] = json!(scanned.complete);
            object["state"] = scanned.state.clone().into_json("state")?;
        }
        Err(problem) => object["error"] = problem.to_json(),
    }
    Ok(object)
}

fn item_json(item: &SourceItem) -> Result<Json> {
    let body = match &item.content {
        ItemContent::Text(text) => text.clone(),
        ItemContent::Bytes(bytes) => format_count(bytes.len(), "byte"),
    };
    let time = |time: &Option<jiff::Timestamp>| time.map(|time| time.to_string());
    Ok(json!({
        "source_id": item.source_id, "title": item.title, "body": body,
        "content_type": item.content_type, "source_url": item.source_url, "author": item.author,
        "created_at": time(&item.created_at), "updated_at": time(&item.updated_at),
        "metadata": item.metadata.clone().into_json("metadata")?,
    }))
}
