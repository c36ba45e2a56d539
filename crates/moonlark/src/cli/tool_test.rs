//! `moonlark tool test`: one script, step by step.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use moonlark_core::nearest::nearest;
use moonlark_core::tool::SourceKind;
use moonlark_core::value::Object;
use moonlark_core::{Caller, Catalog, Problem, Result, Tool, Value};

use super::arguments::Params;
use super::tool_options::ToolOption;
use super::{Done, Failure, Global, caller, named, open, pretty, print, print_text, shown};
use crate::project::Project;
use crate::scripts;

#[derive(Args)]
pub(crate) struct Test {
    /// The script, or the extension.
    path: PathBuf,
    #[command(flatten)]
    params: Params,
    /// Which tool, where an extension has several.
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
    /// Take the settings of this entry under [tools.script] or [extensions.script].
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
}

impl Test {
    pub(crate) async fn run(self, global: &Global) -> Done {
        // With --json only the result is printed.
        let say = |line: &str| {
            if !global.json {
                print(line);
            }
        };
        let project = open(global).await?;
        let tool = Arc::new(self.load(&project).await?);
        let label = shown(&self.path);
        say(&format!("Testing tool: {} ({label})", tool.name));
        let function = match tool.source.kind {
            SourceKind::Extension => "its handler",
            _ => "execute",
        };
        say("  ✓ Script loaded");
        say(match tool.source.kind {
            SourceKind::Extension => "  ✓ describe_extension defined",
            _ => "  ✓ tool.execute defined",
        });
        let count = tool.input.properties().count();
        say(&format!("  ✓ {count} parameter{} declared", if count == 1 { "" } else { "s" }));

        let args = self.params.read(Object::new(), Some(&tool))?;
        say(&format!("  ✓ Calling {function}({})...", outline(&args)));
        let started = Instant::now();
        let result = call(&project, &tool, args).await;
        let took = started.elapsed().as_secs_f64();
        match result {
            Ok(text) if global.json => print_text(&text),
            Ok(text) => {
                say(&format!("  ✓ Returned result in {took:.1}s"));
                print("");
                print("Result:");
                text.lines().for_each(|line| print(format!("  {line}")));
            }
            Err(problem) => {
                say(&format!("  ✗ Failed after {took:.1}s"));
                say("");
                return Err(problem.into());
            }
        }
        Ok(())
    }

    pub(crate) fn take_options(&mut self, options: Vec<ToolOption>) {
        self.params.take_options(options);
    }

    async fn load(&self, project: &Project) -> Result<Tool, Failure> {
        let loaded = project.loaded().await;
        let (table, names): (_, Vec<&String>) = match named::is_starlark(&self.path) {
            true => ("extensions", loaded.config.extensions.script.keys().collect()),
            false => ("tools", loaded.config.tools.script.keys().collect()),
        };
        if let Some(name) = self.source.as_ref().filter(|name| !names.contains(name)) {
            let near = nearest(name, names.iter().map(|name| name.as_str()));
            return Err(Problem::bad_request(format!(
                "there is no [{table}.script.{name}] in the configuration"
            ))
            .maybe_hint(near.map(|near| format!("did you mean {near}?")))
            .into());
        }
        let found = named::script(&self.path, self.source.clone(), &loaded)?;
        if let Some(problem) = scripts::outage(&found, &loaded.config).first() {
            return Err(problem.clone().into());
        }
        let tools = named::tools(&found, project).await?;
        Ok(self.choose(tools)?)
    }

    fn choose(&self, mut tools: Vec<Tool>) -> Result<Tool> {
        let names: Vec<String> = tools.iter().map(|tool| tool.name.clone()).collect();
        let file = shown(&self.path);
        let chosen = match &self.tool {
            Some(name) => names.iter().position(|other| other == name),
            None if names.len() > 1 => {
                return Err(Problem::bad_request(format!(
                    "{file} has several tools: {}",
                    names.join(", ")
                ))
                .hint("choose one with --tool NAME"));
            }
            None => (!tools.is_empty()).then_some(0),
        };
        match (chosen, &self.tool) {
            (Some(index), _) => Ok(tools.swap_remove(index)),
            (None, Some(name)) => {
                let near = nearest(name, names.iter().map(String::as_str));
                Err(Problem::bad_request(format!("{file} has no tool {name}"))
                    .maybe_hint(near.map(|near| format!("did you mean {near}?"))))
            }
            (None, None) => Err(Problem::bad_request(format!("{file} has no tool"))
                .hint("a Starlark file has tools when it defines describe_extension()")),
        }
    }
}

/// Call the script itself, with the project's tools at hand for `context.call`.
async fn call(project: &Project, tool: &Arc<Tool>, args: Object) -> Result<String> {
    let catalog = project.gateway.catalog_for(&caller());
    let others = catalog.tools().iter().filter(|other| other.name != tool.name).cloned();
    let tools = std::iter::once(tool.clone()).chain(others).collect();
    project.gateway.publish(Catalog::new(
        catalog.modules().clone(),
        tools,
        &crate::builtin::REPLACEABLE,
        Vec::new(),
    ));
    let call = project.gateway.open(Caller::new("cli"), None)?;
    pretty(&project.gateway.call(&call, &tool.name, Value::Object(args)).await?)
}

/// `{title: "Test ticket", body: "…"}`
fn outline(args: &Object) -> String {
    let fields: Vec<String> =
        args.iter().map(|(name, value)| format!("{name}: {}", value.to_json_lossy())).collect();
    format!("{{{}}}", fields.join(", "))
}
