//! The code blocks of the documentation, each executed or checked.
//!
//! Every page gets a project of its own, in which its blocks work together:
//!
//! | block | what happens |
//! |---|---|
//! | first line is a comment with a file name | written to that file |
//! | `lua`, `luau` with `tool = {` | loaded as a script |
//! | `luau` in a file of `scripts/` | an agent script, which a command of the page must run |
//! | other `lua`, `luau` | loaded inside a tool; lines with `-->` are run and compared |
//! | `toml` | checked as a configuration |
//! | `sh`, `console` | commands of `moonlark` and `curl` are run, output is compared |
//! | `json` | parsed |
//! | `starlark` | parsed, as Python, whose syntax it shares |
//! | `markdown` | a document; its file name is in a comment, which is left out |
//! | `text` | left alone |
//!
//! In output, `…` stands for anything. JSON is compared as values.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::harness::{Project, Server, moonlark, repo};

#[test]
fn every_code_block_of_the_documentation_works() {
    let broken: Vec<String> = pages().iter().flat_map(|page| Page::open(page).check()).collect();
    assert!(broken.is_empty(), "\n{}\n", broken.join("\n\n"));
}

fn pages() -> Vec<String> {
    let mut pages = vec!["README.md".to_owned()];
    for folder in ["docs/guide", "docs/reference"] {
        let entries = std::fs::read_dir(repo().join(folder)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        pages.extend(names.map(|name| format!("{folder}/{name}")));
    }
    pages.sort();
    pages
}

struct Block {
    /// The line of the page on which its text begins.
    line: usize,
    language: String,
    text: String,
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut open = false;
    for (index, line) in page.lines().enumerate() {
        match line.trim_start().strip_prefix("```") {
            Some(_) if open => open = false,
            Some(language) => {
                open = true;
                let language = language.trim().to_owned();
                blocks.push(Block { line: index + 2, language, text: String::new() });
            }
            None if open => {
                let block = blocks.last_mut().unwrap();
                block.text.push_str(line);
                block.text.push('\n');
            }
            None => {}
        }
    }
    blocks
}

impl Block {
    /// `tools/greet.lua`, if the first line is a comment with just that.
    fn file(&self) -> Option<&str> {
        let first = self.text.lines().next()?;
        let comment = || first.strip_prefix("<!-- ")?.strip_suffix(" -->");
        let marks = ["-- ", "# ", "// "];
        let marked = marks.iter().find_map(|mark| first.strip_prefix(mark));
        let name = marked.or_else(comment)?;
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
        (name.contains('.') && name.chars().all(plain)).then_some(name)
    }

    fn is_lua(&self) -> bool {
        matches!(self.language.as_str(), "lua" | "luau")
    }

    /// The variables of the environment it speaks of, each as `${NAME}`.
    fn variables(&self) -> impl Iterator<Item = &str> {
        let names = self.text.split("${").skip(1).filter_map(|rest| rest.split(['}', ':']).next());
        names.filter(|_| self.language == "toml")
    }
}

struct Page {
    path: String,
    blocks: Vec<Block>,
    project: Project,
    variables: BTreeSet<String>,
    /// All commands, to see what they name.
    commands: String,
    server: Option<Server>,
}

impl Page {
    fn open(path: &str) -> Page {
        let blocks = blocks(&std::fs::read_to_string(repo().join(path)).unwrap());
        let variables = blocks.iter().flat_map(Block::variables).map(str::to_owned).collect();
        let consoles = blocks.iter().filter(|block| block.language == "console");
        let commands = consoles.map(|block| block.text.as_str()).collect();
        let (path, project) = (path.to_owned(), Project::new(&[]));
        Page { path, blocks, project, variables, commands, server: None }
    }

    /// What is wrong with the page.
    fn check(mut self) -> Vec<String> {
        let mut broken: Vec<String> =
            starlark(&self.path, &self.blocks).err().into_iter().collect();
        for block in std::mem::take(&mut self.blocks) {
            // Markdown and JSON have no comments: the name is not part of the file.
            let text = match (block.file(), block.language.as_str()) {
                (Some(_), "markdown" | "json") => {
                    block.text.split_once('\n').map_or("", |(_, text)| text)
                }
                _ => &block.text,
            };
            if let Some(file) = block.file() {
                self.write_file(file, text);
            }
            let done = match block.language.as_str() {
                "lua" | "luau" => self.lua(&block),
                "toml" => self.toml(&block),
                "sh" | "console" => self.commands(&block),
                "json" => {
                    serde_json::from_str::<Value>(text).map(|_| ()).map_err(|e| e.to_string())
                }
                // All of a page at once, above.
                "starlark" | "text" => Ok(()),
                "markdown" => Ok(()),
                other => Err(format!("a block of {other:?}, which no test runs: mark it as text")),
            };
            broken.extend(done.err().map(|why| format!("{}:{}: {why}", self.path, block.line)));
        }
        broken
    }

    /// A reader takes longer to type the next command than a server to load a new extension.
    fn write_file(&self, file: &str, text: &str) {
        let is_extension = file.starts_with("extensions/") && !file.ends_with("_test.star");
        let is_new = !self.project.path(file).exists();
        self.project.write(file, text);
        if let Some(server) = self.server.as_ref().filter(|_| is_extension && is_new) {
            server.log.wait_for(&format!("reload: {file}"));
        }
    }

    fn lua(&self, block: &Block) -> Result<(), String> {
        assert!(block.is_lua());
        if let Some(file) = block.file().filter(|file| file.starts_with("scripts/")) {
            return if self.commands.contains(file) {
                Ok(())
            } else {
                Err(format!("no command of the page runs {file}"))
            };
        }
        let file = match block.file() {
            Some(file) => file.to_owned(),
            None => {
                let file = format!("blocks/{}.lua", block.line);
                self.project.write(&file, &script(block));
                file
            }
        };
        succeed(self.moonlark(&["check", &file]))?;
        // Examples of `fs` are about a folder of their own, with a file and a grant: `engines.rs`
        // runs them there, in both languages.
        let needs_folder =
            self.path.ends_with("reference/modules.md") && block.text.contains("fs.");
        if block.text.contains(" --> ") && !needs_folder {
            succeed(self.moonlark(&["--quiet", "tool", "test", &file]))?;
        }
        Ok(())
    }

    fn toml(&self, block: &Block) -> Result<(), String> {
        let file = format!("blocks/{}.toml", block.line);
        self.project.write(&file, &block.text);
        succeed(self.moonlark(&["--config", &file, "config", "check"]))
    }

    fn commands(&mut self, block: &Block) -> Result<(), String> {
        for (command, expected) in commands(block) {
            let Some(said) = self.run(&command)? else { continue };
            let done = match expected.is_empty() {
                true if said.success => Ok(()),
                true => Err(format!("it fails:\n{}", said.text)),
                false => same(&expected, &said.text),
            };
            done.map_err(|why| format!("$ {command}\n{why}"))?;
        }
        Ok(())
    }

    /// What a command says, or nothing for one that is not for us to run.
    fn run(&mut self, command: &str) -> Result<Option<Said>, String> {
        let command = command.replace("cargo run --release -- ", "moonlark ");
        let setting = |word: &&str| word.contains('=');
        match command.split(' ').find(|word| !setting(word)).unwrap_or_default() {
            "moonlark" if command.contains("moonlark serve") => {
                self.serve();
                Ok(None)
            }
            "moonlark" => Ok(Some(self.shell(&command))),
            "curl" => {
                let address = self.serve().address.clone();
                let command = command.replace("localhost:7331", &address);
                if has_curl() {
                    Ok(Some(self.shell(&command)))
                } else {
                    Ok(Some(request(self.serve(), &command)))
                }
            }
            "cargo" | "./test" => Ok(None),
            other => Err(format!("a command of {other}, which no test runs")),
        }
    }

    fn serve(&mut self) -> &Server {
        let (project, variables) = (&self.project, &self.variables);
        self.server.get_or_insert_with(|| {
            let values: Vec<(&str, &str)> =
                variables.iter().map(|name| (name.as_str(), "https://example.com")).collect();
            project.serve_with(&[], &values)
        })
    }

    fn moonlark(&self, args: &[&str]) -> Output {
        let mut command = moonlark();
        command.args(args);
        self.in_project(command)
    }

    /// Everything a command line says, as a reader would see it.
    fn shell(&self, line: &str) -> Said {
        let binary = moonlark();
        let folder = Path::new(binary.get_program()).parent().unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("sh");
        command.args(["-c", &format!("({line}) 2>&1")]);
        command.env("PATH", format!("{}:{path}", folder.display()));
        command.env("NO_COLOR", "1").env("MOONLARK_LOG", "off").env("HOME", "/nonexistent");
        let output = self.in_project(command);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Said { text, success: output.status.success() }
    }

    fn in_project(&self, mut command: Command) -> Output {
        let values = self.variables.iter().map(|name| (name, "https://example.com"));
        command
            .envs(values)
            .current_dir(self.project.path(""))
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }
}

/// Parse the Starlark of a page, with the lines it has there.
fn starlark(path: &str, blocks: &[Block]) -> Result<(), String> {
    let mut page = String::new();
    for block in blocks.iter().filter(|block| block.language == "starlark") {
        let above = block.line - 1 - page.lines().count();
        page.push_str(&"\n".repeat(above));
        page.push_str(&block.text);
    }
    parses_as_python(path, &page)
}

/// Whether Python's own parser takes it.
pub fn parses_as_python(name: &str, text: &str) -> Result<(), String> {
    let program = "import ast, sys; ast.parse(sys.stdin.buffer.read(), sys.argv[1])";
    let mut python = Command::new("python3")
        .args(["-c", program, name])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("python3 is there");
    python.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    succeed(python.wait_with_output().unwrap())
}

/// How a command went.
struct Said {
    text: String,
    success: bool,
}

/// A block as a script of its own whose lines have the numbers of the page.
fn script(block: &Block) -> String {
    let above = "\n".repeat(block.line - 2);
    if block.text.contains("tool = {") {
        return format!("{above}\n{}", block.text);
    }
    let numbered = block.text.lines().enumerate();
    let body: String =
        numbered.map(|(index, line)| compared(line, block.line + index) + "\n").collect();
    format!("{above}{BEFORE}\n{body}end\n")
}

/// On one line, so that those of the block keep their numbers.
const BEFORE: &str = concat!(
    "local function same(a, b) ",
    "if type(a) ~= 'table' or type(b) ~= 'table' then return a == b end ",
    "for key in a do if not same(a[key], b[key]) then return false end end ",
    "for key in b do if a[key] == nil then return false end end ",
    "return true end ",
    "local function shown(value) return if type(value) == 'string' then value else json.encode(value) end ",
    "local function returns(line, f, wanted) local value = f() ",
    "if not same(value, wanted) then error(`line {line} gives {shown(value)}`, 0) end end ",
    "local function fails(line, f, part) local ok, problem = pcall(f) ",
    "if ok then error(`line {line} does not fail`, 0) end ",
    "if not string.find(tostring(problem), part, 1, true) then error(tostring(problem), 0) end end ",
    "tool = { name = 'block' } function tool.execute(params, context)",
);

/// `call() --> value` as a comparison; other lines as they are.
fn compared(text: &str, line: usize) -> String {
    // What somebody else would answer is not asked for.
    if let Some((call, _)) = text.split_once(" -- such as ") {
        return format!("local _ = function() return {call} end");
    }
    let Some((call, outcome)) = text.split_once(" --> ") else { return text.to_owned() };
    // The folder of these scripts is not empty.
    if call == "fs.list()" || outcome == "differs every time" {
        return format!("assert({call} ~= nil)");
    }
    match outcome.strip_prefix("error: ") {
        Some(part) => {
            let part = part.trim_matches(['…', ' ']);
            format!("fails({line}, function() return {call} end, {part:?})")
        }
        None => format!("returns({line}, function() return {call} end, {outcome})"),
    }
}

/// The commands of a block, each with the output that follows it. In a `sh`
/// block every line is a command.
fn commands(block: &Block) -> Vec<(String, String)> {
    let mut commands: Vec<(String, String)> = Vec::new();
    let mut goes_on = false;
    for line in block.text.lines() {
        let command = if block.language == "sh" { Some(line) } else { line.strip_prefix("$ ") };
        match (command, commands.last_mut()) {
            (_, Some((last, _))) if goes_on => last.push_str(line.trim().trim_end_matches('\\')),
            (Some(command), _) => {
                commands.push((command.trim_end_matches('\\').to_owned(), String::new()))
            }
            (None, Some((_, output))) => output.push_str(&format!("{line}\n")),
            (None, None) => panic!("output before any command: {line}"),
        }
        goes_on = (goes_on || command.is_some()) && line.ends_with('\\');
    }
    commands
}

fn succeed(output: Output) -> Result<(), String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("{}\n{}", text(&output.stdout), text(&output.stderr)).trim().to_owned())
    }
}

