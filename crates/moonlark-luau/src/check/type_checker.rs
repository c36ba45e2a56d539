//! Luau's own type checker, which says what type every expression has.
//!
//! One lives in each worker. It knows the language and the host
//! modules; tools come with the script.

use std::sync::Arc;

use luau_analysis::{
    DefinitionEnvironment, FileResolver, Frontend, FrontendCancellationToken, FrontendOptions,
    ModuleName, NullConfigResolver, SemanticModel, SourceCode, SourceCodeType,
};
use luau_common::BString;
use luau_config::{Config, Mode};
use moonlark_core::Module;
use moonlark_render::luau::module_definitions;

use super::script_globals;

/// The one module that there is.
const CHECKED_MODULE_NAME: &str = "script";

pub(super) struct TypeChecker {
    frontend: Frontend<ScriptTextResolver, NullConfigResolver>,
    options: FrontendOptions,
}

struct ScriptTextResolver(BString);

impl FileResolver for ScriptTextResolver {
    fn read_source(&mut self, name: &ModuleName) -> Option<SourceCode> {
        let source = (name == CHECKED_MODULE_NAME).then(|| std::mem::take(&mut self.0))?;
        Some(SourceCode { source, kind: SourceCodeType::Module })
    }
}

impl TypeChecker {
    pub(super) fn new(modules: &[Module]) -> Option<TypeChecker> {
        // Types are inferred all the same, and nothing is looked for that would be thrown away:
        // that is a fifth of the time.
        let mut config = Config::default();
        config.mode = Mode::NoCheck;
        let options =
            FrontendOptions { retain_full_type_graphs: true, ..FrontendOptions::default() };
        let resolver = NullConfigResolver { default_config: config };
        let mut frontend =
            Frontend::new(ScriptTextResolver(BString::default()), resolver, options.clone());
        frontend.register_builtin_globals(DefinitionEnvironment::Globals).ok()?;
        let scope = frontend.global_scope(DefinitionEnvironment::Globals);
        let found: Vec<Module> = modules
            .iter()
            .filter(|module| script_globals::is_agent_module(module))
            .cloned()
            .collect();
        // Without them a value of the host is unknown, which is no reason to stop.
        for text in [module_definitions(&found), script_globals::helper_definitions()] {
            let loaded = frontend.load_definition_file(scope, text, "@moonlark", false);
            if !loaded.is_ok_and(|loaded| loaded.success) {
                tracing::debug!("the type checker does not take the definitions of host modules");
            }
        }
        Some(TypeChecker { frontend, options })
    }

    /// Look at a script. None if that was stopped, or is too much.
    pub(super) fn with_semantic_model<R>(
        &mut self,
        text: String,
        stop: &Arc<FrontendCancellationToken>,
        with: impl FnOnce(&SemanticModel<'_>) -> R,
    ) -> Option<R> {
        let name = ModuleName::from(CHECKED_MODULE_NAME);
        self.frontend.file_resolver_mut().0 = BString::from(text);
        let options =
            FrontendOptions { cancellation_token: Some(stop.clone()), ..self.options.clone() };
        let checked = self.frontend.check(&name, Some(options));
        let found = if checked.is_ok() && !stop.requested() {
            self.frontend.semantic_model(&name).map(|model| with(&model))
        } else {
            None
        };
        self.frontend.clear();
        found
    }
}
