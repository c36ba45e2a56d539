//! One module with everything a function can have, drawn in every form.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{FunctionDoc, luau, modules_page, starlark};
use moonlark_core::module::{Module, ScriptLanguage};
use moonlark_core::problem::Result;
use moonlark_core::schema::Schema;
use moonlark_core::tool_body::{BodyCall, SealedBody};
use moonlark_core::value::Value;

#[derive(Deserialize, JsonSchema)]
#[allow(dead_code)]
struct Post {
    /// Where to.
    url: String,
    /// What to send.
    body: Option<String>,
    /// How often to try.
    #[serde(default)]
    retries: u8,
    /// Headers by name.
    headers: Option<std::collections::BTreeMap<String, String>>,
}

/// What came back.
#[derive(JsonSchema)]
#[schemars(inline)]
#[allow(dead_code)]
struct WebAnswer {
    /// The "status".
    status: u16,
    /// More, if there is any.
    more: Option<Vec<String>>,
}

impl From<WebAnswer> for Value {
    fn from(_: WebAnswer) -> Value {
        Value::Null
    }
}

#[derive(Deserialize, JsonSchema)]
#[allow(dead_code)]
struct Pause {
    /// How long.
    seconds: f64,
}

/// The functions are drawn, and never called.
struct NoCall;

impl BodyCall for NoCall {
    fn seal_fn(_: impl Fn(&Self, Value) -> Result<Value> + Send + Sync + 'static) -> SealedBody {
        SealedBody::empty()
    }

