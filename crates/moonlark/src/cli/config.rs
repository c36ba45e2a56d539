//! `moonlark config check` and `config show`

use clap::Subcommand;
use moonlark_core::Problem;
use serde_json::json;

use super::{
    CommandError, CommandResult, GlobalArgs, env_variable, eprint_config_findings, eprint_line,
    eprint_unset_variables, path_label, print_json, print_line, print_text, problems_json,
    summarize_findings, working_dir,
};
use moonlark_config::config_file::{self, ValueRequirement};

#[derive(Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check the configuration file and report everything wrong with it.
    Check,
    /// Print the configuration in effect, secrets left out.
    Show,
    /// Print the JSON Schema of moonlark.toml.
    Schema,
}

impl ConfigCommand {
    pub(crate) fn run(self, global: &GlobalArgs) -> CommandResult {
        if let ConfigCommand::Schema = self {
            print_text(format!("{:#}", moonlark_config::config_json_schema()));
            return Ok(());
        }
        let (needed, here) = (ValueRequirement::Never, working_dir()?);
        let explicit = global.config.as_deref();
        let loaded = match config_file::load_config_with(needed, explicit, &here, &env_variable) {
            Ok(loaded) => loaded,
            Err(rejected) if global.json => {
                print_json(&json!({
                    "problems": problems_json(&rejected.errors),
                    "warnings": problems_json(&rejected.warnings),
                    "unset": problems_json(&rejected.unset),
                }));
                return Err(CommandError::Said);
            }
            Err(rejected) => {
                eprint_unset_variables(&rejected.unset);
                let counts = summarize_findings(rejected.errors.len(), rejected.warnings.len());
                CommandError::Config(rejected).eprint_problems();
                eprint_line("");
                eprint_line(counts);
                return Err(CommandError::Said);
            }
        };
        let origin = match &loaded.path {
            Some(path) => path_label(path, &here),
            None => "no configuration file; everything is default".to_owned(),
        };
        match self {
            ConfigCommand::Check if global.json => print_json(&json!({
                "problems": [],
                "warnings": problems_json(&loaded.warnings),
                "unset": problems_json(&loaded.unset),
                "file": loaded.path,
            })),
            ConfigCommand::Check => {
                eprint_config_findings(&loaded);
                let counts = summarize_findings(0, loaded.warnings.len());
                print_line(format!("{origin}: {counts}"));
            }
            ConfigCommand::Show if global.json => {
                let text = config_file::render_redacted_config(&loaded);
                let value: toml::Value = toml::from_str(&text).map_err(|error| {
                    Problem::internal(format!("cannot show the configuration: {error}"))
                })?;
                print_line(
                    &serde_json::to_string(&value)
                        .map_err(|error| Problem::internal(error.to_string()))?,
                );
            }
            _ => {
                print_line(format!("# {origin}"));
                print_text(config_file::render_redacted_config(&loaded).trim_end());
            }
        }
        Ok(())
    }
}
