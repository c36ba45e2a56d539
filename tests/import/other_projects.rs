//! `moonlark import` of projects of Context Harness and ToolScript.

use super::Desk;

const CTX: &str = r#"
[db]
path = "./data/ctx.sqlite"

[embedding]
provider = "openai"

[server]
bind = "127.0.0.1:7331"

[connectors.filesystem.docs]
root = "./docs"
include_globs = ["**/*.md"]
follow_symlinks = false

[tools.script.greet]
path = "tools/greet.lua"
timeout = 30
greeting = "hello"
api_token = "hunter2"
"#;

const GREET: &str = r#"
tool = { name = "greet", description = "Greet", parameters = { { name = "who", type = "string", required = true } } }
function tool.execute(params, context)
    return { text = context.config.greeting .. " " .. params.who, secret = #context.config.api_token }
end
"#;

#[test]
fn a_project_of_context_harness_is_taken_over_and_runs() {
    let desk = Desk::new(&[
        ("project/ctx.toml", CTX),
        ("project/tools/greet.lua", GREET),
        ("project/docs/a.md", "# Holidays\n\nThirty days of holidays.\n"),
    ]);
    let said = desk.run(&["import", "ctx.toml"]);
    assert_eq!(
        said,
        "\
--- /dev/null
+++ moonlark.toml
@@ -0,0 +1,9 @@
+[connectors.filesystem.docs]
+include = [\"**/*.md\"]
+root = \"./docs\"
+
+[tools.script.greet]
+api_token = \"${GREET_API_TOKEN}\"
+greeting = \"hello\"
+path = \"tools/greet.lua\"
+timeout = 30

Added to moonlark.toml: connectors.filesystem.docs, tools.script.greet
  db: left out, documents are kept in .moonlark/moonlark.db; store.url names another file
  embedding: left out, a model is built in; knowledge.embedder names a service in its place
Kept secrets in .moonlark/secrets.env, for you alone:
  GREET_API_TOKEN for tools.script.greet
"
    );
    let answer = desk.run(&["call", "greet", "who=Ann", "--json"]);
    assert_eq!(answer, "{\"result\":{\"secret\":7,\"text\":\"hello Ann\"}}\n");
    desk.run(&["sync"]);
    assert!(desk.run(&["search", "holidays"]).contains("a.md"));
    assert!(desk.run(&["import", "ctx.toml"]).starts_with("Nothing to add to moonlark.toml\n"));
}

#[test]
fn a_project_of_toolscript_is_taken_over() {
    let desk = Desk::new(&[(
        "project/old/toolscript.toml",
        "[mcp_servers.files]\ncommand = \"npx\"\nargs = [\"-y\", \"server\"]\nenv = { API_KEY = \"hunter2\" }\n\n[apis.shop]\nspec = \"shop.yaml\"\nauth_env = \"SHOP_KEY\"\ncolour = \"blue\"\n",
    )]);
    let said = desk.run(&["import", "old/toolscript.toml"]);
    assert!(
        said.ends_with(
            "\
Added to moonlark.toml: files, apis.shop
  apis.shop: without colour
Kept secrets in .moonlark/secrets.env, for you alone:
  FILES_API_KEY for mcp_servers.files
"
        ),
        "{said}"
    );
    assert_eq!(
        desk.read("project/moonlark.toml"),
        "[mcp_servers.files]\ncommand = \"npx\"\nargs = [\"-y\", \"server\"]\nenv = { API_KEY = \"${FILES_API_KEY}\" }\n\n[apis.shop]\nauth_env = \"SHOP_KEY\"\nspec = \"old/shop.yaml\"\n"
    );
    desk.run(&["config", "check"]);
}
