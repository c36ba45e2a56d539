use std::sync::Arc;

use moonlark_core::catalog::ConnectingSource;
use moonlark_core::schema::Schema;
use moonlark_core::tool::{Source, SourceKind};
use moonlark_core::{Catalog, Tool, Value};
use moonlark_gateway::tool_body::ToolBody;
use moonlark_render::luau::sdk_docs::{declared_result, sdk_function_docs};
use serde_json::{Value as Json, json};

use super::described_catalog::DescribedCatalog;
use super::script_checker::{ScriptChecker, TypingLimits};
use super::type_checker::TypeChecker;
use super::{CheckFinding, problem_from_findings};

fn tool(source: &str, name: &str, input: Json, output: Option<Json>) -> Arc<Tool> {
    let schema = |json: Json| Schema::description_only(json.as_object().unwrap().clone());
    let body = ToolBody::from_fn(|_, _| Ok(Value::Null));
    let home = Arc::new(Source { kind: SourceKind::Upstream, name: source.to_owned() });
    let mut tool = Tool::new(format!("{source}.{name}"), home, schema(input), body);
    tool.output = output.map(schema);
    Arc::new(tool)
}

fn catalog(tools: Vec<Arc<Tool>>) -> Catalog {
    Catalog::new(Arc::default(), tools, &[], Vec::new())
}

/// On a thread with the stack that a worker has, and with what a worker is told.
fn check(script: &str, catalog: Catalog) -> Vec<CheckFinding> {
    let script = script.to_owned();
    let catalog = Arc::new(catalog);
    std::thread::Builder::new()
        .stack_size(super::check_server::CHECK_STACK_BYTES)
        .spawn(move || {
            let mut checker = ScriptChecker::new(catalog.modules());
            let mut report = |catalog: &Catalog, always_typed: bool| {
                let limits = TypingLimits { always_typed, ..TypingLimits::default() };
                checker.check_script(&script, catalog, limits).into_report(true)
            };
            let whole = report(&catalog, true);
            let found = whole.findings;
            // Types are left out only where they say nothing.
            let lazy = report(&catalog, false);
            assert_eq!((&lazy.findings, &lazy.advice), (&found, &whole.advice));
            let mut findings = |catalog: &Catalog| report(catalog, false).findings;
            // A worker is told less, and finds the same. Schemas too deep for JSON end it.
            let described = DescribedCatalog::for_script(&catalog, &script);
            let described = serde_json::to_string(&described).unwrap();
            if let Ok(described) = serde_json::from_str::<DescribedCatalog>(&described) {
                assert_eq!(findings(&described.into_catalog(catalog.modules())), found);
            }
            found
        })
        .unwrap()
        .join()
        .unwrap()
}

fn files() -> Catalog {
    let input =
        json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
    catalog(vec![tool("files", "read", input, None)])
}

#[test]
fn definitions_are_read_for_the_first_script_that_needs_types() {
    let output = json!({"type": "object", "properties": {"text": {"type": "string"}},
        "required": ["text"], "additionalProperties": false});
    let input = json!({"type": "object", "properties": {}});
    let catalog = catalog(vec![tool("files", "read", input, Some(output))]);
    let thread = std::thread::Builder::new().stack_size(super::check_server::CHECK_STACK_BYTES);
    let checked = thread.spawn(move || {
        let mut checker = ScriptChecker::new(catalog.modules());
        let mut check = |script: &str| {
            let judged = checker.check_script(script, &catalog, TypingLimits::default());
            (judged.findings.len(), checker.has_definitions())
        };
        [
            check("return sdk.files.read({})"),
            check("return sdk.files.raed({})"),
            check("local file = sdk.files.read({}) return file.txet"),
            check("return sdk.files.read({})"),
        ]
    });
    let checked = checked.unwrap().join().unwrap();
    assert_eq!(checked, [(0, false), (1, false), (1, true), (0, true)]);
}

#[test]
fn a_finding_becomes_a_problem_with_place_and_signature() {
    let found = check("local a = 1\nreturn sdk.files.read({ pth = a, path = 5 })", files());
    assert_eq!(
        problem_from_findings(&found[..1], "script").unwrap().to_string(),
        "error[bad_script]: sdk.files.read has no parameter pth; did you mean path?\n  \
         --> script:2:25\n\
         hint: function sdk.files.read(args: { path: string }): any\nnothing was called"
    );
    assert_eq!(
        problem_from_findings(&found, "script").unwrap().to_string(),
        "error[bad_script]: 2:25: sdk.files.read has no parameter pth; did you mean path?\n\
         2:41: sdk.files.read: path must be a string, got a number\n  \
         --> script:2:25\n\
         hint: function sdk.files.read(args: { path: string }): any\nnothing was called"
    );
    assert_eq!(problem_from_findings(&[], "script"), None);
}

#[test]
fn a_source_that_is_still_connecting_may_have_anything() {
    let connecting = ConnectingSource {
        source: "my-mail".to_owned(),
        kind: moonlark_core::tool::SourceKind::Upstream,
        prefix: "my-mail__".to_owned(),
        expose: moonlark_core::tool::ToolExposure::Code,
        is_remembered: false,
    };
    let catalog = files().with_source_resources(Vec::new(), vec![connecting]);
    let script =
        "my_mail.send({ to = 'a' }):await()\nreturn sdk.my_mail.send({}), sdk.mail.send({})";
    let found = check(script, catalog);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].message, "there is no source sdk.mail");
}

