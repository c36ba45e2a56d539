//! `toml`: values to TOML and back.

use moonlark_core::limits::size;
use moonlark_core::value::{MAX_DEPTH, Object, Path, shorten};
use moonlark_core::{Call, Module, Problem, Result, Value};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

use crate::args::{Table, fits, line_and_column};

pub(crate) fn module() -> Module {
    Module::new(
        "toml",
        "Encode and decode TOML. Dates and times are text in the form of RFC 3339, and are \
         written as strings.",
    )
    .pure()
    .function("decode", "Decode a TOML document.", decode)
    .example(
        json!({"text": "name = 'x'\n[server]\nports = [80, 443]\nsince = 2026-01-31\n"}),
        json!({"name": "x", "server": {"ports": [80, 443], "since": "2026-01-31"}}),
    )
    .fails(json!({"text": "a = 1\nb ="}), "at line 2, column 4")
    .function("encode", "Encode a table as a TOML document.", encode)
    .example(
        json!({"value": {"server": {"port": 80}, "name": "x"}}),
        json!("name = \"x\"\n\n[server]\nport = 80\n"),
    )
    .fails(json!({"value": {"a": [1, null]}}), "value.a[1] is null, which TOML cannot hold")
    .fails(json!({"value": 1}), "expected a table")
}

/// The library holds many times the text while it reads, and nobody writes
/// this much configuration.
const MOST_TEXT: usize = 4 * 1024 * 1024;
/// What an entry takes at least, once it is decoded.
const ENTRY: usize = 32;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Decode {
    /// A TOML document.
    text: String,
}

fn decode(call: &Call, args: Decode) -> Result<Value> {
    let text = args.text.strip_prefix('\u{feff}').unwrap_or(&args.text);
    let most = MOST_TEXT.min(call.limits().value);
    if text.len() > most {
        return Err(Problem::limit(format!("the TOML is larger than {}", size(most))));
    }
    let table = DeTable::parse(text).map_err(|error| {
        let message = error.message().replace('\n', ", ");
        invalid(text, error.span().map_or(0, |span| span.start), &message)
    })?;
    let mut reader = Reader { text, call, depth: 0, size: 0 };
    reader.table(table.into_inner())
}

/// Turns what was parsed into values and counts them.
struct Reader<'a> {
    text: &'a str,
    call: &'a Call,
    depth: usize,
    size: usize,
}

impl Reader<'_> {
    fn table(&mut self, table: DeTable<'_>) -> Result<Value> {
        let mut fields: Vec<_> = table.into_iter().collect();
        // The library sorts by name; people expect the order they wrote.
        fields.sort_by_key(|(key, _)| key.span().start);
        let mut object = Object::new();
        for (key, value) in fields {
            self.spend(key.get_ref().len())?;
            let value = self.value(value)?;
            object.insert(key.into_inner().into_owned(), value);
        }
        Ok(object.into())
    }

    fn value(&mut self, value: Spanned<DeValue<'_>>) -> Result<Value> {
        let at = value.span().start;
        self.spend(0)?;
        Ok(match value.into_inner() {
            DeValue::String(text) => {
                self.spend(text.len())?;
                Value::Str(text.into_owned())
            }
            DeValue::Integer(int) => Value::Int(integer(&int).ok_or_else(|| {
                let digits = shorten(int.as_str());
                invalid(self.text, at, &format!("the integer {digits} does not fit 64 bits"))
            })?),
            DeValue::Float(float) => {
                let number: f64 = float.as_str().parse().unwrap_or(f64::INFINITY);
                if number.is_infinite() && !float.as_str().contains("inf") {
                    return Err(invalid(self.text, at, "the number is out of range"));
                }
                Value::Float(number)
            }
            DeValue::Boolean(flag) => Value::Bool(flag),
            DeValue::Datetime(date) => Value::Str(date.to_string()),
            DeValue::Array(items) => self.deeper(at, |reader| {
                let items = items.into_iter().map(|item| reader.value(item));
                items.collect::<Result<Vec<_>>>().map(Value::Array)
            })?,
            DeValue::Table(table) => self.deeper(at, |reader| reader.table(table))?,
        })
    }

    /// The library bounds each key and each bracket, but not their sum.
    fn deeper(
        &mut self,
        at: usize,
        read: impl FnOnce(&mut Self) -> Result<Value>,
    ) -> Result<Value> {
        if self.depth >= MAX_DEPTH {
            let place = line_and_column(self.text, at);
            return Err(Problem::limit(format!(
                "the TOML is nested deeper than {MAX_DEPTH} levels, at {place}"
            )));
        }
        self.depth += 1;
        let value = read(self);
        self.depth -= 1;
        value
    }

    fn spend(&mut self, bytes: usize) -> Result<()> {
        self.size += bytes + ENTRY;
        fits(self.call, self.size)
    }
}

