//! Approvals on a real file, by several who share it.

use std::time::Duration;

use moonlark_core::approval_ticket::ApprovalTicket;
use moonlark_core::record_id::RecordId;
use moonlark_core::secret::SecretText;
use moonlark_core::tool::CallEffects;
use moonlark_core::{ProblemCode, Value};
use moonlark_gateway::Caller;
use moonlark_gateway::approval::{
    ApprovalDecider, ApprovalDecision, ApprovalLedger, ApprovalRequest, ApprovalStatus,
};
use moonlark_gateway::journal::RedactionScopes;

use super::{ApprovalSettings, ApprovalStore};

const HOUR: Duration = Duration::from_secs(3600);

fn store(folder: &tempfile::TempDir, by_caller: bool, expiry: Duration) -> ApprovalStore {
    ApprovalStore::new(folder.path().join("journal.db"), ApprovalSettings { expiry, by_caller })
}

fn request(id: i64) -> ApprovalRequest {
    ApprovalRequest {
        tool: "jira.delete_issue".into(),
        source: "jira".into(),
        effects: CallEffects::default(),
        args: Value::from_fields([("id", Value::Int(id)), ("token", "hunter22".into())]),
        caller: Caller::new("rest").with_name("ci"),
        run: None,
        place: None,
        tokens: Vec::new(),
        strict: true,
        secrets: RedactionScopes::default(),
    }
}

fn with_token(id: i64, token: &SecretText) -> ApprovalRequest {
    ApprovalRequest { tokens: vec![token.clone()], ..request(id) }
}

async fn waits(store: &ApprovalStore, request: ApprovalRequest) -> ApprovalTicket {
    match store.claim_approval(request).await.unwrap() {
        ApprovalStatus::Waiting(ticket) => ticket,
        granted => panic!("{granted:?}"),
    }
}

fn operator() -> ApprovalDecider {
    ApprovalDecider::Operator("ann".into())
}

async fn refusal(store: &ApprovalStore, request: ApprovalRequest) -> String {
    let problem = store.claim_approval(request).await.unwrap_err();
    assert_eq!(problem.code, ProblemCode::Forbidden);
    problem.message
}

#[tokio::test]
async fn coming_back_with_the_token_makes_the_call_once() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(&folder, true, HOUR);
    let ticket = waits(&store, request(1)).await;
    assert_eq!(ticket.arguments.text, r#"{"id":1,"token":"hunter22"}"#);
    assert!(!ticket.arguments.left_out);
    let granted = store.claim_approval(with_token(1, &ticket.token)).await.unwrap();
    assert_eq!(granted, ApprovalStatus::Granted { token: Some(ticket.token.clone()) });
    let message = refusal(&store, with_token(1, &ticket.token)).await;
    assert_eq!(
        message,
        format!("approval {} was used: an approval is valid for one call", ticket.id)
    );
    assert_ne!(waits(&store, request(1)).await.id, ticket.id, "it is asked anew");
}

#[tokio::test]
async fn a_token_is_good_for_nothing_but_its_call() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(&folder, true, HOUR);
    let token = waits(&store, request(1)).await.token;
    let with = |edit: &dyn Fn(&mut ApprovalRequest)| {
        let mut request = with_token(1, &token);
        edit(&mut request);
        request
    };
    for (edit, message) in [
        (
            (&|it: &mut ApprovalRequest| it.args = request(2).args)
                as &dyn Fn(&mut ApprovalRequest),
            "the token was given for other arguments than these",
        ),
        (
            &|it| it.tool = "jira.purge".into(),
            "the token is for another call, of jira.delete_issue",
        ),
        (
            &|it| it.caller = Caller::new("rest").with_name("eve"),
            "the token was given to another caller",
        ),
        (
            &|it| it.caller = Caller::new("mcp").with_name("ci"),
            "the token was given to another caller",
        ),
        (&|it| it.tokens = vec!["apr_madeup".into()], "no approval has this token"),
    ] {
        assert_eq!(refusal(&store, with(edit)).await, message);
    }
    // Below a tool, the token may be for something else that it calls.
    let below = with(&|it| {
        it.args = request(2).args;
        it.strict = false;
    });
    waits(&store, below).await;
    let reordered = with(&|it| {
        it.args = Value::from_fields([("token", "hunter22".into()), ("id", Value::Int(1))]);
    });
    assert!(matches!(store.claim_approval(reordered).await, Ok(ApprovalStatus::Granted { .. })));
}

