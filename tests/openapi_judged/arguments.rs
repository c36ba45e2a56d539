//! Arguments for a tool, made from nothing but its schema.
//!
//! The same seed makes the same arguments. What a schema says that this does
//! not understand is left to luck: whoever asks checks what came out, and asks
//! again with another seed.

use regex_syntax::hir::{Class, Hir, HirKind};
use serde_json::{Map, Value, json};

/// Deeper than this, only what must be there is.
const SHALLOW: usize = 4;
const MAX_DEPTH: usize = 14;

/// Text that is hard to encode.
const WORDS: [&str; 6] = ["alpha", "two words", "a&b=c", "x/y?z#w", "50% + 1", "æble"];

#[derive(Clone, Copy, PartialEq)]
pub enum Extent {
    /// What is required.
    Least,
    /// Whatever there is.
    Most,
    /// Some of it, as the seed wills.
    Some,
}

pub struct Arguments<'a> {
    root: &'a Map<String, Value>,
    extent: Extent,
    state: u64,
}

impl<'a> Arguments<'a> {
    pub fn new(root: &'a Map<String, Value>, extent: Extent, seed: u64) -> Self {
        Self { root, extent, state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1 }
    }

    pub fn make(&mut self) -> Option<Value> {
        self.value(&Value::Object(self.root.clone()), 0)
    }

