//! Both languages at once: the same call, written as each writes it, has the
//! same outcome.
//!
//! Every example of every host function, and one table of values that cross
//! into a script and back.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use moonlark_core::grant::GrantSet;
use moonlark_core::limits::CallLimits;
use moonlark_core::module::{ExampleOutcome, ScriptLanguage};
use moonlark_core::schema::Schema;
use moonlark_core::tool::{CallScope, Source, SourceKind};
use moonlark_core::{Catalog, Module, Problem, SourceLocation, Tool, Value};
use moonlark_gateway::tool_body::ToolBody;
use moonlark_gateway::{Caller, Gateway};
use moonlark_luau::{LuauEngine, ScriptFile};
use moonlark_render::{ExampleText, spell_example_call};
use moonlark_starlark::{ExtensionFile, StarlarkEngine};
use serde_json::{Value as Json, json};

/// Both engines, without a server around them.
pub struct Engines {
    pub luau: LuauEngine,
    pub starlark: StarlarkEngine,
    pub gateway: Gateway,
    pub modules: Arc<Vec<Module>>,
}

impl Engines {
    pub fn new() -> Engines {
        let modules = Arc::new(moonlark_host::host_modules());
        Engines {
            luau: LuauEngine::new(&modules).unwrap(),
            starlark: StarlarkEngine::new(PathBuf::from(env!("CARGO_BIN_EXE_moonlark")), &modules),
            gateway: Gateway::new(Catalog::new(modules.clone(), vec![], &[], vec![]), 1000),
            modules,
        }
    }

    /// The tool of a Lua script.
    pub async fn lua(&self, text: &str, scope: CallScope) -> Result<Tool, Problem> {
        let text = text.to_owned();
        let script = ScriptFile {
            folder: "tools".to_owned(),
            main: "x.luau".to_owned(),
            file: "tools/x.luau".to_owned(),
            configured: None,
            files: Arc::new(move |_| Ok(text.clone())),
            loading: Arc::new(scope.clone()),
            scope,
        };
        self.luau.load_tool(script, &self.gateway).await.0
    }

    /// The one tool of a Starlark extension; `files` are beside the main one.
    pub async fn star(
        &self,
        text: &str,
        files: &[(&str, &str)],
        scope: CallScope,
    ) -> Result<Tool, Problem> {
        let mut texts: Vec<(String, String)> =
            files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        texts.push(("x.star".to_owned(), text.to_owned()));
        let extension = ExtensionFile {
            folder: "extensions".to_owned(),
            main: "x.star".to_owned(),
            files: Arc::new(move |path| {
                let found = texts.iter().find(|(name, _)| name == path);
                found.map(|(_, text)| text.clone()).ok_or_else(|| {
                    Problem::bad_script("the script cannot be read: there is no such file")
                        .at_location(SourceLocation::in_file(format!("extensions/{path}")))
                })
            }),
            loading: Arc::new(scope.clone()),
            scope,
        };
        let loaded = self.starlark.load_extension(extension, &self.gateway).await.0?;
        Ok(loaded.tools.into_iter().next().expect("a tool"))
    }

    /// Call a tool on a gateway of its own.
    pub async fn call(&self, tool: Tool, args: Json) -> Result<Value, Problem> {
        let name = tool.name.clone();
        let catalog = Catalog::new(self.modules.clone(), vec![Arc::new(tool)], &[], vec![]);
        let gateway = Gateway::new(catalog, 100);
        let call = gateway.open_call(Caller::new("cli"))?;
        gateway.call(&call, &name, Value::from_json(args)?).await
    }

    /// What is wrong with an example whose other side a mock stands in for.
    async fn mocked(
        &self,
        name: &str,
        call: &ExampleText,
        answer: &Json,
        scope: CallScope,
    ) -> Vec<String> {
        let scope = Arc::new(scope);
        let text = serde_json::to_string(answer).unwrap();
        // An answer of the web has one field more in Starlark.
        let lua = format!(
            "function test_it()\n\
             local answer = json.decode([==[{text}]==])\n\
             testing.mock_tool('{name}', {{ returns = answer }})\n\
             testing.eq({}, answer)\n\
             testing.eq(#testing.calls('{name}'), 1)\nend\n",
            call.luau
        );
        let star = format!(
            "def test_it():\n    answer = json.decode({text:?})\n    testing.mock_tool('{name}', returns = answer)\n    \
             got = {}\n    if type(got) == 'dict':\n        got.pop('status_code', None)\n    \
             testing.eq(got, answer)\n    testing.eq(len(testing.calls('{name}')), 1)\n",
            call.starlark
        );
        let ended = [
            self.test("x_test.luau", lua, &scope).await,
            self.test("x_test.star", star, &scope).await,
        ];
        ended.into_iter().filter_map(Result::err).map(|it| format!("{name}: {it}")).collect()
    }

