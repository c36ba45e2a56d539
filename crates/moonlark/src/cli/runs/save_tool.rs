//! `moonlark runs save --as-tool`: a recorded run as a tool of the project.

use std::path::Path;
use std::{fs, io};

use moonlark_core::record_id::RecordId;
use moonlark_core::{Problem, Result, SourceLocation};
use moonlark_gateway::journal::JournalRecorder;
use moonlark_state::write_user_file;
use serde_json::json;

use super::super::{
    CommandError, CommandResult, GlobalArgs, env_variable, open_project_without_values, print_json,
    print_line,
};
use crate::project_journal;
use crate::tool_from_run::{ToolFromRun, ToolRequest};
use moonlark_config::config_file::{CONFIG_FILE_NAME, LoadedConfig, check_config_text};

/// Runs that are looked at for what differs.
const MAX_COMPARED_RUNS: usize = 200;
/// Tools that are part of Moonlark, whether the configuration has them now or not.
const BUILTIN_NAMES: [&str; 12] = [
    "execute",
    "search",
    "get_document",
    "list_sources",
    "search_docs",
    "list_functions",
    "get_function_docs",
    "save_script",
    "list_scripts",
    "show_script",
    "restore_script",
    "remove_script",
];

/// A run, the name of the tool that it becomes, and which literals become parameters.
pub(super) struct SaveToolRequest {
    pub(super) id: RecordId,
    pub(super) as_tool: String,
    pub(super) param: Vec<String>,
    pub(super) no_params: bool,
}

impl SaveToolRequest {
    pub(super) async fn run(self, loaded: &LoadedConfig, global: &GlobalArgs) -> CommandResult {
        let (id, name) = (self.id, self.as_tool.as_str());
        check_name(name)?;
        check_is_no_tool(name, global).await?;
        let reader = project_journal::journal_reader(loaded);
        let [tool_file, test_file] =
            ["", "_test"].map(|end| format!("{}/{name}{end}.luau", loaded.config.tools.dir));
        for file in [&tool_file, &test_file, &format!("{}/{name}.lua", loaded.config.tools.dir)] {
            if loaded.root.join(file).exists() {
                return Err(Problem::bad_request("there is such a file, and it stays as it is")
                    .at_location(SourceLocation::in_file(file.clone()))
                    .with_hint("choose another name, or move the file away")
                    .into());
            }
        }
        if loaded.config.tools.script.contains_key(name) {
            return Err(Problem::bad_config(format!("[tools.script.{name}] is there already"))
                .with_hint("choose another name, or remove the table")
                .into());
        }
        let journal = project_journal::open_journal(loaded)?;
        let record = journal.load_run(id).await;
        journal.close().await;
        let others = reader.list_runs(MAX_COMPARED_RUNS, None)?;
        let others = others.into_iter().filter(|it| it.id != id && !it.plan);
        let others: Vec<String> = others.map(|it| it.script).collect();
        let request =
            ToolRequest { name, params: &self.param, no_params: self.no_params, others: &others };
        let made = ToolFromRun::make(&record?, &request)?;
        let config = write_files(loaded, name, &made, [&tool_file, &test_file])?;
        if global.json {
            print_json(&json!({
                "tool": tool_file,
                "test": test_file,
                "config": config,
                "allow": made.grants,
                "compares_answer": made.is_compared,
            }));
            return Ok(());
        }
        print_line(format!("wrote {tool_file} and {test_file}"));
        if let Some(config) = config {
            let grants: Vec<&str> = made.grants.iter().map(String::as_str).collect();
            print_line(format!(
                "added [tools.script.{name}] to {config}: it may use {}",
                grants.join(", ")
            ));
        }
        if !made.is_compared {
            print_line("its test does not compare the answer, which has a secret");
        }
        print_line(format!("next: `moonlark test {test_file}`, then edit its description"));
        Ok(())
    }
}

fn check_name(name: &str) -> Result<()> {
    let is_letter = |it: char| it.is_ascii_alphanumeric() || matches!(it, '_' | '-');
    if !name.is_empty()
        && name.len() <= 64
        && name.chars().all(is_letter)
        && !name.ends_with("_test")
    {
        return Ok(());
    }
    Err(Problem::bad_request(format!("{name:?} cannot be the name of a tool"))
        .with_hint("use letters, digits, _ and - (at most 64), and no _test at the end"))
}

/// The tool, its test and what it may use. The file of the configuration that was changed.
fn write_files(
    loaded: &LoadedConfig,
    name: &str,
    made: &ToolFromRun,
    [tool_file, test_file]: [&String; 2],
) -> Result<Option<String>> {
    let write = |file: &str, text: &str| {
        write_user_file(&loaded.root.join(file), text).map_err(|error| {
            Problem::unavailable(format!("the file cannot be written: {error}"))
                .at_location(SourceLocation::in_file(file.to_owned()))
        })
    };
    let config = if made.grants.is_empty() {
        None
    } else {
        let path = loaded.path.clone().unwrap_or_else(|| loaded.root.join(CONFIG_FILE_NAME));
        let before = match fs::read_to_string(&path) {
            Ok(before) => before,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => {
                let message = format!("{} cannot be read: {error}", display_name(&path));
                return Err(Problem::unavailable(message).with_retryable(false));
            }
        };
        let after = with_tool_table(&before, tool_table(name, tool_file, made));
        check_stays_valid(&path, &after, &tool_table(name, tool_file, made), loaded)?;
        Some((path, after))
    };
    // With its rights first: nobody calls a tool that is not there.
    if let Some((path, after)) = &config {
        write(&path.to_string_lossy(), after)?;
    }
    write(test_file, &made.test)?;
    write(tool_file, &made.tool)?;
    Ok(config.map(|(path, _)| display_name(&path)))
}

fn display_name(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

fn tool_table(name: &str, file: &str, made: &ToolFromRun) -> String {
    let grants: Vec<String> = made.grants.iter().map(|grant| format!("{grant:?}")).collect();
    format!("[tools.script.{name}]\npath = {file:?}\nallow = [{}]\n", grants.join(", "))
}

/// The configuration with a table at its end.
fn with_tool_table(before: &str, table: String) -> String {
    let space = if before.is_empty() { "" } else { "\n" };
    let end = if before.is_empty() || before.ends_with('\n') { "" } else { "\n" };
    format!("{before}{end}{space}{table}")
}

/// A configuration that has its tools in one line, say, cannot have another table of them.
fn check_stays_valid(path: &Path, after: &str, table: &str, loaded: &LoadedConfig) -> Result<()> {
    check_config_text(after, &loaded.root, &env_variable).map_err(|problem| {
        let file = display_name(path);
        Problem::bad_config(format!(
            "{file} cannot have these lines at its end, so nothing was written: {}\n{}",
            problem.message,
            table.trim_end()
        ))
        .with_hint(format!(
            "write what {file} has between braces as a table of its own, such as [tools], and \
             save the run again"
        ))
    })
}

/// A tool of that name would take the place of one that is there, or never be called.
async fn check_is_no_tool(name: &str, global: &GlobalArgs) -> Result<(), CommandError> {
    let project = open_project_without_values(global).await?;
    let catalog = project.gateway.catalog();
    let is_known = BUILTIN_NAMES.contains(&name)
        || catalog.tools().iter().any(|tool| tool.name == name)
        || catalog.modules().iter().any(|module| module.name == name);
    if is_known {
        return Err(Problem::bad_request(format!("there is a tool or a module {name} already"))
            .with_hint("choose another name; `moonlark search-tools` lists the tools")
            .into());
    }
    Ok(())
}
