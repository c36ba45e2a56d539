//! The JSON Schema of `moonlark.toml`, generated from the structs.
//!
//! Editors complete and check with it, `config_file` checks files against it and
//! the reference page is drawn from it, so no key is listed a second time.

use std::sync::LazyLock;

use schemars::Schema;
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use serde_json::Value;

use super::{ByteSize, HumanDuration, ProjectConfig};

/// Draft 2020-12, without references: each key carries all that holds for it. Made once,
/// for a server reads its configuration again and again.
pub fn config_json_schema() -> &'static Value {
    static CONFIG_JSON_SCHEMA: LazyLock<Value> = LazyLock::new(make_config_schema);
    &CONFIG_JSON_SCHEMA
}

fn make_config_schema() -> Value {
    SchemaSettings::draft2020_12()
        .with(|settings| settings.inline_subschemas = true)
        .with_transform(RecursiveTransform(remove_redundant_keywords))
        .into_generator()
        .into_root_schema_for::<ProjectConfig>()
        .to_value()
}

/// Leave out what says nothing to a reader: the width of an integer whose range
/// is given, and the default of a table, since each of its keys has its own.
fn remove_redundant_keywords(schema: &mut Schema) {
    let ours = |format: &Value| {
        *format == ByteSize::SCHEMA_FORMAT || *format == HumanDuration::SCHEMA_FORMAT
    };
    if schema.get("format").is_some_and(|format| !ours(format)) {
        schema.remove("format");
    }
    if schema.get("default").is_some_and(Value::is_object) {
        schema.remove("default");
    }
}
