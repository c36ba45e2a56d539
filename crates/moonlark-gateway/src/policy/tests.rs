//! Rules and the gateway: what exists for whom, and how it runs.

mod every_name;
mod whole_sources;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::*;
use crate::gateway::Gateway;
use crate::tool_body::ToolBody;
use moonlark_core::catalog::{Catalog, ConnectingSource};
use moonlark_core::content::ToolAnswer;
use moonlark_core::problem::{ProblemCode, Result};
use moonlark_core::schema::Schema;
use moonlark_core::source_resources::{
    ResourceWatcher, SourceHealth, SourceResources, SourceState,
};
use moonlark_core::tool::{CallEffects, EffectKind, Source, SourceKind, ToolExposure, ToolListing};
use moonlark_core::value::Value;

fn source(kind: SourceKind, name: &str) -> Arc<Source> {
    Arc::new(Source { kind, name: name.to_owned() })
}

/// A tool that answers with its own name.
fn tool(kind: SourceKind, of: &str, name: &str, effects: CallEffects) -> Tool {
    let says = name.to_owned();
    let body = ToolBody::from_fn(move |_, _| Ok(says.as_str().into()));
    let schema = Schema::description_only(serde_json::Map::new());
    let mut tool = Tool::new(name, source(kind, of), schema, body);
    tool.effects = effects;
    tool
}

fn upstream(name: &str, effects: CallEffects) -> Tool {
    let (of, _) = name.split_once('.').unwrap();
    let mut tool = tool(SourceKind::Upstream, of, name, effects);
    tool.shown = ToolListing::As(name.replace('.', "__"));
    tool.expose = ToolExposure::Code;
    tool
}

fn gateway(tools: Vec<Tool>, rules: Vec<RuleTerms>) -> Gateway {
    let tools = tools.into_iter().map(Arc::new).collect();
    let gateway = Gateway::new(Catalog::new(Arc::default(), tools, &[], Vec::new()), 100);
    gateway.publish(policy(rules));
    gateway
}

fn policy(rules: Vec<RuleTerms>) -> CallPolicy {
    let place = |(index, terms)| (format!("policy.rules[{index}]"), terms);
    CallPolicy::new(rules.into_iter().enumerate().map(place).collect())
}

