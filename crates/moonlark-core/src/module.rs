//! Host modules, defined once.
//!
//! A [`Module`] is a list of functions that describe themselves: argument
//! types, documentation, examples, body. From it come the Luau global, the
//! type definitions, the reference page and the tests that run every example.

use std::ops::Deref;
use std::sync::{Arc, LazyLock, OnceLock};

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};

use crate::nearest::nearest_name;
use crate::problem::{Problem, Result};
use crate::schema::{Schema, required_names};
use crate::tool::{CallEffects, Source, SourceKind, Tool};
use crate::tool_body::{BodyCall, SealedBody};
use crate::value::{Value, ValueReadError, shorten_text};

#[derive(Clone, Default)]
pub struct Module {
    pub name: &'static str,
    pub doc: &'static str,
    pub functions: Vec<ModuleFunction>,
    pub constants: Vec<ModuleConstant>,
    /// The module is itself the function: `sleep(1)`.
    pub callable: bool,
    /// Its functions only compute: they touch nothing and look at nothing of
    /// the call but its limits, so an engine may run them wherever its script
    /// runs.
    pub pure: bool,
    /// The one language whose scripts see it; all do when there is none.
    pub only: Option<ScriptLanguage>,
    /// Only tests see it.
    pub only_in_tests: bool,
}

/// A language that scripts are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScriptLanguage {
    Luau,
    Starlark,
}

#[derive(Clone)]
pub struct ModuleFunction {
    pub name: &'static str,
    pub tool: Arc<Tool>,
    /// In the order a script passes them.
    pub params: FunctionParams,
    /// JSON Schema of the result, made when it is first needed: running scripts need none.
    pub returns: Arc<LazyLock<Json>>,
    /// The grant it needs, if it touches the world.
    pub needs: Option<&'static str>,
    pub examples: Vec<FunctionExample>,
}

/// The parameters of a function, read from the type of its arguments when they are first
/// needed: a script names a few of some hundred functions, and most processes none.
#[derive(Debug, Clone)]
pub struct FunctionParams {
    input: fn() -> Map<String, Json>,
    /// Optional parameters that go by place.
    also_positional: &'static [&'static str],
    made: Arc<OnceLock<Vec<FunctionParam>>>,
}

#[derive(Debug, Clone)]
pub struct FunctionParam {
    pub name: String,
    pub schema: Json,
    pub required: bool,
    /// Passed by place; the others go into a trailing table (Luau) or by
    /// keyword (Starlark).
    pub positional: bool,
}

#[derive(Clone)]
pub struct ModuleConstant {
    pub name: &'static str,
    pub doc: &'static str,
    pub value: Value,
}

/// Documentation that is also a test.
#[derive(Debug, Clone)]
pub struct FunctionExample {
    pub args: Json,
    pub outcome: ExampleOutcome,
}

#[derive(Debug, Clone)]
pub enum ExampleOutcome {
    Returns(Json),
    /// The message contains this.
    Fails(&'static str),
    /// It succeeds, with a result that differs every time.
    Varies,
    /// What it gives where the other side answers so: nothing outside is asked,
    /// a mock stands in for it.
    Mocked(Json),
}

impl Deref for FunctionParams {
    type Target = [FunctionParam];

    fn deref(&self) -> &[FunctionParam] {
        self.made.get_or_init(|| {
            let mut params = params_from_schema(&(self.input)());
            for param in &mut params {
                param.positional |= self.also_positional.contains(&param.name.as_str());
            }
            params.sort_by_key(|param| !param.positional);
            params
        })
    }
}

impl<'p> IntoIterator for &'p FunctionParams {
    type Item = &'p FunctionParam;
    type IntoIter = std::slice::Iter<'p, FunctionParam>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl FunctionParam {
    /// Whether nothing at all (nil, None) is a value it takes, rather than the
    /// lack of one.
    pub fn accepts_null(&self) -> bool {
        self.required && self.schema.get("type").is_none()
    }
}

impl ModuleFunction {
    /// Whether there is a parameter of this name; the Problem says which there
    /// are.
    pub fn check_has_param(&self, name: &str) -> Result<()> {
        let names = || self.params.iter().map(|param| param.name.as_str());
        if names().any(|known| known == name) {
            return Ok(());
        }
        Err(unknown_parameter_problem(&self.tool.name, name, names()))
    }
}

/// The Problem of an argument that a function has no parameter for.
pub fn unknown_parameter_problem<'a>(
    function: &str,
    name: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) -> Problem {
    let all = || known.clone().collect::<Vec<_>>().join(", ");
    // `type` for `param_type`, `exec` for `allowed_exec`.
    let is_part = |known: &&str| known.split('_').any(|part| part == name);
    let hint = match nearest_name(name, known.clone()).or_else(|| known.clone().find(is_part)) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("its parameters are {}", all()),
    };
    Problem::bad_request(format!("{function} has no parameter {}", shorten_text(name)))
        .with_hint(hint)
}