#[tokio::test]
async fn what_an_operator_decides_holds_for_the_same_call_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let server = store(&folder, false, HOUR);
    let elsewhere = store(&folder, false, HOUR);
    let (yes, no) = (waits(&server, request(1)).await, waits(&server, request(2)).await);
    let still = waits(&server, with_token(1, &yes.token)).await;
    assert_eq!(still.id, yes.id, "the token decides nothing where an operator does");
    elsewhere.decide_now(yes.id, ApprovalDecision::Approve, operator()).unwrap();
    elsewhere.decide_now(no.id, ApprovalDecision::Deny, operator()).unwrap();
    assert_eq!(server.wait_for_decision(yes.id).await.unwrap(), Some(ApprovalDecision::Approve));
    assert_eq!(server.wait_for_decision(no.id).await.unwrap(), Some(ApprovalDecision::Deny));
    assert!(matches!(
        server.claim_approval(request(1)).await,
        Ok(ApprovalStatus::Granted { token: None })
    ));
    waits(&server, request(1)).await;
    let message = refusal(&server, request(2)).await;
    assert!(message.starts_with("ann (operator) has denied this call"), "{message}");
}

#[tokio::test]
async fn who_waits_is_woken_when_somebody_decides() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(&folder, true, HOUR);
    let ticket = waits(&store, request(1)).await;
    let waiting = tokio::spawn(store.wait_for_decision(ticket.id));
    tokio::task::yield_now().await;
    let by = ApprovalDecider::Holder { token: ticket.token, name: "ci".into() };
    store.record_decision(ticket.id, ApprovalDecision::Approve, by).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap(), Some(ApprovalDecision::Approve));
}

#[tokio::test]
async fn after_its_time_nothing_is_decided_and_the_call_is_asked_about_anew() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(&folder, true, Duration::ZERO);
    let ticket = waits(&store, request(1)).await;
    assert_eq!(store.wait_for_decision(ticket.id).await.unwrap(), None);
    let over = format!("approval {} has expired", ticket.id);
    assert_eq!(refusal(&store, with_token(1, &ticket.token)).await, over);
    let late = store.decide_now(ticket.id, ApprovalDecision::Approve, operator()).unwrap_err();
    assert_eq!(late.message, over);
    assert_ne!(waits(&store, request(1)).await.id, ticket.id);
    assert!(store.list_approvals(false).unwrap().is_empty());
    assert_eq!(store.show_approval(ticket.id).unwrap().state, "expired");
}

#[tokio::test]
async fn only_who_may_decides_and_only_once() {
    let folder = tempfile::tempdir().unwrap();
    let store_ = store(&folder, true, HOUR);
    let (one, two) = (waits(&store_, request(1)).await, waits(&store_, request(2)).await);
    let holder =
        |token: &SecretText| ApprovalDecider::Holder { token: token.clone(), name: "ci".into() };
    let wrong =
        store_.decide_now(one.id, ApprovalDecision::Approve, holder(&two.token)).unwrap_err();
    assert_eq!(wrong.code, ProblemCode::Forbidden);
    let strict = store(&folder, false, HOUR);
    for by in [holder(&one.token), ApprovalDecider::Caller("ci".into())] {
        let refused = strict.decide_now(one.id, ApprovalDecision::Approve, by).unwrap_err();
        assert_eq!(refused.message, "only the operator decides on calls here");
    }
    store_.decide_now(one.id, ApprovalDecision::Deny, holder(&one.token)).unwrap();
    store_.decide_now(one.id, ApprovalDecision::Deny, operator()).unwrap();
    let twice = store_.decide_now(one.id, ApprovalDecision::Approve, operator()).unwrap_err();
    assert_eq!(twice.message, format!("approval {} is decided already: denied", one.id));
    let nothing =
        store_.decide_now(RecordId::new(), ApprovalDecision::Approve, operator()).unwrap_err();
    assert_eq!(nothing.code, ProblemCode::NotFound);
}

#[tokio::test]
async fn two_at_once_cannot_use_one_approval_twice() {
    let folder = tempfile::tempdir().unwrap();
    let stores: Vec<_> = (0..4).map(|_| store(&folder, true, HOUR)).collect();
    let ticket = waits(&stores[0], request(1)).await;
    let tries: Vec<_> = (0..32)
        .map(|n| tokio::spawn(stores[n % 4].claim_approval(with_token(1, &ticket.token))))
        .collect();
    let mut made = 0;
    for one in tries {
        made += usize::from(one.await.unwrap().is_ok());
    }
    assert_eq!(made, 1);
}

#[tokio::test]
async fn the_calls_of_a_run_are_told_apart_by_their_place_and_outlive_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let run = Some(RecordId::new());
    let at = |place: &str| ApprovalRequest { run, place: Some(place.into()), ..request(1) };
    let first = {
        let store = store(&folder, true, HOUR);
        let first = waits(&store, at("0")).await;
        assert_ne!(waits(&store, at("m1.2/0")).await.id, first.id);
        assert_eq!(waits(&store, at("0")).await.id, first.id);
        first
    };
    let store = store(&folder, true, HOUR);
    store.decide_now(first.id, ApprovalDecision::Approve, operator()).unwrap();
    let resumed = ApprovalRequest { caller: Caller::new("cli"), ..at("0") };
    assert!(matches!(store.claim_approval(resumed).await, Ok(ApprovalStatus::Granted { .. })));
    waits(&store, at("m1.2/0")).await;
}