    fn below(&mut self, limit: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 11) as usize % limit.max(1)
    }

    fn value(&mut self, schema: &Value, depth: usize) -> Option<Value> {
        if depth > MAX_DEPTH {
            return None;
        }
        let Some(schema) = self.flat(schema, 0) else { return Some(json!("anything")) };
        if let Some(only) = schema.get("const") {
            return Some(only.clone());
        }
        if let Some(options) = schema.get("enum").and_then(Value::as_array) {
            let options: Vec<&Value> = options.iter().filter(|it| !it.is_null()).collect();
            return Some(options.get(self.below(options.len()))?.to_owned().clone());
        }
        match kind(&schema) {
            "object" => self.object(&schema, depth),
            "array" => self.array(&schema, depth),
            "string" => Some(json!(self.string(&schema, depth)?)),
            "integer" => self.number(&schema, true),
            "number" => self.number(&schema, false),
            "boolean" => Some(json!(self.below(2) == 1)),
            "null" => Some(Value::Null),
            _ => Some(json!("anything")),
        }
    }

    /// The schema with its references followed and its parts put together.
    fn flat(&mut self, schema: &Value, depth: usize) -> Option<Map<String, Value>> {
        let mut whole = schema.as_object()?.clone();
        if depth > MAX_DEPTH {
            return Some(whole);
        }
        if let Some(name) = whole.get("$ref").and_then(Value::as_str) {
            let name = name.strip_prefix("#/$defs/")?;
            let target = self.root.get("$defs")?.get(name)?;
            return self.flat(target, depth + 1);
        }
        for part in take(&mut whole, "allOf") {
            let part = self.flat(&part, depth + 1).unwrap_or_default();
            merge(&mut whole, part);
        }
        for key in ["oneOf", "anyOf"] {
            let parts = take(&mut whole, key);
            let parts: Vec<&Value> = parts.iter().filter(|it| it["type"] != "null").collect();
            if !parts.is_empty() {
                let part = parts[self.below(parts.len())].clone();
                let part = self.flat(&part, depth + 1).unwrap_or_default();
                merge(&mut whole, part);
            }
        }
        Some(whole)
    }

    fn object(&mut self, schema: &Map<String, Value>, depth: usize) -> Option<Value> {
        let mut made = Map::new();
        let required: Vec<&str> = list(schema, "required").filter_map(Value::as_str).collect();
        let properties = schema.get("properties").and_then(Value::as_object);
        for (name, inner) in properties.into_iter().flatten() {
            let must = required.contains(&name.as_str());
            let wanted = depth < SHALLOW
                && match self.extent {
                    Extent::Least => false,
                    Extent::Most => true,
                    Extent::Some => self.below(2) == 1,
                };
            if !must && !wanted {
                continue;
            }
            match self.value(inner, depth + 1) {
                Some(value) => drop(made.insert(name.clone(), value)),
                None if must => return None,
                None => {}
            }
        }
        let others = match schema.get("additionalProperties") {
            Some(Value::Object(others)) => Value::Object(others.clone()),
            _ => json!({"type": "string"}),
        };
        for name in required {
            if !made.contains_key(name) {
                let value = self.value(&others, depth + 1)?;
                made.insert(name.to_owned(), value);
            }
        }
        let least = schema.get("minProperties").and_then(Value::as_u64).unwrap_or(0) as usize;
        // An empty table has no form in a path.
        let least = if depth == 1 { least.max(1) } else { least };
        for (name, inner) in properties.into_iter().flatten() {
            if made.len() < least && !made.contains_key(name) {
                made.extend(self.value(inner, depth + 1).map(|value| (name.clone(), value)));
            }
        }
        let open = schema.get("additionalProperties").is_some_and(|it| *it != json!(false));
        if open && (made.len() < least || (made.is_empty() && self.extent == Extent::Most)) {
            let value = self.value(&others, depth + 1)?;
            made.insert("key".to_owned(), value);
        }
        Some(Value::Object(made))
    }

    fn array(&mut self, schema: &Map<String, Value>, depth: usize) -> Option<Value> {
        let number = |key: &str| schema.get(key).and_then(Value::as_u64).map(|it| it as usize);
        let wanted = if depth < SHALLOW { 1 + self.below(2) } else { 0 };
        let count = wanted.max(number("minItems").unwrap_or(0));
        let count = count.min(number("maxItems").unwrap_or(usize::MAX)).min(200);
        let any = json!({"type": "string"});
        let items = schema.get("items").unwrap_or(&any);
        let mut made: Vec<Value> = Vec::new();
        for _ in 0..count * 4 {
            if made.len() == count {
                break;
            }
            let value = self.value(items, depth + 1)?;
            if schema.get("uniqueItems") != Some(&json!(true)) || !made.contains(&value) {
                made.push(value);
            }
        }
        Some(Value::Array(made))
    }

    fn number(&mut self, schema: &Map<String, Value>, whole: bool) -> Option<Value> {
        let number = |key: &str| schema.get(key).and_then(Value::as_f64);
        let step = number("multipleOf").unwrap_or(1.0);
        let low = number("minimum").or(number("exclusiveMinimum").map(|it| it + step));
        let high = number("maximum").or(number("exclusiveMaximum").map(|it| it - step));
        let start = low.unwrap_or_else(|| high.unwrap_or(100.0).min(1.0));
        let end = high.unwrap_or(start + 50.0 * step);
        let steps = ((end - start) / step).clamp(0.0, 50.0) as usize;
        let made = ((start / step).ceil() + self.below(steps + 1) as f64) * step;
        if whole || made.fract() == 0.0 { Some(json!(made as i64)) } else { Some(json!(made)) }
    }

    fn string(&mut self, schema: &Map<String, Value>, depth: usize) -> Option<String> {
        let by_format = schema.contains_key("format") && self.below(2) == 1;
        if let Some(pattern) = schema.get("pattern").and_then(Value::as_str)
            && !by_format
        {
            let pattern = regex_syntax::parse(pattern).ok()?;
            let mut made = String::new();
            let least = schema.get("minLength").and_then(Value::as_u64).unwrap_or(0);
            self.matching(&pattern, least as usize, &mut made);
            return Some(made);
        }
        let format = schema.get("format").and_then(Value::as_str).unwrap_or_default();
        let known = match format {
            "date" => "2024-02-29",
            "date-time" | "datetime" => "2024-02-29T12:30:00Z",
            "time" => "12:30:00Z",
            "duration" => "P1D",
            "uuid" => "123e4567-e89b-42d3-a456-426614174000",
            "email" | "idn-email" => "someone@example.com",
            "uri" | "url" | "iri" => "https://example.com/a?b=c",
            "uri-reference" => "/a/b",
            "hostname" => "example.com",
            "ipv4" | "ip" => "192.0.2.1",
            "ipv6" => "2001:db8::1",
            "byte" => "aGVsbG8=",
            "json-pointer" => "/a/b",
            "regex" => "a+",
            _ => "",
        };
        if !known.is_empty() {
            return Some(known.to_owned());
        }
        // Odd letters where requests are made of values, plain ones below.
        let word = if depth > 2 { 0 } else { self.below(WORDS.len()) };
        let mut made = WORDS[word].to_owned();
        let number = |key: &str| schema.get(key).and_then(Value::as_u64);
        while (made.chars().count() as u64) < number("minLength").unwrap_or(0).min(100_000) {
            made.push('x');
        }
        let most = number("maxLength").unwrap_or(u64::MAX);
        Some(made.chars().take(most as usize).collect())
    }

    /// A text that the pattern fits.
    fn matching(&mut self, pattern: &Hir, least: usize, made: &mut String) {
        match pattern.kind() {
            HirKind::Literal(literal) => made.push_str(&String::from_utf8_lossy(&literal.0)),
            HirKind::Class(Class::Unicode(class)) => {
                let ranges = class.ranges();
                let printable = ranges.iter().find(|it| it.end() > ' ' && it.end().is_ascii());
                let range = printable.or_else(|| ranges.iter().find(|it| it.end() > ' '));
                made.extend(range.map(|it| it.start().max('!').min(it.end())));
            }
            HirKind::Class(Class::Bytes(class)) => {
                made.extend(class.ranges().first().map(|it| char::from(it.start())));
            }
            HirKind::Repetition(it) => {
                let most = it.max.unwrap_or(u32::MAX);
                let wanted = (it.min.max(1) as usize).max(least).min(most as usize).min(5000);
                (0..wanted).for_each(|_| self.matching(&it.sub, 0, made));
            }
            HirKind::Capture(it) => self.matching(&it.sub, least, made),
            HirKind::Concat(parts) => parts.iter().for_each(|it| self.matching(it, 0, made)),
            HirKind::Alternation(parts) => {
                let part = self.below(parts.len());
                self.matching(&parts[part], least, made);
            }
            HirKind::Empty | HirKind::Look(_) => {}
        }
    }
}