fn list(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn deny(tools: &[&str]) -> RuleTerms {
    RuleTerms { tools: list(tools), action: RuleAction::Deny, ..RuleTerms::default() }
}

fn names(gateway: &Gateway, caller: &Caller) -> Vec<String> {
    gateway.catalog_for(caller).tools().iter().map(|tool| tool.name.clone()).collect()
}

async fn call(gateway: &Gateway, caller: &Caller, name: &str) -> Result<Value> {
    let call = gateway.open_call(caller.clone())?;
    gateway.call(&call, name, Value::Object(Default::default())).await
}

fn nobody() -> Caller {
    Caller::new("rest")
}

fn tools() -> Vec<Tool> {
    let writes = CallEffects::default();
    vec![
        upstream("jira.search", CallEffects::READ_ONLY),
        upstream("jira.delete_issue", writes),
        upstream("git-hub.list-issues", CallEffects::READ_ONLY),
        tool(SourceKind::Script, "tools/report.luau", "report", writes),
    ]
}

#[tokio::test]
async fn a_denied_tool_is_not_there_under_any_of_its_names() {
    for pattern in [
        "git-hub.list-issues",
        "git_hub.list_issues",
        "git-hub__list-issues",
        "git-hub.*",
        "*list*",
    ] {
        let gateway = gateway(tools(), vec![deny(&[pattern])]);
        let expected = ["jira.search", "jira.delete_issue", "report"];
        assert_eq!(names(&gateway, &nobody()), expected, "{pattern}");
        let catalog = gateway.catalog_for(&nobody());
        assert!(catalog.sdk().find_source("git_hub").is_none(), "{pattern}");
        for name in ["git-hub.list-issues", "git-hub__list-issues"] {
            let problem = call(&gateway, &nobody(), name).await.unwrap_err();
            assert_eq!(problem.code, ProblemCode::NotFound, "{pattern}");
            assert!(!problem.to_string().contains("did you mean git"), "{problem}");
        }
    }
    let gateway = gateway(tools(), vec![deny(&["tools.report"])]);
    assert_eq!(call(&gateway, &nobody(), "report").await.unwrap_err().code, ProblemCode::NotFound);
}

#[tokio::test]
async fn a_tool_that_was_come_by_otherwise_is_denied_as_well() {
    let gateway = gateway(tools(), vec![deny(&["jira.delete_*"])]);
    let found = gateway.catalog().find_tool("jira.delete_issue").unwrap().clone();
    let call = gateway.open_call(nobody()).unwrap();
    let problem = gateway.invoke(&call, &found, Value::Null).await.unwrap_err();
    assert_eq!(problem.code, ProblemCode::NotFound);
}

#[test]
fn names_stay_what_they_are_for_those_who_see_less() {
    let clash = || {
        vec![
            upstream("a.get-sum", CallEffects::READ_ONLY),
            upstream("a.get.sum", CallEffects::READ_ONLY),
        ]
    };
    let gateway = gateway(clash(), vec![deny(&["a.get-sum"])]);
    let function = |catalog: &Catalog| {
        let sdk = catalog.sdk();
        let last = sdk.sources()[0].functions.last().unwrap();
        (last.name.clone(), last.original.clone())
    };
    let whole = function(&gateway.catalog());
    assert_eq!(whole, ("get_sum_2".to_owned(), "get.sum".to_owned()));
    let seen = gateway.catalog_for(&nobody());
    assert_eq!(function(&seen), whole);
    assert_eq!(seen.sdk().sources()[0].functions.len(), 1);
    assert_eq!(seen.sdk().find_function("a.get_sum_2").unwrap().1.tool.name, "a.get.sum");
}

#[test]
fn code_mode_is_there_only_for_those_who_have_a_use_for_it() {
    let mut all = tools();
    let mut execute = tool(SourceKind::Builtin, "moonlark", "execute", CallEffects::default());
    execute.shown = ToolListing::InCodeMode;
    all.push(execute);
    let mut for_ci = deny(&["jira.*", "git-hub.*"]);
    for_ci.callers = list(&["ci"]);
    let gateway = gateway(all, vec![for_ci]);
    let shown = |caller: &Caller| -> Vec<String> {
        gateway.catalog_for(caller).listed_tools().iter().map(|(name, _)| name.clone()).collect()
    };
    assert_eq!(shown(&nobody()), ["execute", "report"]);
    assert_eq!(shown(&nobody().with_name("ci")), ["report"]);
}

#[test]
fn what_a_caller_may_not_reach_stays_so_whatever_the_rules_say() {
    let read = |name: &str| upstream(name, CallEffects::READ_ONLY);
    let report = tool(SourceKind::Script, "tools/report.lua", "report", CallEffects::READ_ONLY);
    let gateway = gateway(vec![read("jira.search"), read("jira.get"), report], vec![]);
    let seen = |caller: &str| names(&gateway, &nobody().with_name(caller));
    let all = seen("ann");
    let limit = RuleTerms { callers: list(&["ci"]), except: list(&["jira.*"]), ..deny(&[]) };
    gateway.limit_callers(vec![("the token ci".into(), limit)]);
    assert_eq!(seen("ci"), ["jira.search", "jira.get"]);
    assert_eq!(seen("ann"), all);

    // Rules take away of what is left, and give nothing back.
    let allow = RuleTerms { callers: list(&["ci"]), ..RuleTerms::default() };
    gateway.publish(policy(vec![deny(&["jira.search"]), allow]));
    assert_eq!(seen("ci"), ["jira.get"]);
    let report = gateway.catalog().find_tool("report").unwrap().clone();
    assert_eq!(
        gateway.policy().explain_call(&gateway.catalog(), &report, "ci").deciding_rule().unwrap().0,
        "the token ci"
    );

    gateway.limit_callers(vec![]);
    assert_eq!(seen("ci"), ["jira.get", "report"]);
}

#[test]
fn callers_of_one_class_share_a_catalog_and_others_do_not() {
    let only = |callers: &[&str]| RuleTerms { callers: list(callers), ..deny(&["jira.*"]) };
    let gateway = gateway(tools(), vec![only(&["ci", "bot-*"])]);
    let of = |name: &str| gateway.catalog_for(&nobody().with_name(name));
    assert!(Arc::ptr_eq(&of("ci"), &of("bot-1")));
    assert!(Arc::ptr_eq(&of("alice"), &gateway.catalog_for(&nobody())));
    assert!(!Arc::ptr_eq(&of("ci"), &of("alice")));
    assert_eq!((of("ci").tools().len(), of("alice").tools().len()), (2, 4));
    gateway.publish(CallPolicy::default());
    assert!(Arc::ptr_eq(&of("ci"), &gateway.catalog()));
}

#[tokio::test]
async fn who_listens_hears_of_new_rules_once() {
    let gateway = gateway(tools(), vec![]);
    let mut changes = gateway.subscribe();
    changes.mark_unchanged();
    gateway.publish(policy(vec![]));
    assert!(!changes.has_changed().unwrap());
    gateway.publish(policy(vec![deny(&["jira.*"])]));
    assert!(changes.has_changed().unwrap());
    changes.mark_unchanged();
    gateway.publish(policy(vec![deny(&["jira.*"])]));
    assert!(!changes.has_changed().unwrap());
}

#[tokio::test]
async fn a_rate_is_counted_for_each_tool_and_caller_unless_it_says_otherwise() {
    let two = |per| RuleTerms { rate: "2/h".parse().ok(), per, ..RuleTerms::default() };
    for (per, expected) in [
        (CountingScope::ToolAndCaller, [true, true, false, true, true]),
        (CountingScope::Tool, [true, true, false, true, false]),
        (CountingScope::Caller, [true, true, false, false, true]),
        (CountingScope::Source, [true, true, false, false, false]),
    ] {
        let gateway = gateway(tools(), vec![two(per)]);
        let (a, b) = (nobody().with_name("a"), nobody().with_name("b"));
        let calls = [
            (&a, "jira.search"),
            (&a, "jira.search"),
            (&a, "jira.search"),
            (&a, "jira.delete_issue"),
            (&b, "jira.search"),
        ];
        let mut passed = Vec::new();
        for (caller, tool) in calls {
            passed.push(call(&gateway, caller, tool).await.is_ok());
        }
        assert_eq!(passed, expected, "{per:?}");
    }
}

#[tokio::test]
async fn both_variants_of_a_tool_are_one_tool() {
    let mut both = upstream("jira.search", CallEffects::READ_ONLY);
    let mut raw = tool(SourceKind::Upstream, "jira", "jira.search:raw", CallEffects::READ_ONLY);
    raw.shown = ToolListing::Not;
    both.raw = Some(Arc::new(raw));
    let once = RuleTerms {
        tools: list(&["jira.search"]),
        rate: "1/h".parse().ok(),
        ..RuleTerms::default()
    };
    let gateway = gateway(vec![both], vec![once]);
    let raw = gateway.catalog().find_tool("jira.search").unwrap().raw.clone().unwrap();
    let opened = gateway.open_call(nobody()).unwrap();
    assert!(gateway.invoke(&opened, &raw, Value::Null).await.is_ok());
    let refused = call(&gateway, &nobody(), "jira.search").await.unwrap_err();
    assert_eq!(refused.code, ProblemCode::RateLimited);
    gateway.publish(policy(vec![deny(&["jira.search"])]));
    let opened = gateway.open_call(nobody()).unwrap();
    let gone = gateway.invoke(&opened, &raw, Value::Null).await.unwrap_err();
    assert_eq!(gone.code, ProblemCode::NotFound);
}

#[tokio::test]
async fn who_is_refused_is_told_when_to_try_again_and_by_which_rule() {
    let rule = RuleTerms { rate: "1/min".parse().ok(), ..RuleTerms::default() };
    let gateway = gateway(tools(), vec![rule.clone()]);
    assert!(call(&gateway, &nobody(), "report").await.is_ok());
    // Other rules around it do not make it forget.
    gateway.publish(policy(vec![deny(&["jira.*"]), rule]));
    let problem = call(&gateway, &nobody(), "report").await.unwrap_err();
    assert_eq!(problem.code, ProblemCode::RateLimited);
    assert_eq!(problem.message, "tool 'report' may be called 1/min, which is used up");
    assert_eq!(problem.retry_after, Some(60));
    assert_eq!(
        problem.hint.as_deref(),
        Some("try again in 60 seconds; the limit is that of policy.rules[1]")
    );
}

#[tokio::test]
async fn a_refused_argument_costs_nothing() {
    let mut strict = tool(SourceKind::Script, "a.luau", "strict", CallEffects::default());
    let schema = serde_json::json!({"type": "object", "required": ["x"]});
    strict.input = Schema::compile(schema.as_object().unwrap().clone()).unwrap();
    let rule = RuleTerms { rate: "1/h".parse().ok(), ..RuleTerms::default() };
    let gateway = gateway(vec![strict], vec![rule]);
    for _ in 0..3 {
        let problem = call(&gateway, &nobody(), "strict").await.unwrap_err();
        assert_eq!(problem.code, ProblemCode::BadRequest);
    }
}

/// A tool that says how many of it run at once, and waits until told.
fn crowd(most: &Arc<AtomicUsize>) -> Tool {
    let (inside, most) = (Arc::new(AtomicUsize::new(0)), most.clone());
    let body = ToolBody::from_async_fn(move |_, _| {
        let (inside, most) = (inside.clone(), most.clone());
        async move {
            let now = inside.fetch_add(1, Ordering::AcqRel) + 1;
            most.fetch_max(now, Ordering::AcqRel);
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            inside.fetch_sub(1, Ordering::AcqRel);
            Ok(Value::Null)
        }
    });
    let schema = Schema::description_only(serde_json::Map::new());
    Tool::new("crowd", source(SourceKind::Script, "a.luau"), schema, body)
}

#[tokio::test]
async fn more_calls_than_may_run_at_once_wait() {
    let most = Arc::new(AtomicUsize::new(0));
    let rule = RuleTerms { concurrency: Some(3), ..RuleTerms::default() };
    let gateway = gateway(vec![crowd(&most)], vec![rule]);
    let caller = nobody();
    let calls = (0..20).map(|_| call(&gateway, &caller, "crowd"));
    let ended = futures::future::join_all(calls).await;
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
    assert_eq!(most.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn who_waits_too_long_is_told_so() {
    let body = ToolBody::from_async_fn(|_, _| std::future::pending());
    let schema = Schema::description_only(serde_json::Map::new());
    let stuck = Tool::new("stuck", source(SourceKind::Script, "a.luau"), schema, body);
    let rule = RuleTerms {
        concurrency: Some(1),
        timeout: Some(Duration::from_millis(200)),
        ..RuleTerms::default()
    };
    let gateway = gateway(vec![stuck], vec![rule]);
    let caller = nobody();
    let (first, second) =
        tokio::join!(call(&gateway, &caller, "stuck"), call(&gateway, &caller, "stuck"));
    let first = first.unwrap_err();
    assert_eq!(first.code, ProblemCode::Timeout);
    assert_eq!(first.message, "tool 'stuck' timed out after 0.2 seconds", "the rule's own time");
    let second = second.unwrap_err();
    assert_eq!((second.code, second.retry_after), (ProblemCode::RateLimited, Some(1)));
}

#[tokio::test]
async fn a_tool_that_calls_itself_does_not_wait_for_itself() {
    let body = ToolBody::from_async_fn(|call, args| async move {
        let again = call.depth() < 5;
        if again {
            call.gateway().clone().call(&call, "again", args).await
        } else {
            Ok("done".into())
        }
    });
    let schema = Schema::description_only(serde_json::Map::new());
    let mut again = Tool::new("again", source(SourceKind::Script, "a.luau"), schema, body);
    let scope = moonlark_core::tool::CallScope {
        grants: moonlark_core::grant::GrantSet::for_agent_script(
            "a",
            None,
            vec!["tool:*".parse().unwrap()],
        ),
        ..Default::default()
    };
    again.scope = Arc::new(scope);
    let rule = RuleTerms { concurrency: Some(1), ..RuleTerms::default() };
    let gateway = gateway(vec![again], vec![rule]);
    assert_eq!(call(&gateway, &nobody(), "again").await, Ok("done".into()));
}

#[tokio::test]
async fn answers_are_kept_of_tools_that_only_read_and_for_their_caller() {
    let counting = |name: &str, effects| {
        let count = AtomicUsize::new(0);
        let body = ToolBody::from_fn(move |_, _| {
            let count = count.fetch_add(1, Ordering::Relaxed);
            Ok(Value::Int(i64::try_from(count).unwrap()))
        });
        let schema = Schema::description_only(serde_json::Map::new());
        let mut tool = Tool::new(name, source(SourceKind::Script, "a.luau"), schema, body);
        tool.effects = effects;
        tool
    };
    let cache =
        |per| RuleTerms { cache: Some(Duration::from_secs(3600)), per, ..RuleTerms::default() };
    let all = || {
        vec![counting("read", CallEffects::READ_ONLY), counting("write", CallEffects::default())]
    };
    let (a, b) = (nobody().with_name("a"), nobody().with_name("b"));
    let calls = [(&a, "read"), (&a, "read"), (&b, "read"), (&a, "write"), (&a, "write")];
    for (per, expected) in
        [(CountingScope::ToolAndCaller, [0, 0, 1, 0, 1]), (CountingScope::Tool, [0, 0, 0, 0, 1])]
    {
        let gateway = gateway(all(), vec![cache(per)]);
        for ((caller, tool), expected) in calls.iter().zip(expected) {
            let answered = call(&gateway, caller, tool).await;
            assert_eq!(answered, Ok(Value::Int(expected)), "{per:?} {tool}");
        }
        let call = gateway.open_call(a.clone()).unwrap();
        let other = Value::from_fields([("other", Value::Int(1))]);
        let answered = gateway.invoke(&call, "read", other).await;
        assert_ne!(answered, Ok(ToolAnswer::Value(Value::Int(0))), "other arguments, other answer");
    }
}

#[test]
fn the_first_rule_that_matches_decides_and_the_others_say_why_not() {
    let rules = vec![
        RuleTerms { effects: vec![EffectKind::Destructive], ..deny(&[]) },
        RuleTerms { kinds: vec![SourceKind::Script], ..deny(&[]) },
        RuleTerms { sources: list(&["git*"]), ..deny(&[]) },
        RuleTerms { callers: list(&["ci"]), ..deny(&[]) },
        deny(&["*.find"]),
        RuleTerms { rate: "1/s".parse().ok(), ..RuleTerms::default() },
        deny(&[]),
    ];
    let explained = policy(rules).explain_call(
        &Catalog::default(),
        &upstream("jira.search", CallEffects::READ_ONLY),
        "anonymous",
    );
    let misses: Vec<Option<RuleMismatch>> = explained.looked_at.iter().map(|it| it.2).collect();
    let expected = [
        Some(RuleMismatch::Effects),
        Some(RuleMismatch::Kinds),
        Some(RuleMismatch::Sources),
        Some(RuleMismatch::Callers),
        Some(RuleMismatch::Tools),
        None,
    ];
    assert_eq!(misses, expected);
    assert_eq!(explained.deciding_rule().unwrap().0, "policy.rules[5]");
    assert_eq!(
        policy(vec![]).explain_call(&Catalog::default(), &tools()[0], "ci").deciding_rule(),
        None
    );
}

#[test]
fn what_only_calls_has_no_effects_but_a_name_a_kind_and_a_source() {
    let mut execute = tool(SourceKind::Builtin, "moonlark", "execute", CallEffects::default());
    let destructive = || RuleTerms { effects: vec![EffectKind::Destructive], ..deny(&[]) };
    let decides = |execute: &Tool, terms: RuleTerms| {
        policy(vec![terms])
            .explain_call(&Catalog::default(), execute, "ci")
            .deciding_rule()
            .is_some()
    };
    assert!(decides(&execute, destructive()));
    execute.only_calls = true;
    let execute = execute.with_name("execute".to_owned());
    assert!(!decides(&execute, destructive()));
    assert!(!decides(&execute, RuleTerms { effects: vec![EffectKind::ReadOnly], ..deny(&[]) }));
    assert!(decides(&execute, deny(&["exec*"])));
    assert!(decides(&execute, RuleTerms { kinds: vec![SourceKind::Builtin], ..deny(&[]) }));
    assert!(decides(&execute, RuleTerms { sources: list(&["moonlark"]), ..deny(&[]) }));
}

#[test]
fn effects_mean_what_they_do_and_not_every_mark() {
    let of = |read_only, destructive, idempotent, open_world| {
        let effects = CallEffects { read_only, destructive, idempotent, open_world };
        EffectKind::all_for_effects(effects).map(EffectKind::as_str).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(of(true, true, false, false), "read-only idempotent");
    assert_eq!(of(false, true, false, true), "writes destructive open-world");
    assert_eq!(of(false, false, true, false), "writes idempotent");
}

#[test]
fn rules_that_do_nothing_are_reported() {
    let gateway = gateway(tools(), vec![]);
    let faults = |rules: Vec<RuleTerms>| -> Vec<String> {
        policy(rules).find_faults(&gateway.catalog()).iter().map(|it| it.message.clone()).collect()
    };
    let for_ci = |terms: RuleTerms| RuleTerms { callers: list(&["ci"]), ..terms };
    assert_eq!(faults(vec![deny(&["jira.*"]), deny(&[])]), [""; 0]);
    assert_eq!(faults(vec![deny(&["jria.*"])]), ["policy.rules[0] matches no tool"]);
    assert_eq!(
        faults(vec![deny(&["jira.*", "jira.serach"])]),
        [r#"policy.rules[0] has "jira.serach" in tools, which matches nothing"#]
    );
    let hints = |rules: Vec<RuleTerms>| -> Vec<Option<String>> {
        policy(rules).find_faults(&gateway.catalog()).into_iter().map(|it| it.hint).collect()
    };
    let hint = |text: &str| Some(text.to_owned());
    assert_eq!(hints(vec![deny(&["jria.*"])]), [hint("did you mean jira.*?")]);
    // Every slip of a rule has its own suggestion.
    assert_eq!(
        hints(vec![deny(&["jria.*", "rpeort"])]),
        [hint("did you mean jira.* for jria.*, report for rpeort?")]
    );
    assert_eq!(
        hints(vec![deny(&["jira.*", "jira.serach", "rpeort"])]),
        [hint("did you mean jira.search?"), hint("did you mean report?")]
    );
    assert_eq!(
        faults(vec![
            deny(&["jira.*"]),
            RuleTerms { tools: list(&["jira.search"]), ..RuleTerms::default() }
        ]),
        ["policy.rules[1] never decides: all it matches is decided by policy.rules[0]"]
    );
    assert_eq!(faults(vec![for_ci(deny(&["jira.*"])), deny(&["jira.*"])]), [""; 0]);
    assert_eq!(
        faults(vec![deny(&["jira.*"]), for_ci(deny(&["jira.*"]))]),
        ["policy.rules[1] never decides: all it matches is decided by policy.rules[0]"]
    );
    let cache = RuleTerms {
        tools: list(&["report"]),
        cache: Some(Duration::from_secs(1)),
        ..RuleTerms::default()
    };
    assert_eq!(
        faults(vec![cache]),
        ["policy.rules[0] caches nothing: none of its tools is known to only read"]
    );
}

#[test]
fn a_source_that_is_down_hides_no_slip_in_the_rules_about_it() {
    let down = SourceHealth {
        source: "tracker".to_owned(),
        state: SourceState::Failed,
        ..SourceHealth::default()
    };
    let tools = tools().into_iter().map(Arc::new).collect();
    let catalog = Catalog::new(Arc::default(), tools, &[], Vec::new()).with_health(vec![down]);
    let faults = |rules: Vec<RuleTerms>| -> Vec<String> {
        policy(rules).find_faults(&catalog).iter().map(|it| it.to_string()).collect()
    };
    let said = |message: &str, near: &str| {
        format!(
            "error[bad_config]: policy.rules[0] {message}\n  --> policy.rules[0]\nhint: did you mean {near}?"
        )
    };
    assert_eq!(faults(vec![deny(&["tracker.wipe", "jira.search"])]), [""; 0]);
    assert_eq!(
        faults(vec![deny(&["tracker.wipe", "rpeort", "jria.*"])]),
        [
            said("has \"rpeort\" in tools, which matches nothing", "report"),
            said("has \"jria.*\" in tools, which matches nothing", "jira.*"),
        ]
    );
    // Its own name can be misspelt too.
    assert_eq!(faults(vec![deny(&["trakcer.*"])]), [said("matches no tool", "tracker.*")]);
}

struct Unwatched;

impl ResourceWatcher for Unwatched {
    fn release_lease(&self, _lease: u64) {}
}

fn offers(kind: SourceKind, name: &str, door: &str, resources: &[String]) -> Arc<SourceResources> {
    let mut door = tool(kind, name, door, CallEffects::default());
    door.shown = ToolListing::Not;
    let resource = |uri: &String| {
        let Value::Object(fields) = Value::from_fields([("uri", uri.as_str().into())]) else {
            panic!()
        };
        fields
    };
    Arc::new(SourceResources {
        app_uris: Arc::default(),
        source: source(kind, name),
        uris: format!("mcp://{name}/"),
        names: format!("{name}/"),
        resources: Arc::new(resources.iter().map(resource).collect()),
        templates: Arc::default(),
        prompts: Arc::default(),
        capabilities: Arc::default(),
        instructions: None,
        door: Arc::new(door),
        watcher: Arc::new(Unwatched),
    })
}
