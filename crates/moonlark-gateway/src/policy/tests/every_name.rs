//! A rule that names a tool holds for it under every name it is ever given.

use super::*;

/// Two tools of one API that their document calls the same.
fn twins() -> Vec<Tool> {
    let twin = |name: &str| {
        let mut tool = tool(SourceKind::Api, "x", name, CallEffects::default());
        tool.original_name = Some("wipe".to_owned());
        tool.shown = ToolListing::As("x__wipe".to_owned());
        tool.expose = ToolExposure::Both;
        tool
    };
    vec![twin("x.wipe"), twin("x.wipe_2")]
}

#[tokio::test]
async fn a_tool_that_was_given_a_number_is_denied_under_the_name_of_its_source() {
    for pattern in ["x.wipe", "x__wipe", "x.*"] {
        let gateway = gateway(twins(), vec![deny(&[pattern])]);
        assert_eq!(names(&gateway, &nobody()), [""; 0], "{pattern}");
        for name in ["x.wipe", "x.wipe_2", "x__wipe", "x__wipe_2"] {
            let problem = call(&gateway, &nobody(), name).await.unwrap_err();
            assert_eq!(problem.code, ProblemCode::NotFound, "{pattern} {name}");
        }
    }
    // Names that only the catalog made are names too.
    for pattern in ["x.wipe_2", "x__wipe_2"] {
        let gateway = gateway(twins(), vec![deny(&[pattern])]);
        assert_eq!(names(&gateway, &nobody()), ["x.wipe"], "{pattern}");
        let found = gateway.catalog().find_tool("x.wipe_2").unwrap().clone();
        let call = gateway.open_call(nobody()).unwrap();
        let problem = gateway.invoke(&call, &found, Value::Null).await.unwrap_err();
        assert_eq!(problem.code, ProblemCode::NotFound, "{pattern}");
    }
}

#[tokio::test]
async fn a_renamed_tool_is_denied_under_its_original_name_with_every_prefix() {
    for prefix in ["", "disk_", "files__"] {
        let renamed = || {
            let mut tool = upstream("files.wipe", CallEffects::default());
            tool.original_name = Some("delete-all".to_owned());
            tool.shown = ToolListing::As(format!("{prefix}wipe"));
            tool.expose = ToolExposure::Both;
            vec![tool]
        };
        let pattern = format!("{prefix}delete-all");
        let gateway = gateway(renamed(), vec![deny(&[&pattern])]);
        assert_eq!(names(&gateway, &nobody()), [""; 0], "{pattern}");
        assert!(call(&gateway, &nobody(), "files.wipe").await.is_err(), "{pattern}");
    }
}

#[tokio::test]
async fn a_script_with_the_name_of_another_goes_by_the_same_rule() {
    let script = |file: &str| tool(SourceKind::Script, file, "pay", CallEffects::default());
    let both = || vec![script("tools/a.luau"), script("tools/b.luau")];
    let gateway = gateway(both(), vec![deny(&["pay"])]);
    assert_eq!(names(&gateway, &nobody()), [""; 0]);
    assert!(call(&gateway, &nobody(), "pay_2").await.is_err());
}

#[tokio::test]
async fn a_script_that_stands_in_for_a_built_in_is_denied_by_its_names() {
    let mut builtin =
        tool(SourceKind::Builtin, "knowledge", "get_document", CallEffects::READ_ONLY);
    builtin.aliases = vec!["get".to_owned()];
    let script = tool(SourceKind::Script, "tools/get.luau", "get_document", CallEffects::READ_ONLY);
    let all = vec![Arc::new(builtin), Arc::new(script)];
    let catalog = Catalog::new(Arc::default(), all, &["get_document"], Vec::new());
    let gateway = Gateway::new(catalog, 10);
    assert!(call(&gateway, &nobody(), "get").await.is_ok());
    gateway.publish(policy(vec![deny(&["get"])]));
    assert_eq!(
        call(&gateway, &nobody(), "get_document").await.unwrap_err().code,
        ProblemCode::NotFound
    );
}

