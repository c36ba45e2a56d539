//! Pagination: the arguments that fetch the next page.
//!
//! The answer says it, if it says anything: by a `Link` header, an address or a
//! cursor in the body. It may say as well that there is none. Otherwise the
//! parameters do: pages and offsets are counted on for as long as pages are full.
//! By which of these a page was found is told with it: an API that has named next
//! pages tells of the last one by naming none, which only its reader can see.

use http::header::{HeaderMap, LINK};
use moonlark_core::Value;
use moonlark_core::value::Object;
use url::Url;

use crate::document_tree::TreeNode;
use crate::openapi_document::OpenApiDocument;
use crate::operation::OperationPlan;
use crate::parameter::ParamLocation;

/// Parameters that take the cursor of an answer, and where answers have it.
const CURSOR_PARAM_PATHS: [(&str, &[&str]); 12] = [
    (
        "cursor",
        &[
            "next_cursor",
            "nextCursor",
            "cursor",
            "response_metadata.next_cursor",
            "meta.next_cursor",
            "meta.nextCursor",
            "paging.next_cursor",
            "pagination.next_cursor",
            "pagination.nextCursor",
            "page_info.end_cursor",
            "pageInfo.endCursor",
        ],
    ),
    (
        "after",
        &[
            "paging.cursors.after",
            "paging.next.after",
            "meta.after",
            "pageInfo.endCursor",
            "page_info.end_cursor",
            "after",
            "next_cursor",
            "cursors.after",
        ],
    ),
    ("page_token", &["next_page_token", "nextPageToken", "meta.next_page_token"]),
    ("pageToken", &["nextPageToken", "next_page_token"]),
    ("next_token", &["next_token", "nextToken", "meta.next_token"]),
    ("nextToken", &["nextToken", "NextToken"]),
    ("NextToken", &["NextToken", "nextToken"]),
    ("continue", &["metadata.continue"]),
    ("start_cursor", &["next_cursor"]),
    ("pagination_token", &["meta.next_token"]),
    ("Marker", &["NextMarker", "Marker"]),
    ("page[cursor]", &["meta.next_cursor", "meta.page.next_cursor"]),
];

/// Where answers have the address of the next page.
const NEXT_LINK_PATHS: [&str; 9] = [
    "next",
    "links.next",
    "_links.next.href",
    "links.next.href",
    "paging.next",
    "pagination.next",
    "@odata\\.nextLink",
    "meta.next",
    "next_page_uri",
];

/// Where answers have the items, if they are no list themselves.
const ITEM_LIST_KEYS: [&str; 8] =
    ["data", "items", "results", "values", "records", "entries", "list", "value"];

/// Where answers say that there is more, or that there is not.
const HAS_MORE_PATHS: [&str; 10] = [
    "has_more",
    "hasMore",
    "has_next",
    "hasNext",
    "has_next_page",
    "hasNextPage",
    "pageInfo.hasNextPage",
    "page_info.has_next_page",
    "pagination.has_more",
    "meta.has_more",
];

/// Where answers say that they are the last.
const IS_LAST_PATHS: [&str; 3] = ["last", "isLast", "is_last"];

/// What answers may keep such words in.
const ENVELOPE_PREFIXES: [&str; 6] = ["", "meta.", "pagination.", "paging.", "page.", "page_info."];

const TOTAL_PAGES_KEYS: [&str; 8] = [
    "total_pages",
    "totalPages",
    "page_count",
    "pageCount",
    "last_page",
    "lastPage",
    "num_pages",
    "pages",
];

const TOTAL_ITEMS_KEYS: [&str; 7] = [
    "total",
    "total_count",
    "totalCount",
    "total_items",
    "totalItems",
    "total_results",
    "totalElements",
];

/// The next page: its arguments, and what told of it.
#[derive(Debug, PartialEq)]
pub(crate) struct NextPage {
    pub(crate) args: Object,
    pub(crate) found_by: PaginationMethod,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PaginationMethod {
    Link,
    Cursor,
    LastId,
    Count,
}

impl PaginationMethod {
    pub(crate) fn method_name(self) -> &'static str {
        match self {
            PaginationMethod::Link => "link",
            PaginationMethod::Cursor => "cursor",
            PaginationMethod::LastId => "last_id",
            PaginationMethod::Count => "count",
        }
    }
}

