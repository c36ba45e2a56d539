//! The one value type that crosses boundaries: script, host, wire.
//!
//! It is JSON plus bytes. Integers and floats stay apart, so nothing is rounded
//! on the way; bytes that are not text stay bytes until someone asks for JSON,
//! and then it is a [`Problem`] with the path to them. Engines convert to and
//! from this type by copy, so no script ever holds a piece of the host.

use std::fmt;

use indexmap::IndexMap;
use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{self, Deserialize, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

use crate::problem::{Problem, Result};

/// How deep a value may nest wherever it crosses a boundary.
pub const MAX_DEPTH: usize = 128;

/// Named fields in order. Behind a pointer, so that a long list of numbers
/// does not pay for maps it does not have.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Object(Box<IndexMap<String, Value>>);

impl Object {
    pub fn new() -> Self {
        Self::default()
    }
}

impl std::ops::Deref for Object {
    type Target = IndexMap<String, Value>;
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
    pub fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
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

    /// Parse JSON text. Nesting and integers beyond 64 bits are Problems, never
    /// a crash or a rounded number.
    pub fn parse_json(text: &[u8]) -> Result<Value> {
        // Counted before serde recurses, and with our bound instead of its.
        check_json_depth(text)?;
        serde_json::from_slice(text)
            .map_err(|error| Problem::bad_request(format!("invalid JSON: {error}")))
    }

    pub fn from_json(json: serde_json::Value) -> Result<Value> {
        from_json(json, 0)
    }

    /// The JSON form; `what` names the value in the Problem if it has none.
    pub fn into_json(self, what: &str) -> Result<serde_json::Value> {
        let mut path = Path::new(what);
        into_json(self, &mut path)
    }

    /// The JSON form for looking at, where bytes can only be shown as such.
    pub fn to_json_lossy(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match self {
            Value::Null => Json::Null,
            Value::Bool(flag) => Json::Bool(*flag),
            Value::Int(int) => Json::from(*int),
            Value::Float(float) => Json::from(*float),
            Value::Str(text) => Json::String(text.clone()),
            Value::Bytes(bytes) => Json::String(format!("<{} bytes>", bytes.len())),
            Value::Array(items) => Json::Array(items.iter().map(Value::to_json_lossy).collect()),
            Value::Object(object) => Json::Object(
                object.iter().map(|(key, value)| (key.clone(), value.to_json_lossy())).collect(),
            ),
        }
    }

    /// Compact JSON text.
    pub fn encode_json(&self, what: &str) -> Result<String> {
        let mut path = Path::new(what);
        check_json(self, &mut path)?;
        serde_json::to_string(self)
            .map_err(|error| Problem::internal(format!("cannot encode {what} as JSON: {error}")))
    }

    /// Read into a typed value; the Problem names the field.
    pub fn read<T: de::DeserializeOwned>(self) -> Result<T, ReadError> {
        let mut track = serde_path_to_error::Track::new();
        let deserializer = serde_path_to_error::Deserializer::new(self, &mut track);
        T::deserialize(deserializer).map_err(|error| ReadError {
            path: track.path().to_string(),
            message: error.to_string(),
        })
    }
}

/// Why a value does not fit a typed struct.
#[derive(Debug)]
pub struct ReadError {
    /// `.` when it is the value as a whole.
    pub path: String,
    pub message: String,
}

/// The way down to the value being converted, for messages such as
/// `result.items[3].name`.
#[derive(Debug)]
pub struct Path {
    root: String,
    steps: Vec<Step>,
}

#[derive(Debug)]
enum Step {
    Key(String),
    Index(usize),
}

impl Path {
    pub fn new(root: &str) -> Self {
        Self { root: root.to_owned(), steps: Vec::new() }
    }

    pub fn depth(&self) -> usize {
        self.steps.len()
    }

    pub fn push_key(&mut self, key: &str) -> Result<()> {
        self.push(Step::Key(key.to_owned()))
    }

    /// `index` counts from zero.
    pub fn push_index(&mut self, index: usize) -> Result<()> {
        self.push(Step::Index(index))
    }

    pub fn pop(&mut self) {
        self.steps.pop();
    }

    fn push(&mut self, step: Step) -> Result<()> {
        if self.steps.len() >= MAX_DEPTH {
            return Err(Problem::limit(format!(
                "{} is nested deeper than {MAX_DEPTH} levels",
                self.root
            ))
            .hint("return a flatter value"));
        }
        self.steps.push(step);
        Ok(())
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.root)?;
        for step in &self.steps {
            match step {
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Key(key) if is_name(key) => write!(f, ".{key}")?,
                Step::Key(key) => write!(f, "[{:?}]", shorten(key))?,
            }
        }
        Ok(())
    }
}

