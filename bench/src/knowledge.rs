//! `cargo x bench knowledge`: how well the knowledge base answers, and how fast.

mod harness;
mod quality;
mod scale;
mod weight;

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;

use super::machine;
use super::retrieval::load;

#[derive(Args)]
pub struct Knowledge {
    /// A folder of retrieval sets: a folder each, with corpus.jsonl, queries.jsonl and qrels.tsv.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    #[command(flatten)]
    scale: scale::Scale,
    /// Write the report to this file as well.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Knowledge {
    pub fn run(self) -> Result<()> {
        if self.scale.search_only()? {
            return Ok(());
        }
        let mut page = String::new();
        writeln!(page, "# Benchmarks: knowledge\n")?;
        writeln!(page, "Written by `cargo x bench knowledge`. {}\n", machine::describe()?)?;
        if let Some(data) = &self.data {
            page.push_str(&quality::section(&load(data)?)?);
        }
        page.push_str(&self.scale.section()?);
        println!("{page}");
        if let Some(out) = &self.out {
            std::fs::write(out, &page)
                .with_context(|| format!("cannot write {}", out.display()))?;
        }
        Ok(())
    }
}
