//! Loading scripts and running their functions.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use moonlark_core::limits::CallLimits;
use moonlark_core::tool::CallScope;
use moonlark_core::{Catalog, Module as HostModule, Problem, Result, Value};
use moonlark_gateway::{Caller, Gateway};
use starlark::PrintHandler;
use starlark::environment::{FrozenModule, Globals, Module};
use starlark::eval::{Evaluator, FileLoader};
use starlark::syntax::{AstModule, Dialect, DialectTypes};
use starlark::values::OwnedFrozenValue;
use starlark::values::list::{AllocList, ListRef};

use super::engine_link::EngineLink;
use super::starlark_errors::{self, raise_problem};
use super::starlark_globals::{self, JobSession};
use super::{extension_description, handler_context, starlark_bridge, worker_memory};
use crate::load_paths::resolve_load;
use crate::worker_process::out_of_memory_problem;
use crate::worker_protocol::{
    MAX_LOAD_DEPTH, MAX_STARLARK_SOURCE_BYTES, StarlarkScriptVersion, WorkerJob, WorkerJobKind,
    WorkerReport,
};

/// One dialect, for extensions and their tests.
const STARLARK_DIALECT: Dialect = Dialect {
    enable_def: true,
    enable_lambda: true,
    enable_load: true,
    enable_keyword_only_arguments: true,
    enable_positional_only_arguments: true,
    enable_types: DialectTypes::Enable,
    enable_load_reexport: false,
    enable_top_level_stmt: true,
    enable_f_strings: true,
    _non_exhaustive: (),
};

/// Functions that may be on their way at once.
const MAX_CALL_DEPTH: usize = 400;
/// Scripts kept loaded.
const MAX_LOADED_SCRIPTS: usize = 64;

/// The scripts this worker has loaded.
pub(super) struct LoadedScriptCache {
    modules: Arc<Vec<HostModule>>,
    extensions: Globals,
    /// Made for the first file of tests.
    tests: OnceCell<Globals>,
    gateway: Gateway,
    kept: Vec<(u64, Rc<EvaluatedScript>)>,
}

struct EvaluatedScript {
    module: FrozenModule,
    /// What an extension says of itself.
    about: Value,
    handlers: Vec<(OwnedFrozenValue, usize)>,
}

impl LoadedScriptCache {
    pub(super) fn new(modules: Vec<HostModule>) -> Self {
        let modules = Arc::new(modules);
        let extensions = starlark_globals::build_globals(&modules, false);
        let catalog = Catalog::new(modules.clone(), Vec::new(), &[], Vec::new());
        LoadedScriptCache {
            modules,
            extensions,
            tests: OnceCell::new(),
            gateway: Gateway::new(catalog, usize::MAX),
            kept: Vec::new(),
        }
    }

    pub(super) fn run_job(&mut self, link: &Rc<EngineLink>, job: WorkerJob) -> Result<Value> {
        let limits = CallLimits { value: job.value, memory: job.memory, ..CallLimits::default() };
        let scope = Arc::new(CallScope { limits, ..CallScope::default() });
        let call = self.gateway.open_scoped_call(Caller::new("worker"), scope);
        let session = JobSession {
            link: link.clone(),
            call,
            value: job.value,
            steps: job.steps,
            memory: job.memory,
            loading: Cell::new(false),
        };
        worker_memory::limit_memory(job.memory);
        let unit = match self.kept.iter().position(|(id, _)| *id == job.script.unit) {
            // Last used last.
            Some(at) => {
                let kept = self.kept.remove(at);
                self.kept.push(kept);
                self.kept[self.kept.len() - 1].1.clone()
            }
            None => {
                let tests = job.kind.is_test();
                let globals = if tests {
                    self.tests.get_or_init(|| starlark_globals::build_globals(&self.modules, true))
                } else {
                    &self.extensions
                };
                session.loading.set(true);
                let loader = ScriptLoader::new(&session, globals, &job.script);
                loader.main_text.set(job.main_text);
                let unit = Rc::new(loader.load_main(tests)?);
                session.loading.set(false);
                if self.kept.len() >= MAX_LOADED_SCRIPTS {
                    self.kept.remove(0);
                }
                self.kept.push((job.script.unit, unit.clone()));
                worker_memory::reset_memory_limit(job.memory);
                unit
            }
        };
        match job.kind {
            WorkerJobKind::Describe => Ok(unit.about.clone()),
            WorkerJobKind::ListTests => Ok(unit.test_names()),
            WorkerJobKind::Test { name } => {
                let test = unit.module.get(&name).map_err(|error| {
                    Problem::bad_script(format!("there is no test {name}: {error}"))
                })?;
                session.call_function(&test, 0, Value::Null, Value::Null).map(|_| Value::Null)
            }
            WorkerJobKind::Call { handler, args, context } => match unit.handlers.get(handler) {
                Some((function, takes)) => session.call_function(function, *takes, args, context),
                None => Err(Problem::internal("the extension has no such handler")),
            },
        }
    }
}

