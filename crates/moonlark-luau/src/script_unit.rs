//! One version of a script: its main file and those it requires, each compiled
//! once.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use mlua::chunk::{ChunkMode, Compiler};
use mlua::{Function, Lua, Table};
use moonlark_core::script_snapshot::ScriptSnapshot;
use moonlark_core::value::shorten_text;
use moonlark_core::{Problem, ProblemCode, Result, SourceLocation};
use parking_lot::Mutex;

use crate::result_uses::ResultUses;
use crate::{luau_errors, markdown_fences, require_paths};

/// Longest file. The compiler's memory is not under the VM's limit.
pub const MAX_LUAU_SOURCE_BYTES: usize = 256 * 1024;
/// For tools, which are compiled once and called often.
const TOOL_COMPILER_LEVELS: CompilerLevels = CompilerLevels { optimization: 2, debug: 1 };
/// For agents' scripts: no function is written into its caller, so that the stack
/// says who calls whom.
const AGENT_COMPILER_LEVELS: CompilerLevels = CompilerLevels { optimization: 1, debug: 1 };
/// For a run that is looked at: the same, with the names of locals.
const TRACE_COMPILER_LEVELS: CompilerLevels = CompilerLevels { optimization: 1, debug: 2 };
/// Files that one script may require.
const MAX_REQUIRED_FILES: usize = 256;
/// The size of all of them.
const MAX_REQUIRED_BYTES: usize = 4 * 1024 * 1024;
/// Files that a script may look for while it loads; many a `require` looks for
/// two.
pub(crate) const MAX_FILE_LOOKUPS: usize = 1024;

pub(crate) struct ScriptUnit {
    /// The script's folder as messages show it; may be empty.
    folder: String,
    /// The main file in there.
    path: String,
    main: Arc<CompiledFile>,
    files: ScriptSnapshot,
    required: Mutex<RequiredFiles>,
    /// Made when it is first asked for.
    result_uses: OnceLock<ResultUses>,
}

#[derive(Default)]
struct RequiredFiles {
    /// By path in the folder; what does not compile is remembered as well.
    codes: BTreeMap<String, Result<Arc<CompiledFile>>>,
    size: usize,
}

impl RequiredFiles {
    /// Why there can be no more files.
    fn limit_problem(&self) -> Option<Problem> {
        let what = match () {
            () if self.codes.len() >= MAX_REQUIRED_FILES => format!("{MAX_REQUIRED_FILES} files"),
            () if self.size >= MAX_REQUIRED_BYTES => {
                format!("{} MB of files", MAX_REQUIRED_BYTES >> 20)
            }
            () => return None,
        };
        let problem = Problem::bad_script(format!("the script requires more than {what}"));
        Some(problem.with_hint("require only what it needs, or make one file of several"))
    }
}

impl ScriptUnit {
    /// Read and compile the main file, `path` in `folder`, which messages call
    /// `file`.
    pub(crate) fn new(
        folder: String,
        path: String,
        file: &str,
        files: ScriptSnapshot,
    ) -> Result<ScriptUnit> {
        let main = files
            .read_file(&path)
            .and_then(|text| CompiledFile::compile_text(file, text, TOOL_COMPILER_LEVELS))?;
        let required = Mutex::default();
        let result_uses = OnceLock::new();
        Ok(ScriptUnit { folder, path, main: Arc::new(main), files, required, result_uses })
    }

    /// A script that is one text, which messages call `file`.
    pub(crate) fn from_text(file: &str, text: String) -> Result<ScriptUnit> {
        Self::compile_alone(file, text, AGENT_COMPILER_LEVELS)
    }

    /// The same with the names of its locals, to look at what they hold.
    pub(crate) fn from_text_to_trace(file: &str, text: String) -> Result<ScriptUnit> {
        Self::compile_alone(file, text, TRACE_COMPILER_LEVELS)
    }

    fn compile_alone(file: &str, text: String, levels: CompilerLevels) -> Result<ScriptUnit> {
        let text = markdown_fences::strip_fences(text);
        let main = Arc::new(CompiledFile::compile_text(file, text, levels)?);
        let nothing = || Problem::new(ProblemCode::NotFound, "there is no such file");
        let files = ScriptSnapshot::new(Arc::new(move |_| Err(nothing())), 0);
        let (folder, path) = (String::new(), file.to_owned());
        let required = Mutex::default();
        Ok(ScriptUnit { folder, path, main, files, required, result_uses: OnceLock::new() })
    }

    /// What the main file does with the results of its calls.
    pub(crate) fn result_uses(&self) -> &ResultUses {
        self.result_uses.get_or_init(|| ResultUses::from_script(self.main.text()))
    }

    pub(crate) fn main(&self) -> &CompiledFile {
        &self.main
    }