/// The next page, if there is one.
pub(crate) fn find_next_page(
    document: &OpenApiDocument,
    plan: &OperationPlan,
    args: &Object,
    url: &Url,
    headers: &HeaderMap,
    body: &Value,
) -> Option<NextPage> {
    if let Some(link) = next_link_in_headers(headers).or_else(|| next_link_in_body(body)) {
        let args = args_from_link(document, plan, args, url, &link)?;
        return Some(NextPage { args, found_by: PaginationMethod::Link });
    }
    // Links to the pages before, but to none behind.
    if has_page_links(headers) || is_last_page(body) {
        return None;
    }
    let found = |found_by| move |args| NextPage { args, found_by };
    args_from_cursor(plan, args, body)
        .map(found(PaginationMethod::Cursor))
        .or_else(|| args_from_last_id(plan, args, body).map(found(PaginationMethod::LastId)))
        .or_else(|| {
            args_by_counting(document, plan, args, body).map(found(PaginationMethod::Count))
        })
}

/// How many items a page has, if it is one.
pub(crate) fn count_items(body: &Value) -> Option<usize> {
    find_items(body).map(Vec::len)
}

/// Whether the answer itself says that nothing follows.
fn is_last_page(body: &Value) -> bool {
    let is_nothing = |path: &&str| match get_by_path(body, path) {
        Some(Value::Null | Value::Bool(false)) => true,
        Some(Value::Str(text)) => text.is_empty(),
        _ => false,
    };
    let says = |path: &&str, flag| get_by_path(body, path) == Some(&Value::Bool(flag));
    NEXT_LINK_PATHS.iter().any(is_nothing)
        || HAS_MORE_PATHS.iter().any(|it| says(it, false))
        || IS_LAST_PATHS.iter().any(|it| says(it, true))
}

/// A number that an answer has under one of these names.
fn find_number(body: &Value, names: &[&str]) -> Option<i64> {
    let paths =
        names.iter().flat_map(|name| ENVELOPE_PREFIXES.map(|envelope| format!("{envelope}{name}")));
    paths.into_iter().find_map(|path| match get_by_path(body, &path) {
        Some(Value::Int(number)) => Some(*number),
        _ => None,
    })
}

/// Whether there is a `Link` header that is about pages.
fn has_page_links(headers: &HeaderMap) -> bool {
    let all = headers.get_all(LINK).into_iter().filter_map(|it| it.to_str().ok());
    let mut rels = all.flat_map(|it| it.split([',', ';'])).map(str::trim);
    rels.any(|it| {
        let rel = it.to_ascii_lowercase().replace('"', "");
        matches!(rel.as_str(), "rel=prev" | "rel=previous" | "rel=first" | "rel=last")
    })
}

/// The address that a `Link` header calls the next.
fn next_link_in_headers(headers: &HeaderMap) -> Option<String> {
    let all = headers.get_all(LINK).into_iter().filter_map(|it| it.to_str().ok());
    for header in all {
        for part in header.split(",").flat_map(|part| part.split_once('<').map(|it| it.1)) {
            let Some((target, rest)) = part.split_once('>') else { continue };
            let rel = rest.split(';').any(|it| {
                let it = it.trim().to_ascii_lowercase();
                it == "rel=next" || it == "rel=\"next\""
            });
            if rel {
                return Some(target.to_owned());
            }
        }
    }
    None
}

fn next_link_in_body(body: &Value) -> Option<String> {
    let found =
        NEXT_LINK_PATHS.iter().filter_map(|path| get_by_path(body, path)?.as_str()).find(|text| {
            text.starts_with("http://")
                || text.starts_with("https://")
                || text.starts_with('/')
                || text.starts_with('?')
        });
    found.map(str::to_owned)
}

/// The query of an address as arguments, if it is one of the same operation.
fn args_from_link(
    document: &OpenApiDocument,
    plan: &OperationPlan,
    args: &Object,
    url: &Url,
    link: &str,
) -> Option<Object> {
    let target = url.join(link).ok().filter(|it| it.path() == url.path())?;
    let mut next = args.clone();
    let mut changed = false;
    for (name, text) in target.query_pairs() {
        let Some(param) = plan.params_in(ParamLocation::Query).find(|it| it.name == *name) else {
            continue;
        };
        let kind = param.schema.to_node(document).get("type").and_then(TreeNode::as_str);
        let value = match kind {
            Some("integer" | "number") => text.parse().map_or(Value::from(&*text), Value::Int),
            Some("boolean") => text.parse().map_or(Value::from(&*text), Value::Bool),
            // What is no plain value was in the arguments already.
            Some("array" | "object") => continue,
            _ => Value::from(&*text),
        };
        changed |= next.get(&param.arg) != Some(&value);
        next.insert(param.arg.clone(), value);
    }
    changed.then_some(next)
}

