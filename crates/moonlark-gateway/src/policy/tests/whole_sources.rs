//! Sources that are there for a caller, or not, as a whole.

use super::*;

/// As discovery does: a resource for each source.
fn own(catalog: &Catalog) -> Vec<Arc<SourceResources>> {
    let uris: Vec<String> =
        catalog.sdk().sources().iter().map(|it| format!("sdk://{}", it.name)).collect();
    vec![offers(SourceKind::Builtin, "moonlark", "sdk://", &uris)]
}

#[tokio::test]
async fn what_a_source_has_beside_tools_goes_with_it_as_a_whole() {
    let uris = |gateway: &Gateway| -> Vec<String> {
        let catalog = gateway.catalog_for(&nobody());
        let all = catalog.source_resources().iter().flat_map(|it| it.resources.iter());
        all.map(|it| it["uri"].as_str().unwrap().to_owned()).collect()
    };
    let connecting = || ConnectingSource {
        source: "jira".to_owned(),
        kind: SourceKind::Upstream,
        prefix: "jira__".to_owned(),
        expose: ToolExposure::Code,
        is_remembered: false,
    };
    let health =
        || SourceHealth { source: "jira".to_owned(), resources: 1, ..SourceHealth::default() };
    let of = |rules: Vec<RuleTerms>| {
        let all = tools().into_iter().map(Arc::new).collect();
        let jira = offers(SourceKind::Upstream, "jira", "jira:", &["mcp://jira/board".to_owned()]);
        let catalog = Catalog::new(Arc::default(), all, &[], Vec::new())
            .with_source_resources(vec![jira], vec![connecting()])
            .with_builtin_resources(own)
            .with_health(vec![health()]);
        let gateway = Gateway::new(catalog, 10);
        gateway.publish(policy(rules));
        gateway
    };
    let whole = ["mcp://jira/board", "sdk://jira", "sdk://git_hub", "sdk://tools"];
    assert_eq!(uris(&of(vec![])), whole);
    assert_eq!(uris(&of(vec![deny(&["jira.delete_*"])])), whole);
    let by_source = RuleTerms { sources: list(&["jira"]), ..deny(&[]) };
    let by_kind = RuleTerms { kinds: vec![SourceKind::Upstream], ..deny(&["jira*"]) };
    for rule in [by_source, deny(&["jira.*"]), by_kind] {
        let gateway = of(vec![rule.clone()]);
        assert_eq!(uris(&gateway), ["sdk://git_hub", "sdk://tools"], "{rule:?}");
        let catalog = gateway.catalog_for(&nobody());
        assert!(catalog.health().is_empty() && catalog.connecting_sources().is_empty());
        assert!(!catalog.knows_source(&source(SourceKind::Upstream, "jira")));
        let door = gateway.catalog().source_resources()[0].door.clone();
        let call = gateway.open_call(nobody()).unwrap();
        let problem = gateway.invoke(&call, &door, Value::Null).await.unwrap_err();
        assert_eq!(problem.code, ProblemCode::NotFound);
    }
    let only_tools = of(vec![deny(&["jira.search", "jira.delete_issue"])]);
    assert_eq!(uris(&only_tools), ["mcp://jira/board", "sdk://git_hub", "sdk://tools"]);
    assert_eq!(only_tools.catalog_for(&nobody()).health()[0].tools, 0);
    let api = RuleTerms { kinds: vec![SourceKind::Api], ..deny(&[]) };
    assert_eq!(of(vec![api]).catalog_for(&nobody()).connecting_sources(), [connecting()]);
}
