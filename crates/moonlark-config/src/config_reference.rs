//! The reference page of the configuration, drawn from its schema.

use std::fmt::Write;

use serde_json::Value;

use super::{ByteSize, HumanDuration, config_json_schema};

/// Markdown: a section for each table, a row for each key.
pub fn render_config_reference() -> String {
    render_page(config_json_schema())
}

fn render_page(schema: &Value) -> String {
    let mut page = format!(
        "# `moonlark.toml`\n\n<!-- Generated from the config structs; edit those. -->\n\n{}\n",
        schema_description(schema)
    );
    write_sections(&mut page, schema, "");
    page
}

/// A section for `table` when it has keys, then those of the tables in it.
fn write_sections(page: &mut String, schema: &Value, table: &str) {
    let properties = || schema["properties"].as_object().into_iter().flatten();
    // At the top level, a table of any values is written as a table of its own.
    let is_top_level_map = |key: &Value| table.is_empty() && is_map(key);
    let keys: Vec<_> =
        properties().filter(|(_, key)| !is_table(key) && !is_top_level_map(key)).collect();
    // What takes a word or a table is both a key and a table.
    let has_section = |key: &Value| is_table(key) || has_tables(key) || is_top_level_map(key);
    let tables: Vec<_> = properties().filter(|(_, key)| has_section(key)).collect();
    if !keys.is_empty() {
        let _ = write!(page, "\n## `[{table}]`\n\n{}\n\n", schema_description(schema));
        page.push_str("| key | type | default | description |\n|---|---|---|---|\n");
    }
    for (name, key) in keys {
        write_key_row(page, name, key, is_required(schema, name));
    }
    for (name, inner) in tables {
        if is_top_level_map(inner) {
            write_map_section(page, name, inner);
            continue;
        }
        let path = if table.is_empty() { name.clone() } else { format!("{table}.{name}") };
        match (&inner["additionalProperties"], &inner["items"]) {
            (named @ Value::Object(_), _) => write_sections(page, named, &format!("{path}.NAME")),
            // As TOML writes one of several.
            (_, each @ Value::Object(_)) => write_sections(page, each, &format!("[{path}]")),
            _ => write_sections(page, inner, &path),
        }
    }
}

/// A table whose keys are anybody's.
fn write_map_section(page: &mut String, name: &str, map: &Value) {
    let kind = key_type_name(&map["additionalProperties"]);
    let _ = write!(page, "\n## `[{name}]`\n\n{}\n\n", schema_description(map));
    let _ = write!(page, "| key | type |\n|---|---|\n| `NAME` | {kind} |\n");
}

/// Whether it has keys that are known, or tables with such keys, so that it gets a section.
fn is_table(key: &Value) -> bool {
    key["type"] == "object" && !is_map(key)
}

/// Whether it takes any key, each with a value: `arguments = { owner = "me" }`.
fn is_map(key: &Value) -> bool {
    key["type"] == "object"
        && key["properties"].is_null()
        && !key["additionalProperties"].is_null()
        && key["additionalProperties"]["type"] != "object"
}

/// Whether it is, among other things, a table or a list of them.
fn has_tables(key: &Value) -> bool {
    let named = &key["additionalProperties"]["properties"];
    !key["properties"].is_null() || !key["items"]["properties"].is_null() || !named.is_null()
}

fn write_key_row(page: &mut String, name: &str, key: &Value, required: bool) {
    let (kind, text) = (key_type_name(key), schema_description(key));
    let default = match key.get("default") {
        Some(default) => format!("`{default}`"),
        None if required => "required".to_owned(),
        None => "none".to_owned(),
    };
    let cell = |text: &str| text.replace('\n', " ").replace('|', "\\|");
    let _ = writeln!(page, "| `{name}` | {kind} | {} | {} |", cell(&default), cell(&text));
}

fn key_type_name(key: &Value) -> String {
    if key["format"] == ByteSize::SCHEMA_FORMAT {
        return "size".to_owned();
    }
    if key["format"] == HumanDuration::SCHEMA_FORMAT {
        return "time".to_owned();
    }
    if let Some(kinds) = key["type"].as_array() {
        let kinds: Vec<&str> = kinds.iter().filter_map(Value::as_str).collect();
        return kinds.join(" or ").replace("object", "table");
    }
    match key["type"].as_str() {
        Some("object") if !key["properties"].is_null() => "table".to_owned(),
        Some("object") if key["additionalProperties"]["type"].is_null() => "table".to_owned(),
        Some("object") => format!("table of {}s", key_type_name(&key["additionalProperties"])),
        Some("array") => format!("array of {}s", key_type_name(&key["items"])),
        Some(name) => name.to_owned(),
        None => "any".to_owned(),
    }
}

