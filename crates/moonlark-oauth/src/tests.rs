//! Logging in, renewing and stepping up against an authorization server in this
//! process.

mod fake;

use std::collections::BTreeMap;
use std::sync::Arc;

use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use moonlark_core::{Problem, ProblemCode, Result};
use parking_lot::Mutex;
use serde_json::json;
use tempfile::TempDir;
use url::Url;

use crate::*;
use fake::{Fake, Iss, Manners};
use moonlark_core::secret::SecretText;

/// A fake server, a folder for logins, and how an upstream is configured.
struct Stage {
    fake: Arc<Fake>,
    state: TempDir,
    settings: OAuthConfig,
    follow: bool,
}

impl Stage {
    async fn new(manners: Manners) -> Self {
        Self {
            fake: Fake::start(manners).await,
            state: tempfile::tempdir().unwrap(),
            settings: OAuthConfig::default(),
            follow: false,
        }
    }

    fn account(&self) -> UpstreamAccount {
        UpstreamAccount {
            name: "git".into(),
            url: self.fake.url(),
            auth: UpstreamAuthConfig::OAuth(Box::new(self.settings.clone())),
            state_dir: self.state.path().into(),
            base_dir: self.state.path().into(),
            follow: self.follow,
        }
    }

    fn authorizer(&self) -> Arc<dyn RequestAuthorizer> {
        build_authorizer(self.account(), Secrets::default())
    }

    async fn log_in(&self) -> LoginOutcome {
        log_in_to_upstream(&self.account(), &LoginPrompt::Follow).await.unwrap()
    }

    fn file(&self) -> String {
        std::fs::read_to_string(self.state.path().join("auth/git.json")).unwrap()
    }

    /// Let time pass until the token has so many seconds left.
    fn age(&self, left: u64) {
        let store = login_store::LoginStore::new(self.state.path(), "git");
        let mut record = store.load_record().unwrap().unwrap();
        let tokens = record.tokens.as_mut().unwrap();
        tokens.issued_at = login_record::unix_seconds_now() - 3600;
        tokens.expires_at = Some(login_record::unix_seconds_now() + left);
        store.save_record(&record).unwrap();
    }

    /// What a transport does: a request, and at most `tries` more after a
    /// challenge.
    async fn request(&self, auth: &dyn RequestAuthorizer, tries: usize) -> Result<u16, Problem> {
        for left in (0..=tries).rev() {
            let mut request = moonlark_http::shared_http_client().unwrap().post(self.fake.url());
            if let Some(header) = auth.authorization_header().await? {
                request = request.header(AUTHORIZATION, header.expose_secret());
            }
            let answer = request.send().await.unwrap();
            let status = answer.status().as_u16();
            let challenge = answer.headers().get(WWW_AUTHENTICATE);
            let challenge = challenge.map(|it| it.to_str().unwrap().to_owned());
            let again =
                matches!(status, 401 | 403) && auth.handle_challenge(status, challenge).await?;
            if !again || left == 0 {
                return Ok(status);
            }
        }
        unreachable!()
    }
}

fn counts<const N: usize>(counts: [(&str, usize); N]) -> BTreeMap<String, usize> {
    counts.into_iter().map(|(what, count)| (what.to_owned(), count)).collect()
}

const DISCOVERY: [(&str, usize); 2] = [("resource metadata", 1), ("server metadata", 1)];

fn with_discovery<const N: usize>(more: [(&str, usize); N]) -> BTreeMap<String, usize> {
    counts(DISCOVERY).into_iter().chain(counts(more)).collect()
}

#[tokio::test]
async fn without_a_login_the_problem_names_the_command_and_nobody_waits() {
    let stage = Stage::new(Manners::default()).await;
    let problem = stage.request(&*stage.authorizer(), 1).await.unwrap_err();
    assert_eq!(
        problem.to_string(),
        "error[unavailable]: upstream 'git' requires a login\nhint: run `moonlark login git`"
    );
    assert!(!problem.is_retryable());
    assert_eq!(stage.fake.seen(), counts([]));
}