    fn seal_async_fn<F>(_: impl Fn(Self, Value) -> F + Send + Sync + 'static) -> SealedBody
    where
        F: Future<Output = Result<Value>> + Send + 'static,
    {
        SealedBody::empty()
    }
}

fn post(_: &NoCall, _: Post) -> Result<WebAnswer> {
    Ok(WebAnswer { status: 200, more: None })
}

fn pause(_: &NoCall, _: Pause) -> Result<()> {
    Ok(())
}

fn web() -> Module {
    Module::new("web", "Send things.")
        .constant("port", "The usual port.", Value::Int(80))
        .function("post", "Send something.", post)
        .positional_params(&["body"])
        .needs("net")
        .example(json!({"url": "u", "body": "b\n"}), json!({"status": 200}))
        .fails(json!({"url": "u", "retries": 1, "headers": {"a b": "c"}}), "no \"way\"")
}

fn modules() -> Vec<Module> {
    let progress =
        Module::new("progress", "Report.").function("progress", "Report.", pause).callable();
    let only = Module::new("sums", "Add.")
        .function("pause", "Wait.", pause)
        .varying_example(json!({"seconds": 1}));
    vec![web(), progress, only.only_for_language(ScriptLanguage::Starlark)]
}

fn search() -> Schema {
    let schema = json!({
        "type": "object",
        "properties": {"query": {"type": "string"}, "limit": {"type": "integer", "default": 12}},
        "required": ["query"],
    });
    Schema::compile(schema.as_object().cloned().unwrap()).unwrap()
}

#[test]
fn places_come_first_and_options_last() {
    let web = web();
    let sheet = FunctionDoc::from_function(&web, &web.functions[0]);
    assert_eq!(
        sheet.luau,
        "web.post(url: string, body: string?, options: WebOptions?) -> WebAnswer"
    );
    assert_eq!(
        sheet.starlark,
        "web.post(url: str, body: str | None = None, retries: int = 0, headers: dict[str, str] | None = None) -> WebAnswer"
    );
    assert_eq!(
        starlark::short_starlark_signature(&web.functions[0]),
        "web.post(url, body=None, retries=0, headers=None)"
    );
    let luau: Vec<&str> = sheet.examples.iter().map(|example| example.luau.as_str()).collect();
    assert_eq!(
        luau,
        [
            "web.post(\"u\", \"b\\n\") --> { status = 200 }",
            "web.post(\"u\", nil, { retries = 1, headers = { [\"a b\"] = \"c\" } }) --> error: … no \"way\" …",
        ]
    );
    let starlark: Vec<&str> =
        sheet.examples.iter().map(|example| example.starlark.as_str()).collect();
    assert_eq!(
        starlark,
        [
            "web.post(\"u\", \"b\\n\")  # {\"status\": 200}",
            "web.post(\"u\", retries=1, headers={\"a b\": \"c\"})  # error: … no \"way\" …",
        ]
    );
}

#[test]
fn definitions_have_what_their_language_has() {
    let text = luau::tool_script_definitions(&modules(), &search()).unwrap();
    let end = text.split_once("-- Host modules ").unwrap().1.split_once('\n').unwrap().1;
    assert_eq!(
        end,
        "
export type WebOptions = {
    --- How often to try.
    retries: number?,
    --- Headers by name.
    headers: { [string]: string }?,
}

export type WebAnswer = {
    --- The \"status\".
    status: number,
    --- More, if there is any.
    more: {string}?,
}

--- Send things.
declare web: {
    --- Send something.
    post: (url: string, body: string?, options: WebOptions?) -> WebAnswer,
    --- The usual port.
    port: number,
}

--- Report.
declare function progress(seconds: number): ()
"
    );
    assert!(text.contains("progress: (seconds: number) -> (),"), "{text}");
    assert!(text.contains("export type SearchOptions = { limit: number? }"), "{text}");
}

#[test]
fn the_stub_is_python() {
    let text = starlark::python_stub(&modules(), &search());
    assert_eq!(
        text.split_once("# Host modules\n").unwrap().1,
        r#"
class WebAnswer(TypedDict):
    status: int
    """The "status"."""
    more: List[str] | None
    """More, if there is any."""

class web:
    """Send things."""

    port: int
    """The usual port."""

    @staticmethod
    def post(url: str, body: str | None = None, retries: int = 0, headers: Dict[str, str] | None = None) -> WebAnswer:
        """Send something.

        Needs the grant `net`.

        url: Where to.
        body: What to send.
        retries: How often to try.
        headers: Headers by name.
        """

def progress(seconds: float) -> None:
    """Report.

    seconds: How long.
    """

class sums:
    """Add."""

    @staticmethod
    def pause(seconds: float) -> None:
        """Wait.

        seconds: How long.
        """
"#
    );
    assert!(text.contains("def search(self, query: str, *, limit: int = 12) -> Any:"), "{text}");
}

#[test]
fn the_page_shows_a_module_in_the_languages_it_is_for() {
    let page = modules_page(&modules(), "<!-- note -->");
    let (web, sums) = (page.split("\n## ").nth(1).unwrap(), page.split("\n## ").nth(3).unwrap());
    assert!(
        web.contains("\n```luau\nweb.post(") && web.contains("\n```starlark\nweb.post("),
        "{web}"
    );
    assert_eq!(
        sums,
        "`sums`

Add.

In extensions only; Luau has its own.

### `sums.pause`

`sums.pause(seconds)`

Wait.

| parameter | type | |
|---|---|---|
| `seconds` | `number` | How long. |

```starlark
sums.pause(1)  # differs every time
```
"
    );
}

#[test]
fn the_shape_of_a_value_is_a_type() {
    let value = json!({
        "items": [{"id": 1, "tag": "a"}, {"id": 2, "tag": null, "size": 1.5}],
        "next": null, "total": 2, "empty": [],
    });
    assert_eq!(
        luau::luau_type_of(&Value::from_json(value).unwrap()),
        "{ items: {{ id: number, tag: string?, size: number? }}, next: nil, total: number, empty: {any} }"
    );
    let wide = (0..50).map(|number| (format!("{number}").repeat(3), Value::Int(1))).collect();
    assert!(luau::luau_type_of(&Value::Object(wide)).len() < 200);
}
