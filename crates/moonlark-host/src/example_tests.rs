//! Every example of every function is run, and every function says enough
//! about itself.

use moonlark_core::Value;
use moonlark_core::module::{ExampleOutcome, ModuleFunction};
use moonlark_core::schema::Schema;
use serde_json::Value as Json;

use crate::test_calls::{call, scope};

#[tokio::test]
async fn every_example_is_true() {
    for module in crate::host_modules() {
        for function in &module.functions {
            for example in &function.examples {
                let name = &function.tool.name;
                let args = &example.args;
                let dir = tempfile::tempdir().unwrap();
                std::fs::write(dir.path().join("notes.txt"), "Buy tea\n").unwrap();
                let result = call(scope(dir.path(), &["fs:write"]), name, args.clone()).await;
                match (&example.outcome, result) {
                    (ExampleOutcome::Returns(expected), Ok(value)) => {
                        let expected = Value::from_json(expected.clone()).unwrap();
                        assert_eq!(value, expected, "{name} {args}");
                    }
                    (ExampleOutcome::Fails(fragment), Err(problem)) => {
                        assert!(problem.message.contains(fragment), "{name} {args}: {problem}");
                        assert!(problem.message.starts_with(name), "{name} {args}: {problem}");
                    }
                    (ExampleOutcome::Varies, Ok(_)) => {}
                    // Run in both engines, with mocks; here its words are held
                    // to what the function says of itself.
                    (ExampleOutcome::Mocked(answer), _) => {
                        assert_matches_schemas(function, args, answer)
                    }
                    (outcome, result) => panic!("{name} {args}: {outcome:?}, but {result:?}"),
                }
            }
        }
    }
}

fn assert_matches_schemas(function: &ModuleFunction, args: &Json, answer: &Json) {
    let name = &function.tool.name;
    let held = |schema: &Json, value: &Json, what: &str| {
        let Json::Object(schema) = schema else { panic!("{name} has no schema") };
        let schema = Schema::compile(schema.clone()).unwrap();
        let value = Value::from_json(value.clone()).unwrap();
        assert_eq!(schema.find_violations(&value, what), Ok(()), "{name} {args}");
    };
    held(&Json::Object((**function.tool.input.json()).clone()), args, "parameter");
    held(&function.returns, answer, "field");
}

/// Functions without an example that works: the work of one is to fail, and the
/// other takes a function, which no value is. `tests/engines.rs` calls them as scripts do.
const WITHOUT_WORKING_EXAMPLE: [&str; 2] = ["testing.fail", "testing.raises"];

#[test]
fn every_function_is_documented_and_has_an_example() {
    for module in crate::host_modules() {
        assert!(!module.doc.is_empty(), "{}", module.name);
        for function in &module.functions {
            let name = &function.tool.name;
            assert!(function.tool.description.ends_with('.'), "{name} needs a sentence");
            let (fail, work): (Vec<_>, Vec<_>) = function
                .examples
                .iter()
                .partition(|it| matches!(it.outcome, ExampleOutcome::Fails(_)));
            let has_none = WITHOUT_WORKING_EXAMPLE.contains(&name.as_str());
            assert_eq!(work.is_empty(), has_none, "{name} needs an example that works");
            let has_params = !function.params.is_empty();
            assert!(!fail.is_empty() || !has_params, "{name} needs an example that fails");
            for param in &function.params {
                let doc = param.schema.get("description").and_then(|doc| doc.as_str());
                assert!(
                    doc.is_some_and(|doc| !doc.is_empty()),
                    "{name}: {} needs a doc",
                    param.name
                );
            }
        }
    }
}

/// Nothing optional may stand before something required: scripts pass both by
/// place.
#[test]
fn required_parameters_come_first() {
    for module in crate::host_modules() {
        for function in &module.functions {
            let name = &function.tool.name;
            let required: Vec<bool> = function.params.iter().map(|param| param.required).collect();
            assert!(required.is_sorted_by(|a, b| a >= b), "{name}: {required:?}");
            let by_place: Vec<bool> =
                function.params.iter().map(|param| param.positional).collect();
            assert!(by_place.is_sorted_by(|a, b| a >= b), "{name}: {by_place:?}");
        }
    }
}