fn schema_description(schema: &Value) -> String {
    schema["description"].as_str().unwrap_or_default().to_owned()
}

fn is_required(schema: &Value, name: &str) -> bool {
    schema["required"].as_array().is_some_and(|required| required.iter().any(|key| key == name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_page_has_a_section_for_each_table_and_a_row_for_each_key() {
        let schema = json!({
            "description": "All of it.",
            "properties": {
                "server": {
                    "type": "object",
                    "description": "The server.",
                    "properties": {
                        "host": {"type": "string", "default": "a|b", "description": "One\nline | two."},
                        "names": {"type": "array", "items": {"type": "string"}, "default": []},
                    },
                },
                "frozen": {
                    "type": "object",
                    "description": "Always the same.",
                    "additionalProperties": true,
                },
                "tools": {"type": "object", "properties": {"script": {
                    "type": "object",
                    "additionalProperties": {
                        "type": "object",
                        "description": "A script.",
                        "required": ["path"],
                        "properties": {
                            "path": {"type": "string", "description": "The file."},
                            "size": {"type": ["integer", "string"], "format": "size"},
                            "wait": {"type": ["number", "string"], "format": "time"},
                            "arguments": {"type": "object", "additionalProperties": true},
                            "env": {"type": "object", "additionalProperties": {"type": "string"}},
                            "parts": {
                                "type": "array",
                                "description": "All of them.",
                                "items": {
                                    "type": "object",
                                    "description": "One.",
                                    "properties": {"name": {"type": "string"}},
                                },
                            },
                        },
                    },
                }}},
            },
        });
        assert_eq!(
            render_page(&schema),
            "\
# `moonlark.toml`

<!-- Generated from the config structs; edit those. -->

All of it.

## `[server]`

The server.

| key | type | default | description |
|---|---|---|---|
| `host` | string | `\"a\\|b\"` | One line \\| two. |
| `names` | array of strings | `[]` |  |

## `[frozen]`

Always the same.

| key | type |
|---|---|
| `NAME` | any |

## `[tools.script.NAME]`

A script.

| key | type | default | description |
|---|---|---|---|
| `path` | string | required | The file. |
| `size` | size | none |  |
| `wait` | time | none |  |
| `arguments` | table | none |  |
| `env` | table of strings | none |  |
| `parts` | array of tables | none | All of them. |

## `[[tools.script.NAME.parts]]`

One.

| key | type | default | description |
|---|---|---|---|
| `name` | string | none |  |
"
        );
    }

    #[test]
    fn every_key_and_table_is_described() {
        for line in render_config_reference().lines() {
            assert!(!line.ends_with("|  |"), "no doc comment: {line}");
        }
        assert!(!render_config_reference().contains("`\n\n\n"), "a table without a doc comment");
    }

    #[test]
    fn every_key_of_the_schema_is_on_the_page() {
        fn collect_keys(schema: &Value, keys: &mut Vec<String>) {
            for (name, key) in schema["properties"].as_object().into_iter().flatten() {
                keys.push(name.clone());
                collect_keys(key, keys);
            }
            for inner in ["additionalProperties", "items"].iter().filter_map(|it| schema.get(it)) {
                collect_keys(inner, keys);
            }
        }
        let (page, mut keys) = (render_config_reference(), Vec::new());
        collect_keys(config_json_schema(), &mut keys);
        for key in keys {
            let headings = [format!("| `{key}` |"), format!("[{key}"), format!(".{key}")];
            assert!(headings.iter().any(|it| page.contains(it)), "{key} is not on the page");
        }
        for table in ["mcp_servers", "apis"] {
            let section = page.split(&format!("## `[{table}.NAME.tools.NAME]`")).nth(1).unwrap();
            let section = section.split("## ").next().unwrap();
            assert!(section.contains("| `arguments` | table |"), "{section}");
        }
    }
}