    /// Run the test `test_it` of a file.
    async fn test(&self, file: &str, text: String, scope: &Arc<CallScope>) -> Result<(), Problem> {
        let files: moonlark_core::script_snapshot::ScriptFileReader =
            Arc::new(move |_| Ok(text.clone()));
        let here = || self.gateway.open_test_call(scope.clone(), None);
        let (folder, file) = ("tests".to_owned(), file.to_owned());
        if file.ends_with(".star") {
            let tests = self.starlark.load_tests(folder, file, files, &here()).await?;
            return Arc::new(tests).run_test("test_it", &here()).await;
        }
        let tests = self.luau.load_tests(folder, file, files, &here()).await?;
        Arc::new(tests).run_test("test_it", &here()).await
    }

    /// Both outcomes of a body that each language writes in its own way.
    async fn both(&self, luau: &str, starlark: &str, args: &Json, scope: &CallScope) -> [Ended; 2] {
        self.both_in(luau, starlark, args, [scope, scope]).await
    }

    /// The same, each language in a scope of its own.
    async fn both_in(
        &self,
        luau: &str,
        starlark: &str,
        args: &Json,
        [lua_scope, star_scope]: [&CallScope; 2],
    ) -> [Ended; 2] {
        let lua = format!(
            "tool = {{ name = 'x', description = '', parameters = {{ type = 'object' }} }}\n\
             function tool.execute(params)\n{luau}\nend\n"
        );
        let body: Vec<String> = starlark.lines().map(|line| format!("    {line}\n")).collect();
        let star = format!(
            "def run(params):\n{}\ndef describe_extension():\n    return Extension(name = 'x', tools = [Tool(name = 'x', parameters = {{'type': 'object'}}, handler = run)])\n",
            body.concat()
        );
        let lua = match self.lua(&lua, lua_scope.clone()).await {
            Ok(tool) => self.call(tool, args.clone()).await,
            Err(problem) => Err(problem),
        };
        let star = match self.star(&star, &[], star_scope.clone()).await {
            Ok(tool) => self.call(tool, args.clone()).await,
            Err(problem) => Err(problem),
        };
        [lua, star].map(Ended::of)
    }
}

