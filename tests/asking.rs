//! Scripts that ask whoever called them, in both languages: the caller's time is
//! not theirs, and what it cannot be asked is said in its own terms.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use moonlark_core::grant::GrantSet;
use moonlark_core::limits::CallLimits;
use moonlark_core::problem::ProtocolError;
use moonlark_core::schema::Schema;
use moonlark_core::tool::{BoxFuture, CallScope, Source, SourceKind};
use moonlark_core::value::Object;
use moonlark_core::{Catalog, Problem, ProblemCode, Tool, Value};
use moonlark_gateway::call_client::{CallClient, ClientQuestion, RequestEnvelope};
use moonlark_gateway::gateway::CallOptions;
use moonlark_gateway::tool_body::ToolBody;
use moonlark_gateway::{Caller, Gateway};
use serde_json::json;

use crate::engines::Engines;
use crate::harness::PATIENCE;

/// What a script has, and then some: a worker may have to be started first.
const TIMEOUT: Duration = Duration::from_secs(3);

/// A caller with a person at it, who thinks for longer than a script may run.
struct Slow {
    can: bool,
    takes: Duration,
}

impl CallClient for Slow {
    fn can_answer(&self, _: &ClientQuestion) -> bool {
        self.can
    }

    fn missing_capability(&self, question: &ClientQuestion) -> Option<ProtocolError> {
        let data = Some(Value::from_fields([("lacking", question.method.as_str().into())]));
        Some(ProtocolError { code: -7, message: "cannot".to_owned(), data })
    }

    fn ask_question(&self, _: ClientQuestion) -> BoxFuture<Result<Value, Problem>> {
        let takes = self.takes;
        Box::pin(async move {
            tokio::time::sleep(takes).await;
            Value::from_json(json!({"action": "accept", "content": {}}))
        })
    }

    fn envelope(&self) -> &RequestEnvelope {
        unreachable!("only sources of the caller's protocol look")
    }

    fn owner_id(&self) -> u64 {
        1
    }
}

/// Call a tool of this body, each language's own, for a caller.
async fn call(language: &str, body: &str, can: bool) -> Result<Value, Problem> {
    let engines = Engines::new();
    let tool = match language {
        "luau" => {
            let text = format!(
                "tool = {{ name = 'x', description = '' }}\nfunction tool.execute()\n{body}\nend\n"
            );
            engines.lua(&text, scope(TIMEOUT)).await?
        }
        _ => {
            let text = format!(
                "def run(params):\n    {body}\n\ndef describe_extension():\n    return Extension(name = 'x', tools = [Tool(name = 'x', handler = run)])\n"
            );
            engines.star(&text, &[], scope(TIMEOUT)).await?
        }
    };
    let takes = TIMEOUT + Duration::from_millis(500);
    ask(&engines, tool, Slow { can, takes }).await
}

async fn ask(engines: &Engines, tool: Tool, slow: Slow) -> Result<Value, Problem> {
    let catalog = Catalog::new(engines.modules.clone(), vec![Arc::new(tool)], &[], vec![]);
    let gateway = Gateway::new(catalog, 10);
    let call = gateway
        .open_call(CallOptions::from(Caller::new("mcp")).with_client(Some(Arc::new(slow))))?;
    let ended = gateway.call(&call, "x", Value::Object(Object::new()));
    tokio::time::timeout(PATIENCE, ended).await.expect("it hangs")
}

