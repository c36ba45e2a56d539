//! The process that checks scripts: this binary in another role.
//!
//! Reading a script, and finding the types in it, is native work on text that a
//! stranger wrote. Here it may overflow the stack, never end, or take all memory
//! it can get: the kernel or the clock ends this process, and nothing else.
//!
//! It has an empty environment, opens nothing, and ends when its input does.

use std::collections::{BTreeSet, HashMap};
use std::io::{BufReader, Stdin, Stdout};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use luau_analysis::FrontendCancellationToken;
use moonlark_core::catalog::ConnectingSource;
use moonlark_core::schema::Schema;
use moonlark_core::sdk::{Sdk, SdkFunction, SdkSource};
use moonlark_core::tool::{Source, SourceKind, ToolExposure};
use moonlark_core::{Catalog, Module, Tool, Value};
use moonlark_gateway::tool_body::ToolBody;
use serde_json::Map;

use super::check_clock::{CheckClock, used_processor_time};
use super::check_protocol::{
    CatalogNames, CheckOrder, CheckRequest, CheckWorkerReport, FunctionSchemas, ToolDefinitions,
    WantedDefinitions, read_frame, write_frame,
};
use super::script_checker::{JudgedScript, ScriptChecker, TypingLimits};

/// The first argument that asks for this mode.
const CHECK_MODE_ARG: &str = "__check";
/// The parser nests as deep as it allows itself, types as deep as they like. Only
/// what is used is taken.
pub(super) const CHECK_STACK_BYTES: usize = 128 << 20;
/// What checks may take beyond what a fresh worker has.
const MAX_CHECK_GROWTH_BYTES: u64 = 256 << 20;
/// A worker that keeps more than this beyond that is replaced.
const MAX_RETAINED_BYTES: u64 = 48 << 20;
/// How long after the clock the kernel ends the process, should that have failed.
const KERNEL_GRACE_SECONDS: u64 = 1;

static CHECK_PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// For the top of a binary's `main`: be a worker if that is what this process was
/// started for, and otherwise note that this binary can be one. Without it,
/// scripts are checked in this very process.
pub fn check_scripts_if_asked(modules: fn() -> Vec<Module>) {
    if std::env::args_os().nth(1).is_some_and(|mode| mode == CHECK_MODE_ARG) {
        serve_checks(modules());
    }
    // Also right when the file was replaced by a newer version meanwhile.
    #[cfg(target_os = "linux")]
    let path = Some(PathBuf::from("/proc/self/exe"));
    #[cfg(not(target_os = "linux"))]
    let path = std::env::current_exe().ok();
    if let Some(path) = path {
        set_check_program(path);
    }
}

/// Check scripts in processes of this program, whose `main` begins as above.
pub fn set_check_program(program: PathBuf) {
    let _ = CHECK_PROGRAM.set(program);
}

pub(super) fn check_program() -> Option<&'static Path> {
    CHECK_PROGRAM.get().map(PathBuf::as_path)
}

pub(super) fn check_mode_arg() -> &'static str {
    CHECK_MODE_ARG
}

fn serve_checks(modules: Vec<Module>) -> ! {
    let worker = std::thread::Builder::new()
        .stack_size(CHECK_STACK_BYTES)
        .spawn(move || CheckServer::new(modules).serve_orders());
    // Without one, the pool sees that the process has ended.
    let served = worker.is_ok_and(|worker| worker.join().is_ok());
    std::process::exit(if served { 0 } else { 1 })
}

struct CheckServer {
    checker: ScriptChecker,
    modules: Arc<Vec<Module>>,
    catalogs: HashMap<u64, KnownCatalog>,
    link: CheckServerLink,
    clock: CheckClock,
    /// Private memory after the start.
    fresh_bytes: u64,
}

struct CheckServerLink {
    input: BufReader<Stdin>,
    output: Stdout,
}

