//! A server that answers `tools/list` from a file, for `bench tokens`.
//!
//! The file has what a real server said: `init`, its answer to `initialize`,
//! and `tools`. Nothing of it can be called.

use std::io::{BufRead, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::{Value, json};

#[derive(Args)]
pub struct Listed {
    /// What the server lists.
    file: PathBuf,
}

impl Listed {
    pub fn run(self) -> Result<()> {
        let text = std::fs::read_to_string(&self.file)
            .with_context(|| format!("cannot read {}", self.file.display()))?;
        let file: Value = serde_json::from_str(&text)?;
        let mut init = file["init"].clone();
        init["capabilities"] = json!({"tools": {}});
        let mut out = std::io::stdout().lock();
        for line in std::io::stdin().lock().lines() {
            let request: Value = serde_json::from_str(&line?)?;
            let Some(id) = request.get("id") else { continue };
            let answer = match request["method"].as_str() {
                Some("initialize") => json!({"jsonrpc": "2.0", "id": id, "result": init}),
                Some("tools/list") => {
                    json!({"jsonrpc": "2.0", "id": id, "result": {"tools": file["tools"]}})
                }
                Some("ping") => json!({"jsonrpc": "2.0", "id": id, "result": {}}),
                _ => {
                    let error = json!({"code": -32601, "message": "method not found"});
                    json!({"jsonrpc": "2.0", "id": id, "error": error})
                }
            };
            writeln!(out, "{answer}")?;
            out.flush()?;
        }
        Ok(())
    }
}
