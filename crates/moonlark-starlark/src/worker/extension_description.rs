//! `ExtensionFile`, `Tool` and `ToolParameter`: how an extension says what it is.

use moonlark_core::tool_header::TOOL_HEADER_ALIASES;
use moonlark_core::value::{Object, Value};
use moonlark_core::{Problem, Result};
use starlark::environment::GlobalsBuilder;
use starlark::eval::{Arguments, Evaluator};
use starlark::values::list::ListRef;
use starlark::values::structs::{AllocStruct, StructRef};
use starlark::values::tuple::TupleRef;
use starlark::values::{Heap, Value as Sv};

use super::native_function::{NativeBody, NativeFunction};
use super::{call_arguments, starlark_bridge};

/// A description of 1 MB is a mistake.
const MAX_DESCRIPTION_BYTES: usize = 1024 * 1024;

const EXTENSION_FIELDS: [&str; 5] = ["name", "version", "description", "tools", "allowed_exec"];
const TOOL_FIELDS: [&str; 7] =
    ["name", "description", "parameters", "handler", "title", "annotations", "output"];
const PARAMETER_FIELDS: [&str; 17] = [
    "name",
    "param_type",
    "required",
    "default",
    "description",
    "enum",
    "items",
    "properties",
    "minimum",
    "maximum",
    "pattern",
    "min_length",
    "max_length",
    "min_items",
    "max_items",
    "format",
    "title",
];

pub(super) fn add_constructors(builder: &mut GlobalsBuilder) {
    let none = || Vec::new();
    let of_tools = || TOOL_HEADER_ALIASES.map(|(alias, _)| alias).to_vec();
    for (name, fields, aliases) in [
        ("Extension", &EXTENSION_FIELDS[..], none()),
        ("Tool", &TOOL_FIELDS, of_tools()),
        ("ToolParameter", &PARAMETER_FIELDS, vec!["type"]),
    ] {
        builder.set(name, NativeFunction::new(name, StructConstructor { fields, aliases }));
    }
}

/// Makes a struct of its arguments; those not given are not in it.
#[derive(Debug)]
struct StructConstructor {
    fields: &'static [&'static str],
    /// What some of them may be called as well.
    aliases: Vec<&'static str>,
}

impl NativeBody for StructConstructor {
    fn call<'v>(
        &self,
        name: &str,
        args: &Arguments<'v, '_>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Sv<'v>> {
        let heap = eval.heap();
        let given =
            call_arguments::collect_with_aliases(name, self.fields, &self.aliases, args, heap)?;
        Ok(heap.alloc(AllocStruct(given)))
    }
}

/// What `describe_extension()` returned: the description, and for each tool its
/// handler.
pub(super) fn read_extension<'v>(
    value: Sv<'v>,
    heap: Heap<'v>,
) -> Result<(Value, Vec<HandlerFunction<'v>>)> {
    let extension = read_struct(value, "describe_extension() must return Extension(…)")?;
    let mut about = read_fields(&extension, "Extension", heap, &["tools"])?;
    if !matches!(about.get("name"), Some(Value::Str(name)) if !name.is_empty()) {
        return Err(Problem::bad_script("Extension.name is missing"));
    }
    let mut tools = Vec::new();
    let mut handlers = Vec::new();
    for (index, tool) in
        read_list(get_field(&extension, "tools"), "Extension.tools")?.into_iter().enumerate()
    {
        let (tool, handler) = read_tool(tool, &format!("tools[{index}]"), heap)?;
        tools.push(Value::Object(tool));
        handlers.push(handler);
    }
    about.insert("tools".to_owned(), Value::Array(tools));
    Ok((Value::Object(about), handlers))
}

/// A function to call, and with how many arguments: the parameters, then the
/// context.
pub(super) struct HandlerFunction<'v> {
    pub(super) function: Sv<'v>,
    pub(super) takes: usize,
}

fn read_tool<'v>(tool: Sv<'v>, at: &str, heap: Heap<'v>) -> Result<(Object, HandlerFunction<'v>)> {
    let tool = read_struct(tool, &format!("{at} must be Tool(…)"))?;
    let except: Vec<_> = std::iter::once("handler").chain(parameters_field_names()).collect();
    let mut about = read_fields(&tool, at, heap, &except)?;
    let what = match about.get("name") {
        Some(Value::Str(name)) if !name.is_empty() => format!("Tool {name}"),
        _ => return Err(Problem::bad_script(format!("{at}.name is missing"))),
    };
    for name in parameters_field_names() {
        about.insert(name.to_owned(), read_parameters(get_field(&tool, name), &what, heap)?);
    }
    let Some(function) = get_field(&tool, "handler") else {
        return Err(Problem::bad_script(format!("{what} has no handler"))
            .with_hint("add: handler = my_function, where def my_function(params): …"));
    };
    let takes = match function.parameters_spec() {
        Some(spec) => (0..=2).rev().find(|count| spec.can_fill_with_args(*count, &[])),
        None if function.get_type() == "function" => Some(1),
        None => {
            return Err(Problem::bad_script(format!(
                "{what}: the handler must be a function, got {}",
                function.get_type()
            )));
        }
    };
    let Some(takes) = takes else {
        return Err(Problem::bad_script(format!(
            "{what}: the handler must take (params) or (params, context)"
        )));
    };
    Ok((about, HandlerFunction { function, takes }))
}

