//! Anything callable by name: value in, value out.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::content::ToolAnswer;
use crate::grant::GrantSet;
use crate::limits::CallLimits;
use crate::portable_schema::PortableInput;
use crate::problem::{Problem, Result, SourceLocation, Warning};
use crate::schema::Schema;
use crate::secret::Secrets;
use crate::tool_body::SealedBody;
use crate::value::{Object, Value};

pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

#[derive(Clone)]
pub struct Tool {
    pub name: String,
    /// The name that its source itself uses, without the source's before it: the
    /// server's name for the tool, an `operationId`, what a script says. None
    /// where `name` says it. Rules hold under it, whatever else the tool is called.
    pub original_name: Option<String>,
    /// Further names it answers to.
    pub aliases: Vec<String>,
    /// Its name for people, where the author gave it one.
    pub title: Option<String>,
    pub description: String,
    /// What it does in one line, where its source has that beside the
    /// description.
    pub summary: Option<String>,
    /// What a call of it requests, where it is an operation of an API:
    /// `GET /pets/{id}`.
    pub operation: Option<String>,
    pub version: Option<String>,
    pub input: Schema,
    /// What the result looks like, where the author said so.
    pub output: Option<Schema>,
    pub effects: CallEffects,
    /// All it does is call tools, and each of those calls goes by the rules
    /// itself. For rules it has no effects of its own.
    pub only_calls: bool,
    /// A call whose answer was lost goes on from a record of its own, so that making it
    /// again does nothing twice.
    pub continues_itself: bool,
    /// The only caller it exists for, by name; none if it is everybody's.
    pub owner: Option<Arc<str>>,
    /// It says what the sources have. In a server that has just started it waits until
    /// they have connected.
    pub describes_sources: bool,
    pub source: Arc<Source>,
    /// The name agents see it under, where it is not its own; none if they are
    /// not shown it.
    pub shown: ToolListing,
    pub expose: ToolExposure,
    /// What its source sorts it under.
    pub tags: Vec<String>,
    /// The same call, answered with everything that came back, where there is
    /// more than the result.
    pub raw: Option<Arc<Tool>>,
    /// How its source describes it, where that says more than we know.
    pub definition: Option<Arc<Object>>,
    /// What its author might write otherwise.
    pub warnings: Vec<Warning>,
    /// What a call of it may do and use.
    pub scope: Arc<CallScope>,
    /// Its parameters as they are listed, once they were.
    portable_input: OnceLock<PortableInput>,
    /// Only the gateway can open it: validation, limits and the record would
    /// otherwise have a way around them.
    body: SealedBody,
}

/// How the name of a variant ends that answers with everything.
pub const RAW_SUFFIX: &str = ":raw";

/// Whether agents are shown a tool, and as what.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ToolListing {
    #[default]
    ByName,
    As(String),
    /// By its name, where there is anything that only scripts can call.
    InCodeMode,
    Not,
}

/// How agents reach the tools of a source. The variants have plain comments: with
/// others, the schema of the configuration would not be a list of words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum ToolExposure {
    // From scripts only.
    Code,
    // As tools of their own. Scripts can call them as well, if agents have any
    // use for scripts.
    #[default]
    Direct,
    // As tools of their own and from scripts.
    Both,
    // As tools of their own for as long as listing all tools is shorter than
    // explaining scripts; from scripts otherwise.
    Auto,
    // Not at all.
    Hidden,
}

/// What a call does to the world. Defaults are the careful ones of MCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallEffects {
    pub read_only: bool,
    pub destructive: bool,
    pub idempotent: bool,
    pub open_world: bool,
}

impl Default for CallEffects {
    fn default() -> Self {
        Self { read_only: false, destructive: true, idempotent: false, open_world: true }
    }
}

impl CallEffects {
    pub const READ_ONLY: CallEffects =
        CallEffects { read_only: true, destructive: false, idempotent: true, open_world: false };
}

/// What a call may do to the world, as rules name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EffectKind {
    ReadOnly,
    /// Anything but reading.
    Writes,
    Destructive,
    Idempotent,
    OpenWorld,
}

impl EffectKind {
    pub fn as_str(self) -> &'static str {
        match self {
            EffectKind::ReadOnly => "read-only",
            EffectKind::Writes => "writes",
            EffectKind::Destructive => "destructive",
            EffectKind::Idempotent => "idempotent",
            EffectKind::OpenWorld => "open-world",
        }
    }

    /// Whether it is among what a tool says of itself.
    pub fn holds_for(self, effects: CallEffects) -> bool {
        match self {
            EffectKind::ReadOnly => effects.read_only,
            EffectKind::Writes => !effects.read_only,
            // What only reads says nothing by its other marks.
            EffectKind::Destructive => effects.destructive && !effects.read_only,
            EffectKind::Idempotent => effects.idempotent || effects.read_only,
            EffectKind::OpenWorld => effects.open_world,
        }
    }

    /// All that rules see in a tool; none in one that only calls others.
    pub fn all_for_tool(tool: &Tool) -> impl Iterator<Item = EffectKind> {
        Self::all_for_effects(tool.effects).filter(|_| !tool.only_calls)
    }

    /// All that hold for what a tool says of itself.
    pub fn all_for_effects(effects: CallEffects) -> impl Iterator<Item = EffectKind> {
        [
            EffectKind::ReadOnly,
            EffectKind::Writes,
            EffectKind::Destructive,
            EffectKind::Idempotent,
            EffectKind::OpenWorld,
        ]
        .into_iter()
        .filter(move |effect| effect.holds_for(effects))
    }
}