#[test]
fn scripts_that_nest_without_end_are_survived() {
    let deep = 20_000;
    for script in [
        format!("return {}", vec!["1"; deep].join(" + ")),
        format!("return {}", vec!["'a'"; deep].join(" .. ")),
        format!("return {}1{}", "(".repeat(deep), ")".repeat(deep)),
        format!("return {}{}", "{".repeat(deep), "}".repeat(deep)),
        format!("return x{}", ".a".repeat(deep)),
        format!("return x{}", "()".repeat(deep)),
        format!("{}{}", "if a then ".repeat(deep), "end ".repeat(deep)),
        format!("return {}1", "not ".repeat(deep)),
        format!("local f = {}1{}", "function() return ".repeat(deep), " end".repeat(deep)),
        format!("return sdk.files.read({}", "{ path = ".repeat(deep)),
        format!("local r = sdk.files.read({{}}) return {}", vec!["r.a"; deep].join(" or ")),
        format!("local r = sdk.files.read({{}}) return {}", vec!["not r.a"; deep].join(" and ")),
        format!("local r = sdk.files.read({{}}) return {}r", "#".repeat(deep)),
        format!(
            "local r = sdk.files.read({{}}) if r.a then {} end",
            "elseif r.b then ".repeat(deep)
        ),
    ] {
        // What is found does not matter, as long as something comes back.
        check(&script, files());
    }
}

#[test]
fn schemas_that_nest_without_end_are_survived() {
    let mut schema = json!({"type": "string"});
    for _ in 0..100 {
        schema = json!({"type": "object", "properties": {"a": schema}, "required": ["a"]});
    }
    let cycle = json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/A"}},
        "$defs": {"A": {"anyOf": [{"$ref": "#/$defs/B"}, {"type": "null"}]}, "B": {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "string"}]}}});
    let tools = vec![
        tool("s", "deep", schema.clone(), Some(schema)),
        tool("s", "cycle", cycle.clone(), Some(cycle)),
    ];
    let found = check(
        "local r = sdk.s.cycle({ x = 'a' })\nreturn r.x, sdk.s.deep({ a = 1 }).a.a.a",
        catalog(tools),
    );
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].message, "sdk.s.deep: a must be a table, got a number");
}

#[test]
fn what_is_drawn_is_luau() {
    let odd = [
        json!({"type": "object", "properties": {"a-b": {}, "end": {"enum": ["x\ny", "\"", "\\"]}, "": {"type": "string"}, "ü": {"const": 5}}}),
        json!({"type": ["object", "null"], "properties": {"x": {"type": ["array", "null"], "items": {"type": ["string", "null"]}}}}),
        json!({"oneOf": [{"type": "object", "properties": {"a": {"const": "x"}}}, {"type": "array", "items": {"$ref": "#/$defs/T-1"}}],
            "$defs": {"T-1": {"allOf": [{"type": "string"}, {"minLength": 3}]}, "unused": {}}}),
        json!({"type": "object", "additionalProperties": {"$ref": "#/definitions/List[Any]"},
            "definitions": {"List[Any]": {"type": "array", "items": {"$ref": "#"}}}}),
        json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/end"}, "y": {"$ref": "#/$defs/string"}},
            "$defs": {"end": {"type": "object", "properties": {"of": {"$ref": "#/$defs/end"}}}, "string": {"enum": [1, 2]}}}),
        json!({"allOf": [{"type": "string"}, {"type": "object"}]}),
        json!({"type": "object", "properties": {"x": false, "y": true, "z": {"items": [{}, {}], "type": "array"}}}),
    ];
    let tools = odd.iter().enumerate().map(|(index, schema)| {
        tool("s", &format!("f{index}"), schema.clone(), Some(schema.clone()))
    });
    let catalog = catalog(tools.collect());
    let mut typing = TypeChecker::new(catalog.modules()).unwrap();
    for function in &catalog.sdk().sources()[0].functions {
        let docs = sdk_function_docs(&catalog.sdk().sources()[0], function, None);
        let (args, result) = docs.signature.rsplit_once("): ").unwrap();
        let args = args.split_once('(').unwrap().1;
        let (strict, types) = declared_result(function, "M_").unwrap();
        let mut text = format!("type F = ({args}) -> {result} type R = {strict} ");
        for (name, body) in docs.types.iter().chain(&types) {
            text.push_str(&format!("type {name} = {body} "));
        }
        let errors = typing.with_semantic_model(text.clone(), &Arc::default(), |model| {
            let module = model.module();
            let errors = module.errors().iter().map(|it| model.error_message(it).to_string());
            errors.collect::<Vec<String>>()
        });
        assert_eq!(errors, Some(Vec::new()), "{text}");
    }
}

#[test]
fn results_of_five_thousand_tools_cost_nothing_that_is_not_used() {
    let output = json!({"type": "object", "properties": {"title": {"type": "string"}}});
    let tools = (0..5000)
        .map(|n| tool(&format!("s{}", n / 50), &format!("f{n}"), json!({}), Some(output.clone())));
    let found =
        check("return sdk.s3.f151().titel, sdk.s99.f4999().title", catalog(tools.collect()));
    let messages: Vec<&str> = found.iter().map(|it| it.message.as_str()).collect();
    assert_eq!(
        messages,
        ["the result of sdk.s3.f151 has no field titel here; did you mean title?"]
    );
}
