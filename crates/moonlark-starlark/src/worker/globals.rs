//! What a script finds: the language, the host modules, the words of an
//! extension.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use moonlark_core::gateway::Started;
use moonlark_core::module::{Function, Language, Module};
use moonlark_core::value::{Object, Value};
use moonlark_core::{Call, Code, Problem, Result, Tool};
use starlark::environment::{Globals, GlobalsBuilder, LibraryExtension};
use starlark::eval::{Arguments, Evaluator};
use starlark::values::none::NoneType;
use starlark::values::{ProvidesStaticType, Value as Sv};

use super::errors::raise;
use super::link::Link;
use super::native::{Body, Native};
use super::{args, authoring, bridge, familiar, testing, trying};
use crate::paths::resolve_data;
use crate::wire::{MAX_DATA_BYTES, Report};

const LANGUAGE: [LibraryExtension; 12] = [
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
pub(super) struct Session {
    pub(super) link: Rc<Link>,
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

impl Session {
    pub(super) fn of<'a>(eval: &Evaluator<'_, 'a, '_>) -> starlark::Result<&'a Session> {
        eval.extra
            .and_then(|extra| extra.downcast_ref::<Session>())
            .ok_or_else(|| raise(Problem::internal("no job is running")))
    }

    /// Whether a limit of the interpreter is what ended something.
    pub(super) fn is_spent(&self, eval: &Evaluator<'_, '_, '_>) -> bool {
        let used = eval.heap().peak_allocated_bytes() + eval.frozen_heap().allocated_bytes();
        eval.get_total_tick_count() > self.steps || used > self.memory
    }

    /// A JSON file that the script reads while it loads, from what was read when
    /// this version of it was loaded first.
    fn load_data(&self, args: &Object) -> Result<Value> {
        let Some(Value::Str(path)) = args.get("path") else {
            return Err(Problem::bad_request("data.load_json: path must be text"));
        };
        let path = resolve_data(path)?;
        let named = |problem: Problem| {
            let message = match problem.code {
                Code::NotFound => format!("no file {path} in the extensions folder"),
                _ => format!("{path}: {}", problem.message),
            };
            let mut named = problem.saying(format!("data.load_json: {message}"));
            named.place = None;
            named
        };
        match self.link.ask(&Report::Read { path: path.clone() }).map_err(named)? {
            Value::Str(text) if text.len() <= MAX_DATA_BYTES.min(self.value) => {
                Value::parse_json(text.as_bytes()).map_err(named)
            }
            _ => Err(Problem::limit(format!(
                "data.load_json: {path} is larger than {} MB",
                MAX_DATA_BYTES / 1024 / 1024
            ))
            .hint("read it in a handler, or keep less in one file")),
        }
    }
}

/// The globals of extensions, and of tests when `tests`.
pub(super) fn build(modules: &[Module], tests: bool) -> Globals {
    let mut builder = GlobalsBuilder::extended_by(&LANGUAGE);
    authoring::add_to(&mut builder);
    trying::add_to(&mut builder);
    let mut id = 0;
    for module in modules {
        let first = id;
        id += module.functions.len();
        if !module.is_for(Language::Starlark) || (module.only_in_tests && !tests) {
            continue;
        }
        let functions = || module.functions.iter().zip(first..);
        if module.callable {
            for (function, id) in functions() {
                builder.set(function.name, HostFunction::native(function, id, module.pure));
            }
            continue;
        }
        builder.namespace(module.name, |builder| {
            for (function, id) in functions() {
                if !testing::set(builder, function.name, &function.tool.name) {
                    builder.set(function.name, HostFunction::native(function, id, module.pure));
                }
            }
            for constant in &module.constants {
                set_constant(builder, constant.name, &constant.value);
            }
        });
    }
    builder.build()
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
struct HostFunction {
    /// Its place in the list that the engine has too.
    id: usize,
    /// Each with whether None is a value it takes.
    params: Vec<(String, bool)>,
    /// Whether it runs here.
    pure: bool,
    tool: Arc<Tool>,
}

impl HostFunction {
    fn native(function: &Function, id: usize, pure: bool) -> Native {
        let params = function.params.iter();
        let params = params.map(|param| (param.name.clone(), param.takes_null())).collect();
        let pure = pure && function.tool.is_instant();
        let tool = function.tool.clone();
        Native::new(tool.name.clone(), Self { id, params, pure, tool })
    }

    fn ask(&self, session: &Session, args: Object) -> Result<Value> {
        if session.loading.get() && self.tool.name == "data.load_json" {
            return session.load_data(&args);
        }
        let args = Value::Object(args);
        if !self.pure {
            return session.link.ask(&Report::Host { function: self.id, args });
        }
        match session.call.gateway().start(&session.call, &self.tool, args) {
            Started::Done(result) => result,
            Started::Running(_) => Err(Problem::internal("a pure function waits")),
        }
    }
}

impl Body for HostFunction {
    fn call<'v>(
        &self,
        name: &str,
        args: &Arguments<'v, '_>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Sv<'v>> {
        let session = Session::of(eval)?;
        let heap = eval.heap();
        let params: Vec<&str> = self.params.iter().map(|(param, _)| param.as_str()).collect();
        let takes_null =
            |name: &str| self.params.iter().any(|(param, takes)| *takes && param == name);
        let mut object = Object::new();
        let also = familiar::parameter_names(name);
        for (param, value) in args::collect_also(name, &params, &also, args, heap)? {
            // Not given and given as None are the same, as with a default.
            if !value.is_none() || takes_null(param) {
                let what = format!("{name}: {param}");
                let value = bridge::read(value, heap, &what, session.value).map_err(raise)?;
                object.insert(param.to_owned(), value);
            }
        }
        familiar::rename_arguments(name, &mut object).map_err(raise)?;
        let answer = self.ask(session, object).map(|answer| familiar::add_fields(name, answer));
        answer.map(|value| bridge::alloc(heap, value)).map_err(raise)
    }
}
