//! `moonlark generate`: the functions of APIs as definitions for editors, made
//! of nothing but their documents.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use moonlark_core::Catalog;
use moonlark_core::sdk::SdkSource;
use moonlark_render::luau::sdk_docs::{SdkDocsEntry, SdkFunctionDocs, docs_for_page};
use moonlark_state::write_user_file;
use serde_json::{Value as Json, json};

use super::{
    CommandResult, GlobalArgs, display_path, eprint_line, eprint_problem, format_count, io_problem,
    path_label, print_json, print_line, working_dir,
};
use crate::apis;

#[derive(Args)]
pub(crate) struct GenerateArgs {
    /// OpenAPI documents, files or addresses. What scripts call the API is NAME, or otherwise the name of the file.
    #[arg(value_name = "[NAME=]SPEC", required = true, value_parser = parse_named_spec)]
    specs: Vec<(String, String)>,
    /// The folder that the definitions go to, one NAME.d.luau for each document.
    #[arg(long, short, value_name = "DIR", default_value = ".")]
    out: PathBuf,
}

impl GenerateArgs {
    pub(crate) async fn run(self, global: &GlobalArgs) -> CommandResult {
        let here = working_dir()?;
        let out = here.join(&self.out);
        std::fs::create_dir_all(&out)
            .map_err(|error| io_problem("write", &display_path(&out), &error))?;
        let mut written = Vec::new();
        for (name, spec) in &self.specs {
            let (tools, flaws) = apis::read_standalone_document(name, spec, &here).await?;
            for flaw in &flaws {
                eprint_problem(flaw);
                eprint_line("");
            }
            let catalog = Catalog::new(Default::default(), tools, &[], Vec::new());
            let path = out.join(format!("{name}.d.luau"));
            let sources = catalog.sdk().sources();
            let text = render_definitions(spec, sources);
            write_user_file(&path, text)
                .map_err(|error| io_problem("write", &display_path(&path), &error))?;
            let functions: usize = sources.iter().map(|it| it.functions.len()).sum();
            written.push((path_label(&path, &here), functions));
        }
        if global.json {
            let files = written
                .iter()
                .map(|(path, functions)| json!({ "path": path, "functions": functions }));
            print_json(&json!({ "files": files.collect::<Vec<Json>>() }));
        } else {
            for (path, functions) in written {
                print_line(format!("Wrote {path}: {}", format_count(functions, "function")));
            }
        }
        Ok(())
    }
}

/// `NAME=SPEC`, or a document whose name says what it is.
fn parse_named_spec(text: &str) -> Result<(String, String), String> {
    let plain = |it: &str| it.chars().all(|it| it.is_ascii_alphanumeric() || "_-".contains(it));
    if let Some((name, spec)) = text.split_once('=')
        && !name.is_empty()
        && plain(name)
    {
        return Ok((name.to_owned(), spec.to_owned()));
    }
    let stem = Path::new(text).file_stem().and_then(|it| it.to_str()).unwrap_or_default();
    let stem = stem.replace(|it: char| !it.is_ascii_alphanumeric(), "_");
    match stem.trim_matches('_') {
        "" => Err("write it as NAME=SPEC".to_owned()),
        name => Ok((name.to_owned(), text.to_owned())),
    }
}

/// The types, and then what there is to call.
fn render_definitions(spec: &str, sources: &[SdkSource]) -> String {
    let mut text = format!(
        "-- Written by `moonlark generate` {} from {}.\n",
        env!("CARGO_PKG_VERSION"),
        spec.replace(['\r', '\n'], " ")
    );
    let mut tables = String::new();
    for source in sources {
        let entries: Vec<SdkDocsEntry<'_>> =
            source.functions.iter().map(|it| (source, it, None)).collect();
        let _ = writeln!(tables, "    {}: {{", source.name);
        for (docs, (_, function, _)) in docs_for_page(&entries).iter().zip(&entries) {
            for (name, body) in &docs.types {
                let _ = write!(text, "\nexport type {name} = {body}\n");
            }
            write_function_field(docs, &function.name, &mut tables);
        }
        let _ = writeln!(tables, "    }},");
    }
    let _ = write!(text, "\ndeclare sdk: {{\n{tables}}}\n");
    text
}

/// One function, as a field of its source.
fn write_function_field(docs: &SdkFunctionDocs, name: &str, text: &mut String) {
    const FIELD_INDENT: &str = "        ";
    for line in docs.about.lines() {
        let _ = writeln!(text, "{}", format!("{FIELD_INDENT}-- {line}").trim_end());
    }
    for (param, about) in &docs.params {
        let _ = writeln!(text, "{FIELD_INDENT}-- @param {param} - {about}");
    }
    let head = format!("function {}", docs.path);
    let (args, result) = split_signature(docs.signature.strip_prefix(&head).unwrap_or_default());
    let _ = writeln!(text, "{FIELD_INDENT}{name}: {args} -> {result},");
}

/// `(args: T): R` in its two halves.
fn split_signature(signature: &str) -> (&str, &str) {
    let (mut depth, mut quoted, mut escaped) = (0, false, false);
    for (at, letter) in signature.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted => {
                depth -= 1;
                if depth == 0 {
                    let (args, rest) = signature.split_at(at + 1);
                    return (args, rest.strip_prefix(": ").unwrap_or("any"));
                }
            }
            _ => {}
        }
    }
    ("(...any)", "any")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_named_by_its_file_unless_it_gets_a_name() {
        let name = |text: &str| parse_named_spec(text).unwrap();
        let pair = |name: &str, spec: &str| (name.to_owned(), spec.to_owned());
        assert_eq!(name("shop=a/b.yaml"), pair("shop", "a/b.yaml"));
        assert_eq!(name("a/pet-store.v2.yaml"), pair("pet_store_v2", "a/pet-store.v2.yaml"));
        let address = "https://example.com/api.json?version=2";
        assert_eq!(name(address), pair("api", address));
        assert!(parse_named_spec("..").is_err());
    }

    #[test]
    fn parentheses_in_types_and_texts_do_not_end_the_arguments() {
        assert_eq!(split_signature("(args: (A | B)?): {C}"), ("(args: (A | B)?)", "{C}"));
        assert_eq!(
            split_signature(r#"(args: { ["a)\""]: "(" }): D"#),
            (r#"(args: { ["a)\""]: "(" })"#, "D")
        );
        assert_eq!(split_signature("(): any"), ("()", "any"));
    }
}