fn integer(int: &DeInteger<'_>) -> Option<i64> {
    i64::from_str_radix(int.as_str(), int.radix()).ok()
}

fn invalid(text: &str, at: usize, message: &str) -> Problem {
    let place = line_and_column(text, at);
    Problem::bad_request(format!("invalid TOML: {message}, at {place}"))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Encode {
    /// What to encode; TOML has no null.
    value: Table,
}

fn encode(call: &Call, args: Encode) -> Result<String> {
    let value = Value::Object(args.value.0);
    let mut check = Check { call, path: Path::new("value"), size: 0 };
    check.value(&value, 0)?;
    let text = toml::to_string(&value)
        .map_err(|error| Problem::internal(format!("cannot encode the value as TOML: {error}")))?;
    fits(call, text.len())?;
    Ok(text)
}

/// Finds what TOML cannot hold, and about how long it will be.
struct Check<'a> {
    call: &'a Call,
    path: Path,
    size: usize,
}

impl Check<'_> {
    /// `header` is the length of the keys on the way here: each table writes
    /// them all again.
    fn value(&mut self, value: &Value, header: usize) -> Result<()> {
        let path = &self.path;
        match value {
            Value::Null => {
                return Err(Problem::bad_request(format!(
                    "{path} is null, which TOML cannot hold"
                ))
                .hint("leave it out"));
            }
            Value::Bytes(_) => {
                return Err(Problem::bad_request(format!(
                    "{path} is not UTF-8 text, which TOML cannot hold"
                ))
                .hint("encode it with base64.encode"));
            }
            Value::Bool(_) | Value::Int(_) | Value::Float(_) => self.spend(1)?,
            Value::Str(text) => self.spend(text.len())?,
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.path.push_index(index)?;
                    self.value(item, header)?;
                    self.path.pop();
                }
            }
            Value::Object(object) => {
                self.spend(header)?;
                for (key, item) in object {
                    self.spend(key.len())?;
                    self.path.push_key(key)?;
                    self.value(item, header + key.len() + 1)?;
                    self.path.pop();
                }
            }
        }
        Ok(())
    }

    fn spend(&mut self, bytes: usize) -> Result<()> {
        self.size = self.size.saturating_add(bytes);
        fits(self.call, self.size)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use moonlark_core::Value;
    use serde_json::json;

    use crate::testing::{call, call_value, limited, problem, scope};

    async fn decode(text: &str) -> String {
        match call(scope(Path::new("."), &[]), "toml.decode", json!({"text": text})).await {
            Ok(value) => value.to_json_lossy().to_string(),
            Err(problem) => problem.message,
        }
    }

    async fn encode(value: serde_json::Value) -> String {
        match call(scope(Path::new("."), &[]), "toml.encode", json!({"value": value})).await {
            Ok(value) => value.as_str().unwrap().to_owned(),
            Err(problem) => problem.message,
        }
    }

    #[tokio::test]
    async fn every_kind_of_value_is_decoded() {
        for (text, expected) in [
            ("", "{}"),
            ("\u{feff}a=1", r#"{"a":1}"#),
            ("z=1\na=2\n[m]\nb.c=0x1f\n", r#"{"z":1,"a":2,"m":{"b":{"c":31}}}"#),
            ("a=9223372036854775807", r#"{"a":9223372036854775807}"#),
            ("a=-9_223_372_036_854_775_808", r#"{"a":-9223372036854775808}"#),
            ("a=1979-05-27T07:32:00-08:00", r#"{"a":"1979-05-27T07:32:00-08:00"}"#),
            ("a=07:32:00.5", r#"{"a":"07:32:00.5"}"#),
            ("[[a]]\nx=1\n[[a]]\n", r#"{"a":[{"x":1},{}]}"#),
            ("a='''x\ny'''", r#"{"a":"x\ny"}"#),
            ("a=1.5e3", r#"{"a":1500.0}"#),
        ] {
            assert_eq!(decode(text).await, expected, "{text}");
        }
        let special = json!({"text": "a=[inf,-inf,nan]"});
        let value = call(scope(Path::new("."), &[]), "toml.decode", special).await.unwrap();
        let Some(Value::Array(floats)) = value.get("a") else { panic!("{value:?}") };
        assert_eq!(format!("{floats:?}"), "[Float(inf), Float(-inf), Float(NaN)]");
    }

    #[tokio::test]
    async fn problems_say_where() {
        for (text, expected) in [
            (
                "a=1\nb=9223372036854775808",
                "toml.decode: invalid TOML: the integer 9223372036854775808 does not fit 64 bits, at line 2, column 3",
            ),
            (
                "a=1e999",
                "toml.decode: invalid TOML: the number is out of range, at line 1, column 3",
            ),
            ("ä=1", "at line 1, column 1"),
            ("\"ä\"=1 x", "at line 1, column 5"),
            ("a=1\na=2", "toml.decode: invalid TOML: duplicate key, at line 2, column 1"),
        ] {
            let found = decode(text).await;
            assert!(found.ends_with(expected), "{text}: {found}");
        }
    }

    #[tokio::test]
    async fn hostile_documents_are_problems() {
        for text in [
            format!("a={}", "[".repeat(1_000_000)),
            format!("{}=1", "a.".repeat(1_000_000)),
            format!("[{}a]\n", "a.".repeat(100_000)),
            "a={a=".repeat(100_000),
            format!("a={}", "1".repeat(1_000_000)),
            "a".repeat(5 * 1024 * 1024),
        ] {
            let found = decode(&text).await;
            assert!(found.starts_with("toml.decode: "), "{}", &found[..found.len().min(200)]);
            assert!(found.len() < 1000, "{}", found.len());
        }
        let key = |count: usize| vec!["a"; count].join(".");
        let deep = format!("[{}]\n{}={}1{}", key(70), key(70), "[".repeat(60), "]".repeat(60));
        assert_eq!(
            decode(&deep).await,
            "toml.decode: the TOML is nested deeper than 128 levels, at line 2, column 117"
        );
    }

    #[tokio::test]
    async fn results_stay_within_the_limit() {
        let small = || limited(scope(Path::new("."), &[]), |limits| limits.value = 10_000);
        let many = json!({"text": format!("a=[{}]", "1,".repeat(1000))});
        assert_eq!(
            problem(small(), "toml.decode", many).await,
            "error[limit]: toml.decode: the result is larger than 10000 bytes\nhint: work on less at a time, or raise limits.value"
        );
        let tables: serde_json::Map<_, _> =
            (0..100).map(|index| (index.to_string(), json!({}))).collect();
        let headers = json!({"value": {"k".repeat(1000): tables}});
        assert!(problem(small(), "toml.encode", headers).await.contains("larger than 10000 bytes"));
    }

    #[tokio::test]
    async fn values_come_back_as_they_were() {
        for value in [
            json!({}),
            json!({"b": {"c": {"d": 1}}, "a": i64::MIN}),
            json!({"list": [{"a": 1}, {"b": [[1], []]}], "mixed": [1, "x", {"y": 2.5}]}),
            json!({"a b": "q\"\n\t\u{1}", "": "empty", "1.2": {"ä": true}, "x": {}}),
            json!({"f": 1.0, "g": 1e300}),
        ] {
            let text = encode(value.clone()).await;
            let back = decode(&text).await;
            let back: serde_json::Value = serde_json::from_str(&back).expect(&back);
            assert_eq!(back, value, "{text}");
        }
        assert_eq!(encode(json!([])).await, "");
        assert_eq!(
            encode(json!({"a": {"b": null}})).await,
            "toml.encode: value.a.b is null, which TOML cannot hold"
        );
        let floats = Value::object([("a", f64::INFINITY.into()), ("b", f64::NAN.into())]);
        let args = Value::object([("value", floats)]);
        let text = call_value(scope(Path::new("."), &[]), "toml.encode", args).await.unwrap();
        assert_eq!(text, Value::from("a = inf\nb = nan\n"));
    }
}