fn same(expected: &str, actual: &str) -> Result<(), String> {
    let json = |text: &str| serde_json::from_str::<Value>(text).ok();
    let (expected, actual) = (expected.trim(), actual.trim());
    let equal = match (json(expected), json(actual)) {
        (Some(expected), Some(actual)) => expected == actual,
        _ => matches(expected, actual),
    };
    if equal { Ok(()) } else { Err(format!("the page says:\n{expected}\nbut it is:\n{actual}")) }
}

/// `…` stands for anything.
fn matches(expected: &str, actual: &str) -> bool {
    let mut parts = expected.split('…');
    let Some(mut rest) = parts.next().and_then(|first| actual.strip_prefix(first)) else {
        return false;
    };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

fn has_curl() -> bool {
    let found = Command::new("curl").arg("--version").stdout(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}

/// The forms of curl that the pages use, where there is no curl.
fn request(server: &Server, command: &str) -> Said {
    let (mut method, mut headers, mut body, mut path) = (None, Vec::new(), None, String::new());
    let words = words(command);
    let mut words = words.iter().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "-X" => method = words.next().cloned(),
            "-H" => headers.extend(words.next().and_then(|header| header.split_once(": "))),
            "-d" => body = words.next().cloned(),
            "-s" | "-sN" => {}
            url => path = url.split_once(&server.address).unwrap().1.to_owned(),
        }
    }
    let usual = if body.is_some() { "POST" } else { "GET" };
    let method = method.unwrap_or_else(|| usual.to_owned());
    let answer = server.request(&method, &path, &headers, body.unwrap_or_default().as_bytes());
    Said { text: answer.text(), success: true }
}

/// Words as a shell splits them, with quotes of both kinds.
fn words(command: &str) -> Vec<String> {
    let (mut words, mut quote, mut inside) = (vec![String::new()], None, false);
    for letter in command.chars() {
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (None, '\'' | '"') => (quote, inside) = (Some(letter), true),
            (None, ' ') if inside => {
                words.push(String::new());
                inside = false;
            }
            (None, ' ') => {}
            (_, letter) => {
                words.last_mut().unwrap().push(letter);
                inside = true;
            }
        }
    }
    words
}

#[test]
fn a_curl_command_is_read_as_a_shell_would() {
    assert_eq!(
        words(r#"curl -s  host/x -H 'A: b c' -d '{"a": 1}'"#),
        ["curl", "-s", "host/x", "-H", "A: b c", "-d", r#"{"a": 1}"#]
    );
}