impl Module {
    pub fn new(name: &'static str, doc: &'static str) -> Self {
        Self { name, doc, ..Self::default() }
    }

    /// A function that computes and returns.
    #[must_use]
    pub fn function<C, A, R>(
        self,
        name: &'static str,
        doc: &'static str,
        body: fn(&C, A) -> Result<R>,
    ) -> Self
    where
        C: BodyCall,
        A: DeserializeOwned + JsonSchema + 'static,
        R: Into<Value> + JsonSchema + 'static,
    {
        let full = self.full_name(name);
        let prefix = full.clone();
        let body = C::seal_fn(move |call, args| {
            let args = read_args::<A>(&prefix, args)?;
            body(call, args).map(Into::into).map_err(|problem| with_function_name(&prefix, problem))
        });
        self.add_function::<A, R>(name, full, doc, body)
    }

    /// A function that may wait.
    #[must_use]
    pub fn async_function<C, A, R, F>(
        self,
        name: &'static str,
        doc: &'static str,
        body: fn(C, A) -> F,
    ) -> Self
    where
        C: BodyCall + Send,
        A: DeserializeOwned + JsonSchema + Send + 'static,
        R: Into<Value> + JsonSchema + 'static,
        F: Future<Output = Result<R>> + Send + 'static,
    {
        let full = self.full_name(name);
        let prefix: Arc<str> = full.clone().into();
        let body = C::seal_async_fn(move |call, args| {
            let args = read_args::<A>(&prefix, args);
            let prefix = prefix.clone();
            async move {
                body(call, args?)
                    .await
                    .map(Into::into)
                    .map_err(|problem| with_function_name(&prefix, problem))
            }
        });
        self.add_function::<A, R>(name, full, doc, body)
    }

    /// The module is this one function, called by the module's name.
    #[must_use]
    pub fn callable(mut self) -> Self {
        self.callable = true;
        self
    }

    /// Its functions only compute; see the field of that name.
    #[must_use]
    pub fn pure(mut self) -> Self {
        self.pure = true;
        self
    }

    /// Scripts of other languages do not see it: they have their own.
    #[must_use]
    pub fn only_for_language(mut self, language: ScriptLanguage) -> Self {
        self.only = Some(language);
        self
    }

    /// Only scripts that are tests see it.
    #[must_use]
    pub fn only_in_tests(mut self) -> Self {
        self.only_in_tests = true;
        self
    }

    /// Whether scripts of this language see it.
    pub fn is_for_language(&self, language: ScriptLanguage) -> bool {
        self.only.is_none_or(|only| only == language)
    }

    #[must_use]
    pub fn constant(mut self, name: &'static str, doc: &'static str, value: Value) -> Self {
        self.constants.push(ModuleConstant { name, doc, value });
        self
    }