impl EvaluatedScript {
    fn test_names(&self) -> Value {
        let is_test = |name: &str| {
            name.starts_with("test_")
                && self.module.get(name).is_ok_and(|it| it.value().get_type() == "function")
        };
        let names = self.module.names().filter(|name| is_test(name.as_str()));
        Value::Array(names.map(|name| Value::from(name.as_str().to_owned())).collect())
    }
}

/// What every evaluation of a job has in common.
impl JobSession {
    /// Call a function with up to two arguments in a heap of its own.
    fn call_function(
        &self,
        function: &OwnedFrozenValue,
        takes: usize,
        args: Value,
        values: Value,
    ) -> Result<Value> {
        Module::with_temp_heap(|module| {
            let printer = PrintForwarder(self);
            let mut eval = Evaluator::new(&module);
            self.prepare_evaluator(&mut eval, &printer)?;
            let heap = module.heap();
            let function = heap.access_owned_frozen_value(function);
            let mut given = vec![starlark_bridge::alloc_value(heap, args)];
            if takes == 2 {
                given.push(handler_context::build_context(heap, values));
            }
            given.truncate(takes);
            match eval.eval_function(function, &given, &[]) {
                Ok(value) => starlark_bridge::read_value(value, heap, "result", self.value),
                Err(error) => Err(self.evaluation_problem(&error, &eval)),
            }
        })
    }

    fn prepare_evaluator<'v, 'a, 'e>(
        &'a self,
        eval: &mut Evaluator<'v, 'a, 'e>,
        printer: &'a PrintForwarder<'a>,
    ) -> Result<()> {
        let internal = |error| Problem::internal(format!("limits cannot be set: {error}"));
        eval.set_max_callstack_size(MAX_CALL_DEPTH).map_err(internal)?;
        eval.set_max_tick_count(self.steps.max(1)).map_err(internal)?;
        eval.set_max_heap_size(self.memory.max(1)).map_err(internal)?;
        eval.set_print_handler(printer);
        eval.extra = Some(self);
        Ok(())
    }

    fn evaluation_problem(&self, error: &starlark::Error, eval: &Evaluator<'_, '_, '_>) -> Problem {
        if eval.get_total_tick_count() > self.steps {
            return Problem::limit_exceeded(format!(
                "the script took more than {} steps",
                self.steps
            ))
            .with_hint("do less in one call, or raise limits.steps");
        }
        let used = eval.heap().peak_allocated_bytes() + eval.frozen_heap().allocated_bytes();
        if used > self.memory {
            return out_of_memory_problem(self.memory);
        }
        starlark_errors::problem_from_error(error)
    }
}

struct PrintForwarder<'a>(&'a JobSession);

impl PrintHandler for PrintForwarder<'_> {
    fn println(&self, text: &str) -> starlark::Result<()> {
        self.0
            .link
            .ask_engine(&WorkerReport::Print { text: text.to_owned() })
            .map(drop)
            .map_err(raise_problem)
    }
}

/// One script and all it loads.
struct ScriptLoader<'a> {
    session: &'a JobSession,
    globals: &'a Globals,
    script: &'a StarlarkScriptVersion,
    /// The text of the main file, if it came with the job.
    main_text: Cell<Option<String>>,
    done: RefCell<HashMap<String, FrozenModule>>,
    /// The files on their way, to recognise a cycle.
    under_way: RefCell<Vec<String>>,
}

impl<'a> ScriptLoader<'a> {
    fn new(
        session: &'a JobSession,
        globals: &'a Globals,
        script: &'a StarlarkScriptVersion,
    ) -> Self {
        let (done, under_way) = (RefCell::default(), RefCell::default());
        Self { session, globals, script, main_text: Cell::default(), done, under_way }
    }

    fn load_main(&self, tests: bool) -> Result<EvaluatedScript> {
        let mut about = Value::Null;
        let mut takes = Vec::new();
        let module = self.evaluate_file(&self.script.main, |eval| {
            if !tests {
                (about, takes) = describe_extension(eval, self.session)?;
            }
            Ok(())
        })?;
        let handlers = match module.owned_extra_value() {
            None => Vec::new(),
            Some(list) => {
                let count = ListRef::from_value(list.value()).map_or(0, |list| list.len());
                (0..count)
                    .filter_map(|index| {
                        list.try_map(|list| {
                            let list = ListRef::from_value(list.to_value()).ok_or(())?;
                            list.get(index).and_then(|item| item.unpack_frozen()).ok_or(())
                        })
                        .ok()
                    })
                    .zip(takes)
                    .collect()
            }
        };
        Ok(EvaluatedScript { module, about, handlers })
    }

