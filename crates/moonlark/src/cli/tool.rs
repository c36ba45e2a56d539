//! `moonlark tool init`, `tool test`, `tool list`

use std::sync::Arc;

use clap::Subcommand;
use moonlark_core::tool::SourceKind;
use moonlark_core::{Problem, Tool};
use serde_json::json;

use super::served_command::ServedCommand;
use super::source_args::SourceArgs;
use super::tool_test::ToolTestArgs;
use super::{
    CommandResult, GlobalArgs, cli_caller, display_path, eprint_line, eprint_problem, io_problem,
    load_config, path_from, print_json, print_line, template, wait_for_sources, working_dir,
};
use crate::project::Project;

#[derive(Subcommand)]
pub(crate) enum ToolCommand {
    /// Write a new tool script from a template, and a test for it.
    Init {
        /// The tool's name; the file is named after it.
        name: String,
        /// Write a Starlark extension.
        #[arg(long)]
        starlark: bool,
    },
    /// Run one tool of a script, with a report of each step.
    Test(ToolTestArgs),
    /// List all tools.
    List,
}

impl ToolCommand {
    pub(crate) async fn run(self, global: &GlobalArgs) -> CommandResult {
        match self {
            ToolCommand::Init { name, starlark } => init_tool(&name, starlark, global),
            ToolCommand::Test(test) => test.run(global).await,
            ToolCommand::List => ServedCommand::ToolList.run(SourceArgs::default(), global).await,
        }
    }
}

fn init_tool(name: &str, starlark: bool, global: &GlobalArgs) -> CommandResult {
    template::check_script_name(name, "tool")?;
    let (here, loaded) = (working_dir()?, load_config(global)?);
    let (dir, files) = if starlark {
        let test = (format!("{name}_test.star"), template::extension_test_script(name));
        let files = vec![(format!("{name}.star"), template::extension_script(name)), test];
        (&loaded.config.extensions.dir, files)
    } else {
        let test = (format!("{name}_test.luau"), template::tool_test_script(name));
        let files = vec![(format!("{name}.lua"), template::tool_script(name)), test];
        (&loaded.config.tools.dir, files)
    };
    let dir = loaded.root.join(dir);
    // As the next command in this folder takes it.
    let label = |file: &str| display_path(&path_from(&here, &dir.join(file)));
    let (first, test) = (label(&files[0].0), label(&files[1].0));
    std::fs::create_dir_all(&dir).map_err(|error| io_problem("write", &first, &error))?;
    // All or nothing.
    if let Some((file, _)) = files.iter().find(|(file, _)| dir.join(file).exists()) {
        return Err(template::already_exists_problem(&label(file)).into());
    }
    for (file, text) in &files {
        template::write_new_file(&dir.join(file), text)
            .map_err(|error| template::new_file_problem(&label(file), &error))?;
        print_line(format!("Created {}", label(file)));
    }
    if !global.quiet {
        eprint_line(format!("Try it: moonlark tool test {first} --param name=World"));
        // It looks for tests in the working directory and below.
        let is_below = dir.starts_with(&here);
        let test = if is_below { String::new() } else { format!(" {test}") };
        eprint_line(format!("Test it: moonlark test{test}"));
    }
    Ok(())
}

pub(crate) async fn list_tools(project: &Arc<Project>, global: &GlobalArgs) -> CommandResult {
    wait_for_sources(project).await;
    let catalog = project.gateway.catalog_for(&cli_caller());
    if global.json {
        let tools: Vec<_> = catalog
            .tools_for_agents()
            .map(|tool| {
                json!({
                    "name": tool.name,
                    "title": tool.title,
                    "description": tool.description,
                    "builtin": tool.source.kind == SourceKind::Builtin,
                    "source": tool.source.name,
                    "version": tool.version,
                    "parameters": **tool.input.json(),
                })
            })
            .collect();
        let problems: Vec<_> = catalog.problems().iter().map(Problem::to_json).collect();
        print_json(&json!({ "tools": tools, "problems": problems }));
        return Ok(());
    }
    let group = |kind: SourceKind, width: usize| {
        let tools: Vec<_> =
            catalog.tools_for_agents().filter(|tool| tool.source.kind == kind).collect();
        let width = tools.iter().map(|tool| tool.name.len()).max().unwrap_or(0).max(width);
        let line = |tool: &&Arc<Tool>| {
            let first = tool.description.lines().next().unwrap_or_default();
            let first = moonlark_core::value::shorten_text(first);
            let title = tool.title.as_ref().map(|title| format!("{title}: "));
            let title = title.unwrap_or_default();
            format!("  {:<width$} {title}{first}", tool.name).trim_end().to_owned()
        };
        tools.iter().map(line).collect::<Vec<String>>()
    };
    let print_group = |title: &str, lines: &[String]| {
        print_line(title);
        lines.iter().for_each(print_line);
    };
    print_group("Built-in tools:", &group(SourceKind::Builtin, 16));
    let groups = [
        ("Lua tools:", SourceKind::Script),
        ("Starlark extensions:", SourceKind::Extension),
        ("Tools of upstream servers:", SourceKind::Upstream),
        ("Tools of APIs:", SourceKind::Api),
    ]
    .map(|(title, kind)| (title, group(kind, 20)));
    for (title, lines) in groups.iter().filter(|(_, lines)| !lines.is_empty()) {
        print_line("");
        print_group(title, lines);
    }
    if groups.iter().all(|(_, lines)| lines.is_empty()) {
        print_line("");
        print_line("Lua tools: none yet; `moonlark tool init hello` writes one");
    }
    for problem in catalog.problems() {
        eprint_line("");
        eprint_problem(problem);
    }
    Ok(())
}
