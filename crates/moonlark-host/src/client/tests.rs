//! A caller that answers as the test says, and what it was asked.

use std::sync::{Arc, Mutex};

use moonlark_core::problem::ProtocolError;
use moonlark_core::schema::Schema;
use moonlark_core::tool::{BoxFuture, Source, SourceKind, Tool};
use moonlark_core::{Catalog, Module, Result, Value};
use moonlark_gateway::call_client::{CallClient, ClientQuestion, RequestEnvelope};
use moonlark_gateway::gateway::CallOptions;
use moonlark_gateway::tool_body::ToolBody;
use moonlark_gateway::{Caller, Gateway};
use serde_json::{Value as Json, json};

/// Answers everything with one value.
struct Fake {
    answer: Json,
    asked: Mutex<Vec<Json>>,
}

impl CallClient for Fake {
    fn can_answer(&self, question: &ClientQuestion) -> bool {
        question.method != "roots/list"
    }

    fn missing_capability(&self, _: &ClientQuestion) -> Option<ProtocolError> {
        None
    }

    fn ask_question(&self, question: ClientQuestion) -> BoxFuture<Result<Value>> {
        let params = Value::Object(question.params).to_json_lossy();
        self.asked.lock().unwrap().push(json!([question.method, question.name, params]));
        let answer = Value::from_json(self.answer.clone());
        Box::pin(async move { answer })
    }

    fn envelope(&self) -> &RequestEnvelope {
        unreachable!("only sources of the caller's protocol look")
    }

    fn owner_id(&self) -> u64 {
        1
    }
}

/// What a script gets from `client.{function}`, and what the caller was asked.
async fn ask(function: &str, args: Json, answer: Json) -> (String, Vec<Json>) {
    let modules: Vec<Module> = crate::host_modules();
    let module = modules.iter().find(|module| module.name == "client").unwrap();
    let function = module.functions.iter().find(|it| it.name == function).unwrap().clone();
    let body = ToolBody::from_async_fn(move |call, args| {
        let tool = function.tool.clone();
        async move { call.gateway().call(&call, &tool, args).await }
    });
    let source = Arc::new(Source { kind: SourceKind::Script, name: "test.luau".into() });
    let schema = Schema::compile(serde_json::Map::new()).unwrap();
    let script = Arc::new(Tool::new("script", source, schema, body));
    let gateway = Gateway::new(Catalog::new(Arc::new(modules), vec![script], &[], vec![]), 10);
    let client = Arc::new(Fake { answer, asked: Mutex::default() });
    let options = CallOptions::from(Caller::new("mcp")).with_client(Some(client.clone()));
    let call = gateway.open_call(options).unwrap();
    let ended = gateway.call(&call, "script", Value::from_json(args).unwrap()).await;
    let ended = match ended {
        Ok(value) => value.to_json_lossy().to_string(),
        Err(problem) => problem.to_string(),
    };
    let asked = client.asked.lock().unwrap().clone();
    (ended, asked)
}

