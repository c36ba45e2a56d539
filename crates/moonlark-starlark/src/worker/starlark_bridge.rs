//! Starlark values to ours and back, by copy.
//!
//! Nothing is silently lost: a value round-trips, or it is a Problem with the
//! path to it.

use moonlark_core::value::{Object, Value, ValueBudget, ValuePath};
use moonlark_core::{Problem, Result};
use starlark::values::bytes::StarlarkBytes;
use starlark::values::dict::{AllocDict, DictRef};
use starlark::values::float::StarlarkFloat;
use starlark::values::list::{AllocList, ListRef};
use starlark::values::structs::StructRef;
use starlark::values::tuple::TupleRef;
use starlark::values::{Heap, UnpackValue, Value as Sv, ValueLike};

/// What a field of an object takes beside its name and its value.
const STARLARK_FIELD_OVERHEAD_BYTES: usize = 64;

/// Copy `value` into the script's heap.
pub(super) fn alloc_value<'v>(heap: Heap<'v>, value: Value) -> Sv<'v> {
    match value {
        Value::Null => Sv::new_none(),
        Value::Bool(flag) => Sv::new_bool(flag),
        Value::Int(int) => heap.alloc(int),
        Value::Float(float) => heap.alloc(float),
        Value::Str(text) => heap.alloc(text),
        Value::Bytes(bytes) => heap.alloc(StarlarkBytes::from_vec(bytes)),
        Value::Array(items) => {
            heap.alloc(AllocList(items.into_iter().map(|item| alloc_value(heap, item))))
        }
        Value::Object(object) => heap
            .alloc(AllocDict(object.into_iter().map(|(key, item)| (key, alloc_value(heap, item))))),
    }
}

/// Copy a value out of the script; `what` names it in Problems.
pub(super) fn read_value<'v>(
    value: Sv<'v>,
    heap: Heap<'v>,
    what: &str,
    limit: usize,
) -> Result<Value> {
    StarlarkValueReader {
        path: ValuePath::new(what),
        parents: Vec::new(),
        heap,
        budget: ValueBudget::new(limit),
    }
    .read_value(value)
}

struct StarlarkValueReader<'v> {
    path: ValuePath,
    /// The values on the way down, to recognise a cycle.
    parents: Vec<Sv<'v>>,
    heap: Heap<'v>,
    budget: ValueBudget,
}

impl<'v> StarlarkValueReader<'v> {
    fn read_value(&mut self, value: Sv<'v>) -> Result<Value> {
        self.spend_bytes(16)?;
        if value.is_none() {
            return Ok(Value::Null);
        }
        if let Some(flag) = value.unpack_bool() {
            return Ok(Value::Bool(flag));
        }
        if let Some(text) = value.unpack_str() {
            self.spend_bytes(text.len())?;
            return Ok(Value::Str(text.to_owned()));
        }
        if let Ok(Some(int)) = i64::unpack_value(value) {
            return Ok(Value::Int(int));
        }
        if let Some(float) = value.downcast_ref::<StarlarkFloat>() {
            return Ok(Value::Float(float.0));
        }
        if let Some(bytes) = value.downcast_ref::<StarlarkBytes>() {
            self.spend_bytes(bytes.len())?;
            return Ok(Value::text_or_bytes(bytes.as_bytes().to_vec()));
        }
        if self.parents.iter().any(|parent| parent.ptr_eq(value)) {
            return Err(self.value_problem("refers back to a value that contains it"));
        }
        self.parents.push(value);
        let read = self.read_container(value)?;
        self.parents.pop();
        Ok(read)
    }

    fn read_container(&mut self, value: Sv<'v>) -> Result<Value> {
        if let Some(list) = ListRef::from_value(value) {
            return self.read_items(list.len(), list.iter());
        }
        if let Some(tuple) = TupleRef::from_value(value) {
            return self.read_items(tuple.len(), tuple.iter());
        }
        if let Some(dict) = DictRef::from_value(value) {
            let mut object = Object::new();
            for (key, item) in dict.iter() {
                let Some(key) = key.unpack_str() else {
                    return Err(self.value_problem(&format!(
                        "has the key {}, and only text can be a key",
                        moonlark_core::value::shorten_text(&key.to_repr())
                    )));
                };
                self.read_field(&mut object, key, item)?;
            }
            return Ok(Value::Object(object));
        }
        if let Some(fields) = StructRef::from_value(value) {
            let mut object = Object::new();
            for (key, item) in fields.iter() {
                self.read_field(&mut object, key.as_str(), item)?;
            }
            return Ok(Value::Object(object));
        }
        match value.get_type() {
            "int" => Err(self
                .value_problem("is an integer that does not fit 64 bits")
                .with_hint("return it as a string: str(…)")),
            "range" | "set" => {
                let length = value.length().unwrap_or(i32::MAX);
                match value.iterate(self.heap) {
                    Ok(items) => self.read_items(usize::try_from(length).unwrap_or(0), items),
                    Err(_) => Err(self.value_problem("cannot be read")),
                }
            }
            "enum" | "record" => Err(self
                .value_problem(&format!(
                    "is of type {}, which is not a value outside",
                    value.get_type()
                ))
                .with_hint("return a dict, a struct or text")),
            other => Err(self.value_problem(&format!("is a {other}, which is not a value"))),
        }
    }

    fn read_items(&mut self, length: usize, items: impl Iterator<Item = Sv<'v>>) -> Result<Value> {
        // Before any is looked at: a range has no items yet.
        self.spend_bytes(length.saturating_mul(16))?;
        let mut array = Vec::with_capacity(length);
        for (index, item) in items.enumerate() {
            self.path.push_index(index)?;
            array.push(self.read_value(item)?);
            self.path.pop();
        }
        Ok(Value::Array(array))
    }

    fn read_field(&mut self, object: &mut Object, key: &str, item: Sv<'v>) -> Result<()> {
        self.spend_bytes(STARLARK_FIELD_OVERHEAD_BYTES + key.len())?;
        self.path.push_key(key)?;
        let item = self.read_value(item)?;
        self.path.pop();
        object.insert(key.to_owned(), item);
        Ok(())
    }

    fn spend_bytes(&mut self, bytes: usize) -> Result<()> {
        self.budget.spend_bytes(bytes, &self.path)
    }

    fn value_problem(&self, why: &str) -> Problem {
        Problem::tool_error(format!("{} {why}", self.path))
    }
}