/// An outcome that can be compared: places differ between languages.
#[derive(Debug, PartialEq)]
enum Ended {
    Value(Json),
    Problem { code: &'static str, message: String, hint: Option<String> },
}

impl Ended {
    fn of(result: Result<Value, Problem>) -> Ended {
        let shown = result.and_then(|value| {
            // As every surface does.
            value.encode_json("result")?;
            value.into_json("result")
        });
        match shown {
            Ok(json) => Ended::Value(plain_numbers(json)),
            Err(problem) => Ended::Problem {
                code: problem.code.as_str(),
                message: problem.message,
                hint: problem.hint,
            },
        }
    }
}

/// Luau has one kind of number: 1 and 1.0 are the same there.
fn plain_numbers(json: Json) -> Json {
    match json {
        Json::Number(number) => match number.as_f64() {
            Some(float) if float.fract() == 0.0 && float.abs() < 9e15 => json!(float as i64),
            _ => Json::Number(number),
        },
        Json::Array(items) => items.into_iter().map(plain_numbers).collect(),
        Json::Object(map) => map.into_iter().map(|(key, it)| (key, plain_numbers(it))).collect(),
        other => other,
    }
}

fn scope(dir: &Path, grants: &[&str]) -> CallScope {
    let grants = grants.iter().map(|grant| grant.parse().unwrap()).collect();
    let limits = CallLimits { value: 1 << 20, ..CallLimits::default() };
    CallScope {
        grants: GrantSet::for_authored_script("x.script.x", dir.to_owned(), grants),
        limits,
        ..CallScope::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_example_of_every_module_has_the_same_outcome_in_both_languages() {
    let engines = Engines::new();
    let mut failures = Vec::new();
    let mut count = 0;
    for module in engines.modules.iter().filter(|module| !module.only_in_tests) {
        for function in &module.functions {
            for example in &function.examples {
                // As examples of `fs` have it; one for each language, since some change it.
                let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
                for dir in &dirs {
                    std::fs::write(dir.path().join("notes.txt"), "Buy tea\n").unwrap();
                }
                let [lua_scope, star_scope] =
                    [0, 1].map(|index| scope(dirs[index].path(), &["fs:write"]));
                let call = spell_example_call(function, example);
                let (luau, starlark) =
                    (format!("return {}", call.luau), format!("return {}", call.starlark));
                let name = &function.tool.name;
                if let ExampleOutcome::Mocked(answer) = &example.outcome {
                    failures.extend(engines.mocked(name, &call, answer, lua_scope).await);
                    count += 1;
                    continue;
                }
                let scopes = [&lua_scope, &star_scope];
                let [lua, star] = engines.both_in(&luau, &starlark, &json!({}), scopes).await;
                let ends_well = |ended: &Ended| match (&example.outcome, ended) {
                    (ExampleOutcome::Returns(json), Ended::Value(value)) => {
                        plain_numbers(json.clone()) == *value
                    }
                    (ExampleOutcome::Fails(part), Ended::Problem { message, .. }) => {
                        message.contains(part)
                    }
                    (ExampleOutcome::Varies, Ended::Value(_)) => true,
                    // Random bytes are a result, if none that JSON holds.
                    (ExampleOutcome::Varies, Ended::Problem { message, .. }) => {
                        message == "result is not UTF-8 text, which JSON cannot hold"
                    }
                    _ => false,
                };
                if module.is_for_language(ScriptLanguage::Luau) && !ends_well(&lua) {
                    failures.push(format!("{}: {lua:?}", call.luau));
                }
                if module.is_for_language(ScriptLanguage::Starlark) && !ends_well(&star) {
                    failures.push(format!("{}: {star:?}", call.starlark));
                }
                let both =
                    module.only.is_none() && !matches!(example.outcome, ExampleOutcome::Varies);
                if both && lua != star {
                    failures.push(format!("{name} {}:\n  {lua:?}\n  {star:?}", example.args));
                }
                count += 1;
            }
        }
    }
    assert!(failures.is_empty(), "{} of {count}:\n{}", failures.len(), failures.join("\n"));
    assert!(count > 150, "{count} examples");
}

/// A tool by the name of the one that an example calls, which gives the example's answer.
fn tool_of_example(args: &Json, answer: &Json) -> Option<Arc<Tool>> {
    let answer = Value::from_json(answer.clone()).unwrap();
    let body = ToolBody::from_async_fn(move |_, _| std::future::ready(Ok(answer.clone())));
    let source = Arc::new(Source { kind: SourceKind::Script, name: "x.luau".into() });
    let input = Schema::description_only(serde_json::Map::new());
    Some(Arc::new(Tool::new(args["tool"].as_str()?, source, input, body)))
}

/// Tests that what a call gives has the fields of `answer`, each by its name: in Starlark
/// it may be a dict or a struct.
fn tests_of_fields(call: &ExampleText, answer: &Json) -> (String, String) {
    let mut lua = format!("function test_it()\nlocal got = {}\n", call.luau);
    let mut star = format!(
        "def test_it():\n    got = {}\n    \
         get = got.get if type(got) == 'dict' else lambda name: getattr(got, name)\n",
        call.starlark
    );
    for (name, field) in answer.as_object().unwrap() {
        let text = field.to_string();
        lua += &format!("testing.eq(got.{name}, json.decode([==[{text}]==]))\n");
        star += &format!("    testing.eq(get('{name}'), json.decode({text:?}))\n");
    }
    (lua + "end\n", star)
}

/// `testing.fail` has no example that works, and `testing.raises` takes a function, which
/// no example can.
#[tokio::test(flavor = "multi_thread")]
async fn raises_gives_the_message_of_what_fails_in_both_languages() {
    let engines = Engines::new();
    let dir = tempfile::tempdir().unwrap();
    let scope = Arc::new(scope(dir.path(), &[]));
    let lua = "function test_it()\n\
               local message = testing.raises(function() testing.fail('no tea') end, 'tea')\n\
               testing.contains(message, 'no tea')\nend\n";
    let star = "def test_it():\n    \
                message = testing.raises(lambda: testing.fail('no tea'), 'tea')\n    \
                testing.contains(message, 'no tea')\n";
    engines.test("x_test.luau", lua.to_owned(), &scope).await.unwrap();
    engines.test("x_test.star", star.to_owned(), &scope).await.unwrap();
}

/// What only tests see is tried in tests.
#[tokio::test(flavor = "multi_thread")]
async fn every_example_of_what_only_tests_see_holds_in_both_languages() {
    let engines = Engines::new();
    let dir = tempfile::tempdir().unwrap();
    let scope = Arc::new(scope(dir.path(), &[]));
    let mut failures = Vec::new();
    let mut count = 0;
    for module in engines.modules.iter().filter(|module| module.only_in_tests) {
        for function in &module.functions {
            for example in &function.examples {
                let call = spell_example_call(function, example);
                let mut lua = format!("function test_it()\n{}\nend\n", call.luau);
                let mut star = format!("def test_it():\n    return {}\n", call.starlark);
                let mut gateway = engines.gateway.clone();
                if let ExampleOutcome::Mocked(answer) = &example.outcome {
                    let tools = tool_of_example(&example.args, answer).into_iter().collect();
                    let catalog = Catalog::new(engines.modules.clone(), tools, &[], vec![]);
                    gateway = Gateway::new(catalog, 100);
                    (lua, star) = tests_of_fields(&call, answer);
                }
                let files = |text: String| -> moonlark_core::script_snapshot::ScriptFileReader {
                    Arc::new(move |_| Ok(text.clone()))
                };
                let here = || gateway.open_test_call(scope.clone(), None);
                let folder = "tests".to_owned();
                let lua = match engines
                    .luau
                    .load_tests(folder.clone(), "x_test.luau".to_owned(), files(lua), &here())
                    .await
                {
                    Ok(tests) => Arc::new(tests).run_test("test_it", &here()).await,
                    Err(problem) => Err(problem),
                };
                let star = match engines
                    .starlark
                    .load_tests(folder, "x_test.star".to_owned(), files(star), &here())
                    .await
                {
                    Ok(tests) => Arc::new(tests).run_test("test_it", &here()).await,
                    Err(problem) => Err(problem),
                };
                for (ended, call) in [(lua, &call.luau), (star, &call.starlark)] {
                    let well = match (&example.outcome, &ended) {
                        (ExampleOutcome::Fails(part), Err(problem)) => {
                            problem.message.contains(part)
                        }
                        (ExampleOutcome::Fails(_), Ok(())) => false,
                        (_, ended) => ended.is_ok(),
                    };
                    if !well {
                        failures.push(format!("{call}: {ended:?}"));
                    }
                    count += 1;
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} of {count}:\n{}", failures.len(), failures.join("\n"));
    assert!(count > 30, "{count} examples");
}

/// A value that goes in as an argument and comes out as the result.
#[tokio::test(flavor = "multi_thread")]
async fn values_go_through_both_languages_and_stay_what_they_are() {
    let engines = Engines::new();
    let dir = tempfile::tempdir().unwrap();
    let scope = scope(dir.path(), &[]);
    for value in [
        json!(null),
        json!(true),
        json!(0),
        json!(-1),
        json!(1.5),
        json!(1e300),
        json!(9_007_199_254_740_991_i64),
        json!(9_007_199_254_740_993_i64),
        json!(i64::MAX),
        json!(i64::MIN),
        json!(""),
        json!("ä🌙\u{0}\n"),
        json!([]),
        json!({}),
        json!([[], {}, [[]]]),
        json!([null, 1, null]),
        json!({"a": null, "b": [null]}),
        json!({"": 1, "a b": 2, "1": 3, "ä": 4}),
        json!({"$serde_json": "x"}),
        (0..100).fold(json!(1), |inner, _| json!([inner])),
    ] {
        let args = json!({"value": value});
        let ended = engines
            .both(
                "return { it = params.value, n = json.null }",
                "return {'it': params['value'], 'n': None}",
                &args,
                &scope,
            )
            .await;
        let expected = json!({"it": value, "n": null});
        for ended in ended {
            // Luau reads a null field as nil; it is null again when it leaves,
            // but a table made by the script has no field that is nil.
            let same = match &ended {
                Ended::Value(got) if value.is_null() => got["n"].is_null() && got["it"].is_null(),
                Ended::Value(got) => *got == plain_numbers(expected.clone()),
                Ended::Problem { .. } => false,
            };
            assert!(same, "{value}: {ended:?}");
        }
    }
}

/// What a script makes itself: it leaves whole, or as a Problem with the path.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_leave_a_script_is_named_with_its_path() {
    let engines = Engines::new();
    let dir = tempfile::tempdir().unwrap();
    let scope = scope(dir.path(), &[]);
    let problem = |message: &str| Err(message.to_owned());
    #[rustfmt::skip]
    let rows: Vec<(&str, &str, &str, Result<Json, String>)> = vec![
        ("a cycle", "local t = {}; t.a = { t }; return t", "t = {}\nt['a'] = [t]\nreturn t",
            problem("result.a[0] refers back to a TABLE that contains it")),
        ("depth", "local t = {}; for _ = 1, 1000 do t = { t } end; return t", "t = []\nfor _ in range(1000):\n    t = [t]\nreturn t",
            problem("result is nested deeper than 128 levels")),
        ("size", "return string.rep('x', 2^21)", "return 'x' * (1 << 21)",
            problem("result is larger than 1 MB")),
        ("many small things", "local t = {}; for i = 1, 100000 do t[i] = i end; return t", "return [i for i in range(100000)]",
            problem("result is larger than 1 MB")),
        ("a function", "return { f = { print } }", "return {'f': [print]}",
            problem("result.f[0] is a function, which is not a value")),
        ("not a number", "return { n = 0/0 }", "return {'n': float('nan')}",
            problem("result.n is NaN, which JSON cannot hold")),
        ("infinity", "return { n = -math.huge }", "return {'n': float('-inf')}",
            problem("result.n is -infinity, which JSON cannot hold")),
        ("bytes", "return { raw = base64.decode('/w==') }", "return {'raw': base64.decode('/w==')}",
            problem("result.raw is not UTF-8 text, which JSON cannot hold")),
        ("bytes to a host function", "return base64.encode(base64.decode('/w=='))", "return base64.encode(base64.decode('/w=='))",
            Ok(json!("/w=="))),
        ("a tuple or two values", "return { 1, 2 }", "return (1, 2)", Ok(json!([1, 2]))),
        ("an empty list", "return json.array({})", "return []", Ok(json!([]))),
        ("an empty object", "return {}", "return {}", Ok(json!({}))),
        ("null in a list", "return { 1, json.null, 3 }", "return [1, None, 3]", Ok(json!([1, null, 3]))),
        ("a whole float", "return { n = 4 / 2 }", "return {'n': 4 / 2}", Ok(json!({"n": 2}))),
    ];
    for (what, luau, starlark, expected) in rows {
        let ended = engines.both(luau, starlark, &json!({}), &scope).await;
        for (language, ended) in ["Luau", "Starlark"].iter().zip(ended) {
            let got = match ended {
                Ended::Value(json) => Ok(json),
                Ended::Problem { message, .. } => Err(message),
            };
            let word = if *language == "Luau" { "table" } else { "value" };
            let expected = expected.clone().map_err(|message| message.replace("TABLE", word));
            assert_eq!(got, expected, "{what} in {language}");
        }
    }
    // What only one of the two has.
    for (luau, expected) in [
        ("return { 1, 2, x = 3 }", "result has list items and also the key x"),
        ("local t = { 1 }; t[5] = 5; return t", "result"),
        ("return { [1.5] = 1 }", "result"),
    ] {
        let [lua, _] = engines.both(luau, "return 1", &json!({}), &scope).await;
        assert!(
            matches!(&lua, Ended::Problem { message, .. } if message.starts_with(expected)),
            "{luau}: {lua:?}"
        );
    }
    for (starlark, expected) in [
        ("return {1: 2}", Err("result has the key 1, and only text can be a key".to_owned())),
        (
            "return {'n': 1 << 70}",
            Err("result.n is an integer that does not fit 64 bits".to_owned()),
        ),
        ("return struct(a = 1, b = [True])", Ok(json!({"a": 1, "b": [true]}))),
        ("return range(3)", Ok(json!([0, 1, 2]))),
        ("return set([1, 2])", Ok(json!([1, 2]))),
        ("return b'abc'", Ok(json!("abc"))),
    ] {
        let [_, star] = engines.both("return 1", starlark, &json!({}), &scope).await;
        let got = match star {
            Ended::Value(json) => Ok(json),
            Ended::Problem { message, .. } => Err(message),
        };
        assert_eq!(got, expected, "{starlark}");
    }
}