#[tokio::test]
async fn a_login_registers_once_and_lasts_over_restarts() {
    let stage = Stage::new(Manners::default()).await;
    let done = stage.log_in().await;
    assert_eq!((done.issuer, done.renews), (stage.fake.base.clone(), true));
    assert_eq!(done.scopes, ["read"]);
    assert_eq!(
        stage.fake.seen(),
        with_discovery([
            ("register", 1),
            ("authorize read", 1),
            ("token authorization_code none", 1)
        ])
    );
    assert_eq!(stage.request(&*stage.authorizer(), 0).await.unwrap(), 200);
    assert_eq!(stage.request(&*stage.authorizer(), 0).await.unwrap(), 200);
    assert_eq!(stage.fake.seen(), counts([]));
    // The next login is one of the same client.
    stage.log_in().await;
    assert!(!stage.fake.seen().contains_key("register"));
}

#[tokio::test]
async fn a_person_logs_in_by_way_of_a_browser() {
    let stage = Stage::new(Manners::default()).await;
    let shown: Arc<Mutex<Option<Url>>> = Arc::default();
    let seen = shown.clone();
    // A browser: it follows the redirect to the port that is waiting.
    let browser = move |url: &Url| {
        *seen.lock() = Some(url.clone());
        let url = url.clone();
        tokio::spawn(async move { reqwest::get(url).await.unwrap().text().await.unwrap() });
    };
    let done = log_in_to_upstream(&stage.account(), &LoginPrompt::Person(&browser)).await.unwrap();
    assert_eq!(done.scopes, ["read"]);
    let url = shown.lock().clone().unwrap();
    let redirect = url.query_pairs().find(|(key, _)| key == "redirect_uri").unwrap().1.into_owned();
    assert!(redirect.starts_with("http://127.0.0.1:") && redirect.ends_with("/callback"));
    assert_eq!(stage.request(&*stage.authorizer(), 0).await.unwrap(), 200);
}

#[tokio::test]
async fn a_login_that_is_refused_says_so() {
    let stage = Stage::new(Manners { denies: true, ..Manners::default() }).await;
    let problem = log_in_to_upstream(&stage.account(), &LoginPrompt::Follow).await.unwrap_err();
    assert_eq!(problem.message, "the authorization server of git refused: access_denied");
    // From a stranger, even a refusal is not believed.
    stage.fake.change(|manners| manners.iss = Iss::Wrong);
    let problem = log_in_to_upstream(&stage.account(), &LoginPrompt::Follow).await.unwrap_err();
    assert_eq!(problem.code, ProblemCode::Denied);
    assert!(!problem.message.contains("access_denied"), "{problem}");
}

#[tokio::test]
async fn an_answer_from_another_authorization_server_is_refused() {
    let stage = Stage::new(Manners { iss: Iss::Wrong, ..Manners::default() }).await;
    let problem = log_in_to_upstream(&stage.account(), &LoginPrompt::Follow).await.unwrap_err();
    assert_eq!(problem.code, ProblemCode::Denied);
    assert!(problem.message.contains("https://evil.example"), "{problem}");
    assert!(!stage.fake.seen().contains_key("token authorization_code none"));
    // Saying nothing is fine for a server that does not promise to.
    stage.fake.change(|manners| manners.iss = Iss::Silent);
    stage.log_in().await;
}

#[tokio::test]
async fn tokens_are_renewed_before_they_expire_by_one_for_all() {
    let stage = Stage::new(Manners::default()).await;
    stage.log_in().await;
    stage.age(30);
    stage.fake.seen();
    // Two processes, eight requests each.
    let auths = [stage.authorizer(), stage.authorizer()];
    let requests = auths.iter().flat_map(|auth| (0..8).map(|_| stage.request(&**auth, 0)));
    let answers = futures::future::join_all(requests).await;
    assert!(answers.into_iter().all(|answer| answer == Ok(200)));
    let seen = stage.fake.seen();
    assert_eq!(seen, with_discovery([("token refresh_token none", 1)]));
    assert_eq!(stage.fake.refresh_tokens(), 1);
    assert!(stage.file().contains("again-3"), "{}", stage.file());
}