impl CheckServer {
    fn new(modules: Vec<Module>) -> CheckServer {
        let modules = Arc::new(modules);
        // What all checks have in common is made before the first is asked for.
        let checker = ScriptChecker::new(&modules);
        let link =
            CheckServerLink { input: BufReader::new(std::io::stdin()), output: std::io::stdout() };
        let clock = CheckClock::start();
        let fresh_bytes = bounds::private_bytes();
        bounds::limit_memory(fresh_bytes.map(|fresh| fresh + MAX_CHECK_GROWTH_BYTES));
        let fresh_bytes = fresh_bytes.unwrap_or(0);
        CheckServer { checker, modules, catalogs: HashMap::new(), link, clock, fresh_bytes }
    }

    fn serve_orders(mut self) {
        while let Ok(CheckOrder::Check(request)) = read_frame(&mut self.link.input) {
            bounds::limit_processor_time(request.limit.as_secs() + 1 + KERNEL_GRACE_SECONDS);
            let stop = self.clock.begin_check(request.limit);
            // A defect of the checker costs the check, not the script.
            let checked = catch_unwind(AssertUnwindSafe(|| self.run_check(request, stop)));
            self.clock.end_check();
            let report = match checked {
                Ok(Some(judged)) => judged.into_report(self.is_small()),
                Ok(None) => return,
                Err(_) => {
                    JudgedScript { is_untyped: true, ..JudgedScript::default() }.into_report(false)
                }
            };
            let reusable = report.reusable;
            let told = write_frame(&mut self.link.output, &CheckWorkerReport::Checked(report));
            if told.is_err() || !reusable {
                return;
            }
        }
    }

    /// None when there is nobody to ask.
    fn run_check(
        &mut self,
        request: CheckRequest,
        stop: Arc<FrontendCancellationToken>,
    ) -> Option<JudgedScript> {
        let CheckServer { checker, modules, catalogs, link, clock, .. } = self;
        if let Some(gone) = request.forget {
            catalogs.remove(&gone);
        }
        if let Some(names) = request.names {
            catalogs.insert(request.catalog, KnownCatalog::new(names));
        }
        let known = catalogs.get_mut(&request.catalog)?;
        let run_type_functions = request.run_type_functions;
        let bound = TypingLimits { stop, clock: Some(clock), run_type_functions };
        let find = |names: &BTreeSet<&str>| known.with_definitions(names, modules, link);
        checker.check_with(&request.script, bound, find)
    }

    fn is_small(&self) -> bool {
        bounds::private_bytes().is_none_or(|now| now < self.fresh_bytes + MAX_RETAINED_BYTES)
    }
}

/// What a worker has been told of a catalog.
struct KnownCatalog {
    names: CatalogNames,
    /// The functions of each source, once they are known.
    functions: Vec<Option<Vec<(String, String)>>>,
    tools: HashMap<(usize, usize), Arc<Tool>>,
    /// All of it as the check wants it.
    built: Option<Arc<Catalog>>,
}

impl KnownCatalog {
    fn new(names: CatalogNames) -> KnownCatalog {
        let functions = names.sources.iter().map(|_| None).collect();
        KnownCatalog { names, functions, tools: HashMap::new(), built: None }
    }

    /// The catalog, after everything that a script names has been asked for.
    fn with_definitions(
        &mut self,
        names: &BTreeSet<&str>,
        modules: &Arc<Vec<Module>>,
        link: &mut CheckServerLink,
    ) -> Option<Arc<Catalog>> {
        let wanted = self.missing_definitions(names);
        if !wanted.sources.is_empty() || !wanted.functions.is_empty() {
            write_frame(&mut link.output, &CheckWorkerReport::Wanted(wanted)).ok()?;
            let Ok(CheckOrder::Definitions(told)) = read_frame(&mut link.input) else {
                return None;
            };
            self.add_definitions(told);
        }
        let built = match self.built.take() {
            Some(built) => built,
            None => Arc::new(self.build_catalog(modules)),
        };
        self.built = Some(built.clone());
        Some(built)
    }

