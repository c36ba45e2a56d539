//! Connector scripts, from their text to what comes out.

use std::sync::Arc;
use std::time::Duration;

use moonlark_core::limits::CallLimits;
use moonlark_core::{Problem, ProblemCode, Result, Value};
use moonlark_gateway::Caller;
use tokio::sync::mpsc;

use super::{CompletedScan, ConnectorScript};
use crate::ScriptFile;
use crate::luau_testing::Folder;

async fn load(folder: &Folder, text: &str) -> Result<ConnectorScript> {
    folder.write("main.luau", text);
    let script = ScriptFile {
        file: "connectors/main.luau".to_owned(),
        folder: "connectors".to_owned(),
        main: "main.luau".to_owned(),
        files: folder.files(),
        configured: None,
        scope: folder.scope(),
        loading: Arc::new(folder.scope()),
    };
    folder.engine.load_connector(script, &folder.gateway(vec![])).await.0
}

/// What a scan gives: items as JSON, problems as `!message`; and how it ended.
async fn scan(folder: &Folder, text: &str, state: &str) -> (Vec<String>, Result<CompletedScan>) {
    let connector = match load(folder, text).await {
        Ok(connector) => connector,
        Err(problem) => return (Vec::new(), Err(problem)),
    };
    let mut scope = folder.scope();
    scope.config = Value::from_fields([("team", "red".into())]);
    let call = folder.gateway(vec![]).open_scoped_call(Caller::new("sync"), Arc::new(scope));
    let state = Value::parse_json(state.as_bytes()).unwrap();
    // One place: every item but the first has to wait for its turn.
    let (sender, mut items) = mpsc::channel(1);
    let scanning = connector.run_scan(&call, state, sender);
    let taking = async {
        let mut taken = Vec::new();
        while let Some(item) = items.recv().await {
            taken.push(match item {
                Ok(item) => item.to_json_lossy().to_string(),
                Err(problem) => format!("!{}", problem.message),
            });
        }
        taken
    };
    let (ended, taken) = tokio::join!(scanning, taking);
    (taken, ended)
}

fn connector(body: &str) -> String {
    format!("connector = {{ name = 'main' }}\nfunction connector.scan(config)\n{body}\nend\n")
}

