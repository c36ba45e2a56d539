//! APIs by their OpenAPI documents, the whole way: from the command line or the
//! configuration to a request that arrives.

mod attacks;
pub mod shop;

use std::process::Output;

use serde_json::{Value, json};

use self::shop::{ORDER, Shop};
use crate::harness::{Project, Server, eventually, moonlark, wait_for};

/// Never to be seen anywhere but at the API.
const CANARY: &str = "canary-3f81c07b";

/// Says to the shop that it is there.
const ARRIVE: &str = r#"
tool = { name = "arrive", description = "Says that it is there.", parameters = {} }
function tool.execute() return http.get("http://127.0.0.1:PORT/arrived").status end
"#;

fn project(shop: &Shop, config: &str) -> Project {
    Project::new(&[
        ("shop.yaml", &shop.document()),
        ("parts/order.yaml", ORDER),
        ("moonlark.toml", config),
    ])
}

/// A command with the secret in its environment.
fn run(project: &Project, args: &[&str]) -> Output {
    let mut command = moonlark();
    command.args(args).env("SHOP_KEY", CANARY).current_dir(project.path("."));
    command.stdin(std::process::Stdio::null()).output().unwrap()
}

fn both(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// What a script of an agent gives.
fn execute(server: &Server, script: &str) -> Result<Value, Value> {
    let (status, answer) = server.post("execute", &json!({ "script": script }));
    if status == 200 { Ok(answer["result"].clone()) } else { Err(answer["error"].clone()) }
}

/// `GET /sources` once it is as wanted.
fn source_when(server: &Server, wanted: impl Fn(&Value) -> bool) -> Value {
    eventually("the state", || {
        let sources = server.get("/sources").json();
        let mut all = sources["upstreams"].as_array().unwrap().iter();
        let shop = all.find(|it| it["name"] == "shop").cloned().unwrap_or_default();
        if wanted(&shop) { Ok(shop) } else { Err(shop.to_string()) }
    })
}

#[test]
fn a_document_on_the_command_line_is_an_api_for_scripts() {
    let shop = Shop::open();
    let project = project(&shop, "");
    let args = ["shop=shop.yaml", "--auth", "shop:SHOP_KEY"];
    let server = project.serve_with(&args, &[("SHOP_KEY", CANARY)]);
    let listed = execute(&server, "return sdk.shop.listOrders({ state = 'open' })[1].item");
    assert_eq!(listed, Ok(json!("tea")));
    let arrived = shop.last();
    assert_eq!(arrived.line, "GET /v1/orders?state=open");
    assert_eq!(arrived.headers["x-key"], CANARY);
    let made = execute(&server, "return sdk.shop.createOrder({ item = 'cup', count = 3 })");
    assert_eq!(made, Ok(json!({"id": "2"})));
    assert_eq!(shop.last().body, r#"{"item":"cup","count":3}"#);
    // What is wrong is refused before anything is sent.
    let before = shop.seen().len();
    for wrong in ["listOrders({ state = 'lost' })", "createOrder({ count = 1 })", "getOrder({})"] {
        let ended = execute(&server, &format!("return sdk.shop.{wrong}"));
        assert!(ended.is_err(), "{wrong}: {ended:?}");
    }
    assert_eq!(shop.seen().len(), before);
    let lost = execute(&server, "return sdk.shop.getOrder({ id = '9' })").unwrap_err();
    let message = lost["message"].as_str().unwrap();
    assert!(message.contains("shop.getOrder answered 404 Not Found: no /v1/orders/9"), "{lost}");
}

#[test]
fn one_run_uses_an_api_an_upstream_and_a_script_at_the_same_time() {
    let shop = Shop::open();
    let arrive = ARRIVE.replace("PORT", &shop.port.to_string());
    let script = format!(
        "[tools.script.arrive]\npath = \"tools/arrive.lua\"\nallow = [\"net:127.0.0.1:{}\"]\n",
        shop.port
    );
    let other = Project::new(&[("tools/arrive.lua", &arrive), ("moonlark.toml", &script)]);
    let config = format!(
        "{script}[apis.shop]\nspec = \"shop.yaml\"\n[mcp_servers.other]\ncommand = {:?}\nargs = [\"stdio\"]\ncwd = {:?}\n",
        env!("CARGO_BIN_EXE_moonlark"),
        other.path(".")
    );
    let project = project(&shop, &config);
    project.write("tools/arrive.lua", &arrive);
    let server = project.serve();
    // The API answers when both others have come.
    let script = "
        local met, upstream, script = shop.meet(), other.arrive(), tools.arrive()
        return { met = met:await().met, upstream = upstream:await(), script = script:await() }";
    assert_eq!(execute(&server, script), Ok(json!({"met": 2, "upstream": 200, "script": 200})));
}

#[test]
fn a_document_that_changes_is_read_again_and_a_broken_one_changes_nothing() {
    let shop = Shop::open();
    let project = project(&shop, "[apis.shop]\nspec = \"shop.yaml\"\n");
    let server = project.serve();
    assert_eq!(source_when(&server, |it| it["state"] == "ready")["tools"], 5);

    let renamed = shop.document().replace("operationId: getOrder", "operationId: readOrder");
    project.write("shop.yaml", &renamed);
    let is_renamed = || execute(&server, "return sdk.shop.readOrder({ id = '1' }).item");
    wait_for("the new name", || is_renamed() == Ok(json!("tea")));

    project.write("shop.yaml", "openapi: 3.1.0\npaths: [");
    let broken = source_when(&server, |it| !it["error"].is_null());
    assert_eq!((&broken["state"], &broken["tools"]), (&json!("ready"), &json!(5)));
    assert_eq!(
        broken["error"]["message"],
        "shop.yaml: this cannot be read: line 2 column 8: unclosed bracket '['"
    );
    assert_eq!(is_renamed(), Ok(json!("tea")));

    // A file that it refers to counts as well.
    project.write("shop.yaml", &renamed);
    source_when(&server, |it| it["error"].is_null());
    project
        .write("parts/order.yaml", &ORDER.replace("required: [item]", "required: [item, count]"));
    let made = || execute(&server, "return sdk.shop.createOrder({ item = 'cup' })");
    wait_for("the new parameter", || made().is_err());
}

#[test]
fn a_secret_is_seen_by_the_api_and_by_nobody_else() {
    let shop = Shop::open();
    let project = project(&shop, "[apis.shop]\nspec = \"shop.yaml\"\nexpose = \"both\"\n");
    project.write("tools/end.lua", "tool = { name = 'end', description = 'x', parameters = {}, execute = function() log.info('that was all') return 1 end }");
    let args = ["-vv", "--auth", "shop:SHOP_KEY"];
    let server = project.serve_with(&args, &[("SHOP_KEY", CANARY)]);
    source_when(&server, |it| it["state"] == "ready");
    let mut said = vec![
        format!("{:?}", execute(&server, "return sdk.shop.mirror()")),
        format!("{:?}", execute(&server, "print(sdk.shop.mirror()) return sdk.shop.mirror.raw()")),
        format!("{:?}", execute(&server, "return sdk.shop.getOrder({ id = '9' })")),
        format!(
            "{:?}",
            execute(
                &server,
                "local ok, why = pcall(sdk.shop.getOrder, { id = '9' }) return tostring(why)"
            )
        ),
        format!("{:?}", server.post("shop__mirror", &json!({}))),
        format!("{:?}", server.post("get_function_docs", &json!({"names": ["shop.mirror"]}))),
        server.get("/tools/list").text(),
        server.get("/sources").text(),
        server.get("/openapi.json").text(),
        server.mcp("tools/list", json!({})).to_string(),
        server.mcp("tools/call", json!({"name": "shop__mirror", "arguments": {}})).to_string(),
        server.mcp("resources/list", json!({})).to_string(),
    ];
    assert!(said[0].starts_with("Ok") && said[4].starts_with("(200"), "{said:#?}");
    assert!(shop.seen().iter().all(|it| it.headers["x-key"] == CANARY));
    server.post("end", &json!({}));
    loop {
        let line = server.log.next();
        let is_last = line.contains("that was all");
        said.push(line);
        if is_last {
            break;
        }
    }
    project.write("moonlark.toml", "[apis.shop]\nspec = \"shop.yaml\"\nauth = \"${SHOP_KEY}\"\n");
    for args in [
        &["sources"][..],
        &["sources", "--json"],
        &["doctor"],
        &["docs", "sdk.shop.mirror"],
        &["config", "show"],
        &["-vv", "call", "shop.mirror"],
        &["-vv", "call", "shop.getOrder", "--param", "id=9"],
    ] {
        said.push(both(&run(&project, args)));
    }
    for text in &said {
        assert!(!text.contains(CANARY), "{text}");
    }
}

#[test]
fn an_api_is_listed_among_the_sources() {
    let shop = Shop::open();
    let project = project(&shop, "[apis.shop]\nspec = \"shop.yaml\"\n[server]\nport = 0\n");
    let output = run(&project, &["sources"]);
    assert!(output.status.success(), "{}", both(&output));
    assert_eq!(both(&output), "shop: ready, 5 tools\n");
    let shown = both(&run(&project, &["doctor"]));
    assert!(shown.contains("  ✓ API: shop: ready, 5 tools\n"), "{shown}");
    project.write("shop.yaml", "openapi: 9.0.0\n");
    let shown = both(&run(&project, &["doctor"]));
    assert!(shown.contains("✗ API: error[bad_config]: this is version 9.0.0"), "{shown}");
    let output = run(&project, &["sources"]);
    assert_eq!(output.status.code(), Some(1), "{}", both(&output));
}

#[test]
fn a_secret_that_is_not_there_is_missed_by_name() {
    let shop = Shop::open();
    let project = project(&shop, "[apis.shop]\nspec = \"shop.yaml\"\nauth_env = \"NO_SUCH_KEY\"\n");
    let shown = both(&run(&project, &["sources"]));
    assert!(shown.contains("the environment variable NO_SUCH_KEY is not set"), "{shown}");
    assert!(shown.contains("hint: set NO_SUCH_KEY, or add a line"), "{shown}");
    let shown = both(&run(&project, &["sources", "--auth", "shopp:SHOP_KEY"]));
    assert!(shown.contains("--auth names the API shopp, which is not there"), "{shown}");
}

#[test]
fn operations_are_tools_of_their_own_where_that_is_wanted() {
    let shop = Shop::open();
    let config = "[apis.shop]\nspec = \"shop.yaml\"\nexpose = \"direct\"\ninclude = [\"tag:orders\"]\n\
                  [apis.shop.frozen_params]\nstate = \"done\"\n";
    let project = project(&shop, config);
    let server = project.serve();
    source_when(&server, |it| it["state"] == "ready");
    let listed = server.mcp("tools/list", json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap();
    let tool = tools.iter().find(|it| it["name"] == "shop__listOrders").expect("it is listed");
    assert_eq!(tool["annotations"]["readOnlyHint"], true);
    assert_eq!(tool["inputSchema"]["properties"], json!({}));
    assert!(!tools.iter().any(|it| it["name"] == "shop__getOrder"), "{listed}");
    let answer = server.mcp("tools/call", json!({"name": "shop__listOrders", "arguments": {}}));
    assert_ne!(answer["result"]["isError"], true, "{answer}");
    assert_eq!(shop.last().line, "GET /v1/orders?state=done");
}

#[test]
fn a_document_of_swagger_2_works_the_same() {
    let shop = Shop::open();
    let document = json!({
        "swagger": "2.0", "info": {"title": "Shop", "version": "1"},
        "host": format!("127.0.0.1:{}", shop.port), "basePath": "/v1", "schemes": ["http"],
        "securityDefinitions": {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}},
        "security": [{"key": []}],
        "paths": {"/orders": {"post": {
            "operationId": "createOrder",
            "parameters": [{"name": "order", "in": "body", "required": true, "schema": {"$ref": "parts/order.yaml#/Order"}}],
            "responses": {"201": {"description": "Made."}},
        }}},
    });
    let project = project(&shop, "");
    project.write("old.json", &document.to_string());
    let args = [
        "call",
        "--api",
        "shop=old.json",
        "--auth",
        "shop:SHOP_KEY",
        "shop.createOrder",
        "--param",
        "item=cup",
    ];
    let output = run(&project, &args);
    assert!(output.status.success(), "{}", both(&output));
    assert_eq!(
        (shop.last().line.as_str(), shop.last().body.as_str()),
        ("POST /v1/orders", r#"{"item":"cup"}"#)
    );
    assert_eq!(shop.last().headers["x-key"], CANARY);
}

#[test]
fn generate_writes_definitions_that_the_type_checker_takes() {
    let shop = Shop::open();
    let project = project(&shop, "");
    let output = run(&project, &["generate", "shop.yaml", "mine=shop.yaml", "-o", "types"]);
    assert_eq!(
        both(&output),
        "Wrote types/shop.d.luau: 5 functions\nWrote types/mine.d.luau: 5 functions\n"
    );
    let text = std::fs::read_to_string(project.path("types/shop.d.luau")).unwrap();
    for part in [
        "export type Order = {",
        "\ndeclare sdk: {\n    shop: {\n        -- List the orders of the shop.\n",
        "        listOrders: (args: { state: (\"open\" | \"done\")? }?) -> {Order},\n",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert!(is_definition(&text), "{text}");
    assert!(!is_definition(&text.replace("-> {Order}", "-> {Ordre}")));
    let output = run(&project, &["generate", "no.yaml"]);
    assert!(both(&output).starts_with("error[bad_config]: cannot read "), "{}", both(&output));
}

/// Whether Luau's type checker takes it.
fn is_definition(text: &str) -> bool {
    use luau_analysis::{DefinitionEnvironment, FileResolver, Frontend, FrontendOptions};
    use luau_analysis::{ModuleName, NullConfigResolver, SourceCode};
    struct Nothing;
    impl FileResolver for Nothing {
        fn read_source(&mut self, _: &ModuleName) -> Option<SourceCode> {
            None
        }
    }
    let config = NullConfigResolver { default_config: luau_config::Config::default() };
    let mut frontend = Frontend::new(Nothing, config, FrontendOptions::default());
    frontend.register_builtin_globals(DefinitionEnvironment::Globals).unwrap();
    let scope = frontend.global_scope(DefinitionEnvironment::Globals);
    let loaded = frontend.load_definition_file(scope, text, "@shop", false);
    loaded.is_ok_and(|loaded| loaded.success)
}

#[test]
fn the_list_of_tools_has_those_of_apis() {
    let shop = Shop::open();
    let project = project(&shop, "[apis.shop]\nspec = \"shop.yaml\"\n");
    let listed = both(&run(&project, &["tool", "list"]));
    assert!(listed.contains("\nTools of APIs:\n  shop."), "{listed}");
    assert!(!listed.contains("none yet"), "{listed}");
}
