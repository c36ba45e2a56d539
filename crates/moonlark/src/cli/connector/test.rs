//! `moonlark connector test`: one script, and what it finds.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use moonlark_core::nearest::nearest;
use moonlark_core::value::Object;
use moonlark_core::{Problem, Result, Value};
use moonlark_knowledge::{Connector, Content, Found, Item, Scan, Scanned};
use serde_json::{Value as Json, json};
use tokio::sync::mpsc;

use crate::cli::named;
use crate::cli::{Done, Failure, Global, counted, here, key_value, open, print, print_json, shown};
use crate::connectors::{self, ScriptSource};
use crate::project::Project;
use crate::scripts;

#[derive(Args)]
pub(crate) struct Test {
    /// The script.
    path: PathBuf,
    /// A key of its configuration; values that are not text are written as JSON.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value)]
    values: Vec<(String, String)>,
    /// Take the settings of this entry under [connectors.script].
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// What an earlier scan left as `state`, as JSON.
    #[arg(long, value_name = "JSON")]
    state: Option<String>,
    /// How many items to show.
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    limit: usize,
}

/// What a scan found, the first few by name.
#[derive(Default)]
struct Tally {
    items: u64,
    gone: u64,
    first: Vec<Item>,
    failed: Vec<(String, Problem)>,
}

impl Test {
    pub(crate) async fn run(self, global: &Global) -> Done {
        let say = |line: &str| {
            if !global.json {
                print(line);
            }
        };
        let project = open(global).await?;
        let source = self.load(&project).await?;
        let label = shown(&self.path);
        say(&format!("Testing connector: {} ({label})", source.name));
        say("  ✓ Script loaded");
        say("  ✓ connector.scan defined");
        let state = match &self.state {
            Some(text) => Value::parse_json(text.as_bytes())?,
            None => Value::Null,
        };
        let started = Instant::now();
        let (scanned, tally) = scan(&source, state, self.limit).await;
        let took = started.elapsed().as_secs_f64();
        if global.json {
            print_json(&to_json(&scanned, &tally)?);
            let well = scanned.is_ok() && tally.failed.is_empty();
            return if well { Ok(()) } else { Err(Failure::Said) };
        }
        let gone = if tally.gone > 0 { format!(", {} gone", tally.gone) } else { String::new() };
        let found = counted(usize::try_from(tally.items).unwrap_or(usize::MAX), "item");
        let mark = if scanned.is_ok() { "✓" } else { "✗" };
        say(&format!("  {mark} Found {found}{gone} in {took:.1}s"));
        for item in &tally.first {
            say(&format!("      {}", outline(item)));
        }
        for (name, problem) in &tally.failed {
            say(&format!("  ✗ {name}: {}", problem.message));
            problem.hint.iter().for_each(|hint| say(&format!("      hint: {hint}")));
        }
        let Scanned { complete, state } = scanned?;
        say(match complete {
            true => "  ✓ The scan is complete: what it did not name counts as gone",
            false => "  ✓ The scan is incremental: what it did not name stays",
        });
        if state != Value::Null && state != Value::Object(Object::new()) {
            say(&format!("  ✓ state = {}", state.to_json_lossy()));
        }
        if tally.failed.is_empty() { Ok(()) } else { Err(Failure::Said) }
    }

    async fn load(&self, project: &Project) -> Result<ScriptSource, Failure> {
        let loaded = project.loaded().await;
        let names = &loaded.config.connectors.script;
        if let Some(name) = self.source.as_ref().filter(|name| !names.contains_key(*name)) {
            let near = nearest(name, names.keys().map(String::as_str));
            return Err(Problem::bad_request(format!(
                "there is no [connectors.script.{name}] in the configuration"
            ))
            .maybe_hint(near.map(|near| format!("did you mean {near}?")))
            .into());
        }
        let whole = here()?.join(&self.path);
        let entry = self.source.clone().or_else(|| named::entry_of(&whole, &loaded));
        let entry = entry.filter(|name| names.contains_key(name));
        let found = connectors::script(whole, shown(&self.path), entry.clone());
        if let Some(problem) = scripts::outage(&found, &loaded.config).first() {
            // What --set gives stands in for what is not there.
            let key = |set: &(String, String)| problem.message.contains(&format!(".{} ", set.0));
            if !self.values.iter().any(key) {
                return Err(problem.clone().into());
            }
        }
        let mut prepared = scripts::prepare(&found, &loaded)?;
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
        Ok(ScriptSource { name, script, scope, gateway, full: false })
    }
}

async fn scan(source: &ScriptSource, state: Value, limit: usize) -> (Result<Scanned>, Tally) {
    let (out, mut found) = mpsc::channel(16);
    let known = Arc::new(|_: &str| None);
    let scanning = source.scan(Scan { known, state, out });
    let counting = async {
        let mut tally = Tally::default();
        while let Some(found) = found.recv().await {
            match found {
                Found::Item(item) => {
                    tally.items += 1;
                    if tally.first.len() < limit {
                        tally.first.push(*item);
                    }
                }
                Found::Gone(_) => tally.gone += 1,
                Found::Failed(name, problem) if tally.failed.len() < limit.max(1) => {
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
fn outline(item: &Item) -> String {
    let title = item.title.as_deref().map(|title| format!(": {title}")).unwrap_or_default();
    let size = match &item.content {
        Content::Text(text) => counted(text.chars().count(), "character"),
        Content::Bytes(bytes) => counted(bytes.len(), "byte"),
    };
    format!("{}{title}, {size}", item.source_id)
}

fn to_json(scanned: &Result<Scanned>, tally: &Tally) -> Result<Json> {
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

fn item_json(item: &Item) -> Result<Json> {
    let body = match &item.content {
        Content::Text(text) => text.clone(),
        Content::Bytes(bytes) => counted(bytes.len(), "byte"),
    };
    let time = |time: &Option<jiff::Timestamp>| time.map(|time| time.to_string());
    Ok(json!({
        "source_id": item.source_id, "title": item.title, "body": body,
        "content_type": item.content_type, "source_url": item.source_url, "author": item.author,
        "created_at": time(&item.created_at), "updated_at": time(&item.updated_at),
        "metadata": item.metadata.clone().into_json("metadata")?,
    }))
}