    fn missing_definitions(&self, names: &BTreeSet<&str>) -> WantedDefinitions {
        let is_named =
            |it: &(String, String)| names.contains(it.0.as_str()) || names.contains(it.1.as_str());
        let (mut sources, mut functions) = (Vec::new(), Vec::new());
        for (place, source) in self.names.sources.iter().enumerate() {
            if !is_named(source) {
                continue;
            }
            match self.functions.get(place).and_then(Option::as_ref) {
                None => sources.push(place),
                Some(known) => {
                    let named = known.iter().enumerate().filter(|(_, it)| is_named(it));
                    let named = named.map(|(function, _)| (place, function));
                    functions.extend(named.filter(|it| !self.tools.contains_key(it)));
                }
            }
        }
        // They only matter for sources that are new here.
        let names = if sources.is_empty() { BTreeSet::new() } else { names.clone() };
        let names = names.into_iter().map(str::to_owned).collect();
        WantedDefinitions { sources, names, functions }
    }

    fn add_definitions(&mut self, told: ToolDefinitions) {
        for source in told.sources {
            if let Some(known) = self.functions.get_mut(source.source) {
                *known = Some(source.functions);
            }
        }
        for FunctionSchemas { source, function, input, output } in told.functions {
            self.tools.insert((source, function), Arc::new(described_tool(input, output)));
        }
        self.built = None;
    }

    fn build_catalog(&self, modules: &Arc<Vec<Module>>) -> Catalog {
        let unknown = Arc::new(described_tool(Map::new(), None));
        let sources = self.names.sources.iter().enumerate().map(|(place, (name, original))| {
            let known = self.functions.get(place).and_then(Option::as_ref);
            let functions = known.into_iter().flatten().enumerate();
            let functions = functions.map(|(function, (name, original))| SdkFunction {
                name: name.clone(),
                original: original.clone(),
                tool: self.tools.get(&(place, function)).unwrap_or(&unknown).clone(),
            });
            let (name, original) = (name.clone(), original.clone());
            SdkSource::from_functions(name, original, SourceKind::Upstream, functions.collect())
        });
        let sdk = Sdk::from_sources(sources.collect());
        let awaited = self.names.awaited.iter().map(|source| ConnectingSource {
            source: source.clone(),
            kind: SourceKind::Upstream,
            prefix: String::new(),
            expose: ToolExposure::Code,
            is_remembered: false,
        });
        Catalog::from_sdk(modules.clone(), sdk, awaited.collect())
    }
}

/// A tool as far as a check needs it.
fn described_tool(
    input: Map<String, serde_json::Value>,
    output: Option<Map<String, serde_json::Value>>,
) -> Tool {
    let source = Arc::new(Source { kind: SourceKind::Upstream, name: String::new() });
    let body = ToolBody::from_fn(|_, _| Ok(Value::Null));
    let mut tool = Tool::new("", source, Schema::description_only(input), body);
    tool.output = output.map(Schema::description_only);
    tool
}
mod bounds {
    use rustix::process::{Resource, Rlimit, setrlimit};

    /// Private writable memory, which is what the limit is about. None where the
    /// system does not tell.
    pub(super) fn private_bytes() -> Option<u64> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmData:"))?;
        let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kilobytes * 1024)
    }

    pub(super) fn limit_memory(most: Option<u64>) {
        let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
        if most.is_some() {
            let _ = setrlimit(Resource::Data, Rlimit { current: most, maximum: most });
        }
    }

    /// From now on. The kernel counts whole seconds since the process began.
    pub(super) fn limit_processor_time(seconds: u64) {
        let Some(used) = super::used_processor_time() else { return };
        let most = Rlimit { current: Some(used.as_secs() + seconds), maximum: None };
        let _ = setrlimit(Resource::Cpu, most);
    }
}
