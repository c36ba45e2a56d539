//! TOML as clients keep it: read as a tree, and changed without touching the rest.
//!
//! `toml_edit` keeps comments and layout. It keeps the comments above a table as a part
//! of that table, though, so those of a table that goes are handed to the next one.

use std::ops::Range;

use serde_json::Value as Json;
use toml_edit::{Array, Document, DocumentMut, InlineTable, Item, Table, TableLike, Value};

use super::config_syntax::ConfigSyntax;
use super::edit_check::check_edit;
use super::syntax_tree::{SyntaxMember, SyntaxNode, SyntaxNodeKind, TextFault};

/// The document in `text`; none when there is nothing but space and comments.
pub(crate) fn parse(text: &str) -> Result<Option<SyntaxNode>, TextFault> {
    let document = Document::parse(text).map_err(|error| toml_fault(&error))?;
    let table = document.as_table();
    if table.is_empty() {
        return Ok(None);
    }
    Ok(Some(SyntaxNode { span: 0..text.len(), kind: SyntaxNodeKind::Object(table_members(table)) }))
}

/// `text` with `value` at `path`. Tables on the way are made where they are missing;
/// the same text when the value is there already.
pub(crate) fn put_value(text: &str, path: &[&str], value: &Json) -> Result<String, TextFault> {
    let tree = parse(text)?;
    let there = tree.as_ref().and_then(|root| root.find_path(path));
    if there.is_some_and(|there| there.to_json() == *value) {
        return Ok(text.to_owned());
    }
    let mut document = parse_document(text)?;
    let Some((key, parents)) = path.split_last() else { return Ok(text.to_owned()) };
    let mut table: &mut dyn TableLike = document.as_table_mut();
    for (depth, parent) in parents.iter().enumerate() {
        let found = tree.as_ref().and_then(|root| root.find_path(&path[..=depth]));
        let made = table.entry(parent).or_insert_with(|| {
            let mut table = Table::new();
            table.set_implicit(true);
            Item::Table(table)
        });
        let fault = TextFault::new(
            found.map_or(0, |node| node.span.start),
            format!("{parent} should be a table here"),
        );
        table = made.as_table_like_mut().ok_or(fault)?;
    }
    let is_inline = table.get(key).map_or_else(
        || tree.as_ref().and_then(|root| root.find_path(parents)).is_some_and(is_inline_table),
        |item| item.is_inline_table(),
    );
    let new = match (value, is_inline || path.len() > SERVER_DEPTH) {
        (Json::Object(_), false) => Item::Table(json_to_table(value)),
        _ => Item::Value(json_to_value(value)),
    };
    match table.get_mut(key) {
        Some(Item::Value(old)) => {
            // A comment behind it stays.
            let decor = old.decor().clone();
            *old = json_to_value(value);
            *old.decor_mut() = decor;
        }
        Some(old) => *old = new,
        None => {
            let new = if is_inline { take_last_suffix(table, new) } else { new };
            table.insert(key, new);
        }
    }
    let at = there.map_or(0, |there| there.span.start);
    check_document(text, &document, path, Some(value), at)
}

/// `text` without what is at `path`; the same text when there is nothing.
pub(crate) fn remove_value(text: &str, path: &[&str]) -> Result<String, TextFault> {
    let mut document = parse_document(text)?;
    let Some((key, parents)) = path.split_last() else { return Ok(text.to_owned()) };
    let mut table: &mut dyn TableLike = document.as_table_mut();
    for parent in parents {
        let Some(inner) = table.get_mut(parent).and_then(Item::as_table_like_mut) else {
            return Ok(text.to_owned());
        };
        table = inner;
    }
    let Some(gone) = table.remove(key) else { return Ok(text.to_owned()) };
    let mut comments = Vec::new();
    let last = collect_comments(&gone, &mut comments);
    hand_over_comments(&mut document, last, &comments);
    check_document(text, &document, path, None, 0)
}

/// `text` with what `copy` has at `path`, as it is written there.
pub(crate) fn restore_value(text: &str, path: &[&str], copy: &str) -> Result<String, TextFault> {
    let (mut document, copy) = (parse_document(text)?, parse_document(copy)?);
    let Some((key, parents)) = path.split_last() else { return Ok(text.to_owned()) };
    let mut table: &mut dyn TableLike = document.as_table_mut();
    let mut old: &dyn TableLike = copy.as_table();
    for parent in parents {
        let inner = table.get_mut(parent).and_then(Item::as_table_like_mut);
        let before = old.get(parent).and_then(Item::as_table_like);
        let (Some(inner), Some(before)) = (inner, before) else { return Ok(text.to_owned()) };
        (table, old) = (inner, before);
    }
    if let (Some(new), Some(old)) = (table.get_mut(key), old.get(key)) {
        *new = old.clone();
    }
    let before = item_node(old.get(key).unwrap_or(&Item::None)).map(|node| node.to_json());
    check_document(text, &document, path, before.as_ref(), 0)
}

