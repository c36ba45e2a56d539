//! What a script finds: the language, the host modules, the words of an
//! extension.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use moonlark_core::content::ToolAnswer;
use moonlark_core::module::{
    FunctionParam, FunctionParams, Module, ModuleFunction, ScriptLanguage,
};
use moonlark_core::value::{Object, Value};
use moonlark_core::{Problem, ProblemCode, Result, Tool};
use moonlark_gateway::Call;
use moonlark_gateway::gateway::Invocation;
use starlark::environment::{Globals, GlobalsBuilder, LibraryExtension};
use starlark::eval::{Arguments, Evaluator};
use starlark::values::none::NoneType;
use starlark::values::{ProvidesStaticType, Value as Sv};

use super::engine_link::EngineLink;
use super::native_function::{NativeBody, NativeFunction};
use super::starlark_errors::raise_problem;
use super::{
    call_arguments, extension_description, starlark_bridge, starlark_mcp_compat, testing_functions,
    try_call,
};
use crate::load_paths::resolve_data;
use crate::worker_protocol::{MAX_EXTENSION_DATA_BYTES, WorkerReport};

const LANGUAGE_EXTENSIONS: [LibraryExtension; 12] = [
    LibraryExtension::Debug,
    LibraryExtension::StructType,
    LibraryExtension::RecordType,
    LibraryExtension::EnumType,
    LibraryExtension::SetType,
    LibraryExtension::Map,
    LibraryExtension::Filter,
    LibraryExtension::Partial,
    LibraryExtension::Print,
    LibraryExtension::Pprint,
    LibraryExtension::Pstr,
    LibraryExtension::Typing,
];

/// What a job's host functions work with.
#[derive(ProvidesStaticType)]
pub(super) struct JobSession {
    pub(super) link: Rc<EngineLink>,
    /// Of this process: what is pure runs here.
    pub(super) call: Call,
    /// Bytes of one value.
    pub(super) value: usize,
    /// Calls and loop rounds, and bytes, that the script may use.
    pub(super) steps: u64,
    pub(super) memory: usize,
    /// The script is being loaded: what it reads is part of it.
    pub(super) loading: Cell<bool>,
}

impl JobSession {
    pub(super) fn from_evaluator<'a>(
        eval: &Evaluator<'_, 'a, '_>,
    ) -> starlark::Result<&'a JobSession> {
        eval.extra
            .and_then(|extra| extra.downcast_ref::<JobSession>())
            .ok_or_else(|| raise_problem(Problem::internal("no job is running")))
    }

    /// Whether a limit of the interpreter is what ended something.
    pub(super) fn is_limit_exceeded(&self, eval: &Evaluator<'_, '_, '_>) -> bool {
        let used = eval.heap().peak_allocated_bytes() + eval.frozen_heap().allocated_bytes();
        eval.get_total_tick_count() > self.steps || used > self.memory
    }

    /// A JSON file that the script reads while it loads, from what was read when
    /// this version of it was loaded first.
    fn load_json_data(&self, args: &Object) -> Result<Value> {
        let Some(Value::Str(path)) = args.get("path") else {
            return Err(Problem::bad_request("data.load_json: path must be text"));
        };
        let path = resolve_data(path)?;
        let named = |problem: Problem| {
            let message = match problem.code {
                ProblemCode::NotFound => format!("no file {path} in the extensions folder"),
                _ => format!("{path}: {}", problem.message),
            };
            let mut named = problem.with_message(format!("data.load_json: {message}"));
            named.place = None;
            named
        };
        match self.link.ask_engine(&WorkerReport::Read { path: path.clone() }).map_err(named)? {
            Value::Str(text) if text.len() <= MAX_EXTENSION_DATA_BYTES.min(self.value) => {
                Value::parse_json(text.as_bytes()).map_err(named)
            }
            _ => Err(Problem::limit_exceeded(format!(
                "data.load_json: {path} is larger than {} MB",
                MAX_EXTENSION_DATA_BYTES / 1024 / 1024
            ))
            .with_hint("read it in a handler, or keep less in one file")),
        }
    }
}