#[tokio::test]
async fn a_token_that_is_refused_is_renewed_once_for_all() {
    let stage = Stage::new(Manners::default()).await;
    stage.log_in().await;
    let auth = stage.authorizer();
    assert_eq!(stage.request(&*auth, 0).await.unwrap(), 200);
    stage.fake.forget_access();
    stage.fake.seen();
    assert_eq!(stage.request(&*auth, 1).await.unwrap(), 200);
    assert_eq!(stage.fake.seen(), with_discovery([("token refresh_token none", 1)]));

    // All at once: whoever waited for the renewal makes none of their own.
    stage.fake.forget_access();
    let challenges = (0..8).map(|_| auth.handle_challenge(401, None));
    let answers = futures::future::join_all(challenges).await;
    assert!(answers.into_iter().all(|answer| answer == Ok(true)));
    assert_eq!(stage.fake.seen()["token refresh_token none"], 1);
}

#[tokio::test]
async fn a_login_made_elsewhere_is_found_while_serving() {
    let stage = Stage::new(Manners::default()).await;
    let auth = stage.authorizer();
    stage.request(&*auth, 1).await.unwrap_err();
    stage.log_in().await;
    assert_eq!(stage.request(&*auth, 1).await.unwrap(), 200);
    // Again, while an older one is in use.
    stage.fake.forget_access();
    stage.log_in().await;
    stage.fake.seen();
    assert_eq!(stage.request(&*auth, 1).await.unwrap(), 200);
    assert_eq!(stage.fake.seen(), counts([]));
}

#[tokio::test]
async fn a_login_that_cannot_be_renewed_has_to_be_made_again() {
    let stage = Stage::new(Manners::default()).await;
    stage.log_in().await;
    stage.age(0);
    stage.fake.forget_refresh();
    let auth = stage.authorizer();
    let problem = auth.authorization_header().await.unwrap_err();
    assert_eq!(
        problem.to_string(),
        "error[unavailable]: upstream 'git' requires a new login: its login has \
         expired\nhint: run `moonlark login git`"
    );
    // The token that was rejected is not tried again.
    stage.fake.seen();
    auth.authorization_header().await.unwrap_err();
    assert_eq!(stage.fake.seen(), counts([]));
    stage.log_in().await;
    assert_eq!(stage.request(&*auth, 0).await.unwrap(), 200);
}

#[tokio::test]
async fn a_server_that_fails_to_renew_costs_nothing_while_the_token_lives() {
    let stage = Stage::new(Manners::default()).await;
    stage.log_in().await;
    stage.age(50);
    stage.fake.change(|manners| manners.refresh_fails = Some((503, "temporarily_unavailable")));
    stage.fake.seen();
    let auth = stage.authorizer();
    for _ in 0..3 {
        assert_eq!(stage.request(&*auth, 0).await.unwrap(), 200);
    }
    // And it is not asked again at every request.
    assert_eq!(stage.fake.seen(), with_discovery([("token refresh_token none", 1)]));

    // Without a token that lives, all who ask hear of one failure.
    stage.age(0);
    let auth = stage.authorizer();
    let problems = futures::future::join_all((0..8).map(|_| auth.authorization_header())).await;
    assert!(
        problems.iter().all(|it| it.as_ref().is_err_and(Problem::is_retryable)),
        "{problems:?}"
    );
    assert_eq!(stage.fake.seen()["token refresh_token none"], 1);
}

#[tokio::test]
async fn a_renewal_is_not_lost_when_the_one_who_asked_goes_away() {
    let stage = Stage::new(Manners::default()).await;
    stage.log_in().await;
    stage.age(0);
    stage.fake.seen();
    let auth = stage.authorizer();
    let gate = stage.fake.gate.write().await;
    tokio::select! {
        _ = auth.authorization_header() => panic!("the gate is shut"),
        () = stage.fake.refreshing.notified() => {}
    }
    drop(gate);
    assert_eq!(auth.authorization_header().await.unwrap(), Some("Bearer access-3".into()));
    assert_eq!(stage.fake.seen()["token refresh_token none"], 1);
    assert!(stage.file().contains("access-3"));
}

#[tokio::test]
async fn nobody_is_sent_to_addresses_inside_the_network() {
    let inside = "http://169.254.169.254";
    let servers = Some(vec![inside.to_owned()]);
    let stage = Stage::new(Manners { servers, ..Manners::default() }).await;
    let problem = log_in_to_upstream(&stage.account(), &LoginPrompt::Follow).await.unwrap_err();
    assert!(problem.message.contains("none published usable metadata"), "{problem}");

    let metadata = json!({ "token_endpoint": format!("{inside}/token") });
    stage.fake.change(|manners| (manners.servers, manners.metadata) = (None, metadata));
    log_in_to_upstream(&stage.account(), &LoginPrompt::Follow).await.unwrap_err();
    assert!(!stage.state.path().join("auth/git.json").exists());
}

