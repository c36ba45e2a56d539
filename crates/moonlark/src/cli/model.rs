//! `moonlark model`: embedding models from files on disk.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use moonlark_config::EmbedderConfig;
use moonlark_config::config_file::LoadedConfig;
use moonlark_core::Problem;
use moonlark_knowledge::{LocalModelFolder, LocalModelInfo};
use moonlark_state::state_folder::prepare_state_folder;
use serde_json::{Value as Json, json};

use super::{
    CommandResult, GlobalArgs, eprint_line, format_count, load_config, path_from, print_json,
    print_line, working_dir,
};
use crate::knowledge_base::local_models;

#[derive(Subcommand)]
pub(crate) enum ModelCommand {
    /// Check a model and keep a copy of it for this project.
    Add(ModelAddArgs),
    /// List the models of this project.
    List,
    /// Remove a model.
    Remove {
        /// Its name, as `moonlark model list` shows it.
        name: String,
    },
}

#[derive(Args)]
pub(crate) struct ModelAddArgs {
    /// The folder of the model, or its `model.safetensors`, with `config.json` and
    /// `tokenizer.json` or `vocab.txt` beside it.
    path: PathBuf,
    /// Its name here; otherwise that of the folder.
    #[arg(long)]
    name: Option<String>,
}

impl ModelCommand {
    pub(crate) async fn run(self, global: &GlobalArgs) -> CommandResult {
        let loaded = load_config(global)?;
        let models = local_models(&loaded.root);
        match self {
            ModelCommand::Add(add) => add.run(models, &loaded, global).await,
            ModelCommand::List => {
                list_models(&models, &loaded, global);
                Ok(())
            }
            ModelCommand::Remove { name } => remove_model(&models, &name, &loaded, global),
        }
    }
}

impl ModelAddArgs {
    async fn run(
        self,
        models: LocalModelFolder,
        loaded: &LoadedConfig,
        global: &GlobalArgs,
    ) -> CommandResult {
        let path = path_from(&working_dir()?, &self.path);
        if let Some(folder) = models.folder().parent() {
            prepare_state_folder(folder);
        }
        let add = move || models.add_model(&path, self.name.as_deref());
        let added = tokio::task::spawn_blocking(add).await;
        let info = added.map_err(|_| Problem::internal("the model could not be read"))??;
        let used = is_used(loaded, &info.name);
        if global.json {
            print_json(&json!({ "model": model_json(&info, used) }));
            return Ok(());
        }
        print_line(format!("Added {}", model_line(&info)));
        if !global.quiet {
            if !used {
                let key = format!("embedder = \"{}\"", info.name);
                eprint_line(format!("Use it: {key} under [knowledge] in moonlark.toml"));
            }
            eprint_line("`moonlark sync` then embeds all documents anew");
        }
        Ok(())
    }
}

fn list_models(models: &LocalModelFolder, loaded: &LoadedConfig, global: &GlobalArgs) {
    let all = models.list_models();
    if global.json {
        let of = |it: &LocalModelInfo| model_json(it, is_used(loaded, &it.name));
        print_json(&json!({ "models": all.iter().map(of).collect::<Vec<_>>() }));
        return;
    }
    if all.is_empty() {
        print_line("No models yet; `moonlark model add FOLDER` adds one");
    }
    for info in &all {
        let used = if is_used(loaded, &info.name) { ", in use" } else { "" };
        print_line(format!("{}{used}", model_line(info)));
    }
}

fn remove_model(
    models: &LocalModelFolder,
    name: &str,
    loaded: &LoadedConfig,
    global: &GlobalArgs,
) -> CommandResult {
    if is_used(loaded, name) {
        let problem = Problem::bad_request(format!("knowledge.embedder names {name}"));
        return Err(problem.with_hint("change it in moonlark.toml first").into());
    }
    let info = models.remove_model(name)?;
    if global.json {
        print_json(&json!({ "removed": info.name }));
    } else {
        print_line(format!("Removed {}", info.name));
    }
    Ok(())
}

/// Whether documents are embedded by it.
fn is_used(loaded: &LoadedConfig, name: &str) -> bool {
    matches!(&loaded.config.knowledge.embedder, EmbedderConfig::Named(used) if used == name)
}

/// `all-MiniLM-L6-v2: 6 layers, 384 dimensions, 91.3 MB`
fn model_line(info: &LocalModelInfo) -> String {
    let megabytes = info.bytes as f64 / 1e6;
    format!(
        "{}: {}, {}, {megabytes:.1} MB",
        info.name,
        format_count(info.layers, "layer"),
        format_count(info.dimensions, "dimension")
    )
}

fn model_json(info: &LocalModelInfo, used: bool) -> Json {
    json!({
        "name": info.name,
        "layers": info.layers,
        "dimensions": info.dimensions,
        "bytes": info.bytes,
        "used": used,
    })
}