    /// A file that another one loads.
    fn load_file(&self, path: &str) -> Result<FrozenModule> {
        if let Some(module) = self.done.borrow().get(path) {
            return Ok(module.clone());
        }
        let module = self.evaluate_file(path, |_| Ok(()))?;
        self.done.borrow_mut().insert(path.to_owned(), module.clone());
        Ok(module)
    }

    fn evaluate_file(
        &self,
        path: &str,
        then: impl for<'v> FnOnce(&mut Evaluator<'v, '_, '_>) -> Result<()>,
    ) -> Result<FrozenModule> {
        self.enter_file(path)?;
        let shown = format!("{}/{path}", self.script.folder);
        let text = match self.read_text(path)? {
            Value::Str(text) if text.len() <= MAX_STARLARK_SOURCE_BYTES => text,
            _ => {
                return Err(Problem::bad_script(format!(
                    "the script is larger than {} KB",
                    MAX_STARLARK_SOURCE_BYTES / 1024
                ))
                .at_location(moonlark_core::SourceLocation::in_file(shown)));
            }
        };
        let ast = AstModule::parse(&shown, text, &STARLARK_DIALECT)
            .map_err(|it| starlark_errors::problem_from_error(&it))?;
        let module = Module::with_temp_heap(|module| {
            {
                let printer = PrintForwarder(self.session);
                let loader = RelativeFileLoader { loading: self, from: path };
                let mut eval = Evaluator::new(&module);
                self.session.prepare_evaluator(&mut eval, &printer)?;
                eval.set_loader(&loader);
                if let Err(error) = eval.eval_module(ast, self.globals) {
                    return Err(self.session.evaluation_problem(&error, &eval));
                }
                then(&mut eval)?;
            }
            module
                .freeze()
                .map_err(|error| Problem::internal(format!("the script cannot be kept: {error:?}")))
        })?;
        self.under_way.borrow_mut().pop();
        Ok(module)
    }

    fn read_text(&self, path: &str) -> Result<Value> {
        let known = if path == self.script.main { self.main_text.take() } else { None };
        match known {
            Some(text) => Ok(Value::from(text)),
            None => self.session.link.ask_engine(&WorkerReport::Read { path: path.into() }),
        }
    }

    fn enter_file(&self, path: &str) -> Result<()> {
        let mut under_way = self.under_way.borrow_mut();
        if let Some(first) = under_way.iter().position(|other| other == path) {
            let mut ring = under_way[first..].to_vec();
            ring.push(path.to_owned());
            return Err(Problem::bad_script(format!(
                "these files load each other: {}",
                ring.join(" → ")
            ))
            .with_hint("move what both need into a third file"));
        }
        if under_way.len() >= MAX_LOAD_DEPTH {
            return Err(Problem::bad_script(format!(
                "files load each other more than {MAX_LOAD_DEPTH} levels deep"
            )));
        }
        under_way.push(path.to_owned());
        Ok(())
    }
}

struct RelativeFileLoader<'a> {
    loading: &'a ScriptLoader<'a>,
    from: &'a str,
}

impl FileLoader for RelativeFileLoader<'_> {
    fn load(&self, path: &str) -> starlark::Result<FrozenModule> {
        resolve_load(self.from, path)
            .and_then(|path| self.loading.load_file(&path))
            .map_err(raise_problem)
    }
}

/// Call `describe_extension()`; its handlers stay with the module. A file
/// without one has nothing to say.
fn describe_extension(
    eval: &mut Evaluator<'_, '_, '_>,
    session: &JobSession,
) -> Result<(Value, Vec<usize>)> {
    let Some(function) = eval.module().get("describe_extension") else {
        let makes_tools = eval.module().names().any(|name| {
            eval.module().get(name.as_str()).is_some_and(extension_description::is_description)
        });
        let about = if makes_tools { Value::Bool(true) } else { Value::Null };
        return Ok((about, Vec::new()));
    };
    let value = match eval.eval_function(function, &[], &[]) {
        Ok(value) => value,
        Err(error) => return Err(session.evaluation_problem(&error, eval)),
    };
    let heap = eval.heap();
    let (about, handlers) = extension_description::read_extension(value, heap)?;
    let takes = handlers.iter().map(|handler| handler.takes).collect();
    let functions = handlers.into_iter().map(|handler| handler.function);
    eval.module().set_extra_value(heap.alloc(AllocList(functions)));
    Ok((about, takes))
}