#[tokio::test]
async fn identifiers_that_scripts_see_are_names_of_rules() {
    let clash = || {
        vec![
            upstream("a.get-sum", CallEffects::READ_ONLY),
            upstream("a.get.sum", CallEffects::READ_ONLY),
        ]
    };
    let gateway = gateway(clash(), vec![deny(&["a.get_sum_2"])]);
    assert_eq!(names(&gateway, &nobody()), ["a.get-sum"]);
}

#[tokio::test]
async fn a_tool_that_only_scripts_call_is_denied_by_the_name_it_would_be_listed_under() {
    let operation = || {
        let mut tool =
            tool(SourceKind::Api, "hub", "hub.issues/create.now", CallEffects::default());
        tool.shown = ToolListing::As("hub__issues/create.now".to_owned());
        tool.expose = ToolExposure::Code;
        vec![tool]
    };
    for pattern in ["hub__issues/create.now", "hub__issues_create_now", "hub.issues_create_now"] {
        let gateway = gateway(operation(), vec![deny(&[pattern])]);
        assert_eq!(names(&gateway, &nobody()), [""; 0], "{pattern}");
    }
}

#[tokio::test]
async fn rates_are_counted_under_the_name_of_the_source() {
    let once =
        RuleTerms { tools: list(&["x.wipe"]), rate: "1/day".parse().ok(), ..RuleTerms::default() };
    let gateway = gateway(twins(), vec![once]);
    assert!(call(&gateway, &nobody(), "x.wipe").await.is_ok());
    for name in ["x.wipe", "x.wipe_2", "x__wipe_2"] {
        let problem = call(&gateway, &nobody(), name).await.unwrap_err();
        assert_eq!(problem.code, ProblemCode::RateLimited, "{name}");
    }
}

#[test]
fn what_only_permits_is_for_the_tool_that_has_the_name() {
    // By a token,
    let gateway = gateway(twins(), vec![]);
    let limit = RuleTerms { callers: list(&["ci"]), except: list(&["x.wipe"]), ..deny(&[]) };
    gateway.limit_callers(vec![("the token ci".into(), limit)]);
    assert_eq!(names(&gateway, &nobody().with_name("ci")), ["x.wipe"]);
    // by a rule that allows before one that denies,
    gateway.limit_callers(Vec::new());
    let allow = RuleTerms { tools: list(&["x.wipe"]), ..RuleTerms::default() };
    gateway.publish(policy(vec![allow, deny(&["x.*"])]));
    assert_eq!(names(&gateway, &nobody()), ["x.wipe"]);
    // and by a grant; under the name of the source where no other tool has it.
    let catalog = gateway.catalog();
    let names = |name: &str| unambiguous_names(&catalog, catalog.find_tool(name).unwrap());
    assert!(names("x.wipe").contains(&"x.wipe".to_owned()));
    assert!(!names("x.wipe_2").contains(&"x.wipe".to_owned()));
    let mut renamed = upstream("bank.transfer", CallEffects::default());
    renamed.original_name = Some("pay".to_owned());
    let catalog = Catalog::new(Arc::default(), vec![Arc::new(renamed)], &[], Vec::new());
    let names = unambiguous_names(&catalog, catalog.find_tool("bank.transfer").unwrap());
    assert!(names.contains(&"bank.pay".to_owned()), "{names:?}");
}