/// The type, said or to be guessed.
fn kind(schema: &Map<String, Value>) -> &str {
    match schema.get("type") {
        Some(Value::String(kind)) => kind,
        Some(Value::Array(kinds)) => {
            let mut kinds = kinds.iter().filter_map(Value::as_str);
            kinds.find(|it| *it != "null").unwrap_or("null")
        }
        _ if schema.contains_key("properties") => "object",
        _ if schema.contains_key("items") => "array",
        _ => "",
    }
}

fn take(schema: &mut Map<String, Value>, key: &str) -> Vec<Value> {
    match schema.remove(key) {
        Some(Value::Array(parts)) => parts,
        _ => Vec::new(),
    }
}

fn list<'a>(schema: &'a Map<String, Value>, key: &str) -> impl Iterator<Item = &'a Value> {
    schema.get(key).and_then(Value::as_array).into_iter().flatten()
}

/// Both at once: fields and duties of either, the rest as the whole says.
fn merge(whole: &mut Map<String, Value>, part: Map<String, Value>) {
    for (key, value) in part {
        match (whole.get_mut(&key), value) {
            (Some(Value::Object(known)), Value::Object(more)) if key == "properties" => {
                for (name, it) in more {
                    known.entry(name).or_insert(it);
                }
            }
            (Some(Value::Array(known)), Value::Array(more)) if key == "required" => {
                known.extend(more);
            }
            (Some(_), _) => {}
            (None, value) => drop(whole.insert(key, value)),
        }
    }
}
