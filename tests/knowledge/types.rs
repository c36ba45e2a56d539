//! What editors know about connectors, held against connectors that work.

use luau_analysis::{
    DefinitionEnvironment, FileResolver, Frontend, FrontendOptions, ModuleName, NullConfigResolver,
    SourceCode, SourceCodeType,
};

use super::run;
use crate::harness::{Project, repo};

struct Text(String);

impl FileResolver for Text {
    fn read_source(&mut self, _: &ModuleName) -> Option<SourceCode> {
        Some(SourceCode { source: self.0.clone().into(), kind: SourceCodeType::Module })
    }
}

/// What Luau's type checker says about a script, with our definitions.
fn mistakes(definitions: &str, script: &str) -> Vec<String> {
    let mut config = luau_config::Config::default();
    config.mode = luau_config::Mode::Strict;
    let resolver = NullConfigResolver { default_config: config };
    let options = FrontendOptions { retain_full_type_graphs: true, ..FrontendOptions::default() };
    let mut frontend = Frontend::new(Text(script.to_owned()), resolver, options);
    frontend.register_builtin_globals(DefinitionEnvironment::Globals).unwrap();
    let scope = frontend.global_scope(DefinitionEnvironment::Globals);
    let loaded = frontend.load_definition_file(scope, definitions, "@moonlark", false).unwrap();
    assert!(loaded.success, "the definitions are no definitions");
    let name = ModuleName::from("script");
    frontend.check(&name, None).unwrap();
    let model = frontend.semantic_model(&name).unwrap();
    let errors = model.module();
    errors.errors().iter().map(|error| model.error_message(error).to_string()).collect()
}

#[test]
fn editors_find_nothing_wrong_with_connectors_that_work_and_something_with_others() {
    let project = Project::new(&[]);
    run(&project, &["types"]);
    run(&project, &["connector", "init", "hello"]);
    let definitions =
        std::fs::read_to_string(project.path(".moonlark/types/moonlark.d.luau")).unwrap();
    let new = std::fs::read_to_string(project.path("connectors/hello.luau")).unwrap();
    let example = |name: &str| {
        std::fs::read_to_string(repo().join("examples/connectors").join(name)).unwrap()
    };
    for script in [new, example("glossary.luau"), example("github_issues.luau")] {
        let found = mistakes(&definitions, &script);
        assert_eq!(found, [""; 0], "{script}");
    }
    for (script, word) in [("emit({ title = 'x' })", "source_id"), ("emit(5)", "number")] {
        let found = mistakes(&definitions, script).join("\n");
        assert!(found.contains(word), "{script}: {found}");
    }
}
