//! Filters: the chunks that are not deleted and whose documents pass the filter.

use std::collections::HashSet;

use moonlark_core::Value;
use moonlark_core::nearest::nearest_name;
use moonlark_core::value::shorten_text;
use moonlark_search::RowBitmap;
use rusqlite::Connection;

use crate::index::{IndexSnapshot, LoadedSegment};
use crate::search_query::SearchFilter;
use crate::store::{self, StoreResult};
use crate::sync::field_value;

/// Names in a note, and keys of metadata that are looked through for a near one.
const MAX_NAMES_IN_NOTE: usize = 12;
const MAX_METADATA_KEYS: usize = 200;

/// For each segment which of its chunks count. Nothing where all do.
pub(super) type SegmentMasks = Vec<Option<RowBitmap>>;

/// Nothing if no chunk can pass.
pub(super) fn build_segment_masks(
    connection: &Connection,
    snapshot: &IndexSnapshot,
    filter: &SearchFilter,
    notes: &mut Vec<String>,
) -> StoreResult<Option<SegmentMasks>> {
    let sources = matching_sources(connection, filter, notes)?;
    if sources.as_ref().is_some_and(HashSet::is_empty) {
        return Ok(None);
    }
    let fields = documents_with_metadata(connection, filter, notes)?;
    let all =
        sources.is_none() && fields.is_none() && filter.since.is_none() && filter.until.is_none();
    if all {
        let alive = |it: &LoadedSegment| (it.living < it.alive.len()).then(|| it.alive.clone());
        return Ok(Some(snapshot.segments.iter().map(alive).collect()));
    }
    let documents = snapshot.filter_fields(connection)?;
    let since = filter.since.map(|at| at.as_microsecond());
    let until = filter.until.map(|at| at.as_microsecond());
    let passes = |document: u32| {
        let Some(about) = documents.get(&document) else { return false };
        let updated = about.updated_at;
        sources.as_ref().is_none_or(|them| them.contains(&about.source))
            && since.is_none_or(|since| updated.is_some_and(|at| at >= since))
            && until.is_none_or(|until| updated.is_some_and(|at| at <= until))
            && fields.as_ref().is_none_or(|them| them.contains(&document))
    };
    let mut masks = SegmentMasks::new();
    for segment in &snapshot.segments {
        let mut mask = RowBitmap::all_clear(segment.alive.len());
        let (mut before, mut passed) = (None, false);
        for (at, document) in segment.members().documents.iter().enumerate() {
            if before != Some(*document) {
                (before, passed) = (Some(*document), passes(*document));
            }
            if passed && segment.alive.get(at) {
                mask.insert(at);
            }
        }
        masks.push(Some(mask));
    }
    Ok(Some(masks))
}

/// The sources that were asked for: by their names, else by their kind.
fn matching_sources(
    connection: &Connection,
    filter: &SearchFilter,
    notes: &mut Vec<String>,
) -> StoreResult<Option<HashSet<i64>>> {
    if filter.sources.is_empty() {
        return Ok(None);
    }
    let all = store::list_sources(connection)?;
    let mut wanted = HashSet::new();
    for name in &filter.sources {
        let named = all.iter().filter(|it| it.name == *name);
        let mut found: Vec<i64> = named.map(|it| it.source).collect();
        if found.is_empty() {
            found = all.iter().filter(|it| it.kind == *name).map(|it| it.source).collect();
        }
        // Whoever configured it knows why there is nothing from it.
        if found.is_empty() && !filter.configured.contains(name) {
            let mut names: Vec<&str> = all.iter().map(|it| it.name.as_str()).collect();
            names.extend(filter.configured.iter().map(String::as_str));
            names.sort_unstable();
            names.dedup();
            notes.push(no_match_note("is from a source named", name, names.into_iter()));
        }
        wanted.extend(found);
    }
    Ok(Some(wanted))
}

/// What a reader is told whose filter names something that is not there.
fn no_match_note<'a>(
    what: &str,
    name: &str,
    names: impl Iterator<Item = &'a str> + Clone,
) -> String {
    let near = nearest_name(name, names.clone());
    let said = format!("no document {what} {}", shorten_text(name));
    let some = names.take(MAX_NAMES_IN_NOTE).collect::<Vec<_>>().join(", ");
    match near {
        Some(near) => format!("{said}; did you mean {near}?"),
        None if some.is_empty() => said,
        None => format!("{said}; there are: {some}"),
    }
}

/// The keys of metadata that any document has, in order; not all if there are many.
fn metadata_keys(connection: &Connection) -> StoreResult<Vec<String>> {
    let mut keys: Vec<String> = Vec::new();
    // From key to key, instead of over every document.
    let sql = "SELECT key FROM kb_fields WHERE key > ?1 ORDER BY key LIMIT 1";
    while keys.len() < MAX_METADATA_KEYS {
        let last = keys.last().map_or("", String::as_str);
        match store::query_first(connection, sql, [last], |row| row.get(0))? {
            Some(key) => keys.push(key),
            None => break,
        }
    }
    Ok(keys)
}

/// Documents whose metadata has the values that were asked for.
fn documents_with_metadata(
    connection: &Connection,
    filter: &SearchFilter,
    notes: &mut Vec<String>,
) -> StoreResult<Option<HashSet<u32>>> {
    let mut passed: Option<HashSet<u32>> = None;
    let keys = if filter.metadata.is_empty() { Vec::new() } else { metadata_keys(connection)? };
    for (key, value) in &filter.metadata {
        if keys.len() < MAX_METADATA_KEYS && !keys.contains(key) {
            let known = keys.iter().map(String::as_str);
            notes.push(no_match_note("has the metadata field", key, known));
        }
        let any = match value {
            Value::Array(values) => values.as_slice(),
            value => std::slice::from_ref(value),
        };
        let mut having = HashSet::new();
        for value in any.iter().filter_map(field_value) {
            let sql = "SELECT document FROM kb_fields WHERE key = ?1 AND value = ?2";
            having.extend(store::query_all(connection, sql, [key, &value], |row| {
                row.get::<_, u32>(0)
            })?);
        }
        passed = Some(match passed {
            None => having,
            Some(passed) => passed.intersection(&having).copied().collect(),
        });
    }
    Ok(passed)
}