/// `parameters`, and what else it may be called.
fn parameters_field_names() -> impl Iterator<Item = &'static str> {
    let aliases = TOOL_HEADER_ALIASES.into_iter().filter(|(_, own)| *own == "parameters");
    std::iter::once("parameters").chain(aliases.map(|(alias, _)| alias))
}

/// Whether a value is what `Tool(…)` or `Extension(…)` makes.
pub(super) fn is_description(value: Sv<'_>) -> bool {
    StructRef::from_value(value).is_some_and(|fields| {
        let has = |name: &str| get_field(&fields, name).is_some();
        has("name") && (has("handler") || has("tools"))
    })
}

/// A list of `ToolParameter(…)` in the words that every language's parameters
/// have, or a JSON Schema as it is.
fn read_parameters<'v>(value: Option<Sv<'v>>, what: &str, heap: Heap<'v>) -> Result<Value> {
    let Some(value) = value else { return Ok(Value::Null) };
    let what = format!("{what}: parameters");
    if value.get_type() == "dict" {
        return starlark_bridge::read_value(value, heap, &what, MAX_DESCRIPTION_BYTES);
    }
    let items = read_list(Some(value), &what)?.into_iter().enumerate();
    let parameters =
        items.map(|(index, item)| read_parameter(item, &format!("{what}[{index}]"), heap));
    parameters.collect::<Result<_>>().map(Value::Array)
}

fn read_parameter<'v>(parameter: Sv<'v>, at: &str, heap: Heap<'v>) -> Result<Value> {
    let parameter = read_struct(parameter, &format!("{at} must be ToolParameter(…)"))?;
    let mut about = read_fields(&parameter, at, heap, &["items", "properties"])?;
    if let Some(kind) = about.swap_remove("param_type")
        && about.insert("type".to_owned(), kind).is_some()
    {
        return Err(Problem::bad_script(format!("{at} has both param_type and type"))
            .with_hint("keep param_type"));
    }
    if let Some(items) = get_field(&parameter, "items") {
        let items = match StructRef::from_value(items) {
            Some(_) => read_parameter(items, &format!("{at}: parameters[0]"), heap)?,
            None => {
                let what = format!("{at}.items");
                starlark_bridge::read_value(items, heap, &what, MAX_DESCRIPTION_BYTES)?
            }
        };
        about.insert("items".to_owned(), items);
    }
    if let Some(properties) = get_field(&parameter, "properties") {
        about.insert("properties".to_owned(), read_parameters(Some(properties), at, heap)?);
    }
    // As elsewhere, None is the same as not given.
    about.retain(|_, value| *value != Value::Null);
    Ok(Value::Object(about))
}

fn read_struct<'v>(value: Sv<'v>, rule: &str) -> Result<StructRef<'v>> {
    StructRef::from_value(value)
        .ok_or_else(|| Problem::bad_script(format!("{rule}, got {}", value.get_type())))
}

fn get_field<'v>(fields: &StructRef<'v>, name: &str) -> Option<Sv<'v>> {
    fields
        .iter()
        .find(|(key, value)| key.as_str() == name && !value.is_none())
        .map(|(_, value)| value)
}

fn read_fields<'v>(
    of: &StructRef<'v>,
    what: &str,
    heap: Heap<'v>,
    except: &[&str],
) -> Result<Object> {
    let mut object = Object::new();
    for (key, value) in of.iter().filter(|(key, _)| !except.contains(&key.as_str())) {
        let at = format!("{what}.{}", key.as_str());
        object.insert(
            key.as_str().to_owned(),
            starlark_bridge::read_value(value, heap, &at, MAX_DESCRIPTION_BYTES)?,
        );
    }
    Ok(object)
}

fn read_list<'v>(value: Option<Sv<'v>>, what: &str) -> Result<Vec<Sv<'v>>> {
    let Some(value) = value else { return Ok(Vec::new()) };
    if let Some(list) = ListRef::from_value(value) {
        return Ok(list.iter().collect());
    }
    match TupleRef::from_value(value) {
        Some(tuple) => Ok(tuple.iter().collect()),
        None => {
            Err(Problem::bad_script(format!("{what} must be a list, got {}", value.get_type())))
        }
    }
}