/// The changed document as text, if nothing but the change is new in it.
fn check_document(
    text: &str,
    document: &DocumentMut,
    path: &[&str],
    value: Option<&Json>,
    at: usize,
) -> Result<String, TextFault> {
    let new = Some(with_original_newlines(text, document));
    check_edit(ConfigSyntax::Toml, text, new, path, value, at)
}

/// A value on one line.
pub(super) fn render_inline(value: &Json) -> String {
    json_to_value(value).to_string()
}

/// Servers are tables of their own; what is in them is written on one line.
const SERVER_DEPTH: usize = 2;

fn parse_document(text: &str) -> Result<DocumentMut, TextFault> {
    text.parse::<DocumentMut>().map_err(|error| toml_fault(&error))
}

/// Only its message: the rest quotes the line, which may hold a secret.
fn toml_fault(error: &toml_edit::TomlError) -> TextFault {
    let offset = error.span().map_or(0, |span| span.start);
    TextFault::new(offset, format!("not valid TOML: {}", error.message()))
}

fn table_members(table: &dyn TableLike) -> Vec<SyntaxMember> {
    let spans = table.iter().map(|(key, _)| table.key(key).and_then(|key| key.span()));
    let spans: Vec<Option<Range<usize>>> = spans.collect();
    let member = |((key, item), span): ((&str, &Item), Option<Range<usize>>)| {
        let node = item_node(item)?;
        Some(SyntaxMember { key: key.to_owned(), key_span: span.unwrap_or_default(), value: node })
    };
    table.iter().zip(spans).filter_map(member).collect()
}

fn item_node(item: &Item) -> Option<SyntaxNode> {
    let span = item.span().unwrap_or_default();
    let kind = match item {
        Item::None => return None,
        Item::Value(value) => return Some(value_node(value)),
        Item::Table(table) => SyntaxNodeKind::Object(table_members(table)),
        Item::ArrayOfTables(tables) => {
            let table = |table: &Table| SyntaxNode {
                span: table.span().unwrap_or_default(),
                kind: SyntaxNodeKind::Object(table_members(table)),
            };
            SyntaxNodeKind::Array(tables.iter().map(table).collect())
        }
    };
    Some(SyntaxNode { span, kind })
}

fn value_node(value: &Value) -> SyntaxNode {
    let span = value.span().unwrap_or_default();
    let kind = match value {
        Value::String(text) => SyntaxNodeKind::Scalar(Json::from(text.value().as_str())),
        Value::Integer(number) => SyntaxNodeKind::Scalar(Json::from(*number.value())),
        Value::Float(number) => SyntaxNodeKind::Scalar(Json::from(*number.value())),
        Value::Boolean(flag) => SyntaxNodeKind::Scalar(Json::from(*flag.value())),
        Value::Datetime(time) => SyntaxNodeKind::Scalar(Json::from(time.value().to_string())),
        Value::Array(items) => SyntaxNodeKind::Array(items.iter().map(value_node).collect()),
        Value::InlineTable(table) => SyntaxNodeKind::Object(table_members(table)),
    };
    SyntaxNode { span, kind }
}

/// Whether an object was written in braces: it has a span that is not a header's.
fn is_inline_table(node: &SyntaxNode) -> bool {
    let keys = node.members().iter().map(|member| member.key_span.start);
    node.span.len() > 1
        && !node.members().is_empty()
        && keys.clone().all(|start| node.span.contains(&start))
}

/// In braces, the space in front of the closing one belongs to the last value.
fn take_last_suffix(table: &mut dyn TableLike, mut new: Item) -> Item {
    let last = table.iter_mut().filter_map(|(_, item)| item.as_value_mut()).last();
    if let (Some(last), Some(new)) = (last, new.as_value_mut()) {
        let suffix = last.decor().suffix().and_then(|it| it.as_str()).unwrap_or_default();
        new.decor_mut().set_suffix(suffix.to_owned());
        last.decor_mut().set_suffix("");
    }
    new
}

