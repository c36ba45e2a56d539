//! What a sync did, for people and as JSON.

use moonlark_core::Problem;
use moonlark_knowledge::{Named, SkippedItem, SourceStats, Summary};
use serde_json::{Value as Json, json};

use super::Synced;
use crate::cli::problem_lines::error_lines;
use crate::cli::{self, Global, StyledText, counted, say, say_problem};

/// Items that are named for each source; `-v` names all that are known.
const SOME: usize = 10;

pub(super) fn print(synced: &[Synced], forgotten: &[SourceStats], global: &Global) {
    if global.json {
        let sources: Vec<Json> = synced.iter().map(to_json).collect();
        let forgotten: Vec<Json> = forgotten
            .iter()
            .map(|it| json!({ "name": it.name, "documents": it.documents }))
            .collect();
        cli::print_json(&json!({ "sources": sources, "forgotten": forgotten }));
        return;
    }
    if !global.quiet {
        table(synced).iter().for_each(cli::print);
    }
    let verbose = global.verbose > 0;
    let most = if verbose { usize::MAX } else { SOME };
    for Synced { source, outcome } in synced {
        match outcome {
            Ok(summary) => {
                if !global.quiet {
                    let skipped =
                        if verbose { summary.skipped.clone() } else { new_skips(summary) };
                    let why = |it: &SkippedItem| it.reason.clone();
                    details(&source.name, "skipped", &skipped, most, why);
                }
                details(&source.name, "failed", &summary.failed, most, Problem::line);
                if let Some(problem) = &summary.embedding {
                    say(format!("{}: not all is found by meaning yet", source.name));
                    say_problem(problem);
                }
            }
            Err(problem) => {
                let mut head = StyledText::from(format!("{}: ", source.name));
                for line in error_lines(problem) {
                    say(std::mem::take(&mut head).then(line));
                }
            }
        }
    }
    for stats in forgotten {
        let documents = counted(usize::try_from(stats.documents).unwrap_or(usize::MAX), "document");
        cli::print(format!("{}: no longer configured, {documents} removed", stats.name));
    }
}

/// Those that the last sync did not name.
fn new_skips(summary: &Summary) -> Named<SkippedItem> {
    let first: Vec<_> = summary.skipped.first.iter().filter(|(_, it)| it.is_new).cloned().collect();
    Named { count: first.len() as u64, first }
}

/// A row for each source.
fn table(synced: &[Synced]) -> Vec<String> {
    let head = ["added", "changed", "removed", "unchanged", "skipped", "failed", "chunks"];
    let rows: Vec<(&str, [String; 7], String)> = synced
        .iter()
        .map(|it| {
            let name = it.source.name.as_str();
            match &it.outcome {
                Ok(summary) => {
                    let took = format!("{:.1} s", summary.took.as_secs_f64());
                    (name, counts(summary).map(|count| count.to_string()), took)
                }
                // How far it came is not known; why is said below.
                Err(_) => (name, [const { "-" }; 7].map(str::to_owned), "failed".to_owned()),
            }
        })
        .collect();
    let width = rows.iter().map(|(name, ..)| name.len()).max().unwrap_or(0).max("source".len());
    let cells = |cells: [String; 7]| {
        let cell = |(cell, head): (&String, &str)| format!("{cell:>0$}", head.len() + 2);
        cells.iter().zip(head).map(cell).collect::<String>()
    };
    let mut lines = vec![format!("{:<width$}{}  took", "source", cells(head.map(str::to_owned)))];
    lines.extend(
        rows.into_iter()
            .map(|(name, counts, took)| format!("{name:<width$}{}  {took}", cells(counts))),
    );
    lines
}

fn counts(summary: &Summary) -> [u64; 7] {
    [
        summary.added,
        summary.changed,
        summary.removed,
        summary.unchanged,
        summary.skipped.count,
        summary.failed.count,
        summary.chunks,
    ]
}

/// `docs: skipped logo.png: not text`
fn details<T>(source: &str, what: &str, named: &Named<T>, most: usize, why: impl Fn(&T) -> String) {
    for (item, reason) in named.first.iter().take(most) {
        say(format!("{source}: {what} {item}: {}", why(reason)));
    }
    let more = named.count.saturating_sub(named.first.len().min(most) as u64);
    if more > 0 {
        say(format!("{source}: {what} {more} more"));
    }
}

fn to_json(Synced { source, outcome }: &Synced) -> Json {
    let mut object = json!({ "name": source.name, "kind": source.kind() });
    match outcome {
        Err(problem) => object["error"] = problem.to_json(),
        Ok(summary) => {
            let Summary { added, changed, removed, unchanged, chunks, bytes, .. } = summary;
            object["added"] = json!(added);
            object["changed"] = json!(changed);
            object["removed"] = json!(removed);
            object["unchanged"] = json!(unchanged);
            object["chunks"] = json!(chunks);
            object["bytes"] = json!(bytes);
            object["seconds"] = json!((summary.took.as_secs_f64() * 1000.0).round() / 1000.0);
            object["skipped"] = named(&summary.skipped, "reason", |it| json!(it.reason));
            object["failed"] = named(&summary.failed, "error", Problem::to_json);
            if let Some(problem) = &summary.embedding {
                object["embedding"] = problem.to_json();
            }
        }
    }
    object
}

fn named<T>(named: &Named<T>, key: &str, why: impl Fn(&T) -> Json) -> Json {
    let first: Vec<Json> = named
        .first
        .iter()
        .map(|(item, reason)| json!({ "item": item, key: why(reason) }))
        .collect();
    json!({ "count": named.count, "first": first })
}