#[test]
fn a_source_that_connects_is_awaited_where_one_of_its_tools_may_be_allowed() {
    let is_awaited = |rules: &[RuleTerms]| {
        let connecting = ConnectingSource {
            source: "git-hub".to_owned(),
            kind: SourceKind::Upstream,
            prefix: "git-hub__".to_owned(),
            expose: ToolExposure::Direct,
            is_remembered: false,
        };
        let catalog = Catalog::new(Arc::default(), Vec::new(), &[], Vec::new())
            .with_source_resources(Vec::new(), vec![connecting]);
        let gateway = Gateway::new(catalog, 10);
        gateway.publish(policy(rules.to_vec()));
        gateway.catalog_for(&nobody()).awaits_sources()
    };
    let all_but = |except: &[&str]| RuleTerms { except: list(except), ..deny(&[]) };
    let allow = |tools: &[&str]| RuleTerms { tools: list(tools), ..RuleTerms::default() };
    // As a token limited to some tools has it.
    for named in ["git-hub.list", "git_hub.list", "git-hub__list", "git*", "*.list", "*"] {
        assert!(is_awaited(&[all_but(&[named])]), "{named}");
        assert!(is_awaited(&[allow(&[named]), deny(&["git-hub.*"])]), "{named}");
    }
    for named in ["report", "git-hubs.list", "jira.*"] {
        assert!(!is_awaited(&[all_but(&[named])]), "{named}");
        assert!(!is_awaited(&[allow(&[named]), deny(&["git-hub.*"])]), "{named}");
    }
    // What one rule exempts, another may deny; what comes too late allows nothing.
    assert!(!is_awaited(&[all_but(&["git-hub.list"]), deny(&["git-hub.*"])]));
    assert!(!is_awaited(&[deny(&["git-hub.*"]), allow(&["git-hub.list"])]));
    assert!(is_awaited(&[deny(&["git-hub.delete"])]));
}

/// A rule holds for what it was written for, whoever takes the name later.
#[tokio::test]
async fn a_name_that_another_source_takes_lifts_no_rule() {
    let notes =
        || tool(SourceKind::Script, "tools/move.luau", "notes.move", CallEffects::default());
    let taker = || {
        let mut taker = upstream("x.notes_move", CallEffects::default());
        taker.shown = ToolListing::As("notes_move".to_owned());
        taker.expose = ToolExposure::Direct;
        taker
    };
    for all in [vec![notes()], vec![notes(), taker()], vec![taker(), notes()]] {
        let gateway = gateway(all, vec![deny(&["notes_move"])]);
        assert_eq!(names(&gateway, &nobody()), [""; 0]);
        for name in ["notes.move", "notes_move"] {
            let problem = call(&gateway, &nobody(), name).await.unwrap_err();
            assert_eq!(problem.code, ProblemCode::NotFound, "{name}");
        }
    }
}

/// A tool of a server whose tools have no prefix.
fn plain(source: &str, name: &str) -> Tool {
    let mut tool =
        tool(SourceKind::Upstream, source, &format!("{source}.{name}"), CallEffects::default());
    tool.original_name = Some(name.to_owned());
    tool.shown = ToolListing::As(name.to_owned());
    tool.expose = ToolExposure::Direct;
    tool
}

#[tokio::test]
async fn the_name_of_a_denied_tool_never_leads_to_another() {
    let all = || {
        vec![
            plain("a", "delete.item"),
            plain("a", "wipe"),
            plain("b", "delete_item"),
            plain("b", "wipe"),
        ]
    };
    let free = gateway(all(), Vec::new());
    assert!(call(&free, &nobody(), "delete_item").await.is_ok());
    let second = free.catalog().listed_tools()[3].0.clone();
    for (pattern, name) in
        [("b.delete_item", "delete_item"), ("a.wipe", "wipe"), ("b.wipe", second.as_str())]
    {
        let gateway = gateway(all(), vec![deny(&[pattern])]);
        let problem = call(&gateway, &nobody(), name).await.unwrap_err();
        assert_eq!(problem.code, ProblemCode::NotFound, "{pattern} {name}");
    }
    // The other keeps the names that were its own.
    let gateway = gateway(all(), vec![deny(&["b.delete_item"])]);
    assert!(call(&gateway, &nobody(), "a.delete.item").await.is_ok());
    assert!(call(&gateway, &nobody(), "delete.item").await.is_ok());
}
