//! The tools with which agents save, list, show, restore and remove scripts of their own.

use std::collections::BTreeSet;
use std::sync::Arc;

use moonlark_core::nearest::nearest_name;
use moonlark_core::schema::Schema;
use moonlark_core::tool::{CallEffects, Source, SourceKind};
use moonlark_core::value::{Object, shorten_text};
use moonlark_core::{Problem, Result, Tool, Value};
use moonlark_gateway::Call;
use moonlark_gateway::tool_body::ToolBody;
use moonlark_luau::{SavedScript, check};
use serde_json::{Value as Json, json};

use super::saved_file::SavedFile;
use super::script_store::{SavedScriptStore, StorePlace, StoredScript};

/// What messages call a script that is being saved.
const NEW_SCRIPT_FILE: &str = "script";

const MARKDOWN_FENCE: &str = "```";

const HEADER_HINT: &str = "begin it with lines such as \"--! name: weekly_report\", \
     \"--! description: What it does\" and \"--! parameter city: string -- Which city\"";

impl SavedScriptStore {
    pub(super) fn make_tools(&self) -> Result<Vec<Arc<Tool>>> {
        let name = json!({"type": "string", "description": "Its name, without sdk.scripts"});
        let version = json!({"type": "integer", "minimum": 1});
        let writes =
            CallEffects { destructive: false, open_world: false, ..CallEffects::default() };
        let removes = CallEffects { destructive: true, ..writes };
        let store = self.clone();
        let save =
            ToolBody::from_async_fn(move |call, args| save_script(store.clone(), call, args));
        let store = self.clone();
        let list = ToolBody::from_async_fn(move |call, _| list_scripts(store.clone(), call));
        let store = self.clone();
        let show =
            ToolBody::from_async_fn(move |call, args| show_script(store.clone(), call, args));
        let store = self.clone();
        let restore =
            ToolBody::from_async_fn(move |call, args| restore_script(store.clone(), call, args));
        let store = self.clone();
        let remove =
            ToolBody::from_async_fn(move |call, args| remove_script(store.clone(), call, args));
        Ok(vec![
            script_tool(
                "save_script",
                "Save a Luau script as a function sdk.scripts.NAME. It begins with a header: \
                 --! name: NAME, --! description: WHAT, and for each parameter \
                 --! parameter NAME: TYPE = DEFAULT -- WHAT. The script reads params.NAME.",
                json!({
                    "script": {"type": "string"},
                    "replace": {"type": "boolean", "description": "Replace yours of that name"},
                }),
                &["script"],
                writes,
                save,
            )?,
            script_tool(
                "list_scripts",
                "List saved scripts with their signatures",
                json!({}),
                &[],
                CallEffects::READ_ONLY,
                list,
            )?,
            script_tool(
                "show_script",
                "Show the text of a saved script, and which versions are kept",
                json!({"name": name, "version": version}),
                &["name"],
                CallEffects::READ_ONLY,
                show,
            )?,
            script_tool(
                "restore_script",
                "Make a kept version of a saved script of yours the newest again",
                json!({"name": name, "version": version}),
                &["name", "version"],
                writes,
                restore,
            )?,
            script_tool(
                "remove_script",
                "Remove a saved script of yours with all its versions",
                json!({"name": name}),
                &["name"],
                removes,
                remove,
            )?,
        ])
    }
}

fn script_tool(
    name: &str,
    description: &str,
    properties: Json,
    required: &[&str],
    effects: CallEffects,
    body: ToolBody,
) -> Result<Arc<Tool>> {
    let schema = json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    });
    let Json::Object(schema) = schema else { return Err(Problem::internal("no object")) };
    let source = Source { kind: SourceKind::Builtin, name: "moonlark".to_owned() };
    let mut tool = Tool::new(name, Arc::new(source), Schema::of_builtin_tool(schema)?, body);
    tool.description = description.to_owned();
    tool.effects = effects;
    Ok(Arc::new(tool))
}

/// Whose scripts a caller may see and change: all for the user of this machine.
struct ScriptRights {
    owner: Arc<str>,
    /// Those of all callers.
    all: bool,
}

impl ScriptRights {
    fn of_call(call: &Call, place: &StorePlace) -> Self {
        let caller = call.caller();
        Self { owner: caller.name().into(), all: place.shared || caller.is_at_home() }
    }