#[tokio::test]
async fn more_permissions_are_asked_for_at_the_next_login() {
    let stage = Stage::new(Manners::default()).await;
    stage.log_in().await;
    stage.fake.change(|manners| manners.needs = vec!["write"]);
    let auth = stage.authorizer();
    let problem = stage.request(&*auth, 1).await.unwrap_err();
    assert_eq!(
        problem.to_string(),
        "error[unavailable]: upstream 'git' requires scopes that its login lacks: write\nhint: run \
         `moonlark login git`"
    );
    stage.fake.change(|manners| manners.needs = vec!["read"]);
    stage.fake.seen();
    assert_eq!(stage.log_in().await.scopes, ["read", "write"]);
    assert_eq!(stage.fake.seen()["authorize read write"], 1);
    stage.fake.change(|manners| manners.needs = vec!["write"]);
    assert_eq!(stage.request(&*auth, 1).await.unwrap(), 200);
}

#[tokio::test]
async fn a_test_identity_provider_is_followed_and_stepped_up() {
    let mut stage = Stage::new(Manners::default()).await;
    stage.follow = true;
    let auth = stage.authorizer();
    assert_eq!(stage.request(&*auth, 1).await.unwrap(), 200);
    stage.fake.seen();
    stage.fake.change(|manners| manners.needs = vec!["write"]);
    assert_eq!(stage.request(&*auth, 1).await.unwrap(), 200);
    let seen = stage.fake.seen();
    assert_eq!(seen["authorize write read"], 1, "{seen:?}");
    assert!(!seen.contains_key("register"));
}

#[tokio::test]
async fn asking_for_ever_more_permissions_ends() {
    let mut stage = Stage::new(Manners { gives: Some("read"), ..Manners::default() }).await;
    stage.follow = true;
    let auth = stage.authorizer();
    assert_eq!(stage.request(&*auth, 1).await.unwrap(), 200);
    stage.fake.change(|manners| manners.needs = vec!["admin"]);
    stage.fake.seen();
    let problem = stage.request(&*auth, 100).await.unwrap_err();
    assert_eq!(problem.code, ProblemCode::Denied);
    assert_eq!(stage.fake.seen()["token authorization_code none"], 2);
}

#[tokio::test]
async fn moonlark_logs_in_as_itself() {
    for (methods, how) in [
        (vec!["client_secret_basic"], "token client_credentials basic"),
        (vec!["client_secret_post"], "token client_credentials post"),
    ] {
        let mut stage = Stage::new(Manners { methods, ..Manners::default() }).await;
        stage.fake.add_client("me", "hunter22");
        stage.settings = OAuthConfig {
            grant: OAuthGrantType::ClientCredentials,
            client_id: Some("me".into()),
            client_secret: Some("hunter22".into()),
            ..OAuthConfig::default()
        };
        let auth = stage.authorizer();
        stage.fake.change(|manners| manners.expires_in = Some(0));
        assert_eq!(stage.request(&*auth, 1).await.unwrap(), 200);
        assert_eq!(stage.fake.seen()[how], 2, "{how}");
        stage.fake.change(|manners| manners.expires_in = Some(u64::MAX));
        assert_eq!(stage.request(&*auth, 0).await.unwrap(), 200);
        assert_eq!(stage.fake.seen(), counts([(how, 1)]));
        stage.fake.change(|manners| manners.needs = vec!["read", "write"]);
        assert_eq!(stage.request(&*auth, 1).await.unwrap(), 200);
        // Nothing of it is on disk.
        assert!(!stage.state.path().join("auth").exists());
    }
}

#[tokio::test]
async fn a_secret_that_is_wrong_is_never_repeated() {
    let mut stage = Stage::new(Manners::default()).await;
    stage.fake.add_client("me", "another");
    stage.settings = OAuthConfig {
        grant: OAuthGrantType::ClientCredentials,
        client_id: Some("me".into()),
        client_secret: Some("hunter22".into()),
        ..OAuthConfig::default()
    };
    let problem = stage.request(&*stage.authorizer(), 1).await.unwrap_err();
    assert!(!format!("{problem} {problem:?}").contains("hunter22"), "{problem}");
    assert!(!format!("{:?}", stage.account()).contains("hunter22"));
}

