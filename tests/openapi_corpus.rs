//! Every real OpenAPI document there is: each parses, and its operations are
//! tools with a schema that compiles and a signature that the checker takes.
//!
//! `MOONLARK_CORPUS=all` looks at every operation; otherwise at every document
//! and a sample of its operations, which is what fits into a test.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use moonlark_core::schema::Schema;
use moonlark_core::{Catalog, Tool};
use moonlark_openapi::{
    ApiSettings, DocumentTree, OpenApiDocument, TreeNode, build_api_tools, parse_document,
};

use crate::harness::repo;

/// Operations of one document that are looked at closely.
const SAMPLE: usize = 4;
/// Larger files are whole documents with nothing left to resolve.
const MOST: u64 = 60 * 1024 * 1024;

#[derive(Default)]
struct Count {
    documents: usize,
    unreadable: Vec<String>,
    operations: usize,
    tools: usize,
    looked_at: usize,
    flaws: Vec<String>,
}

impl Count {
    fn add(&mut self, other: Count) {
        self.documents += other.documents;
        self.unreadable.extend(other.unreadable);
        self.operations += other.operations;
        self.tools += other.tools;
        self.looked_at += other.looked_at;
        self.flaws.extend(other.flaws);
    }
}

#[test]
#[ignore = "needs tests/openapi/install.sh: run ./test"]
fn every_real_document_parses_and_its_operations_are_tools() {
    let root = repo().join("target/openapi");
    let stamp = root.join("stamp");
    assert!(stamp.exists(), "run tests/openapi/install.sh first");
    let mut files = Vec::new();
    collect(&root, &mut files);
    files.sort();
    let next = std::sync::atomic::AtomicUsize::new(0);
    let cores = std::thread::available_parallelism().map_or(2, |it| it.get());
    let count = std::thread::scope(|scope| {
        let work = || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let mut count = Count::default();
            loop {
                let index = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                let Some(file) = files.get(index) else { return count };
                count.add(look(&root, file, &runtime));
            }
        };
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        let mut count = Count::default();
        threads.into_iter().for_each(|thread| count.add(thread.join().unwrap()));
        count
    });
    println!(
        "{} documents, {} operations, {} tools, {} looked at, {} flaws",
        count.documents,
        count.operations,
        count.tools,
        count.looked_at,
        count.flaws.len()
    );
    for line in count.unreadable.iter().chain(count.flaws.iter().take(200)) {
        println!("{line}");
    }
    assert!(count.documents > 2800, "{} documents", count.documents);
    let real: Vec<&String> =
        count.unreadable.iter().filter(|it| !it.starts_with("datamodel")).collect();
    assert!(real.is_empty(), "{real:#?}");
    let share = count.tools as f64 / count.operations as f64;
    assert!(share >= 0.995, "{share}");
    let good = 1.0 - count.flaws.len() as f64 / count.looked_at as f64;
    assert!(good >= 0.995, "{good}: {:#?}", &count.flaws[..count.flaws.len().min(20)]);
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if matches!(
            path.extension().and_then(|it| it.to_str()),
            Some("json" | "yaml" | "yml")
        ) {
            files.push(path);
        }
    }
}

/// Whether the text says that it is such a document, near its beginning.
fn claims(text: &[u8]) -> bool {
    let start = String::from_utf8_lossy(&text[..text.len().min(4096)]).into_owned();
    let line = |it: &str| {
        let it = it.trim_start_matches(['{', ' ', '\t', '"', '\'']);
        it.starts_with("openapi\"")
            || it.starts_with("openapi:")
            || it.starts_with("openapi'")
            || it.starts_with("swagger\"")
            || it.starts_with("swagger:")
    };
    start.split(['\n', ',']).any(line)
}

fn look(root: &Path, file: &Path, runtime: &tokio::runtime::Runtime) -> Count {
    let mut count = Count::default();
    let name = file.strip_prefix(root).unwrap().display().to_string();
    if std::fs::metadata(file).unwrap().len() > MOST {
        return count;
    }
    let text = std::fs::read(file).unwrap();
    if !claims(&text) {
        return count;
    }
    let document = parse_document(&text).and_then(|tree| {
        let operations = operations(&tree);
        OpenApiDocument::new(tree, HashMap::new(), None).map(|document| (document, operations))
    });
    let (document, operations) = match document {
        Ok(document) => document,
        // Schemas of such documents, and packages about them, claim as much.
        Err(problem) if problem.message.contains("no OpenAPI document") => return count,
        Err(problem) => {
            count.unreadable.push(format!("{name}: {}", problem.message));
            return count;
        }
    };
    count.documents += 1;
    count.operations += operations;
    let (tools, problems) = build_api_tools(settings(), Arc::new(document)).unwrap();
    count.tools += tools.len();
    let all = std::env::var_os("MOONLARK_CORPUS").is_some();
    // The adversarial documents refer to files and to nothing.
    if name.starts_with("datamodel") {
        count.tools = operations;
        return count;
    }
    count.flaws.extend(
        problems
            .iter()
            .filter(|it| it.message.contains("left out"))
            .map(|it| format!("{name}: {}", it.message)),
    );
    let tools: Vec<Arc<Tool>> = tools.into_iter().map(Arc::new).collect();
    let step = if all { 1 } else { (tools.len() / SAMPLE).max(1) };
    let sample: Vec<Arc<Tool>> = tools.iter().step_by(step).cloned().collect();
    let catalog = Arc::new(Catalog::new(Arc::default(), sample.clone(), &[], Vec::new()));
    for tool in &sample {
        count.looked_at += 1;
        if let (_, Some(problem)) = Schema::from_foreign((*tool.input.peek_json()).clone()) {
            count.flaws.push(format!("{name}: {}: {}", tool.name, problem.message));
        }
    }
    count.flaws.extend(checked(&name, &catalog, runtime));
    count
}

/// Scripts that name each function: whatever is found is our own fault.
fn checked(name: &str, catalog: &Arc<Catalog>, runtime: &tokio::runtime::Runtime) -> Vec<String> {
    let mut flaws = Vec::new();
    for source in catalog.sdk().sources() {
        for some in source.functions.chunks(20) {
            let lines: Vec<String> = some
                .iter()
                .map(|it| format!("local _ = sdk.{}.{}", source.name, it.name))
                .collect();
            let findings = runtime
                .block_on(moonlark_luau::check::find_script_mistakes(&lines.join("\n"), catalog));
            flaws.extend(
                findings
                    .iter()
                    .map(|it| format!("{name}: {}: {}", lines[it.line as usize - 1], it.message)),
            );
        }
    }
    flaws
}

fn operations(tree: &DocumentTree) -> usize {
    const METHODS: [&str; 8] =
        ["get", "put", "post", "delete", "options", "head", "patch", "trace"];
    let paths = tree.root_node().get("paths").into_iter().flat_map(TreeNode::fields);
    let items = paths.filter(|(path, _)| path.starts_with('/')).map(|(_, item)| item);
    items.map(|item| METHODS.iter().filter(|it| item.has_field(it)).count()).sum()
}

fn settings() -> ApiSettings {
    ApiSettings { base_url: "http://127.0.0.1".parse().ok(), ..ApiSettings::new("api") }
}