fn json_to_table(value: &Json) -> Table {
    let mut table = Table::new();
    for (key, value) in value.as_object().into_iter().flatten() {
        table.insert(key, Item::Value(json_to_value(value)));
    }
    table
}

fn json_to_value(value: &Json) -> Value {
    match value {
        // TOML has no null; nothing that is written here does.
        Json::Null => Value::from(""),
        Json::Bool(flag) => Value::from(*flag),
        Json::Number(number) => match number.as_i64() {
            Some(whole) => Value::from(whole),
            None => Value::from(number.as_f64().unwrap_or_default()),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => Value::Array(items.iter().map(json_to_value).collect::<Array>()),
        Json::Object(members) => {
            let members = members.iter().map(|(key, value)| (key.as_str(), json_to_value(value)));
            Value::InlineTable(members.collect::<InlineTable>())
        }
    }
}

/// The comments above the tables in `item`; the position of the last of them.
fn collect_comments(item: &Item, comments: &mut Vec<String>) -> Option<isize> {
    let table = item.as_table()?;
    let prefix = table.decor().prefix().and_then(|prefix| prefix.as_str()).unwrap_or_default();
    if prefix.contains('#') {
        comments.push(format!("{}\n", prefix.trim_matches(['\r', '\n'])));
    }
    let inner = table.iter().filter_map(|(_, item)| collect_comments(item, comments)).max();
    inner.max(table.position())
}

/// Put `comments` above the table behind `position`, or at the end.
fn hand_over_comments(document: &mut DocumentMut, position: Option<isize>, comments: &[String]) {
    if comments.is_empty() {
        return;
    }
    let comments = comments.concat();
    let next = next_table_position(document.as_table(), position.unwrap_or_default());
    if let Some(next) = next
        && let Some(table) = find_table_at(document.as_table_mut(), next)
    {
        let old = table.decor().prefix().and_then(|it| it.as_str()).unwrap_or_default().to_owned();
        table.decor_mut().set_prefix(format!("\n{comments}{old}"));
        return;
    }
    let old = document.trailing().as_str().unwrap_or_default().to_owned();
    document.set_trailing(format!("\n{comments}{old}"));
}

fn next_table_position(table: &Table, after: isize) -> Option<isize> {
    let inner = table.iter().filter_map(|(_, item)| item.as_table());
    let own = table.position().filter(|position| *position > after);
    inner.filter_map(|table| next_table_position(table, after)).chain(own).min()
}

fn find_table_at(table: &mut Table, position: isize) -> Option<&mut Table> {
    if table.position() == Some(position) {
        return Some(table);
    }
    table
        .iter_mut()
        .filter_map(|(_, item)| item.as_table_mut())
        .find_map(|it| find_table_at(it, position))
}

/// The document with the newlines that `text` has, line by line: `toml_edit` knows only
/// one kind. What is new gets those of Windows if any line has them.
fn with_original_newlines(text: &str, document: &DocumentMut) -> String {
    let new = document.to_string();
    if !text.contains('\r') {
        return new;
    }
    let bare = |line: &str| line.trim_end_matches(['\r', '\n']).to_owned();
    let old: Vec<&str> = text.split_inclusive('\n').collect();
    let new: Vec<String> = new.split_inclusive('\n').map(bare).collect();
    let same = |(old, new): &(&&str, &String)| bare(old) == **new;
    let above = old.iter().zip(&new).take_while(same).count();
    let most = old.len().min(new.len()) - above;
    let below = old.iter().rev().zip(new.iter().rev()).take(most).take_while(same).count();
    let changed = new[above..new.len() - below].iter().map(|line| format!("{line}\r\n"));
    let kept = |lines: &[&str]| lines.concat();
    let (head, tail) = (kept(&old[..above]), kept(&old[old.len() - below..]));
    let gap = if head.is_empty() || head.ends_with('\n') { "" } else { "\r\n" };
    format!("{head}{gap}{}{tail}", changed.collect::<String>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PATH: [&str; 2] = ["mcp_servers", "x"];

    fn check(text: &str, expected: &str) {
        let value = json!({"command": "c", "args": ["d", "e"], "env": {"PATH": "f"}});
        let new = put_value(text, &PATH, &value).unwrap();
        assert_eq!(new, expected);
        assert_eq!(parse(&new).unwrap().unwrap().find_path(&PATH).unwrap().to_json(), value);
        assert_eq!(put_value(&new, &PATH, &value).unwrap(), new, "a second time changes nothing");
    }

    const ENTRY: &str =
        "[mcp_servers.x]\ncommand = \"c\"\nargs = [\"d\", \"e\"]\nenv = { PATH = \"f\" }\n";

    #[test]
    fn a_new_server_is_a_table_of_its_own_behind_the_others() {
        check("", ENTRY);
        check(
            "# mine\nmodel = \"o\" # best\n",
            &format!("# mine\nmodel = \"o\" # best\n\n{ENTRY}"),
        );
        check(
            "[mcp_servers.a] # first\ncommand = \"b\"\n\n# projects\n[projects.\"/w\"]\ntrust_level = \"trusted\"\n",
            &format!(
                "[mcp_servers.a] # first\ncommand = \"b\"\n\n{ENTRY}\n# projects\n[projects.\"/w\"]\ntrust_level = \"trusted\"\n"
            ),
        );
        check("a = 1\r\n", &format!("a = 1\n\n{ENTRY}").replace('\n', "\r\n"));
        check(
            "mcp_servers = { a = { command = \"b\" } } # all\n",
            "mcp_servers = { a = { command = \"b\" }, x = { command = \"c\", args = [\"d\", \"e\"], env = { PATH = \"f\" } } } # all\n",
        );
    }

    #[test]
    fn lines_keep_their_newlines_of_either_kind() {
        let text = "a = \"\"\"x\ny\"\"\" # one\n[mcp_servers.y]\r\nb = 1\n[z]\n";
        let entry = "[mcp_servers.x]\r\nc = 1\r\n";
        let new = put_value(text, &PATH, &json!({"c": 1})).unwrap();
        assert_eq!(new, text.replace("[z]", &format!("\r\n{entry}[z]")));
        assert_eq!(remove_value(&new, &PATH).unwrap(), text);
    }

    #[test]
    fn a_value_is_replaced_where_it_is() {
        let text = "[mcp_servers.x]\n# which\ncommand = \"a\" # this\nenv.B = \"1\"\n";
        let path = |key: &'static str| ["mcp_servers", "x", key];
        let new = put_value(text, &path("command"), &json!("b")).unwrap();
        assert_eq!(new, text.replace("\"a\"", "\"b\""));
        let new = put_value(&new, &["mcp_servers", "x", "env", "PATH"], &json!("/p")).unwrap();
        assert_eq!(
            parse(&new).unwrap().unwrap().find_path(&path("env")).unwrap().to_json(),
            json!({"B": "1", "PATH": "/p"})
        );
        assert!(new.contains("# which") && new.contains("# this"), "{new}");
    }

    #[test]
    fn a_server_is_taken_out_and_comments_stay() {
        for (text, expected) in [
            (
                "# top\n[mcp_servers.a]\nb = 1\n\n# about x\n[mcp_servers.x]\ncommand = \"c\"\n# env\n[mcp_servers.x.env]\nD = \"e\"\n\n# last\n[other]\n",
                "# top\n[mcp_servers.a]\nb = 1\n\n# about x\n# env\n\n# last\n[other]\n",
            ),
            ("# about x\n[mcp_servers.x]\ncommand = \"c\"\n# end\n", "\n# about x\n# end\n"),
            ("[mcp_servers.y]\na = 1\n", "[mcp_servers.y]\na = 1\n"),
            ("mcp_servers = { x = {}, y = {} }\n", "mcp_servers = { y = {} }\n"),
            ("mcp_servers = 1\n", "mcp_servers = 1\n"),
            ("", ""),
        ] {
            assert_eq!(remove_value(text, &PATH).unwrap(), expected);
        }
    }

    #[test]
    fn what_was_there_before_comes_back_as_it_was_written() {
        let copy = "[mcp_servers.x] # mine\n# this\ncommand = 'c'\n";
        let now = "model = \"o\"\n\n[mcp_servers.x]\ncommand = \"d\"\nargs = []\n";
        let back = restore_value(now, &PATH, copy).unwrap();
        assert_eq!(back, "model = \"o\"\n[mcp_servers.x] # mine\n# this\ncommand = 'c'\n");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let fault = |text: &str| parse(text).unwrap_err().to_problem(text, "f").to_line();
        assert_eq!(fault("a = 1\nb = [1\n"), "f:2:7: not valid TOML: unclosed array, expected `]`");
        let fault = put_value("mcp_servers = \"secret\"\n", &PATH, &json!({})).unwrap_err();
        assert_eq!(
            (fault.offset, fault.message.as_str()),
            (14, "mcp_servers should be a table here")
        );
    }
}