#[tokio::test]
async fn a_registered_secret_is_kept_and_used_after_a_restart() {
    let methods = vec!["client_secret_basic"];
    let stage = Stage::new(Manners { secrets: true, methods, ..Manners::default() }).await;
    stage.log_in().await;
    stage.fake.forget_access();
    stage.fake.seen();
    assert_eq!(stage.request(&*stage.authorizer(), 1).await.unwrap(), 200);
    assert_eq!(stage.fake.seen()["token refresh_token basic"], 1);
}

#[tokio::test]
async fn a_client_of_the_operator_is_used_and_its_secret_stays_out_of_the_file() {
    let mut stage = Stage::new(Manners { registers: false, ..Manners::default() }).await;
    let problem = log_in_to_upstream(&stage.account(), &LoginPrompt::Follow).await.unwrap_err();
    assert!(problem.hint.unwrap().contains("set client_id"));
    stage.fake.add_client("me", "hunter22");
    stage.settings.client_id = Some("me".into());
    stage.settings.client_secret = Some("hunter22".into());
    stage.settings.scopes = vec!["read".into(), "all".into()];
    assert_eq!(stage.log_in().await.scopes, ["read", "all"]);
    assert!(!stage.file().contains("hunter22"));
    stage.fake.forget_access();
    assert_eq!(stage.request(&*stage.authorizer(), 1).await.unwrap(), 200);
}

#[tokio::test]
async fn a_client_described_at_an_address_needs_no_registration() {
    let metadata = json!({ "client_id_metadata_document_supported": true });
    let mut stage = Stage::new(Manners { metadata, ..Manners::default() }).await;
    stage.settings.client_metadata_url = Some("https://example.com/moonlark.json".parse().unwrap());
    stage.log_in().await;
    assert!(!stage.fake.seen().contains_key("register"));
    assert!(stage.file().contains("https://example.com/moonlark.json"));
}

#[tokio::test]
async fn an_authorization_server_other_than_the_one_configured_gets_nothing() {
    let mut stage = Stage::new(Manners::default()).await;
    stage.settings.issuer = Some("https://login.example".into());
    let problem = log_in_to_upstream(&stage.account(), &LoginPrompt::Follow).await.unwrap_err();
    assert_eq!(problem.code, ProblemCode::Denied);
    assert_eq!(stage.fake.seen(), counts(DISCOVERY));
}

#[tokio::test]
async fn an_address_that_no_browser_should_open_is_refused() {
    let metadata = json!({ "authorization_endpoint": "file:///etc/passwd" });
    let stage = Stage::new(Manners { metadata, ..Manners::default() }).await;
    let problem = log_in_to_upstream(&stage.account(), &LoginPrompt::Follow).await.unwrap_err();
    assert!(problem.message.contains("is not https"), "{problem}");
}

#[tokio::test]
async fn a_login_is_good_for_one_address() {
    let stage = Stage::new(Manners::default()).await;
    stage.log_in().await;
    let mut account = stage.account();
    account.url = format!("{}/mcp?other", stage.fake.base).parse().unwrap();
    assert_eq!(
        build_authorizer(account, Secrets::default()).authorization_header().await.unwrap(),
        None::<SecretText>
    );
}

#[tokio::test]
async fn logging_out_gives_the_tokens_back_and_forgets_them() {
    let stage = Stage::new(Manners { secrets: true, ..Manners::default() }).await;
    stage.log_in().await;
    stage.fake.seen();
    let done = log_out_of_upstream(&stage.account()).await.unwrap();
    assert_eq!((done.removed, done.revoked), (true, RevocationOutcome::Yes));
    assert_eq!(stage.fake.seen(), counts([("revoke refresh_token", 1)]));
    assert_eq!(stage.fake.refresh_tokens(), 0);
    let done = log_out_of_upstream(&stage.account()).await.unwrap();
    assert_eq!((done.removed, done.revoked), (false, RevocationOutcome::NotOffered));
    assert_eq!(stage.authorizer().authorization_header().await.unwrap(), None);
}