    fn may_see(&self, file: &SavedFile) -> bool {
        self.all || file.owner == self.owner
    }

    fn visible_owner(&self) -> Option<&str> {
        (!self.all).then_some(&*self.owner)
    }
}

async fn save_script(store: SavedScriptStore, call: Call, args: Value) -> Result<Value> {
    let text = args.get("script").and_then(Value::as_str).unwrap_or_default();
    let text = script_in_message(text).to_owned();
    let replace = args.get("replace") == Some(&Value::Bool(true));
    let script = check_script(&call, &text).await?;
    check_is_not_of_the_project(&call, script.name())?;
    let (place, name) = (store.place(), script.name().to_owned());
    let rights = ScriptRights::of_call(&call, &place);
    let saved = on_disk({
        let name = name.clone();
        move || {
            place.save(&name, &text, &rights.owner, |old| match () {
                () if !rights.may_see(old) => Err(somebody_elses_problem(&name)),
                () if !replace => {
                    let message = format!(
                        "there is a saved script {name} of yours, version {}",
                        old.version
                    );
                    Err(Problem::bad_request(message).with_hint(
                        "replace it with replace = true, which keeps the old version; or choose another name",
                    ))
                }
                () => Ok(()),
            })
        }
    })
    .await?;
    Ok(saved_answer(&store, &script, saved).await)
}

/// A script without what models and editors put around it: a fence of Markdown, and a mark
/// of the byte order.
fn script_in_message(text: &str) -> &str {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let fenced = || {
        let (first, rest) = text.trim().strip_prefix(MARKDOWN_FENCE)?.split_once('\n')?;
        let is_language = first.trim().bytes().all(|it| it.is_ascii_alphanumeric());
        rest.strip_suffix(MARKDOWN_FENCE).filter(|it| is_language && it.ends_with('\n'))
    };
    fenced().unwrap_or(text)
}

/// What is wrong with a script before it is saved, as before it is run.
async fn check_script(call: &Call, text: &str) -> Result<SavedScript> {
    let script = SavedScript::parse(NEW_SCRIPT_FILE, text)?.ok_or_else(headerless_problem)?;
    if script.description().trim().is_empty() {
        return Err(Problem::bad_request("the header has no description")
            .with_hint("say in a line what it does: agents find scripts by their descriptions"));
    }
    let findings = check::find_script_mistakes(&script.text_to_check(), call.catalog()).await;
    match check::problem_from_findings(&findings, NEW_SCRIPT_FILE) {
        Some(problem) => {
            let message = problem.message.replace("nothing was called", "nothing was saved");
            let hint = problem
                .hint
                .as_deref()
                .map(|it| it.replace("nothing was called", "nothing was saved"));
            Err(problem.clone().with_message(message).with_optional_hint(hint))
        }
        None => Ok(script),
    }
}

fn check_is_not_of_the_project(call: &Call, name: &str) -> Result<()> {
    let is_of_the_project = |tool: &Arc<Tool>| tool.owner.is_none();
    let catalog = call.gateway().catalog();
    let known =
        catalog.find_tool(&format!("scripts.{name}")).ok().filter(|it| is_of_the_project(it));
    let is_saved = known.is_some_and(|tool| tool.tags.iter().any(|tag| tag == SAVED_BY_AGENT_TAG));
    match known {
        Some(_) if !is_saved => {
            let message = format!("{name} is a script of the project");
            Err(Problem::forbidden(message)
                .with_hint("choose another name; only its authors change that file"))
        }
        _ => Ok(()),
    }
}

/// What tells shared scripts that agents saved from those of the project.
pub(super) const SAVED_BY_AGENT_TAG: &str = "saved";

fn somebody_elses_problem(name: &str) -> Problem {
    Problem::forbidden(format!("{name} is a saved script of somebody else")).with_hint(
        "choose another name; scripts:write-all in execute.allow lets all callers change all",
    )
}

