//! The type check of a script, in a worker process: it must not grow with the catalog.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, anyhow, ensure};
use moonlark_core::schema::Schema;
use moonlark_core::tool::{Source, SourceKind};
use moonlark_core::{Catalog, Tool, Value};
use moonlark_gateway::tool_body::ToolBody;
use moonlark_luau::check;
use serde_json::{Value as Json, json};

use super::report::{Row, Section, micros, times};
use super::rounds::median;
use super::{Effort, machine};

/// Tools of the large catalog, of each of its sources, and of the small one.
const TOOLS: usize = 5000;
const OF_A_SOURCE: usize = 50;
const FEW: usize = 50;
/// The tools that the script uses.
const USED: usize = 5;
const CHECKS: usize = 200;
/// The most that a check may take as a rule, in microseconds.
const GOAL: f64 = 5000.0;

pub(super) fn run(effort: Effort) -> Result<Section> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (many, few) = (catalog(TOOLS)?, catalog(FEW)?);
    let measure = |catalog: &Arc<Catalog>, text: &dyn Fn(usize) -> String| -> Result<Percentiles> {
        let mut all = Vec::new();
        for round in 0..effort.rounds as usize {
            machine::quiet();
            for index in 0..CHECKS {
                // Never twice the same text: what is known would cost nothing.
                let script = text(round * CHECKS + index);
                let began = Instant::now();
                let found = runtime.block_on(check::find_script_mistakes(&script, catalog));
                all.push(began.elapsed().as_secs_f64() * 1e6);
                ensure!(found.is_empty(), "a right script is refused: {found:?}");
            }
        }
        Ok(Percentiles::of(all))
    };
    let noop = |index: usize| format!("return {index}");
    let used = |tools: usize| move |index: usize| script(tools, index);
    // The first check loads what all have in common.
    measure(&few, &noop)?;
    let rows = [
        ("a script that calls nothing", measure(&many, &noop)?, measure(&few, &noop)?),
        (
            "a script that uses 5 functions",
            measure(&many, &used(TOOLS))?,
            measure(&few, &used(FEW))?,
        ),
    ];
    let row = |(what, many, few): &(&str, Percentiles, Percentiles)| {
        Row::new(*what)
            .ratio(times(many.p50 / few.p50))
            .goal(format!("p50 ≤ {}", micros(GOAL)), many.p50 <= GOAL)
            .figures(many.show(), few.show())
    };
    Ok(Section {
        title: "The type check of a script",
        about: "In a worker process, in a catalog of 5,000 functions of 100 sources, against the same in \
                one of 50: what a check costs must not depend on what a script does not use. \
                Every script is a new one. Wall time.",
        rows: rows.iter().map(row).collect(),
    })
}

/// In microseconds.
struct Percentiles {
    p50: f64,
    p99: f64,
}

impl Percentiles {
    fn of(mut times: Vec<f64>) -> Percentiles {
        times.sort_by(f64::total_cmp);
        let last = times.len().saturating_sub(1);
        let p99 = times.get(last * 99 / 100).copied().unwrap_or(f64::NAN);
        Percentiles { p50: median(times), p99 }
    }

    fn show(&self) -> String {
        format!("p50 {}, p99 {}", micros(self.p50), micros(self.p99))
    }
}

/// Uses five functions of different sources, in loops and conditions.
fn script(tools: usize, index: usize) -> String {
    let mut text = format!("local total = {index}\n");
    for step in 0..USED {
        let number = (index * 7 + step * tools / USED) % tools;
        let (source, function) = (number / OF_A_SOURCE, number % OF_A_SOURCE);
        let _ = write!(
            text,
            "local page = sdk.source_{source}.find_{function}({{ query = \"a\", limit = {step} }})\n\
             for _, item in page.items do\n\
             if item.state == \"open\" then total += #item.title + item.number end\nend\n"
        );
    }
    text.push_str("return { total = total }");
    text
}

fn catalog(count: usize) -> Result<Arc<Catalog>> {
    let mut tools = Vec::new();
    for number in 0..count {
        let (source, function) = (number / OF_A_SOURCE, number % OF_A_SOURCE);
        let name = format!("source_{source}");
        let home = Source { kind: SourceKind::Upstream, name: name.clone() };
        let body = ToolBody::from_fn(|_, _| Ok(Value::Null));
        let named = format!("{name}.find_{function}");
        let mut tool = Tool::new(named, Arc::new(home), schema(input())?, body);
        tool.description = "Finds things, newest first".to_owned();
        tool.output = Some(schema(output())?);
        tools.push(Arc::new(tool));
    }
    let modules = Arc::new(moonlark_host::host_modules());
    Ok(Arc::new(Catalog::new(modules, tools, &[], Vec::new())))
}

fn schema(json: Json) -> Result<Schema> {
    let Json::Object(json) = json else { return Err(anyhow!("no object")) };
    Schema::compile(json).map_err(|problem| anyhow!("{problem}"))
}

fn input() -> Json {
    json!({
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What to look for"},
            "limit": {"type": "integer", "default": 10},
            "state": {"type": "string", "enum": ["open", "closed", "all"]},
            "labels": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["query"],
        "additionalProperties": false,
    })
}

fn output() -> Json {
    json!({
        "type": "object",
        "properties": {
            "items": {"type": "array", "items": {"$ref": "#/$defs/Item"}},
            "next": {"type": ["string", "null"]},
        },
        "required": ["items"],
        "$defs": {"Item": {
            "type": "object",
            "properties": {
                "number": {"type": "integer"},
                "title": {"type": "string"},
                "state": {"type": "string", "enum": ["open", "closed"]},
            },
            "required": ["number", "title", "state"],
        }},
    })
}
