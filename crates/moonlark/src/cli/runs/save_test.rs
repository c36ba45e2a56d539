//! `moonlark runs save --as-test`: a run made into a test.

use std::path::Path;

use moonlark_core::{Problem, Result};
use serde::{Deserialize, Serialize};

use super::super::served_command::ServedCommand;
use super::super::source_args::SourceArgs;
use super::super::{CommandResult, GlobalArgs, cli_caller, display_path, print_json, print_line};
use crate::project::Project;
use crate::project_journal;
use crate::run_tests::{RUN_TEST_SUFFIX, RunTestFile, expect_replayed};

/// The folder of such tests, in the project.
const RUN_TESTS_FOLDER: &str = "tests";
/// Letters of a test's name.
const MAX_TEST_NAME_LENGTH: usize = 64;

/// A run, the name of the test that it becomes, and whether it may be written over another.
#[derive(Serialize, Deserialize)]
pub(crate) struct SaveTestRequest {
    pub(super) id: String,
    pub(super) as_test: String,
    pub(super) replace: bool,
}

impl SaveTestRequest {
    pub(super) async fn run(self, servers: SourceArgs, global: &GlobalArgs) -> CommandResult {
        // Before anything is started for it.
        check_test_name(&self.as_test)?;
        ServedCommand::SaveTest(self).run(servers, global).await
    }

    pub(crate) async fn run_in(self, project: &Project, global: &GlobalArgs) -> CommandResult {
        check_test_name(&self.as_test)?;
        let loaded = project.loaded_config().await;
        let folder = loaded.root.join(RUN_TESTS_FOLDER);
        let script = folder.join(format!("{}.luau", self.as_test));
        let test = folder.join(format!("{}{RUN_TEST_SUFFIX}", self.as_test));
        project.flush_journal().await?;
        let record = project_journal::journal_reader(&loaded).load_record(self.id.parse()?)?;
        super::super::wait_for_sources(project).await;
        let catalog = project.gateway.catalog_for(&cli_caller());
        let name = format!("{}.luau", self.as_test);
        let (mut file, text) = RunTestFile::from_record(&record, &catalog, name)?;
        // A run without an end has no result to expect.
        if record.ended.as_ref().is_none_or(|ended| ended.answer.is_none()) {
            return Err(Problem::bad_request(format!("run {} has not ended", self.id))
                .with_hint(format!("`moonlark runs resume {}` goes on with it", self.id))
                .into());
        }
        expect_replayed(&mut file, &text, project).await?;
        if !self.replace {
            check_is_free(&test, None)?;
            check_is_free(&script, Some(&text))?;
        }
        let written = serde_json::to_string_pretty(&file)
            .map_err(|error| Problem::internal(format!("the test cannot be written: {error}")))?;
        write_file(&script, &text)?;
        write_file(&test, &format!("{written}\n"))?;
        if global.json {
            let (test, script) = (display_path(&test), display_path(&script));
            print_json(
                &serde_json::json!({"test": test, "script": script, "calls": file.calls.len()}),
            );
        } else {
            print_line(format!("wrote {} and {}", display_path(&test), display_path(&script)));
            print_line(
                "`moonlark test` replays it; `moonlark test --drift` makes its read-only calls",
            );
        }
        Ok(())
    }
}

fn check_test_name(name: &str) -> Result<()> {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !name.is_empty() && name.len() <= MAX_TEST_NAME_LENGTH && name.chars().all(is_letter) {
        return Ok(());
    }
    Err(Problem::bad_request(format!("{name:?} is no name for a test"))
        .with_hint("use letters, digits, _ and -, such as --as-test weekly_report"))
}

/// Unless it is there already, as it is to be.
fn check_is_free(file: &Path, text: Option<&str>) -> Result<()> {
    match std::fs::read_to_string(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Ok(known) if text == Some(known.as_str()) => Ok(()),
        _ => Err(Problem::bad_request(format!("{} is there already", display_path(file)))
            .with_hint("choose another name, or write over it with --replace")),
    }
}

fn write_file(file: &Path, text: &str) -> Result<()> {
    moonlark_state::write_user_file(file, text).map_err(|error| {
        Problem::unavailable(format!("{} cannot be written: {error}", display_path(file)))
            .with_retryable(false)
    })
}