fn scope(timeout: Duration) -> CallScope {
    CallScope {
        grants: GrantSet::for_authored_script("tools.script.x", Path::new(".").to_owned(), vec![]),
        limits: CallLimits { timeout, steps: u64::MAX, ..CallLimits::default() },
        ..CallScope::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_a_person_takes_is_not_the_scripts() {
    // At the same time: the person takes seconds for each.
    let mut ended = Vec::new();
    for (language, body) in [
        ("luau", "return client.elicit('?').action"),
        // It computes before, so it has moved to the script threads; and after.
        (
            "luau",
            "local n = 0 for i = 1, 5e6 do n += i end local answer = client.elicit('?') for i = 1, 5e6 do n += i end return answer.action",
        ),
        ("luau", "return coroutine.wrap(function() return client.elicit('?').action end)()"),
        // What is asked at once is not waited for one after the other.
        ("luau", "return client.ask({ a = { elicit = '?' }, b = { elicit = '?' } }).b.action"),
        ("starlark", "return client.elicit('?')['action']"),
    ] {
        ended.push(async move {
            let answer = call(language, body, true).await;
            assert_eq!(answer, Ok("accept".into()), "{language}: {body}");
        });
    }
    join_all(ended).await;
}

#[tokio::test]
async fn what_is_asked_at_once_moves_the_deadline_once() {
    // No worker has to be started for this one.
    const BRIEF_TIMEOUT: Duration = Duration::from_millis(100);
    let body = ToolBody::from_async_fn(|call, _| async move {
        let (began, deadline) = (tokio::time::Instant::now(), call.deadline());
        let question = || ClientQuestion {
            method: "elicitation/create".to_owned(),
            params: Object::new(),
            name: None,
        };
        tokio::try_join!(call.ask_caller(question()), call.ask_caller(question()))?;
        let (moved, took) = (call.deadline() - deadline, began.elapsed());
        assert!(moved > BRIEF_TIMEOUT && moved <= took, "{moved:?} in {took:?}");
        Ok(Value::Null)
    });
    let source = Arc::new(Source { kind: SourceKind::Script, name: "x".to_owned() });
    let mut tool = Tool::new("x", source, Schema::without_parameters(), body);
    tool.scope = Arc::new(scope(BRIEF_TIMEOUT));
    let slow = Slow { can: true, takes: 3 * BRIEF_TIMEOUT };
    assert_eq!(ask(&Engines::new(), tool, slow).await, Ok(Value::Null));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_that_has_asked_still_has_a_deadline() {
    let mut ended = Vec::new();
    for (language, body) in [
        ("luau", "client.elicit('?') while true do end"),
        ("luau", "client.elicit('?') coroutine.wrap(function() while true do end end)()"),
        ("luau", "client.elicit('?') sleep(1000)"),
        // Here the waiting is done elsewhere than where the clock is looked at.
        ("luau", "for i = 1, 5e6 do end client.elicit('?') sleep(1000)"),
        (
            "starlark",
            "client.elicit('?'); [i for j in range(1000000) for i in range(1000000) if i < 0]",
        ),
        ("starlark", "client.elicit('?'); sleep(1000)"),
    ] {
        ended.push(async move {
            let problem = call(language, body, true).await.unwrap_err();
            assert_eq!(problem.code, ProblemCode::Timeout, "{language}: {body}: {problem}");
        });
    }
    join_all(ended).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_caller_lacks_reaches_it_in_its_own_terms() {
    for (language, body) in [
        ("luau", "return client.sample('?')"),
        ("luau", "pcall(client.roots) local ok, why = pcall(client.sample, '?') error(why)"),
        ("starlark", "return client.sample('?')"),
    ] {
        let problem = call(language, body, false).await.unwrap_err();
        assert_eq!(problem.code, ProblemCode::Unavailable, "{language}: {body}: {problem}");
        assert_eq!(
            problem.message,
            "client.sample: x needs sampling/createMessage of the caller, which it does not offer"
        );
        let data = Some(Value::from_fields([("lacking", "sampling/createMessage".into())]));
        let refusal = ProtocolError { code: -7, message: "cannot".to_owned(), data };
        assert_eq!(problem.refusal, Some(Box::new(refusal)), "{language}: {body}");
    }
    // A script that deals with it, or says something else, speaks for itself.
    let caught = "local ok = pcall(client.sample, '?') return ok";
    assert_eq!(call("luau", caught, false).await, Ok(Value::Bool(false)));
    let other = "pcall(client.sample, '?') error('another thing')";
    assert_eq!(call("luau", other, false).await.unwrap_err().refusal, None);
}