/// Where tools come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    pub kind: SourceKind,
    /// `http` for a module, the file's path for a script.
    pub name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SourceKind {
    /// A function of a host module.
    Host,
    /// Part of Moonlark itself, such as `search`.
    Builtin,
    /// A Lua script in the tools folder or the configuration.
    Script,
    /// A Starlark file in the extensions folder.
    Extension,
    /// A server that we are a client of.
    Upstream,
    /// An API, by its document.
    Api,
    /// A saved script.
    Saved,
}

impl SourceKind {
    pub fn as_str(self) -> &'static str {
        match self {
            SourceKind::Host => "host",
            SourceKind::Builtin => "builtin",
            SourceKind::Script => "script",
            SourceKind::Extension => "extension",
            SourceKind::Upstream => "upstream",
            SourceKind::Api => "api",
            SourceKind::Saved => "saved",
        }
    }
}

/// What the calls of one source may do and use: its grants, limits,
/// configuration, and the secrets in that.
#[derive(Debug, Clone, Default)]
pub struct CallScope {
    pub grants: GrantSet,
    pub limits: CallLimits,
    /// `context.config`.
    pub config: Value,
    pub secrets: Secrets,
}

impl Tool {
    /// A tool with careful defaults; set the public fields for the rest.
    pub fn new(
        name: impl Into<String>,
        source: Arc<Source>,
        input: Schema,
        body: impl Into<SealedBody>,
    ) -> Self {
        Self {
            name: name.into(),
            original_name: None,
            aliases: Vec::new(),
            title: None,
            description: String::new(),
            summary: None,
            operation: None,
            version: None,
            input,
            output: None,
            effects: CallEffects::default(),
            only_calls: false,
            continues_itself: false,
            owner: None,
            describes_sources: false,
            source,
            shown: ToolListing::default(),
            expose: ToolExposure::default(),
            tags: Vec::new(),
            raw: None,
            definition: None,
            warnings: Vec::new(),
            scope: Arc::default(),
            portable_input: OnceLock::new(),
            body: body.into(),
        }
    }

    /// The name that its source itself uses for it.
    pub fn original_name(&self) -> &str {
        if let Some(name) = &self.original_name {
            return name;
        }
        let own = self.raw_variant_of().unwrap_or(&self.name);
        match self.source.kind {
            SourceKind::Upstream | SourceKind::Api | SourceKind::Saved => {
                let rest = own.strip_prefix(&self.source.name);
                rest.and_then(|rest| rest.strip_prefix('.')).unwrap_or(own)
            }
            _ => own,
        }
    }

    /// The name of the tool that this one is the raw variant of.
    pub fn raw_variant_of(&self) -> Option<&str> {
        self.name.strip_suffix(RAW_SUFFIX).filter(|_| self.shown == ToolListing::Not)
    }

    /// Whether requests for resources, prompts and completion reach their source by it.
    /// Nothing lists it, and no client calls it as a tool.
    pub fn is_passthrough(&self) -> bool {
        self.shown == ToolListing::Not && self.raw_variant_of().is_none()
    }

    /// Its parameters as every model and every framework takes them. What they are
    /// checked by is `input`.
    pub fn portable_input(&self) -> &PortableInput {
        self.portable_input.get_or_init(|| {
            let told = self.definition.as_ref().and_then(|told| told.get("inputSchema"));
            match told.map(Value::to_json_lossy) {
                Some(serde_json::Value::Object(told)) => PortableInput::from_schema(&told),
                _ => PortableInput::from_schema(self.input.json()),
            }
        })
    }

    /// The same tool under another name; the name its source uses stays known.
    #[must_use]
    pub fn with_name(&self, name: String) -> Tool {
        Tool {
            name,
            original_name: Some(self.original_name().to_owned()),
            portable_input: OnceLock::new(),
            ..self.clone()
        }
    }

    /// The same tool with another body.
    #[must_use]
    pub fn with_body(mut self, body: impl Into<SealedBody>) -> Tool {
        self.body = body.into();
        self
    }

    /// What runs behind it, for the gateway.
    pub fn body(&self) -> &SealedBody {
        &self.body
    }

    /// What a call does as far as making it twice is concerned.
    pub fn effects_on_record(&self) -> CallEffects {
        CallEffects { idempotent: self.effects.idempotent || self.continues_itself, ..self.effects }
    }

    /// Hold the tool to its own output schema.
    pub fn check_output(&self, answer: ToolAnswer) -> Result<ToolAnswer> {
        let Some(output) = &self.output else { return Ok(answer) };
        let checked = match &answer {
            ToolAnswer::Value(value) => output.find_violations(value, "field"),
            ToolAnswer::Content(content) if content.is_artifact_preview() => Ok(()),
            ToolAnswer::Content(_) => {
                output.find_violations(&answer.clone().into_plain_value(), "field")
            }
            ToolAnswer::Raw(_) => Ok(()),
        };
        match checked {
            Ok(()) => Ok(answer),
            Err(message) => Err(Problem::tool_error(format!(
                "the result does not match tool.output: {message}"
            ))
            .at_location(SourceLocation::in_file(self.source.name.clone()))),
        }
    }

    /// Whether the call blocks nobody: it can be made where nothing may wait.
    pub fn is_instant(&self) -> bool {
        self.body.is_instant()
    }
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tool({})", self.name)
    }
}