async fn saved_answer(store: &SavedScriptStore, script: &SavedScript, version: u32) -> Value {
    let in_use = store.wait_until_published(script.name(), Some(version)).await;
    let mut fields = vec![
        ("saved", Value::from(script.name().to_owned())),
        ("version", Value::Int(i64::from(version))),
        ("call", script.signature().into()),
    ];
    if !in_use {
        fields.push(("note", "a running server uses it in a moment".into()));
    }
    Value::Object(fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

async fn list_scripts(store: SavedScriptStore, call: Call) -> Result<Value> {
    let place = store.place();
    let rights = ScriptRights::of_call(&call, &place);
    let saved = on_disk(move || {
        let with_problem = |stored: StoredScript| {
            let is_in_use = store.is_published(&stored.name, stored.file.version);
            let problem = if is_in_use { None } else { problem_field(&stored.file.text) };
            (stored, problem)
        };
        let saved = place.list(rights.visible_owner()).into_iter().map(with_problem);
        Ok((saved.collect::<Vec<_>>(), rights))
    });
    let (saved, rights) = saved.await?;
    let mut scripts = Vec::new();
    let whose = |file: &SavedFile| {
        let owner = if file.owner == rights.owner { "yours" } else { &file.owner };
        Value::from(owner)
    };
    let mut listed = BTreeSet::new();
    let sdk = call.catalog().sdk();
    let source = sdk.sources().iter().find(|it| it.kind == SourceKind::Saved);
    for function in source.map(|it| it.functions.as_slice()).unwrap_or_default() {
        let mut fields = Object::new();
        let tool = &function.tool;
        // A script of the project may have the same name.
        let is_of_agent = tool.tags.iter().any(|tag| tag == SAVED_BY_AGENT_TAG);
        let is_it = |it: &StoredScript| {
            let owner = tool.owner.as_ref();
            it.name == tool.original_name() && owner.is_none_or(|owner| *owner == it.file.owner)
        };
        let stored = saved.iter().find(|(it, _)| is_of_agent && is_it(it));
        listed.extend(stored.map(|(it, _)| it.name.as_str()));
        fields.insert("name".to_owned(), function.name.clone().into());
        fields.insert("description".to_owned(), function.tool.description.clone().into());
        let parameters = Json::Object((**function.tool.input.json()).clone());
        let takes = moonlark_render::luau::luau_type(&parameters);
        fields.insert("call".to_owned(), format!("sdk.scripts.{}({takes})", function.name).into());
        match stored {
            Some((stored, problem)) => {
                fields.insert("version".to_owned(), Value::Int(i64::from(stored.file.version)));
                fields.insert("of".to_owned(), whose(&stored.file));
                fields.extend(problem.clone());
            }
            None => {
                fields.insert("of".to_owned(), "the project".into());
            }
        }
        scripts.push(Value::Object(fields));
    }
    // What cannot be used is no function, and its owner is told why.
    for (stored, problem) in saved.iter().filter(|(it, _)| !listed.contains(it.name.as_str())) {
        let Some(problem) = problem.clone() else { continue };
        let mut fields = Object::new();
        fields.insert("name".to_owned(), stored.name.clone().into());
        fields.insert("version".to_owned(), Value::Int(i64::from(stored.file.version)));
        fields.insert("of".to_owned(), whose(&stored.file));
        fields.extend([problem]);
        scripts.push(Value::Object(fields));
    }
    Ok(Value::from_fields([("scripts", Value::Array(scripts))]))
}

/// Why a saved script is not in use, for its owner.
fn problem_field(text: &str) -> Option<(String, Value)> {
    let problem = match SavedScript::parse(NEW_SCRIPT_FILE, text) {
        Ok(Some(_)) => return None,
        Ok(None) => headerless_problem(),
        Err(problem) => problem,
    };
    Some(("problem".to_owned(), problem.to_line().into()))
}

fn headerless_problem() -> Problem {
    Problem::bad_request("the script has no header, so it has no name").with_hint(HEADER_HINT)
}

async fn show_script(store: SavedScriptStore, call: Call, args: Value) -> Result<Value> {
    let (name, version) = asked_script(&args)?;
    let place = store.place();
    let rights = ScriptRights::of_call(&call, &place);
    on_disk(move || {
        let now = find_visible(&place, &rights, &name)?;
        let versions = place.versions(&name);
        let shown = match version {
            None => now,
            Some(version) => find_version(&versions, &name, version)?,
        };
        let kept = versions.iter().map(|it| {
            Value::from_fields([
                ("version", Value::Int(i64::from(it.version))),
                ("saved_at", Value::Int(it.saved_at as i64)),
                ("bytes", Value::Int(it.text.len() as i64)),
            ])
        });
        let mut fields = Object::new();
        fields.insert("name".to_owned(), name.clone().into());
        fields.insert("version".to_owned(), Value::Int(i64::from(shown.version)));
        fields.extend(problem_field(&shown.text));
        fields.insert("script".to_owned(), shown.text.into());
        fields.insert("versions".to_owned(), Value::Array(kept.collect()));
        Ok(Value::Object(fields))
    })
    .await
}

async fn restore_script(store: SavedScriptStore, call: Call, args: Value) -> Result<Value> {
    let (name, version) = asked_script(&args)?;
    let place = store.place();
    let rights = ScriptRights::of_call(&call, &place);
    let old = on_disk({
        let (place, name) = (place.clone(), name.clone());
        move || {
            find_visible(&place, &rights, &name)?;
            find_version(&place.versions(&name), &name, version.unwrap_or_default())
        }
    })
    .await?;
    // Tools may have changed since.
    let script = check_script(&call, &old.text).await?;
    let rights = ScriptRights::of_call(&call, &place);
    let saved = on_disk(move || {
        let may_replace = |now: &SavedFile| {
            if rights.may_see(now) { Ok(()) } else { Err(somebody_elses_problem(&name)) }
        };
        place.save(&name, &old.text, &rights.owner, may_replace)
    })
    .await?;
    Ok(saved_answer(&store, &script, saved).await)
}

async fn remove_script(store: SavedScriptStore, call: Call, args: Value) -> Result<Value> {
    let (name, _) = asked_script(&args)?;
    let place = store.place();
    let rights = ScriptRights::of_call(&call, &place);
    on_disk({
        let name = name.clone();
        move || {
            find_visible(&place, &rights, &name)?;
            place.remove(&name)
        }
    })
    .await?;
    store.wait_until_published(&name, None).await;
    Ok(Value::from_fields([("removed", name.into())]))
}

fn asked_script(args: &Value) -> Result<(String, Option<u32>)> {
    let name = args.get("name").and_then(Value::as_str).unwrap_or_default();
    let name = name.strip_prefix("sdk.").unwrap_or(name);
    let name = name.strip_prefix("scripts.").unwrap_or(name);
    let version = match args.get("version") {
        None | Some(Value::Null) => None,
        Some(Value::Int(version)) if u32::try_from(*version).is_ok() => {
            u32::try_from(*version).ok()
        }
        Some(other) => {
            let shown = other.to_json_lossy().to_string();
            let (shown, name) = (shorten_text(&shown), shorten_text(name));
            let message = format!("there is no version {shown} of {name}");
            return Err(Problem::not_found(message)
                .with_hint("show_script without a version says which are kept"));
        }
    };
    Ok((name.to_owned(), version))
}

/// A script of the store that the caller may see; to others it is as if it were not there.
fn find_visible(place: &StorePlace, rights: &ScriptRights, name: &str) -> Result<SavedFile> {
    let is_name = name.chars().all(|it| it.is_ascii_alphanumeric() || it == '_');
    let found = if is_name && !name.is_empty() { place.find(name)? } else { None };
    found.filter(|file| rights.may_see(file)).ok_or_else(|| {
        let known = place.list(rights.visible_owner());
        let near = nearest_name(name, known.iter().map(|it| it.name.as_str()));
        let hint = match near {
            Some(near) => format!("did you mean {near}?"),
            None => "list_scripts has those that are there; files of the project are not shown"
                .to_owned(),
        };
        let message = format!("there is no saved script {} of yours", shorten_text(name));
        Problem::not_found(message).with_hint(hint)
    })
}

fn find_version(versions: &[SavedFile], name: &str, version: u32) -> Result<SavedFile> {
    versions.iter().find(|it| it.version == version).cloned().ok_or_else(|| {
        let kept: Vec<String> = versions.iter().map(|it| it.version.to_string()).collect();
        Problem::not_found(format!("there is no version {version} of {name}"))
            .with_hint(format!("kept are {}", kept.join(", ")))
    })
}

/// Files may be on a slow disk, and another process may hold the lock.
async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(Problem::internal("saving failed")))
}