fn is_name(key: &str) -> bool {
    let mut bytes = key.bytes();
    key.len() <= 64
        && bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// At most 100 characters of `text`, for messages.
pub fn shorten(text: &str) -> std::borrow::Cow<'_, str> {
    match text.char_indices().nth(100) {
        Some((cut, _)) => format!("{}…", &text[..cut]).into(),
        None => text.into(),
    }
}

fn check_json_depth(text: &[u8]) -> Result<()> {
    let (mut depth, mut quoted, mut escaped) = (0usize, false, false);
    for &byte in text {
        if quoted {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => quoted = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => quoted = true,
            b'[' | b'{' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return Err(Problem::limit(format!(
                        "the JSON is nested deeper than {MAX_DEPTH} levels"
                    )));
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(())
}

fn from_json(json: serde_json::Value, depth: usize) -> Result<Value> {
    use serde_json::Value as Json;
    if depth > MAX_DEPTH {
        return Err(Problem::limit(format!("the value is nested deeper than {MAX_DEPTH} levels")));
    }
    Ok(match json {
        Json::Null => Value::Null,
        Json::Bool(flag) => Value::Bool(flag),
        Json::Number(number) => number_value(&number)?,
        Json::String(text) => Value::Str(text),
        Json::Array(items) => Value::Array(
            items.into_iter().map(|item| from_json(item, depth + 1)).collect::<Result<_>>()?,
        ),
        Json::Object(map) => Value::Object(
            map.into_iter()
                .map(|(key, value)| Ok((key, from_json(value, depth + 1)?)))
                .collect::<Result<_>>()?,
        ),
    })
}

fn number_value(number: &serde_json::Number) -> Result<Value> {
    if let Some(int) = number.as_i64() {
        return Ok(Value::Int(int));
    }
    if number.as_u64().is_some() {
        return Err(too_large_integer(number));
    }
    match number.as_f64() {
        Some(float) if float.is_finite() => Ok(Value::Float(float)),
        _ => Err(Problem::bad_request(format!("the number {number} is out of range"))),
    }
}

fn too_large_integer(number: impl fmt::Display) -> Problem {
    Problem::bad_request(format!("the integer {number} does not fit 64 bits"))
        .hint("send it as a string")
}

fn into_json(value: Value, path: &mut Path) -> Result<serde_json::Value> {
    use serde_json::Value as Json;
    Ok(match value {
        Value::Null => Json::Null,
        Value::Bool(flag) => Json::Bool(flag),
        Value::Int(int) => Json::from(int),
        Value::Float(float) => match serde_json::Number::from_f64(float) {
            Some(number) => Json::Number(number),
            None => return Err(not_json_number(float, path)),
        },
        Value::Str(text) => Json::String(text),
        Value::Bytes(_) => return Err(not_text(path)),
        Value::Array(items) => {
            let mut array = Vec::with_capacity(items.len());
            for (index, item) in items.into_iter().enumerate() {
                path.push_index(index)?;
                array.push(into_json(item, path)?);
                path.pop();
            }
            Json::Array(array)
        }
        Value::Object(object) => {
            let mut map = serde_json::Map::with_capacity(object.len());
            for (key, item) in object {
                path.push_key(&key)?;
                let item = into_json(item, path)?;
                path.pop();
                map.insert(key, item);
            }
            Json::Object(map)
        }
    })
}

/// What `into_json` refuses, without building anything.
fn check_json(value: &Value, path: &mut Path) -> Result<()> {
    match value {
        Value::Float(float) if !float.is_finite() => Err(not_json_number(*float, path)),
        Value::Bytes(_) => Err(not_text(path)),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                // Scalars, the bulk of any value, need no path entry.
                if !matches!(item, Value::Null | Value::Bool(_) | Value::Int(_) | Value::Str(_)) {
                    path.push_index(index)?;
                    check_json(item, path)?;
                    path.pop();
                }
            }
            Ok(())
        }
        Value::Object(object) => {
            for (key, item) in object {
                if !matches!(item, Value::Null | Value::Bool(_) | Value::Int(_) | Value::Str(_)) {
                    path.push_key(key)?;
                    check_json(item, path)?;
                    path.pop();
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn not_json_number(float: f64, path: &Path) -> Problem {
    let name = match float {
        f if f.is_nan() => "NaN",
        f if f > 0.0 => "infinity",
        _ => "-infinity",
    };
    Problem::tool_error(format!("{path} is {name}, which JSON cannot hold"))
        .hint("return nil or a string instead")
}

fn not_text(path: &Path) -> Problem {
    Problem::tool_error(format!("{path} is not UTF-8 text, which JSON cannot hold"))
        .hint("encode it with base64.encode")
}

// --- serde ---------------------------------------------------------------

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self {
            Value::Null => serializer.serialize_unit(),
            Value::Bool(flag) => serializer.serialize_bool(*flag),
            Value::Int(int) => serializer.serialize_i64(*int),
            Value::Float(float) => serializer.serialize_f64(*float),
            Value::Str(text) => serializer.serialize_str(text),
            Value::Bytes(bytes) => serializer.serialize_bytes(bytes),
            Value::Array(items) => {
                let mut seq = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    seq.serialize_element(item)?;
                }
                seq.end()
            }
            Value::Object(object) => {
                let mut map = serializer.serialize_map(Some(object.len()))?;
                for (key, value) in object {
                    map.serialize_entry(key, value)?;
                }
                map.end()
            }
        }
    }
}

/// The key under which serde_json hands over a number as text when some crate
/// in the build turns on its `arbitrary_precision` feature.
const NUMBER_TOKEN: &str = "$serde_json::private::Number";

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct ValueVisitor;

        impl<'de> Visitor<'de> for ValueVisitor {
            type Value = Value;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }
            fn visit_unit<E>(self) -> std::result::Result<Value, E> {
                Ok(Value::Null)
            }
            fn visit_none<E>(self) -> std::result::Result<Value, E> {
                Ok(Value::Null)
            }
            fn visit_some<D: Deserializer<'de>>(
                self,
                deserializer: D,
            ) -> std::result::Result<Value, D::Error> {
                Value::deserialize(deserializer)
            }
            fn visit_bool<E>(self, flag: bool) -> std::result::Result<Value, E> {
                Ok(Value::Bool(flag))
            }
            fn visit_i64<E>(self, int: i64) -> std::result::Result<Value, E> {
                Ok(Value::Int(int))
            }
            fn visit_u64<E: de::Error>(self, int: u64) -> std::result::Result<Value, E> {
                i64::try_from(int)
                    .map(Value::Int)
                    .map_err(|_| E::custom(too_large_integer(int).message))
            }
            fn visit_f64<E>(self, float: f64) -> std::result::Result<Value, E> {
                Ok(Value::Float(float))
            }
            fn visit_str<E>(self, text: &str) -> std::result::Result<Value, E> {
                Ok(Value::Str(text.to_owned()))
            }
            fn visit_string<E>(self, text: String) -> std::result::Result<Value, E> {
                Ok(Value::Str(text))
            }
            fn visit_bytes<E>(self, bytes: &[u8]) -> std::result::Result<Value, E> {
                Ok(Value::text_or_bytes(bytes.to_vec()))
            }
            fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> std::result::Result<Value, E> {
                Ok(Value::text_or_bytes(bytes))
            }
            fn visit_seq<A: SeqAccess<'de>>(
                self,
                mut seq: A,
            ) -> std::result::Result<Value, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    items.push(item);
                }
                Ok(Value::Array(items))
            }
            fn visit_map<A: MapAccess<'de>>(
                self,
                mut map: A,
            ) -> std::result::Result<Value, A::Error> {
                let mut object = Object::new();
                while let Some(key) = map.next_key::<String>()? {
                    if key == NUMBER_TOKEN && object.is_empty() {
                        let text: String = map.next_value()?;
                        let number: serde_json::Number = text.parse().map_err(de::Error::custom)?;
                        return number_value(&number)
                            .map_err(|problem| de::Error::custom(problem.message));
                    }
                    object.insert(key, map.next_value()?);
                }
                Ok(Value::Object(object))
            }
        }

        deserializer.deserialize_any(ValueVisitor)
    }
}