#[tokio::test]
async fn a_form_is_asked_and_its_answer_held_to_it() {
    let schema = json!({"properties": {"age": {"type": "integer"}}, "required": ["age"]});
    let args = json!({"message": "How old?", "schema": schema});
    let (ended, asked) = ask(
        "elicit",
        args.clone(),
        json!({"action": "accept", "content": {"age": 7}, "_meta": {}}),
    )
    .await;
    assert_eq!(ended, r#"{"action":"accept","content":{"age":7}}"#);
    let sent = json!({
        "message": "How old?",
        "requestedSchema":
            {"properties": {"age": {"type": "integer"}}, "required": ["age"], "type": "object"},
    });
    assert_eq!(asked, [json!(["elicitation/create", null, sent])]);

    for (answer, expected) in [
        (json!({"action": "decline"}), r#"{"action":"decline"}"#),
        (json!({"action": "cancel", "content": {"age": 7}}), r#"{"action":"cancel"}"#),
        (
            json!({"action": "accept", "content": {"age": "seven"}}),
            "error[tool_error]: client.elicit: the caller's answer does not fit the form: field 'age' must be integer, got string",
        ),
        (
            json!({"action": "accept"}),
            "error[tool_error]: client.elicit: the caller's answer does not fit the form: missing required field: age",
        ),
        (
            json!({"action": "shrug"}),
            "error[tool_error]: client.elicit: the caller answered with something else than asked: action: unknown variant `shrug`, expected one of `accept`, `decline`, `cancel`",
        ),
    ] {
        assert_eq!(ask("elicit", args.clone(), answer).await.0, expected);
    }
}

#[tokio::test]
async fn a_form_that_no_client_could_show_is_not_asked() {
    let field = json!({"type": "object", "properties": {"street": {"type": "string"}}});
    for (schema, expected) in [
        (
            json!({"properties": {"address": field}}),
            "schema.properties.address.type must be one of string, number, integer, boolean, array",
        ),
        (json!({"type": "object"}), "schema must describe an object with properties"),
        (
            json!({"properties": {"a": {"type": "string", "minLength": "x"}}}),
            "the schema is not valid",
        ),
    ] {
        let args = json!({"message": "?", "schema": schema});
        let (ended, asked) = ask("elicit", args, json!({"action": "accept"})).await;
        assert!(ended.contains(expected), "{ended}");
        assert_eq!(asked, [Json::Null; 0]);
    }
}

#[tokio::test]
async fn a_page_to_visit_has_an_id_and_no_form() {
    let args = json!({"message": "Sign in.", "url": "https://example.com/in"});
    let (ended, asked) = ask("elicit", args, json!({"action": "accept"})).await;
    assert_eq!(ended, r#"{"action":"accept"}"#);
    let params = &asked[0][2];
    assert_eq!(
        (&params["mode"], &params["url"]),
        (&json!("url"), &json!("https://example.com/in"))
    );
    assert_eq!(params["elicitationId"].as_str().unwrap().len(), 36);
    assert_eq!(params.get("requestedSchema"), None);
}

#[tokio::test]
async fn a_text_is_one_message_of_the_user() {
    let content = json!({"type": "text", "text": "Paris."});
    let answer = json!({"role": "assistant", "content": content, "model": "m", "more": 1});
    let (ended, asked) = ask("sample", json!({"messages": "The capital?"}), answer.clone()).await;
    assert_eq!(
        ended,
        r#"{"role":"assistant","content":{"type":"text","text":"Paris."},"model":"m"}"#
    );
    let said = json!({"role": "user", "content": {"type": "text", "text": "The capital?"}});
    let sent = json!({"messages": [said], "maxTokens": 1000});
    assert_eq!(asked, [json!(["sampling/createMessage", null, sent])]);

    let image = json!({"type": "image", "data": "aGk=", "mimeType": "image/png"});
    let args = json!({
        "messages": [{"role": "user", "content": "Look:"}, {"role": "assistant", "content": image}],
        "system": "Be short.", "max_tokens": 5, "temperature": 0.5, "stop": ["."], "model": "small",
    });
    let sent = json!({
        "messages": [
            {"role": "user", "content": {"type": "text", "text": "Look:"}},
            {"role": "assistant", "content": image},
        ],
        "maxTokens": 5, "systemPrompt": "Be short.", "temperature": 0.5, "stopSequences": ["."],
        "modelPreferences": {"hints": [{"name": "small"}]},
    });
    assert_eq!(ask("sample", args, answer).await.1[0][2], sent);
    let (ended, _) = ask("sample", json!({"messages": "?"}), json!({"role": "assistant"})).await;
    assert!(ended.contains("answered with something else than asked"), "{ended}");
}

#[tokio::test]
async fn what_the_caller_does_not_offer_is_said_and_can_be_known() {
    for (what, can) in [("elicitation", "true"), ("sampling", "true"), ("roots", "false")] {
        assert_eq!(ask("can", json!({"what": what}), Json::Null).await.0, can);
    }
    assert_eq!(
        ask("roots", json!({}), json!({"roots": []})).await.0,
        "error[unavailable]: client.roots: script needs roots/list of the caller, which it does not offer\nhint: call it from an MCP client that declares this capability"
    );
}

#[tokio::test]
async fn several_questions_have_their_names() {
    let args = json!({"questions": {"who": {"elicit": "Who?"}, "why": {"elicit": "Why?"}}});
    let (ended, asked) = ask("ask", args, json!({"action": "decline"})).await;
    assert_eq!(ended, r#"{"who":{"action":"decline"},"why":{"action":"decline"}}"#);
    let named: Vec<&Json> = asked.iter().map(|asked| &asked[1]).collect();
    assert_eq!(named, ["who", "why"]);
    for (question, expected) in [
        (json!({"elicit": "?", "sample": "?"}), "who must have one of elicit, sample and roots"),
        (json!({"elicit": "?", "max_tokens": 3}), "and only its options"),
        (json!({"roots": false}), "who must have one of"),
        (json!({"ask": "?"}), "unknown field `ask`"),
    ] {
        let args = json!({"questions": {"who": question}});
        let (ended, asked) = ask("ask", args, json!({"action": "decline"})).await;
        assert!(ended.contains(expected), "{ended}");
        assert_eq!(asked, [Json::Null; 0]);
    }
    let many: serde_json::Map<String, Json> =
        (0..17).map(|number| (number.to_string(), json!({"elicit": "?"}))).collect();
    let (ended, _) = ask("ask", json!({"questions": many}), Json::Null).await;
    assert!(ended.contains("more than 16 questions at once"), "{ended}");
}
