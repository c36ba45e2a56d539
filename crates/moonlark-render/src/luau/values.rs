//! JSON values as a script would write them.

use serde_json::Value as Json;

use super::types::is_luau_name;

pub fn luau_value(value: &Json) -> String {
    match value {
        Json::Null => "json.null".to_owned(),
        Json::Bool(flag) => flag.to_string(),
        Json::Number(number) => match number.as_f64() {
            // Luau has one kind of number, so a whole one needs no fraction.
            Some(whole) if number.is_f64() && whole.fract() == 0.0 && whole.abs() < 1e15 => {
                format!("{whole:.0}")
            }
            _ => number.to_string(),
        },
        // Rust and Luau escape alike: \n, \", \\, \u{7f}.
        Json::String(text) => format!("{text:?}"),
        Json::Array(items) if items.is_empty() => "{}".to_owned(),
        Json::Array(items) => {
            let items: Vec<String> = items.iter().map(luau_value).collect();
            format!("{{ {} }}", items.join(", "))
        }
        Json::Object(fields) if fields.is_empty() => "{}".to_owned(),
        Json::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(key, value)| luau_field(key, value)).collect();
            format!("{{ {} }}", fields.join(", "))
        }
    }
}

pub(super) fn luau_field(key: &str, value: &Json) -> String {
    let value = luau_value(value);
    if is_luau_name(key) { format!("{key} = {value}") } else { format!("[{key:?}] = {value}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_reads_as_luau() {
        assert_eq!(
            luau_value(&json!({"a": [1, 2.5, 3.0, null], "b c": "x\"\n", "d": {}, "e": true})),
            r#"{ a = { 1, 2.5, 3, json.null }, ["b c"] = "x\"\n", d = {}, e = true }"#
        );
    }
}