async fn check(body: &str, items: &[&str], state: &str, incremental: bool) {
    let folder = Folder::new(&[]);
    let (taken, ended) = scan(&folder, &connector(body), r#"{"cursor": 7}"#).await;
    let state = Value::parse_json(state.as_bytes()).unwrap();
    assert_eq!(ended, Ok(CompletedScan { state, incremental }), "{body}");
    assert_eq!(taken, items, "{body}");
}

#[tokio::test]
async fn items_come_from_a_list_an_iterator_a_coroutine_or_emit() {
    let three = [r#"{"n":1}"#, r#"{"n":2}"#, r#"{"n":3}"#];
    let same = r#"{"cursor":7}"#;
    for body in [
        "return { { n = 1 }, { n = 2 }, { n = 3 } }",
        "local n = 0 return function() n += 1 if n <= 3 then return { n = n } end end",
        "return ipairs({ { n = 1 }, { n = 2 }, { n = 3 } })",
        "return coroutine.wrap(function() for n = 1, 3 do sleep(0.001) coroutine.yield({ n = n }) end end)",
        "return coroutine.create(function() for n = 1, 3 do coroutine.yield({ n = n }) end end)",
        "return setmetatable({}, { __iter = function() return ipairs({ { n = 1 }, { n = 2 }, { n = 3 } }) end })",
        "for n = 1, 3 do sleep(0.001) emit({ n = n }) end",
        "emit({ n = 1 }) return { { n = 2 }, { n = 3 } }",
        "local function page(n) emit({ n = n }) end page(1) page(2) return { { n = 3 } }",
    ] {
        check(body, &three, same, false).await;
    }
    check("return {}", &[], same, false).await;
    check("", &[], same, false).await;
    check("return { { team = config.team } }", &[r#"{"team":"red"}"#], same, false).await;
}

#[tokio::test]
async fn what_state_is_at_the_end_is_what_it_is_next_time() {
    check("state.cursor += 1", &[], r#"{"cursor":8}"#, true).await;
    check("local now = state.cursor emit({ n = now })", &[r#"{"n":7}"#], r#"{"cursor":7}"#, true)
        .await;
    check("state = { page = 2 }", &[], r#"{"page":2}"#, true).await;
    check("state.cursor = nil", &[], "{}", true).await;
    // It is read when it is needed, not when the script is loaded.
    check("if false then print(state.cursor) end", &[], r#"{"cursor":7}"#, false).await;
    check(
        "state.cursor = 9 local function read() return state.cursor end return { { n = read() } }",
        &[r#"{"n":9}"#],
        r#"{"cursor":9}"#,
        true,
    )
    .await;
}

#[tokio::test]
async fn an_item_that_is_no_value_fails_alone() {
    let body = "emit({ n = 1 }) emit({ f = print }) local c = {} c.c = c emit(c) emit({ n = 2 })";
    let items = [
        r#"{"n":1}"#,
        "!the item.f is a function, which is not a value",
        "!the item.c refers back to a table that contains it",
        r#"{"n":2}"#,
    ];
    check(body, &items, r#"{"cursor":7}"#, false).await;
}

#[tokio::test]
async fn what_ends_a_scan_is_a_problem_and_what_was_found_before_is_kept() {
    let hint = "\nhint: return a list of items or an iterator, or call emit(item) for each and return nothing";
    for (body, items, expected) in [
        (
            "emit({ n = 1 })\nerror('the server is gone')",
            1,
            "error[tool_error]: the server is gone\n  --> connectors/main.luau:4".to_owned(),
        ),
        (
            "return 5",
            0,
            format!(
                "error[tool_error]: connector.scan returned a number\n  --> connectors/main.luau{hint}"
            ),
        ),
        (
            "return { source_id = 'x' }",
            0,
            format!(
                "error[tool_error]: connector.scan returned one item and no list\n  --> connectors/main.luau{hint}"
            ),
        ),
        (
            "return { a = { n = 1 } }",
            0,
            format!(
                "error[tool_error]: connector.scan returned a table that is no list\n  --> connectors/main.luau{hint}"
            ),
        ),
        (
            "emit({ n = 1 }) return coroutine.create(function() error('inside') end)",
            1,
            "error[tool_error]: inside\n  --> connectors/main.luau:3".to_owned(),
        ),
        (
            "emit({ n = 1 }) state.f = print",
            1,
            "error[tool_error]: state.f is a function, which is not a value".to_owned(),
        ),
        (
            "context.search('x')",
            0,
            "error[tool_error]: attempt to index nil with 'search'\n  --> connectors/main.luau:3"
                .to_owned(),
        ),
    ] {
        let (taken, ended) = scan(&Folder::new(&[]), &connector(body), "null").await;
        assert_eq!(ended.unwrap_err().to_string(), expected, "{body}");
        assert_eq!(taken.len(), items, "{body}");
    }
}

#[tokio::test]
async fn a_scan_that_never_ends_is_ended() {
    let mut folder = Folder::new(&[]);
    folder.limits = CallLimits { timeout: Duration::from_millis(300), ..CallLimits::default() };
    for body in [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "while true do emit({ n = 1 }) end",
        "return function() return { n = 1 } end",
        "sleep(3600)",
        "state.x = string.rep('x', 100) while true do sleep(0.01) end",
    ] {
        let (_, ended) = scan(&folder, &connector(body), "null").await;
        let Problem { code, message, .. } = ended.unwrap_err();
        assert_eq!(
            (code, &*message),
            (ProblemCode::Timeout, "the scan was not done after 0.3 seconds")
        );
    }
}

#[tokio::test]
async fn a_script_that_is_no_connector_says_what_is_missing() {
    for (text, expected) in [
        ("x = 1", "the script defines no global table named connector"),
        ("connector = 5", "connector must be a table"),
        ("connector = { name = 'x' }", "connector.scan is not a function"),
        ("connector = { nmae = 'x', scan = function() end }", "connector.nmae means nothing"),
        (
            "connector = { name = 5, scan = function() end }",
            "connector.name must be a string, got integer",
        ),
        (
            "emit({}) connector = { scan = function() end }",
            "emit is only there while connector.scan runs",
        ),
    ] {
        let problem = load(&Folder::new(&[]), text).await.map(|_| ()).unwrap_err();
        assert_eq!((problem.code, &*problem.message), (ProblemCode::BadScript, expected), "{text}");
    }
    let folder = Folder::new(&[("lib.luau", "return { name = 'from lib' }")]);
    let text = "connector = { name = require('./lib').name, version = '1', description = 'd' }\nfunction connector.scan() end";
    let loaded = load(&folder, text).await.unwrap();
    assert_eq!(
        (loaded.name.as_deref(), loaded.version.as_deref(), &*loaded.description),
        (Some("from lib"), Some("1"), "d")
    );
}

#[tokio::test]
async fn a_state_that_is_too_large_is_refused() {
    let body = "state.all = string.rep('x', 2 * 1024 * 1024)";
    let (_, ended) = scan(&Folder::new(&[]), &connector(body), "null").await;
    assert_eq!(ended.unwrap_err().code, ProblemCode::Limit);
}
