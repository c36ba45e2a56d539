//! Sync reports, for people and as JSON.

use moonlark_core::Problem;
use moonlark_knowledge::{NamedItems, SkippedItem, SourceStats, SyncSummary};
use serde_json::{Value as Json, json};

use super::SyncedSource;
use crate::cli::problem_lines::error_lines;
use crate::cli::{self, GlobalArgs, StyledText, eprint_line, eprint_problem, format_count};

/// Items that are named for each source; `-v` names all that are known.
const MAX_NAMED_ITEMS: usize = 10;

pub(super) fn print_sync_report(
    synced: &[SyncedSource],
    forgotten: &[SourceStats],
    global: &GlobalArgs,
) {
    if global.json {
        let sources: Vec<Json> = synced.iter().map(source_json).collect();
        let forgotten: Vec<Json> = forgotten
            .iter()
            .map(|it| json!({ "name": it.name, "documents": it.documents }))
            .collect();
        cli::print_json(&json!({ "sources": sources, "forgotten": forgotten }));
        return;
    }
    if !global.quiet {
        summary_table(synced).iter().for_each(cli::print_line);
    }
    let verbose = global.verbose > 0;
    let most = if verbose { usize::MAX } else { MAX_NAMED_ITEMS };
    for SyncedSource { source, outcome } in synced {
        match outcome {
            Ok(summary) => {
                if !global.quiet {
                    let skipped =
                        if verbose { summary.skipped.clone() } else { newly_skipped(summary) };
                    let why = |it: &SkippedItem| it.reason.clone();
                    eprint_items(&source.name, "skipped", &skipped, most, why);
                }
                eprint_items(&source.name, "failed", &summary.failed, most, Problem::to_line);
                if let Some(problem) = &summary.embedding {
                    eprint_line(format!("{}: not all is found by meaning yet", source.name));
                    eprint_problem(problem);
                }
            }
            Err(problem) => {
                let mut head = StyledText::from(format!("{}: ", source.name));
                for line in error_lines(problem) {
                    eprint_line(std::mem::take(&mut head).append_text(line));
                }
            }
        }
    }
    for stats in forgotten {
        let documents = format_count(stats.documents, "document");
        cli::print_line(format!("{}: no longer configured, {documents} removed", stats.name));
    }
}

/// Those that the last sync did not name.
fn newly_skipped(summary: &SyncSummary) -> NamedItems<SkippedItem> {
    let first: Vec<_> = summary.skipped.first.iter().filter(|(_, it)| it.is_new).cloned().collect();
    NamedItems { count: first.len() as u64, first }
}

/// A row for each source.
fn summary_table(synced: &[SyncedSource]) -> Vec<String> {
    let head = ["added", "changed", "removed", "unchanged", "skipped", "failed", "chunks"];
    let rows: Vec<(&str, [String; 7], String)> = synced
        .iter()
        .map(|it| {
            let name = it.source.name.as_str();
            match &it.outcome {
                Ok(summary) => {
                    let took = format!("{:.1} s", summary.took.as_secs_f64());
                    (name, summary_counts(summary).map(|count| count.to_string()), took)
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

fn summary_counts(summary: &SyncSummary) -> [u64; 7] {
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
fn eprint_items<T>(
    source: &str,
    what: &str,
    named: &NamedItems<T>,
    most: usize,
    why: impl Fn(&T) -> String,
) {
    for (item, reason) in named.first.iter().take(most) {
        eprint_line(format!("{source}: {what} {item}: {}", why(reason)));
    }
    let more = named.count.saturating_sub(named.first.len().min(most) as u64);
    if more > 0 {
        eprint_line(format!("{source}: {what} {more} more"));
    }
}

fn source_json(SyncedSource { source, outcome }: &SyncedSource) -> Json {
    let mut object = json!({ "name": source.name, "kind": source.kind() });
    match outcome {
        Err(problem) => object["error"] = problem.to_json(),
        Ok(summary) => {
            let SyncSummary { added, changed, removed, unchanged, chunks, bytes, .. } = summary;
            object["added"] = json!(added);
            object["changed"] = json!(changed);
            object["removed"] = json!(removed);
            object["unchanged"] = json!(unchanged);
            object["chunks"] = json!(chunks);
            object["bytes"] = json!(bytes);
            object["seconds"] = json!((summary.took.as_secs_f64() * 1000.0).round() / 1000.0);
            object["skipped"] = named_items_json(&summary.skipped, "reason", |it| json!(it.reason));
            object["failed"] = named_items_json(&summary.failed, "error", Problem::to_json);
            if let Some(problem) = &summary.embedding {
                object["embedding"] = problem.to_json();
            }
        }
    }
    object
}

fn named_items_json<T>(named: &NamedItems<T>, key: &str, why: impl Fn(&T) -> Json) -> Json {
    let first: Vec<Json> = named
        .first
        .iter()
        .map(|(item, reason)| json!({ "item": item, key: why(reason) }))
        .collect();
    json!({ "count": named.count, "first": first })
}