/// The globals of extensions, and of tests when `tests`.
pub(super) fn build_globals(modules: &[Module], tests: bool) -> Globals {
    let mut builder = GlobalsBuilder::extended_by(&LANGUAGE_EXTENSIONS);
    extension_description::add_constructors(&mut builder);
    try_call::add_try_call(&mut builder);
    let mut id = 0;
    for module in modules {
        let first = id;
        id += module.functions.len();
        if !module.is_for_language(ScriptLanguage::Starlark) || (module.only_in_tests && !tests) {
            continue;
        }
        let functions = || module.functions.iter().zip(first..);
        if module.callable {
            functions().for_each(|function| set_function(&mut builder, module, function));
            continue;
        }
        builder.namespace(module.name, |builder| {
            functions().for_each(|function| set_function(builder, module, function));
            for constant in &module.constants {
                set_constant(builder, constant.name, &constant.value);
            }
        });
    }
    builder.build()
}

/// A function of a module, with its place in the list of all.
fn set_function(
    builder: &mut GlobalsBuilder,
    module: &Module,
    (function, id): (&ModuleFunction, usize),
) {
    if !testing_functions::set(builder, function.name, &function.tool.name) {
        let native = StarlarkHostFunction::new_native(function, id, module.pure);
        builder.set(function.name, native);
    }
}

/// A constant of a module; none is more than a scalar.
fn set_constant(builder: &mut GlobalsBuilder, name: &str, value: &Value) {
    match value {
        Value::Bool(flag) => builder.set(name, *flag),
        Value::Int(int) => builder.set(name, *int),
        Value::Float(float) => builder.set(name, *float),
        Value::Str(text) => builder.set(name, text.as_str()),
        _ => builder.set(name, NoneType),
    }
}

/// A host function as a script calls it.
#[derive(Debug)]
struct StarlarkHostFunction {
    /// Its place in the list that the engine has too.
    id: usize,
    params: FunctionParams,
    /// Whether it runs here.
    pure: bool,
    tool: Arc<Tool>,
}

impl StarlarkHostFunction {
    fn new_native(function: &ModuleFunction, id: usize, pure: bool) -> NativeFunction {
        let params = function.params.clone();
        let pure = pure && function.tool.is_instant();
        let tool = function.tool.clone();
        NativeFunction::new(tool.name.clone(), Self { id, params, pure, tool })
    }

    fn call_host(&self, session: &JobSession, args: Object) -> Result<Value> {
        if session.loading.get() && self.tool.name == "data.load_json" {
            return session.load_json_data(&args);
        }
        let args = Value::Object(args);
        if !self.pure {
            return session.link.ask_engine(&WorkerReport::Host { function: self.id, args });
        }
        match session.call.gateway().invoke(&session.call, &self.tool, args) {
            Invocation::Done(result) => result.map(ToolAnswer::into_plain_value),
            Invocation::Running(_) => Err(Problem::internal("a pure function waits")),
        }
    }
}

impl NativeBody for StarlarkHostFunction {
    fn call<'v>(
        &self,
        name: &str,
        args: &Arguments<'v, '_>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Sv<'v>> {
        let session = JobSession::from_evaluator(eval)?;
        let heap = eval.heap();
        let params: Vec<&str> = self.params.iter().map(|param| param.name.as_str()).collect();
        let takes_null = |name: &str| {
            let is_it = |param: &FunctionParam| param.name == name && param.accepts_null();
            self.params.iter().any(is_it)
        };
        let also = starlark_mcp_compat::extra_parameter_names(name);
        let given = call_arguments::collect_with_aliases(name, &params, &also, args, heap)?;
        let mut object =
            call_arguments::read_arguments(name, given, takes_null, heap, session.value)?;
        starlark_mcp_compat::rename_arguments(name, &mut object).map_err(raise_problem)?;
        let answer = self
            .call_host(session, object)
            .map(|answer| starlark_mcp_compat::add_compat_fields(name, answer));
        answer.map(|value| starlark_bridge::alloc_value(heap, value)).map_err(raise_problem)
    }
}