    /// The main file's path in the folder.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Which file `require(path)` means in `from`: there, and compiled.
    pub(crate) fn require_file(&self, from: &str, path: &str) -> Result<String> {
        let candidates = require_paths::resolve_require(from, path)?;
        // Held while compiling, so that each file is compiled once.
        let mut required = self.required.lock();
        // Known before reading: what is read is kept.
        let full = required.limit_problem();
        for file in &candidates {
            if *file == self.path {
                return Ok(file.clone());
            }
            if let Some(known) = required.codes.get(file) {
                return known.clone().map(|_| file.clone());
            }
            if full.is_some() {
                continue;
            }
            let text = match self.files.read_file(file) {
                Ok(text) => text,
                Err(problem) if problem.code == ProblemCode::NotFound => continue,
                Err(problem) => return Err(with_require_path(path, problem)),
            };
            required.size += text.len();
            let code =
                CompiledFile::compile_text(&self.display_path(file), text, TOOL_COMPILER_LEVELS)
                    .map(Arc::new)
                    .map_err(|problem| with_require_path(path, problem));
            required.codes.insert(file.clone(), code.clone());
            return code.map(|_| file.clone());
        }
        if let Some(problem) = full {
            return Err(problem);
        }
        let names: Vec<String> = candidates.iter().map(|file| self.display_path(file)).collect();
        let path = shorten_text(path);
        Err(Problem::new(
            ProblemCode::NotFound,
            format!("require({path:?}): there is no {}", names.join(" and no ")),
        )
        .with_hint("the path begins at the folder of the file that requires"))
    }

    /// A file that `require` found.
    pub(crate) fn find_required(&self, file: &str) -> Option<Arc<CompiledFile>> {
        self.required.lock().codes.get(file)?.clone().ok()
    }

    /// `tools/x.lua:12: message` as file, line and message, if the file is one
    /// of ours.
    pub(crate) fn split_location<'a>(
        &self,
        text: &'a str,
    ) -> Option<(Arc<CompiledFile>, u32, &'a str)> {
        let split = |code: &Arc<CompiledFile>| {
            let (line, message) = code.split_location(text)?;
            Some((code.clone(), line, message))
        };
        let required = self.required.lock();
        split(&self.main).or_else(|| required.codes.values().flatten().find_map(split))
    }

    fn display_path(&self, file: &str) -> String {
        display_path(&self.folder, file)
    }
}

/// A file of a folder as messages show it.
pub(crate) fn display_path(folder: &str, file: &str) -> String {
    if folder.is_empty() { file.to_owned() } else { format!("{folder}/{file}") }
}

/// What is wrong with a file as a whole is shown where it is required.
fn with_require_path(path: &str, mut problem: Problem) -> Problem {
    let Some(SourceLocation { file, line: None, .. }) = &problem.place else { return problem };
    problem.message = format!("require({:?}): {file}: {}", shorten_text(path), problem.message);
    problem.place = None;
    problem
}

/// How much the compiler may change, and how much it says of what was there.
#[derive(Clone, Copy)]
struct CompilerLevels {
    optimization: u8,
    debug: u8,
}

/// A file's compiled form and its text, for messages.
pub(crate) struct CompiledFile {
    file: String,
    chunk: String,
    text: String,
    bytecode: Vec<u8>,
}

impl CompiledFile {
    fn compile_text(file: &str, text: String, levels: CompilerLevels) -> Result<CompiledFile> {
        if text.len() > MAX_LUAU_SOURCE_BYTES {
            return Err(Problem::bad_script(format!(
                "the script is larger than {} KB",
                MAX_LUAU_SOURCE_BYTES / 1024
            ))
            .at_location(SourceLocation::in_file(file)));
        }
        let mut code = CompiledFile {
            file: file.to_owned(),
            // `=` makes Luau show the name as it is.
            chunk: format!("={file}"),
            text,
            bytecode: Vec::new(),
        };
        // Whether, and when, a connector looks at `state` matters: it must not be
        // looked up once, ahead of time, as other globals are. And `next` is ours:
        // loops must not take it for the builtin, which sees nothing in `sdk`.
        let compiler = Compiler::new()
            .set_optimization_level(levels.optimization)
            .set_debug_level(levels.debug)
            .set_mutable_globals(["state", "next"]);
        code.bytecode = match compiler.compile(&code.text) {
            Ok(bytecode) => bytecode,
            Err(error) => return Err(compile_error_problem(&error, &code)),
        };
        Ok(code)
    }

    pub(crate) fn name(&self) -> &str {
        &self.file
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn source_line(&self, number: u32) -> &str {
        self.text.lines().nth(number.saturating_sub(1) as usize).unwrap_or_default()
    }

    /// The file as a function whose globals are `env`.
    pub(crate) fn bind_globals(&self, lua: &Lua, env: Table) -> mlua::Result<Function> {
        // Nothing under the globals can change, so Luau may use its fast paths
        // for builtins.
        env.set_safeenv(true);
        lua.load(self.bytecode.as_slice())
            .set_mode(ChunkMode::Binary)
            .set_name(self.chunk.as_str())
            .set_environment(env)
            .into_function()
    }

    /// `tools/x.lua:12: message` as line and message, if this file is meant.
    pub(crate) fn split_location<'a>(&self, text: &'a str) -> Option<(u32, &'a str)> {
        let rest = text.strip_prefix(self.name())?.strip_prefix(':')?;
        let (line, message) = rest.split_once(": ")?;
        Some((line.parse().ok()?, message))
    }
}

/// The compiler knows no file name: it reports `12: message`.
fn compile_error_problem(error: &mlua::Error, code: &CompiledFile) -> Problem {
    let message = match error {
        mlua::Error::SyntaxError { message, .. } => message.clone(),
        other => other.to_string(),
    };
    let message = luau_errors::first_error_line(&message);
    luau_errors::syntax_problem(&format!("{}:{message}", code.name()), code)
}