#[tokio::test]
async fn whoever_decides_sees_all_and_the_file_has_it_sealed() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(&folder, true, HOUR);
    assert!(store.list_approvals(true).unwrap().is_empty());
    let ticket = waits(&store, request(1)).await;
    let listed = store.list_approvals(false).unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].arguments, r#"{"id":1,"token":"hunter22"}"#);
    assert_eq!(store.exact_arguments(ticket.id).unwrap(), request(1).args);
    assert_eq!(store.find_id(&ticket.id.to_string()[28..]).unwrap(), ticket.id);
    let mine = store.describe_requests(None, Some("ci".into())).await.unwrap();
    let others = store.describe_requests(None, Some("eve".into())).await.unwrap();
    assert_eq!(mine["approvals"].as_array().unwrap().len(), 1);
    assert_eq!(others["approvals"].as_array().unwrap().len(), 0);
    assert!(store.describe_requests(Some(ticket.id), Some("eve".into())).await.is_err());
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(!bytes.windows(8).any(|part| part == b"hunter22"));
        assert!(
            !bytes.windows(20).any(|part| part == &ticket.token.expose_secret().as_bytes()[..20])
        );
    }
}

#[tokio::test]
async fn what_is_not_shown_whole_is_decided_on_by_an_operator_only() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(&folder, true, HOUR);
    let long = |token: Option<&SecretText>| ApprovalRequest {
        args: Value::from_fields([
            ("note", "n".repeat(6000).as_str().into()),
            ("to", "eve".into()),
        ]),
        tokens: token.cloned().into_iter().collect(),
        ..request(1)
    };
    let ticket = waits(&store, long(None)).await;
    assert!(ticket.arguments.left_out && !ticket.can_caller_decide());
    // Neither by coming back with the token nor by deciding with it.
    assert_eq!(waits(&store, long(Some(&ticket.token))).await.id, ticket.id);
    let holder = ApprovalDecider::Holder { token: ticket.token.clone(), name: "ci".into() };
    assert!(store.decide_now(ticket.id, ApprovalDecision::Approve, holder).is_err());
    let caller = ApprovalDecider::Caller("ci".into());
    assert!(store.decide_now(ticket.id, ApprovalDecision::Approve, caller).is_err());
    store.decide_now(ticket.id, ApprovalDecision::Approve, operator()).unwrap();
    assert!(matches!(store.claim_approval(long(None)).await, Ok(ApprovalStatus::Granted { .. })));
}

#[tokio::test]
async fn a_caller_with_many_requests_does_not_keep_others_from_asking() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(&folder, false, HOUR);
    for id in 0..100 {
        waits(&store, request(id)).await;
    }
    let problem = store.claim_approval(request(100)).await.unwrap_err();
    assert_eq!((problem.code, problem.retry_after), (ProblemCode::RateLimited, Some(60)));
    let other = ApprovalRequest { caller: Caller::new("rest").with_name("carol"), ..request(100) };
    waits(&store, other).await;
}

#[tokio::test]
async fn a_part_of_an_id_names_the_only_one_that_waits_or_says_that_several_fit() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(&folder, false, HOUR);
    let (first, second) = (waits(&store, request(1)).await.id, waits(&store, request(2)).await.id);
    let beginning = |id: RecordId| id.to_string()[..8].to_owned();
    let end = |id: RecordId| id.to_string()[28..].to_owned();
    assert_eq!(store.find_id(&end(first)).unwrap(), first);
    assert_eq!(store.find_id(&end(second).to_uppercase()).unwrap(), second);
    // Ids begin with the time: those of the same minute are alike, unless it just ends.
    if beginning(first) == beginning(second) {
        let problem = store.find_id(&beginning(first)).unwrap_err();
        assert_eq!(
            problem.to_string(),
            format!(
                "error[bad_request]: several approvals have an id that begins or ends with {}: those that end with {}, {}\nhint: name one of them by its end, or write more of its id",
                beginning(first),
                end(second),
                end(first)
            )
        );
        store.decide_now(second, ApprovalDecision::Deny, operator()).unwrap();
        assert_eq!(store.find_id(&beginning(second)).unwrap(), first, "the other is decided");
    }
    for text in ["", "abc", "zzzz", "0000000000"] {
        assert_eq!(store.find_id(text).unwrap_err().code, ProblemCode::NotFound, "{text}");
    }
}
