//! `moonlark types` and `moonlark docs`.

use serde_json::{Value, json};

use crate::docs::parses_as_python;
use crate::harness::{Project, repo};

const TOOL: &str = r#"
tool = {
    name = "find_orders",
    version = "1.2.0",
    description = "Find orders of a customer, newest first",
    parameters = {
        { name = "customer", type = "string", required = true, description = "Customer number" },
        { name = "limit", type = "integer", default = 10, description = "How many" },
    },
    output = { type = "object", properties = { orders = { type = "array" } }, required = { "orders" } },
    annotations = { read_only = true },
}
function tool.execute(params, context) return { orders = json.array() } end
"#;

/// What a command prints, when it succeeds.
fn run(project: &Project, arguments: &[&str]) -> String {
    let output = project.run(arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

fn read(project: &Project, file: &str) -> String {
    std::fs::read_to_string(project.path(file)).unwrap()
}

fn read_json(project: &Project, file: &str) -> Value {
    serde_json::from_str(&read(project, file)).unwrap()
}

#[test]
fn the_stub_for_starlark_is_valid_python() {
    let text = std::fs::read_to_string(repo().join("types/__builtins__.pyi")).unwrap();
    parses_as_python("__builtins__.pyi", &text).unwrap();
    // What is written is looked at, too: a stub that says nothing would parse.
    for part in ["\nclass http:", "\n    @staticmethod\n    def get(url: str", "\ndef sleep("] {
        assert!(text.contains(part), "{part}");
    }
}

#[test]
fn types_writes_definitions_and_the_settings_that_use_them() {
    let project = Project::new(&[]);
    assert_eq!(
        run(&project, &["types"]),
        "Created .moonlark/types/moonlark.d.luau
Created .moonlark/types/__builtins__.pyi
Created .vscode/settings.json
Created .luaurc
Created pyrightconfig.json
"
    );
    // The same definitions as in the repository, under another first line.
    for file in ["moonlark.d.luau", "__builtins__.pyi"] {
        let body = |text: String| text.split_once("\n\n").unwrap().1.to_owned();
        let committed = std::fs::read_to_string(repo().join("types").join(file)).unwrap();
        assert!(
            body(read(&project, &format!(".moonlark/types/{file}"))) == body(committed),
            "{file}"
        );
    }
    assert_eq!(
        read_json(&project, ".vscode/settings.json"),
        json!({
            "luau-lsp.platform.type": "standard",
            "luau-lsp.types.definitionFiles": { "@moonlark": ".moonlark/types/moonlark.d.luau" },
            "files.associations": { "*.star": "python" },
        })
    );
    assert_eq!(read_json(&project, "pyrightconfig.json")["stubPath"], ".moonlark/types");
    assert_eq!(read_json(&project, ".luaurc")["languageMode"], "strict");
    let again: Value = serde_json::from_str(&run(&project, &["types", "--json"])).unwrap();
    let did = again["files"].as_array().unwrap().iter().map(|file| &file["did"]);
    assert!(did.eq(["unchanged"; 5].iter()), "{again}");
}

#[test]
fn types_keeps_what_the_settings_say() {
    let settings = "{\n    // Mine.\n    \"luau-lsp.platform.type\": \"roblox\",\n    \"editor.tabSize\": 4, // four\n}\n";
    let project = Project::new(&[
        (".vscode/settings.json", settings),
        (".luaurc", "languageMode = strict"),
        ("pyproject.toml", "[tool.pyright]\nstrict = [\"src\"]\n"),
    ]);
    assert_eq!(
        run(&project, &["types", "--out", "editor"]),
        r#"Created editor/moonlark.d.luau
Created editor/__builtins__.pyi
Updated .vscode/settings.json
  it says something else; for Moonlark it should have:
    {
      "luau-lsp.platform.type": "standard"
    }
Left alone: .luaurc
  it is not JSON, so nothing was added; for Moonlark it should have:
    {
      "languageMode": "strict",
      "lint": {
        "BuiltinGlobalWrite": false
      }
    }
Left alone: pyrightconfig.json
  it would take the place of [tool.pyright] in pyproject.toml; for Moonlark it should have:
    {
      "stubPath": "editor",
      "reportUndefinedVariable": "information"
    }
"#
    );
    assert_eq!(
        read(&project, ".vscode/settings.json"),
        r#"{
    // Mine.
    "luau-lsp.platform.type": "roblox",
    "editor.tabSize": 4, // four
    "luau-lsp.types.definitionFiles": {
        "@moonlark": "editor/moonlark.d.luau"
    },
    "files.associations": {
        "*.star": "python"
    },
}
"#
    );
    assert_eq!(read(&project, ".luaurc"), "languageMode = strict");
    assert!(!project.path("pyrightconfig.json").exists());
}

#[test]
fn types_writes_over_nothing_but_its_own_files() {
    let project = Project::new(&[("mine/__builtins__.pyi", "x: int\n")]);
    let output = project.run(&["types", "--out", "mine"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "error[bad_request]: mine/__builtins__.pyi is there already, and `moonlark types` did not write it\nhint: choose another folder with --out, or remove the file first\n"
    );
    assert_eq!(read(&project, "mine/__builtins__.pyi"), "x: int\n");
    // An older version's are replaced.
    let old = "-- Written by `moonlark types` 0.0.1: run it again after an update.\n";
    project.write("old/moonlark.d.luau", old);
    let shown = run(&project, &["types", "--out", "old"]);
    assert!(shown.starts_with("Updated old/moonlark.d.luau\nCreated old/"), "{shown}");
}

#[test]
fn docs_explains_a_function_in_both_languages() {
    let project = Project::new(&[]);
    assert_eq!(
        run(&project, &["docs", "json.encode"]),
        r##"json.encode
Encode a value as JSON text.

  Luau      json.encode(value: any, options: JsonOptions?) -> string
  Starlark  json.encode(value: Any, pretty: bool = False) -> str

Parameters:
  value           any       What to encode.
  options.pretty  boolean?  Indent with two spaces, one entry per line. (default: false)

Examples in Luau:
  json.encode({ a = { 1, 2.5, json.null } }) --> "{\"a\":[1,2.5,null]}"
  json.encode({ 1 }, { pretty = true }) --> "[\n  1\n]"
  json.encode(1, { indent = 2 }) --> error: … indent …

Examples in Starlark:
  json.encode({"a": [1, 2.5, None]})  # "{\"a\":[1,2.5,null]}"
  json.encode([1], pretty=True)  # "[\n  1\n]"
  json.encode(1, indent=2)  # error: … indent …
"##
    );
    let shown = run(&project, &["docs", "http.get"]);
    for part in
        ["\nGrant: net\n", "\nResult:\n  status   number", "url: str, headers: dict[str, str]"]
    {
        assert!(shown.contains(part), "{part}\n{shown}");
    }
    let shown: Value = serde_json::from_str(&run(&project, &["docs", "sleep", "--json"])).unwrap();
    assert_eq!(
        (&shown["kind"], &shown["luau"], &shown["starlark"]),
        (
            &json!("function"),
            &json!("sleep(seconds: number) -> ()"),
            &json!("sleep(seconds: float) -> None")
        )
    );
}

#[test]
fn docs_explains_modules_and_tools() {
    let project = Project::new(&[("tools/orders.lua", TOOL)]);
    assert_eq!(
        run(&project, &["docs", "base64"]).lines().take(5).collect::<Vec<_>>(),
        [
            "base64",
            "Encode and decode Base64.",
            "",
            "base64.encode(data: string) -> string",
            "  Encode text or bytes as Base64.",
        ]
    );
    assert_eq!(
        run(&project, &["docs", "find_orders"]),
        r#"find_orders
Find orders of a customer, newest first

  Luau      context.call("find_orders", args: { customer: string, limit: number? }) -> { orders: {any} }
  Starlark  context.call("find_orders", args: dict[str, Any]) -> dict[str, Any]

In agent scripts:
  function sdk.tools.find_orders(args: { customer: string, limit: number? }): { orders: {any} }

From tools/orders.lua, version 1.2.0; it changes nothing and reaches systems outside.

Grant, for a script that calls it: tool:find_orders

Parameters:
  customer  string   Customer number
  limit     number?  How many (default: 10)

Result:
  orders  {any}
"#
    );
    let all = run(&project, &["docs"]);
    for part in [
        "Modules:\n  http ",
        "\n\nTools:\n  search ",
        "\n  find_orders   Find orders of a customer",
    ] {
        assert!(all.contains(part), "{part}\n{all}");
    }
}

#[test]
fn docs_of_an_unknown_name_suggest_the_nearest() {
    let project = Project::new(&[("tools/orders.lua", TOOL)]);
    for (name, hint) in [
        ("http.gett", "did you mean http.get?"),
        ("htp", "did you mean http?"),
        ("find_order", "did you mean find_orders?"),
        ("something-else", "`moonlark docs` lists what there is"),
    ] {
        let output = project.run(&["docs", name]);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(
            String::from_utf8_lossy(&output.stderr),
            format!(
                "error[not_found]: no module, function or tool is named {name}\nhint: {hint}\n"
            )
        );
    }
}
