//! Test runs of scripts: a script's folder in memory, and the few modules it needs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use moonlark_core::limits::CallLimits;
use moonlark_core::script_snapshot::ScriptFileReader;
use moonlark_core::tool::CallScope;
use moonlark_core::{Catalog, Module, Problem, ProblemCode, Result, Tool, Value};
use moonlark_gateway::{Call, Caller, Gateway};
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{LuauEngine, ScriptFile};

pub(crate) struct Folder {
    texts: Arc<Mutex<BTreeMap<String, String>>>,
    reads: Arc<AtomicUsize>,
    pub(crate) engine: LuauEngine,
    modules: Arc<Vec<Module>>,
    pub(crate) limits: CallLimits,
}

impl Folder {
    pub(crate) fn new(files: &[(&str, &str)]) -> Folder {
        let modules = Arc::new(modules());
        let limits = CallLimits { timeout: Duration::from_secs(20), ..CallLimits::default() };
        let folder = Folder {
            texts: Arc::default(),
            reads: Arc::default(),
            engine: LuauEngine::new(&modules).unwrap(),
            modules,
            limits,
        };
        for (path, text) in files {
            folder.write(path, text);
        }
        folder
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        self.texts.lock().insert(path.to_owned(), text.to_owned());
    }

    pub(crate) fn remove(&self, path: &str) {
        self.texts.lock().remove(path);
    }

    /// How often a file was asked for.
    pub(crate) fn reads(&self) -> usize {
        self.reads.load(Ordering::Relaxed)
    }

    pub(crate) fn files(&self) -> ScriptFileReader {
        let (texts, reads) = (self.texts.clone(), self.reads.clone());
        Arc::new(move |path| {
            reads.fetch_add(1, Ordering::Relaxed);
            let missing = || Problem::new(ProblemCode::NotFound, "there is no such file");
            texts.lock().get(path).cloned().ok_or_else(missing)
        })
    }

    pub(crate) fn scope(&self) -> CallScope {
        CallScope { limits: self.limits.clone(), ..CallScope::default() }
    }

    pub(crate) fn gateway(&self, tools: Vec<Arc<Tool>>) -> Gateway {
        Gateway::new(Catalog::new(self.modules.clone(), tools, &[], vec![]), 100)
    }

    /// Load the tool in `main`.
    pub(crate) async fn load(&self, main: &str) -> (Result<Arc<Tool>>, BTreeMap<String, String>) {
        let script = ScriptFile {
            file: format!("tools/{main}"),
            folder: "tools".to_owned(),
            main: main.to_owned(),
            files: self.files(),
            configured: None,
            scope: self.scope(),
            loading: Arc::new(self.scope()),
        };
        let (tool, texts) = self.engine.load_tool(script, &self.gateway(vec![])).await;
        (tool.map(Arc::new), texts)
    }

    /// Call a tool that is loaded.
    pub(crate) async fn call(&self, tool: &Arc<Tool>) -> Result<Value> {
        let gateway = self.gateway(vec![tool.clone()]);
        let call = gateway.open_call(Caller::new("cli"))?;
        gateway.call(&call, &tool.name, Value::Object(Default::default())).await
    }

    /// A call of a test's own.
    pub(crate) fn test_call(&self) -> Call {
        self.gateway(vec![]).open_test_call(Arc::new(self.scope()), None)
    }
}

/// A tool whose `execute` is `body`, after `top`.
pub(crate) fn tool(top: &str, body: &str) -> String {
    format!(
        "{top}\ntool = {{ name = 'main', description = '', parameters = {{}} }}\nfunction tool.execute(params, context)\n{body}\nend\n"
    )
}

#[derive(Deserialize, JsonSchema)]
struct Sleep {
    seconds: f64,
}

#[derive(Deserialize, JsonSchema)]
struct Check {
    truth: bool,
}

#[derive(Deserialize, JsonSchema)]
struct Placeholder {}

pub(crate) fn modules() -> Vec<Module> {
    async fn sleep(_: Call, args: Sleep) -> Result<()> {
        tokio::time::sleep(Duration::from_secs_f64(args.seconds)).await;
        Ok(())
    }
    fn check(_: &Call, args: Check) -> Result<()> {
        if args.truth { Ok(()) } else { Err(Problem::tool_error("it is not true")) }
    }
    fn nothing(_: &Call, _: Placeholder) -> Result<()> {
        Ok(())
    }
    vec![
        Module::new("sleep", "").async_function("sleep", "", sleep).callable(),
        Module::new("testing", "")
            .function("check", "", check)
            .function("raises", "", nothing)
            .function("context", "", nothing)
            .only_in_tests(),
    ]
}
