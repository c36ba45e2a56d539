//! `moonlark runs save --as-tool`: a recorded run as a tool of the project.

use std::fs;
use std::path::Path;

use moonlark_core::record_id::RecordId;
use moonlark_core::{Problem, Result, SourceLocation};
use moonlark_gateway::journal::JournalRecorder;
use moonlark_state::write_user_file;
use serde_json::json;

use super::super::{CommandResult, GlobalArgs, print_json, print_line};
use crate::project_journal;
use crate::tool_from_run::{ToolFromRun, ToolRequest};
use moonlark_config::config_file::{CONFIG_FILE_NAME, LoadedConfig};

/// Runs that are looked at for what differs.
const MAX_COMPARED_RUNS: usize = 200;

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
    let config = (!made.grants.is_empty()).then(|| {
        let path = loaded.path.clone().unwrap_or_else(|| loaded.root.join(CONFIG_FILE_NAME));
        let before = fs::read_to_string(&path).unwrap_or_default();
        (path, before)
    });
    // With its rights first: nobody calls a tool that is not there.
    if let Some((path, before)) = &config {
        let after = with_tool_table(before, name, tool_file, made);
        write(&path.to_string_lossy(), &after)?;
    }
    write(test_file, &made.test)?;
    write(tool_file, &made.tool)?;
    Ok(config.map(|(path, _)| display_name(&path)))
}

fn display_name(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// The configuration with a table at its end.
fn with_tool_table(before: &str, name: &str, file: &str, made: &ToolFromRun) -> String {
    let grants: Vec<String> = made.grants.iter().map(|grant| format!("{grant:?}")).collect();
    let space = if before.is_empty() { "" } else { "\n" };
    let end = if before.is_empty() || before.ends_with('\n') { "" } else { "\n" };
    format!(
        "{before}{end}{space}[tools.script.{name}]\npath = {file:?}\nallow = [{}]\n",
        grants.join(", ")
    )
}