fn args_from_cursor(plan: &OperationPlan, args: &Object, body: &Value) -> Option<Object> {
    for (name, places) in CURSOR_PARAM_PATHS {
        let Some(param) = plan.params_in(ParamLocation::Query).find(|it| it.name == name) else {
            continue;
        };
        let cursor = places.iter().filter_map(|path| get_by_path(body, path)).find(|it| match it {
            Value::Str(text) => !text.is_empty(),
            it => matches!(it, Value::Int(_)),
        });
        if let Some(cursor) = cursor.filter(|it| args.get(&param.arg) != Some(it)) {
            return Some(with_argument(args, &param.arg, cursor.clone()));
        }
    }
    None
}

/// `has_more` with `starting_after`, the id of the last item.
fn args_from_last_id(plan: &OperationPlan, args: &Object, body: &Value) -> Option<Object> {
    let more = ["has_more", "hasMore"].iter().any(|it| body.get(it) == Some(&Value::Bool(true)));
    let param = plan
        .params_in(ParamLocation::Query)
        .find(|it| it.name == "starting_after")
        .filter(|_| more)?;
    let last = find_items(body)?.last()?.get("id")?;
    Some(with_argument(args, &param.arg, last.clone()))
}

fn args_by_counting(
    document: &OpenApiDocument,
    plan: &OperationPlan,
    args: &Object,
    body: &Value,
) -> Option<Object> {
    let count = i64::try_from(find_items(body)?.len()).ok().filter(|it| *it > 0)?;
    let find = |names: &[&str]| {
        plan.params_in(ParamLocation::Query).find(|it| names.contains(&it.name.as_str()))
    };
    let given = |arg: &str| match args.get(arg) {
        Some(Value::Int(number)) => Some(*number),
        Some(Value::Float(number)) => Some(*number as i64),
        Some(Value::Str(text)) => text.parse().ok(),
        _ => None,
    };
    let fallback = |param: &crate::parameter::OperationParam| {
        param.schema.to_node(document).get("default")?.as_number()?.as_i64()
    };
    let size =
        find(&["limit", "per_page", "perPage", "page_size", "pageSize", "count", "$top", "size"]);
    let size = size.and_then(|param| given(&param.arg).or_else(|| fallback(param)));
    // A page that is not full is the last one.
    if size.is_some_and(|size| count < size) {
        return None;
    }
    let items_in_all = find_number(body, &TOTAL_ITEMS_KEYS);
    if let Some(param) = find(&["offset", "skip", "$skip", "start", "startAt"]) {
        let from = given(&param.arg).or_else(|| fallback(param)).unwrap_or(0);
        if items_in_all.is_some_and(|all| from.saturating_add(count) >= all) {
            return None;
        }
        return Some(with_argument(args, &param.arg, Value::Int(from.checked_add(count)?)));
    }
    let param = find(&["page", "page_number", "pageNumber", "page[number]"])?;
    let page = given(&param.arg).or_else(|| fallback(param)).unwrap_or(1);
    let minimum = param.schema.to_node(document).get("minimum").and_then(TreeNode::as_number);
    let from_zero = fallback(param) == Some(0) || minimum.and_then(|it| it.as_i64()) == Some(0);
    let next = page.checked_add(1)?;
    let so_far = if from_zero { next } else { page };
    if find_number(body, &TOTAL_PAGES_KEYS).is_some_and(|all| so_far >= all)
        || items_in_all.zip(size).is_some_and(|(all, size)| so_far.saturating_mul(size) >= all)
    {
        return None;
    }
    Some(with_argument(args, &param.arg, Value::Int(next)))
}

fn find_items(body: &Value) -> Option<&Vec<Value>> {
    match body {
        Value::Array(items) => Some(items),
        Value::Object(fields) => {
            let known = ITEM_LIST_KEYS.iter().filter_map(|key| fields.get(*key));
            let mut lists = fields.values().filter(|it| matches!(it, Value::Array(_)));
            // The only list there is must be it.
            let only = lists.next().filter(|_| lists.next().is_none());
            known.chain(only).find_map(|it| match it {
                Value::Array(items) => Some(items),
                _ => None,
            })
        }
        _ => None,
    }
}

/// `a.b` in a value; a dot of a name is `\.`.
fn get_by_path<'a>(body: &'a Value, path: &str) -> Option<&'a Value> {
    let path = path.replace("\\.", "\u{0}");
    path.split('.').try_fold(body, |value, key| value.get(&key.replace('\u{0}', ".")))
}

fn with_argument(args: &Object, name: &str, value: Value) -> Object {
    let mut next = args.clone();
    next.insert(name.to_owned(), value);
    next
}
