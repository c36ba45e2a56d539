//! What agents read without asking for it, counted as a model counts it.

use serde_json::{Value, json};

use crate::harness::Project;

const TOOL: &str = r#"
tool = { name = "NAME", description = "Do something that takes a while to explain." }
function tool.execute() return 1 end
"#;

/// A project with so many tools that only scripts call.
fn project(tools: usize) -> Project {
    let project = Project::new(&[]);
    let mut config = String::new();
    for number in 0..tools {
        let name = format!("tool_{number}");
        project.write(&format!("tools/{name}.luau"), &TOOL.replace("NAME", &name));
        config.push_str(&format!(
            "[tools.script.{name}]\npath = \"tools/{name}.luau\"\nexpose = \"code\"\n"
        ));
    }
    project.write("moonlark.toml", &config);
    project
}

fn listed(project: &Project) -> Value {
    let answer = project.stdio().request("tools/list", json!({}));
    answer["result"]["tools"].clone()
}

#[test]
fn the_list_of_code_mode_takes_at_most_450_tokens_for_any_number_of_tools() {
    let few = listed(&project(1));
    let names: Vec<&str> =
        few.as_array().unwrap().iter().filter_map(|it| it["name"].as_str()).collect();
    assert_eq!(names, ["search_docs", "list_functions", "get_function_docs", "execute"], "{few}");
    let tokens = tiktoken_rs::o200k_base().unwrap().encode_ordinary(&few.to_string()).len();
    assert!(tokens <= 450, "{tokens} tokens: {few}");
    for tools in [2, 5, 40, 200] {
        assert_eq!(listed(&project(tools)), few, "{tools} tools");
    }
}