    /// Optional parameters of the function just added that go by place.
    #[must_use]
    pub fn positional_params(self, names: &'static [&'static str]) -> Self {
        self.edit_last_function(|function| function.params.also_positional = names)
    }

    #[must_use]
    pub fn needs(self, grant: &'static str) -> Self {
        self.edit_last_function(|function| function.needs = Some(grant))
    }

    /// The function just added changes something, and may do more each time it
    /// is called.
    #[must_use]
    pub fn with_side_effects(self) -> Self {
        self.set_effects(CallEffects::default())
    }

    /// The function just added changes something, and a second time nothing more.
    #[must_use]
    pub fn with_idempotent_effects(self) -> Self {
        self.set_effects(CallEffects { idempotent: true, ..CallEffects::default() })
    }

    fn set_effects(self, effects: CallEffects) -> Self {
        self.edit_last_function(|function| {
            // Nobody else has it yet.
            if let Some(tool) = Arc::get_mut(&mut function.tool) {
                tool.effects = effects;
            }
        })
    }

    #[must_use]
    pub fn example(self, args: Json, result: Json) -> Self {
        self.add_example(args, ExampleOutcome::Returns(result))
    }

    #[must_use]
    pub fn fails(self, args: Json, fragment: &'static str) -> Self {
        self.add_example(args, ExampleOutcome::Fails(fragment))
    }

    #[must_use]
    pub fn varying_example(self, args: Json) -> Self {
        self.add_example(args, ExampleOutcome::Varies)
    }

    /// An example of what depends on somebody else: it would answer `result`.
    #[must_use]
    pub fn mocked_example(self, args: Json, result: Json) -> Self {
        self.add_example(args, ExampleOutcome::Mocked(result))
    }

    fn add_example(self, args: Json, outcome: ExampleOutcome) -> Self {
        self.edit_last_function(|function| {
            function.examples.push(FunctionExample { args, outcome })
        })
    }

    fn edit_last_function(mut self, edit: impl FnOnce(&mut ModuleFunction)) -> Self {
        if let Some(function) = self.functions.last_mut() {
            edit(function);
        }
        self
    }

    fn full_name(&self, name: &str) -> String {
        if self.name == name { name.to_owned() } else { format!("{}.{name}", self.name) }
    }

    fn add_function<A: JsonSchema + 'static, R: JsonSchema + 'static>(
        mut self,
        name: &'static str,
        full: String,
        doc: &'static str,
        body: SealedBody,
    ) -> Self {
        let source = Arc::new(Source { kind: SourceKind::Host, name: self.name.to_owned() });
        let input = Schema::deferred_description(argument_schema::<A>);
        let params = FunctionParams {
            input: argument_schema::<A>,
            also_positional: &[],
            made: Arc::default(),
        };
        let mut tool = Tool::new(full, source, input, body);
        tool.description = doc.to_owned();
        tool.effects = CallEffects::READ_ONLY;
        self.functions.push(ModuleFunction {
            name,
            tool: Arc::new(tool),
            params,
            returns: Arc::new(LazyLock::new(result_schema::<R>)),
            needs: None,
            examples: Vec::new(),
        });
        self
    }
}

fn result_schema<R: JsonSchema>() -> Json {
    schemars::SchemaGenerator::default().into_root_schema_for::<R>().to_value()
}

fn argument_schema<A: JsonSchema>() -> Map<String, Json> {
    // Inlined, so that a parameter's schema stands by itself.
    let settings = schemars::generate::SchemaSettings::draft2020_12()
        .with(|settings| settings.inline_subschemas = true);
    match settings.into_generator().into_root_schema_for::<A>().to_value() {
        Json::Object(mut map) => {
            map.remove("$schema");
            map.remove("title");
            map
        }
        _ => Map::new(),
    }
}

fn params_from_schema(input: &Map<String, Json>) -> Vec<FunctionParam> {
    let required: Vec<&str> = required_names(input).collect();
    input
        .get("properties")
        .and_then(Json::as_object)
        .into_iter()
        .flatten()
        .map(|(name, schema)| {
            let required = required.contains(&name.as_str());
            FunctionParam {
                name: name.clone(),
                schema: schema.clone(),
                required,
                positional: required,
            }
        })
        .collect()
}

fn read_args<A: DeserializeOwned>(function: &str, args: Value) -> Result<A> {
    args.deserialize_into().map_err(|ValueReadError { path, message }| {
        let at = if path == "." { String::new() } else { format!(" {path}:") };
        // serde repeats the value it refused, however long or secret it is.
        Problem::bad_request(format!("{function}:{at} {}", shorten_text(&message)))
    })
}

/// The longest message of a host function: an argument in it may have megabytes,
/// and is copied with every step that the Problem takes.
const MAX_MESSAGE_BYTES: usize = 8 * 1024;

fn shorten_message(text: &mut String) {
    if text.len() > MAX_MESSAGE_BYTES {
        text.truncate(text.floor_char_boundary(MAX_MESSAGE_BYTES));
        text.push('…');
        text.shrink_to_fit();
    }
}

/// Put the function's name in front, unless the message begins with it.
fn with_function_name(function: &str, mut problem: Problem) -> Problem {
    shorten_message(&mut problem.message);
    if let Some(hint) = &mut problem.hint {
        shorten_message(hint);
    }
    if !problem.message.starts_with(function) {
        problem.message = format!("{function}: {}", problem.message);
    }
    problem
}
