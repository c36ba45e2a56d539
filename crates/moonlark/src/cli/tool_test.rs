//! `moonlark tool test`: one script, step by step.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use moonlark_core::tool::SourceKind;
use moonlark_core::value::Object;
use moonlark_core::{Catalog, Problem, Result, Tool, Value};

use super::tool_arguments::ToolParameterArgs;
use super::tool_options::ToolOption;
use super::{
    CommandError, CommandResult, GlobalArgs, cli_caller, display_path, format_count, near_hint,
    open_project, pretty_json, print_line, print_text, script_lookup,
};
use crate::project::Project;
use crate::scripts;

#[derive(Args)]
pub(crate) struct ToolTestArgs {
    /// The script, or the extension.
    path: PathBuf,
    #[command(flatten)]
    params: ToolParameterArgs,
    /// Which tool, where an extension has several.
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
    /// Take the settings of this entry under [tools.script] or [extensions.script].
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
}

impl ToolTestArgs {
    pub(crate) async fn run(self, global: &GlobalArgs) -> CommandResult {
        // With --json only the result is printed.
        let say = |line: &str| {
            if !global.json {
                print_line(line);
            }
        };
        let project = open_project(global).await?;
        let tool = Arc::new(self.load_tool(&project).await?);
        let label = display_path(&self.path);
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
        let parameters = format_count(tool.input.parameter_names().count(), "parameter");
        say(&format!("  ✓ {parameters} declared"));

        let args = self.params.read_arguments(Object::new(), Some(&tool))?;
        say(&format!("  ✓ Calling {function}({})...", arguments_outline(&args)));
        let started = Instant::now();
        let result = call_tool(&project, &tool, args).await;
        let took = started.elapsed().as_secs_f64();
        match result {
            Ok(text) if global.json => print_text(&text),
            Ok(text) => {
                say(&format!("  ✓ Returned result in {took:.1}s"));
                print_line("");
                print_line("Result:");
                text.lines().for_each(|line| print_line(format!("  {line}")));
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

    async fn load_tool(&self, project: &Project) -> Result<Tool, CommandError> {
        let loaded = project.loaded_config().await;
        let (table, names): (_, Vec<&String>) = if script_lookup::is_starlark_path(&self.path) {
            ("extensions", loaded.config.extensions.script.keys().collect())
        } else {
            ("tools", loaded.config.tools.script.keys().collect())
        };
        if let Some(name) = self.source.as_ref().filter(|name| !names.contains(name)) {
            let names = names.iter().map(|name| name.as_str());
            return Err(script_lookup::no_table_problem(table, name, names).into());
        }
        let found = script_lookup::find_script(&self.path, self.source.clone(), &loaded)?;
        if let Some(problem) = scripts::script_outage(&found, &loaded.config).first() {
            return Err(problem.clone().into());
        }
        let tools = script_lookup::load_tools(&found, project).await?;
        Ok(self.choose_tool(tools)?)
    }

    fn choose_tool(&self, mut tools: Vec<Tool>) -> Result<Tool> {
        let names: Vec<String> = tools.iter().map(|tool| tool.name.clone()).collect();
        let file = display_path(&self.path);
        let chosen = match &self.tool {
            Some(name) => names.iter().position(|other| other == name),
            None if names.len() > 1 => {
                return Err(Problem::bad_request(format!(
                    "{file} has several tools: {}",
                    names.join(", ")
                ))
                .with_hint("choose one with --tool NAME"));
            }
            None => (!tools.is_empty()).then_some(0),
        };
        match (chosen, &self.tool) {
            (Some(index), _) => Ok(tools.swap_remove(index)),
            (None, Some(name)) => {
                let near = near_hint(name, names.iter().map(String::as_str));
                Err(Problem::bad_request(format!("{file} has no tool {name}"))
                    .with_optional_hint(near))
            }
            (None, None) => Err(Problem::bad_request(format!("{file} has no tool"))
                .with_hint("a Starlark file has tools when it defines describe_extension()")),
        }
    }
}

/// Call the script itself, with the project's tools at hand for `context.call`.
async fn call_tool(project: &Project, tool: &Arc<Tool>, args: Object) -> Result<String> {
    let catalog = project.gateway.catalog_for(&cli_caller());
    let others = catalog.tools().iter().filter(|other| other.name != tool.name).cloned();
    let tools = std::iter::once(tool.clone()).chain(others).collect();
    project.gateway.publish(Catalog::new(
        catalog.modules().clone(),
        tools,
        &crate::builtin::REPLACEABLE_TOOL_NAMES,
        Vec::new(),
    ));
    let call = project.gateway.open_call(cli_caller())?;
    pretty_json(&project.gateway.call(&call, &tool.name, Value::Object(args)).await?)
}

/// `{title: "Test ticket", body: "…"}`
fn arguments_outline(args: &Object) -> String {
    let fields: Vec<String> =
        args.iter().map(|(name, value)| format!("{name}: {}", value.to_json_lossy())).collect();
    format!("{{{}}}", fields.join(", "))
}
