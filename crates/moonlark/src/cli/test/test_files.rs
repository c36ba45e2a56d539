//! Which files of tests there are, and loading one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use moonlark_core::{Problem, Result, SourceLocation};
use moonlark_gateway::Call;

use crate::extensions::{self, ScriptFolder};
use crate::project::Project;
use crate::scripts::{DiscoveredScript, ScriptKind, display_path};
use moonlark_config::config_file::LoadedConfig;

/// Folders inside folders that are looked into.
const MAX_FOLDER_DEPTH: usize = 16;
pub(super) const NO_TESTS_MESSAGE: &str = "the file has no test";
/// Where nobody keeps tests of scripts.
const SKIPPED_FOLDERS: [&str; 2] = ["node_modules", "target"];

/// A file of tests.
pub(super) struct TestFile {
    /// Its folder, inside which `load()` and `require` stay, and its path there.
    folder: ScriptFolder,
    /// The script it is about, by name: its settings are the tests' too.
    pub(super) subject: DiscoveredScript,
}

impl TestFile {
    /// The file as messages show it.
    pub(super) fn label(&self) -> String {
        format!("{}/{}", self.folder.label, self.folder.main)
    }

    /// The text of its line `number`.
    pub(super) fn source_line(&self, number: u32) -> Option<String> {
        let text = extensions::folder_files(&self.folder)(&self.folder.main).ok()?;
        text.lines().nth(number.checked_sub(1)? as usize).map(|line| line.trim().to_owned())
    }

    /// A file that was written to test something, and tests nothing.
    pub(super) fn no_tests_problem(&self) -> Problem {
        let hint = match self.subject.kind {
            ScriptKind::Tool | ScriptKind::Connector | ScriptKind::Agent | ScriptKind::Saved => {
                "a test is a global function whose name begins with test_: \
                 function test_adds() … end; neither a local function nor a returned table is one"
            }
            ScriptKind::Extension(_) => {
                "a test is a function whose name begins with test_: def test_adds(): …"
            }
        };
        Problem::bad_script(NO_TESTS_MESSAGE)
            .at_location(SourceLocation::in_file(self.label()))
            .with_hint(hint)
    }

    pub(super) async fn load_tests(&self, project: &Project, call: &Call) -> Result<ScriptTests> {
        ScriptTests::load(&self.subject.kind, &self.folder, project, call).await
    }
}

/// The tests of one file, in either language.
pub(in super::super) enum ScriptTests {
    Luau(Arc<moonlark_luau::LuauTestFile>),
    Starlark(Arc<moonlark_starlark::StarlarkTestFile>),
}

impl ScriptTests {
    /// Load the main file of `folder`, whose tests are about a script of that kind.
    pub(in super::super) async fn load(
        kind: &ScriptKind,
        folder: &ScriptFolder,
        project: &Project,
        call: &Call,
    ) -> Result<ScriptTests> {
        let ScriptFolder { label, main, .. } = folder.clone();
        let files = extensions::folder_files(folder);
        Ok(if matches!(kind, ScriptKind::Extension(_)) {
            let tests = project.starlark.load_tests(label, main, files, call).await?;
            ScriptTests::Starlark(Arc::new(tests))
        } else {
            ScriptTests::Luau(Arc::new(project.luau.load_tests(label, main, files, call).await?))
        })
    }

    pub(super) fn test_names(&self) -> &[String] {
        match self {
            ScriptTests::Luau(tests) => &tests.names,
            ScriptTests::Starlark(tests) => &tests.names,
        }
    }

    pub(super) async fn run_test(&self, name: &str, call: &Call) -> Result<()> {
        match self {
            ScriptTests::Luau(tests) => tests.run_test(name, call).await,
            ScriptTests::Starlark(tests) => tests.run_test(name, call).await,
        }
    }
}

/// The files of tests at and below `paths`, by name.
pub(super) fn find_test_files(paths: &[PathBuf], loaded: &LoadedConfig) -> Result<Vec<TestFile>> {
    let mut files = Vec::new();
    for path in paths {
        let unreadable = |error: std::io::Error| {
            Problem::bad_request(format!(
                "{} cannot be read: {error}",
                display_path(&loaded.root, path)
            ))
        };
        if path.metadata().map_err(unreadable)?.is_dir() {
            let is_test = |file: &Path| {
                file.file_name().and_then(|name| name.to_str()).and_then(subject_name).is_some()
            };
            files.extend(find_files(path, is_test).into_iter().map(|file| (file, path.clone())));
        } else {
            let folder = path.parent().unwrap_or(path);
            files.push((path.clone(), folder.to_owned()));
        }
    }
    files.sort();
    files.dedup_by(|a, b| a.0 == b.0);
    files.into_iter().map(|(path, base)| test_file(&path, &base, loaded)).collect()
}

/// The files below `root` that are such, by name.
pub(super) fn find_files(root: &Path, is_such: fn(&Path) -> bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    walk_files(root, 0, &mut |path| {
        if is_such(&path) {
            found.push(path);
        }
    });
    found
}

fn walk_files(dir: &Path, depth: usize, visit: &mut dyn FnMut(PathBuf)) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in entries.filter_map(std::result::Result::ok) {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with('.') || SKIPPED_FOLDERS.contains(&&*name) {
            continue;
        }
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            if depth < MAX_FOLDER_DEPTH {
                walk_files(&entry.path(), depth + 1, visit);
            }
        } else {
            visit(entry.path());
        }
    }
}

/// `git` for `git_test.star`.
fn subject_name(file: &str) -> Option<&str> {
    let (stem, ending) = file.rsplit_once('.')?;
    matches!(ending, "star" | "luau" | "lua").then_some(())?;
    stem.strip_suffix("_test").filter(|subject| !subject.is_empty())
}

fn test_file(path: &Path, base: &Path, loaded: &LoadedConfig) -> Result<TestFile> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let Some(subject) = subject_name(name) else {
        return Err(Problem::bad_request(format!("{name} is not a file of tests"))
            .with_hint("files of tests are named *_test.star, *_test.luau or *_test.lua"));
    };
    let config = &loaded.config;
    let starlark = name.ends_with(".star");
    let home = loaded.root.join(if starlark { &config.extensions.dir } else { &config.tools.dir });
    // Inside the project a script's own folder is the bound; elsewhere the
    // folder that was asked for.
    let root = if path.starts_with(&home) { home } else { base.to_owned() };
    let main = path.strip_prefix(&root).unwrap_or(Path::new(name)).to_string_lossy().into_owned();
    let label = match display_path(&loaded.root, &root) {
        label if label.is_empty() => ".".to_owned(),
        label => label,
    };
    let folder = ScriptFolder { path: root, label, main };
    let (configured, kind) = if starlark {
        (config.extensions.script.contains_key(subject), ScriptKind::Extension(folder.clone()))
    } else {
        (config.tools.script.contains_key(subject), ScriptKind::Tool)
    };
    let subject = DiscoveredScript {
        path: path.with_file_name(subject),
        file: format!("{}/{}", folder.label, folder.main),
        configured: configured.then(|| subject.to_owned()),
        kind,
    };
    Ok(TestFile { folder, subject })
}