impl<'de> IntoDeserializer<'de, ValueError> for Value {
    type Deserializer = Self;
    fn into_deserializer(self) -> Self {
        self
    }
}

/// Why typed reading failed, before the path is put in front.
#[derive(Debug)]
pub struct ValueError(String);

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::error::Error for ValueError {}
impl de::Error for ValueError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        ValueError(message.to_string())
    }
}

impl<'de> Deserializer<'de> for Value {
    type Error = ValueError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        match self {
            Value::Null => visitor.visit_unit(),
            Value::Bool(flag) => visitor.visit_bool(flag),
            Value::Int(int) => visitor.visit_i64(int),
            Value::Float(float) => visitor.visit_f64(float),
            Value::Str(text) => visitor.visit_string(text),
            Value::Bytes(bytes) => visitor.visit_byte_buf(bytes),
            Value::Array(items) => visitor.visit_seq(SeqDeserializer::new(items.into_iter())),
            Value::Object(object) => visitor.visit_map(MapDeserializer::new(object.into_iter())),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        match self {
            Value::Null => visitor.visit_none(),
            other => visitor.visit_some(other),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        match self {
            Value::Str(text) => {
                let text: de::value::StringDeserializer<ValueError> = text.into_deserializer();
                text.deserialize_enum(name, variants, visitor)
            }
            other => Err(de::Error::custom(format!(
                "expected one of {}, got {}",
                variants.join(", "),
                other.kind()
            ))),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        visitor.visit_newtype_struct(self)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string
        bytes byte_buf unit unit_struct seq tuple tuple_struct map struct
        identifier ignored_any
    }
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
pub struct Bytes(pub Vec<u8>);

impl From<Bytes> for Value {
    fn from(bytes: Bytes) -> Self {
        Value::text_or_bytes(bytes.0)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Str(text) => Ok(Bytes(text.into_bytes())),
            Value::Bytes(bytes) => Ok(Bytes(bytes)),
            other => Err(de::Error::custom(format!("expected a string, got {}", other.kind()))),
        }
    }
}

impl schemars::JsonSchema for Bytes {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(json: &str) -> String {
        match Value::parse_json(json.as_bytes()) {
            Ok(value) => value.encode_json("value").unwrap_or_else(|p| p.to_string()),
            Err(problem) => problem.to_string(),
        }
    }

    #[test]
    fn a_value_is_small() {
        assert!(std::mem::size_of::<Value>() <= 32, "{}", std::mem::size_of::<Value>());
    }

    #[test]
    fn json_round_trips_or_is_a_problem() {
        for same in [
            "null",
            "true",
            "0",
            "-1",
            "1.5",
            "9007199254740993",
            "-9223372036854775808",
            "\"\"",
            "\"ä\"",
            "[]",
            "{}",
            "[null]",
            "{\"b\":1,\"a\":[{}]}",
            "[1e300]",
        ] {
            let expected = if same == "[1e300]" { "[1e+300]" } else { same };
            assert_eq!(round_trip(same), expected);
        }
        assert_eq!(
            round_trip("18446744073709551615"),
            "error[bad_request]: invalid JSON: the integer 18446744073709551615 does not fit 64 bits at line 1 column 20"
        );
        assert!(round_trip(&"[".repeat(100_000)).contains("nested deeper than 128"));
        assert!(round_trip("{").starts_with("error[bad_request]: invalid JSON"));
        assert!(round_trip("1e400").starts_with("error[bad_request]: invalid JSON"));
    }

    #[test]
    fn what_json_cannot_hold_is_named_with_its_path() {
        let value = Value::object([("items", Value::Array(vec![Value::Bytes(vec![0xff])]))]);
        assert_eq!(
            value.encode_json("result").unwrap_err().message,
            "result.items[0] is not UTF-8 text, which JSON cannot hold"
        );
        let value = Value::object([("a b", Value::Float(f64::NAN))]);
        assert_eq!(
            value.into_json("result").unwrap_err().message,
            "result[\"a b\"] is NaN, which JSON cannot hold"
        );
    }
}
