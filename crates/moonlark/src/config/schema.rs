//! The JSON Schema of `moonlark.toml`, generated from the structs.
//!
//! Editors complete and check with it, `config_file` checks files against it and
//! the reference page is drawn from it, so no key is listed a second time.

use schemars::Schema;
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use serde_json::Value;

use super::{Config, Size, Span};

/// Draft 2020-12, without references: each key carries all that holds for it.
pub fn schema() -> Value {
    SchemaSettings::draft2020_12()
        .with(|settings| settings.inline_subschemas = true)
        .with_transform(RecursiveTransform(tidy))
        .into_generator()
        .into_root_schema_for::<Config>()
        .to_value()
}

/// Leave out what says nothing to a reader: the width of an integer whose range
/// is given, and the default of a table, since each of its keys has its own.
fn tidy(schema: &mut Schema) {
    let ours = |format: &Value| *format == Size::FORMAT || *format == Span::FORMAT;
    if schema.get("format").is_some_and(|format| !ours(format)) {
        schema.remove("format");
    }
    if schema.get("default").is_some_and(Value::is_object) {
        schema.remove("default");
    }
}
