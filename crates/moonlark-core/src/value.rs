//! The one value type that crosses boundaries: script, host, wire.
//!
//! It is JSON plus bytes. Integers and floats stay apart, so nothing is rounded
//! on the way; bytes that are not text stay bytes until someone asks for JSON,
//! and then it is a [`Problem`] with the path to them. Engines convert to and
//! from this type by copy, so no script ever holds a piece of the host.

mod json;
mod path;
mod serde_impl;

use foldhash::fast::RandomState;
use indexmap::IndexMap;
use serde::de::{self, Deserialize, Deserializer};

use crate::problem::Result;

pub use path::{ValueBudget, ValuePath, shorten_text};

/// How deep a value may nest wherever it crosses a boundary.
pub const MAX_VALUE_DEPTH: usize = 128;

/// Named fields in order. Behind a pointer, so that a long list of numbers
/// does not pay for maps it does not have.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Object(Box<ObjectFields>);

/// Hashed with a seed nobody outside knows, as maps of the standard library are,
/// but in a fraction of the time: most keys are a few letters.
type ObjectFields = IndexMap<String, Value, RandomState>;

impl Object {
    pub fn new() -> Self {
        Self::default()
    }
}

impl std::ops::Deref for Object {
    type Target = ObjectFields;
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl std::ops::DerefMut for Object {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl IntoIterator for Object {
    type Item = (String, Value);
    type IntoIter = indexmap::map::IntoIter<String, Value>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a Object {
    type Item = (&'a String, &'a Value);
    type IntoIter = indexmap::map::Iter<'a, String, Value>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl FromIterator<(String, Value)> for Object {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(fields: I) -> Self {
        Self(Box::new(fields.into_iter().collect()))
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub enum Value {
    #[default]
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(String),
    /// Bytes that are not valid UTF-8.
    Bytes(Vec<u8>),
    Array(Vec<Value>),
    Object(Object),
}

impl Value {
    /// Text when the bytes are UTF-8, bytes otherwise.
    pub fn text_or_bytes(bytes: Vec<u8>) -> Value {
        match String::from_utf8(bytes) {
            Ok(text) => Value::Str(text),
            Err(error) => Value::Bytes(error.into_bytes()),
        }
    }

    /// An object of the given fields.
    pub fn from_fields<const N: usize>(fields: [(&str, Value); N]) -> Value {
        Value::Object(fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }

    pub fn as_object(&self) -> Option<&Object> {
        match self {
            Value::Object(object) => Some(object),
            _ => None,
        }
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::Str(text) => Some(text),
            _ => None,
        }
    }

    pub fn get(&self, key: &str) -> Option<&Value> {
        self.as_object()?.get(key)
    }

    /// What a reader would call it.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Int(_) => "integer",
            Value::Float(_) => "number",
            Value::Str(_) => "string",
            Value::Bytes(_) => "bytes",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        }
    }

    /// Read into a typed value; the Problem names the field.
    pub fn deserialize_into<T: de::DeserializeOwned>(self) -> Result<T, ValueReadError> {
        let mut track = serde_path_to_error::Track::new();
        let deserializer = serde_path_to_error::Deserializer::new(self, &mut track);
        T::deserialize(deserializer).map_err(|error| ValueReadError {
            path: track.path().to_string(),
            message: error.to_string(),
        })
    }
}

/// Why a value does not fit a typed struct.
#[derive(Debug)]
pub struct ValueReadError {
    /// `.` when it is the value as a whole.
    pub path: String,
    pub message: String,
}

// --- conversions that host modules write all the time ---------------------

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Value::Bool(flag)
    }
}
impl From<i64> for Value {
    fn from(int: i64) -> Self {
        Value::Int(int)
    }
}
impl From<u16> for Value {
    fn from(int: u16) -> Self {
        Value::Int(int.into())
    }
}
impl From<f64> for Value {
    fn from(float: f64) -> Self {
        Value::Float(float)
    }
}
impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::Str(text.to_owned())
    }
}
impl From<String> for Value {
    fn from(text: String) -> Self {
        Value::Str(text)
    }
}
impl From<()> for Value {
    fn from((): ()) -> Self {
        Value::Null
    }
}
impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(option: Option<T>) -> Self {
        option.map_or(Value::Null, Into::into)
    }
}
impl<T: Into<Value>> From<Vec<T>> for Value {
    fn from(items: Vec<T>) -> Self {
        Value::Array(items.into_iter().map(Into::into).collect())
    }
}
impl From<Object> for Value {
    fn from(object: Object) -> Self {
        Value::Object(object)
    }
}

/// An argument or result that may be any bytes: text is the common case.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TextOrBytes(pub Vec<u8>);

impl From<TextOrBytes> for Value {
    fn from(bytes: TextOrBytes) -> Self {
        Value::text_or_bytes(bytes.0)
    }
}

impl<'de> Deserialize<'de> for TextOrBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Str(text) => Ok(TextOrBytes(text.into_bytes())),
            Value::Bytes(bytes) => Ok(TextOrBytes(bytes)),
            other => Err(de::Error::custom(format!("expected a string, got {}", other.kind()))),
        }
    }
}

impl schemars::JsonSchema for TextOrBytes {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Bytes".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "string"})
    }
}

/// Any value at all.
impl schemars::JsonSchema for Value {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Value".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        true.into()
    }
}
