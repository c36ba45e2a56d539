//! A JSON Web Token: taken apart, and its claims held against what we ask for.
//!
//! Of its header, only the algorithm and the name of the key are looked at. Keys
//! and addresses in there are whatever its maker liked.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Map, Value as Json};

use super::jwks::{ACCEPTED_ALGORITHMS, VerificationKey};

/// Several times what providers make; more is not taken apart.
const MAX_JWT_BYTES: usize = 16 * 1024;
/// How far clocks may differ, in seconds.
const CLOCK_LEEWAY_SECONDS: f64 = 60.0;
/// Longest name of a caller.
const MAX_CALLER_NAME_BYTES: usize = 256;

/// What a token must say.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpectedClaims {
    pub issuer: String,
    /// Any of these.
    pub audience: Vec<String>,
    /// All of these.
    pub scopes: Vec<String>,
    /// The claim that names the caller.
    pub name: String,
}

/// A token of the right form; nothing in it is proven.
pub(crate) struct ParsedJwt<'a> {
    header: JwtHeader,
    signed: &'a [u8],
    signature: Vec<u8>,
    claims: Map<String, Json>,
}

#[derive(Deserialize)]
struct JwtHeader {
    alg: String,
    kid: Option<String>,
    /// What a reader has to understand; we understand nothing more.
    crit: Option<Json>,
}

/// Why a token does not count, in words that follow "the token".
#[derive(Debug, PartialEq)]
pub(crate) enum JwtRejection {
    Invalid(&'static str),
    /// It proves who calls, who may not call for want of these.
    LacksScope,
}

use JwtRejection::Invalid;

impl<'a> ParsedJwt<'a> {
    pub(crate) fn parse(text: &'a str) -> Result<Self, JwtRejection> {
        if text.len() > MAX_JWT_BYTES {
            return Err(Invalid("is longer than a token can be"));
        }
        let unreadable = || Invalid("is not known to this server, and no JSON Web Token");
        let (signed, signature) = text.rsplit_once('.').ok_or_else(unreadable)?;
        let (header, claims) = signed.split_once('.').ok_or_else(unreadable)?;
        let bytes = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| unreadable());
        let header: JwtHeader =
            serde_json::from_slice(&bytes(header)?).map_err(|_| unreadable())?;
        if !ACCEPTED_ALGORITHMS.contains(&header.alg.as_str()) {
            return Err(Invalid("is signed by an algorithm that is not accepted"));
        }
        if header.crit.is_some() {
            return Err(Invalid("requires JWT extensions that are not supported"));
        }
        let claims = serde_json::from_slice(&bytes(claims)?).map_err(|_| unreadable())?;
        Ok(Self { header, signed: signed.as_bytes(), signature: bytes(signature)?, claims })
    }

    /// The key it says it is signed with.
    pub(crate) fn key_id(&self) -> Option<&str> {
        self.header.kid.as_deref()
    }

    /// Whether one of these keys made it.
    pub(crate) fn is_signed_by(&self, keys: &[VerificationKey]) -> bool {
        let named =
            |key: &&VerificationKey| self.key_id().is_none_or(|kid| key.id.as_deref() == Some(kid));
        let made =
            |key: &VerificationKey| key.has_signed(&self.signature, self.signed, &self.header.alg);
        keys.iter().filter(named).any(made)
    }

    /// Whom it names and until when, in seconds since 1970, if it says what it must.
    /// Only for a token whose maker is known.
    pub(crate) fn check_claims(
        &self,
        expected: &ExpectedClaims,
        now: f64,
    ) -> Result<(&str, f64), JwtRejection> {
        let text = |claim: &str| self.claims.get(claim).and_then(Json::as_str);
        let time = |claim: &str| self.claims.get(claim).map(|it| it.as_f64().unwrap_or(f64::NAN));
        if text("iss") != Some(&expected.issuer) {
            return Err(Invalid("was made by another issuer"));
        }
        if !self.is_for_audience(&expected.audience) {
            return Err(Invalid("is for another audience"));
        }
        let until = match time("exp") {
            None => return Err(Invalid("does not say when it expires")),
            Some(end) => end + CLOCK_LEEWAY_SECONDS,
        };
        if until.is_nan() || until <= now {
            return Err(Invalid("has expired"));
        }
        if time("nbf").is_some_and(|begin| begin.is_nan() || begin > now + CLOCK_LEEWAY_SECONDS) {
            return Err(Invalid("is not valid yet"));
        }
        let plain = |name: &&str| {
            !name.is_empty()
                && name.len() <= MAX_CALLER_NAME_BYTES
                && !name.contains(char::is_control)
        };
        let name = text(&expected.name).filter(plain);
        let name = name.ok_or(Invalid("does not name its holder"))?;
        let scopes = self.scopes();
        if expected.scopes.iter().all(|wanted| scopes.contains(&wanted.as_str())) {
            Ok((name, until))
        } else {
            Err(JwtRejection::LacksScope)
        }
    }

    fn is_for_audience(&self, audience: &[String]) -> bool {
        let is_ours =
            |it: &Json| it.as_str().is_some_and(|it| audience.iter().any(|our| our == it));
        match self.claims.get("aud") {
            Some(Json::Array(all)) => all.iter().any(is_ours),
            Some(one) => is_ours(one),
            None => false,
        }
    }

    /// Providers write them as words or as a list, under either name.
    fn scopes(&self) -> Vec<&str> {
        let claims = ["scope", "scp"].iter().filter_map(|claim| self.claims.get(*claim));
        let words = claims.flat_map(|claim| match claim {
            Json::Array(all) => all.iter().filter_map(Json::as_str).collect::<Vec<_>>(),
            Json::String(words) => words.split_whitespace().collect(),
            _ => Vec::new(),
        });
        words.collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn written(header: &Json, claims: &Json) -> String {
        let part = |it: &Json| URL_SAFE_NO_PAD.encode(it.to_string());
        format!("{}.{}.AAAA", part(header), part(claims))
    }

    fn named(claims: Json) -> Result<(String, f64), JwtRejection> {
        let expected = ExpectedClaims {
            issuer: "https://login.example".into(),
            audience: vec!["moonlark".into(), "https://moonlark.example/mcp".into()],
            scopes: vec!["mcp".into()],
            name: "sub".into(),
        };
        let text = written(&json!({"alg": "ES256"}), &claims);
        ParsedJwt::parse(&text)?
            .check_claims(&expected, 1000.0)
            .map(|(name, until)| (name.to_owned(), until))
    }

    #[test]
    fn a_token_counts_if_it_says_all_that_it_must() {
        let good = json!({"iss": "https://login.example", "aud": "moonlark", "exp": 1100, "sub": "ann", "scope": "a mcp"});
        let with = |claim: &str, value: Json| {
            let mut claims = good.clone();
            claims[claim] = value;
            claims
        };
        let without = |claim: &str| {
            let mut claims = good.clone();
            claims.as_object_mut().unwrap().shift_remove(claim);
            claims
        };
        let mut scp = without("scope");
        scp["scp"] = json!(["mcp"]);
        for (until, good) in [
            (1160.0, good.clone()),
            (1160.0, scp),
            (1160.0, with("aud", json!(["other", "https://moonlark.example/mcp"]))),
            (1001.0, with("exp", json!(941))),
            (1160.5, with("exp", json!(1100.5))),
            (1160.0, with("nbf", json!(1060))),
        ] {
            assert_eq!(named(good.clone()), Ok(("ann".into(), until)), "{good}");
        }
        for (why, bad) in [
            ("was made by another issuer", with("iss", json!("https://login.example/"))),
            ("was made by another issuer", without("iss")),
            ("is for another audience", with("aud", json!("moonlark2"))),
            ("is for another audience", with("aud", json!([["moonlark"]]))),
            ("is for another audience", without("aud")),
            ("has expired", with("exp", json!(940))),
            ("has expired", with("exp", json!("1100"))),
            ("has expired", with("exp", Json::Null)),
            ("does not say when it expires", without("exp")),
            ("is not valid yet", with("nbf", json!(1061))),
            ("is not valid yet", with("nbf", json!("0"))),
            ("does not name its holder", without("sub")),
            ("does not name its holder", with("sub", json!(""))),
            ("does not name its holder", with("sub", json!("a\nb"))),
            ("does not name its holder", with("sub", json!("a".repeat(257)))),
            ("does not name its holder", with("sub", json!(7))),
        ] {
            assert_eq!(named(bad.clone()), Err(Invalid(why)), "{bad}");
        }
        for bad in [without("scope"), with("scope", json!("mcp2 a")), with("scope", json!(1))] {
            assert_eq!(named(bad.clone()), Err(JwtRejection::LacksScope), "{bad}");
        }
    }

    #[test]
    fn what_is_no_token_is_not_taken_for_one() {
        let refused = |text: &str| match ParsedJwt::parse(text) {
            Ok(_) => "read",
            Err(Invalid(why)) => why,
            Err(JwtRejection::LacksScope) => "lacks",
        };
        let none = "is not known to this server, and no JSON Web Token";
        for text in ["", ".", "..", "a.b.c", "e30.e30.", "mlk_abc", "!.!.!"] {
            assert_eq!(refused(text), none, "{text}");
        }
        let deep = "[".repeat(5000);
        let deep = format!(
            "{}.{}.",
            URL_SAFE_NO_PAD.encode(r#"{"alg":"ES256"}"#),
            URL_SAFE_NO_PAD.encode(deep)
        );
        assert_eq!(refused(&deep), none);
        for (alg, why) in [
            ("none", "is signed by an algorithm that is not accepted"),
            ("None", "is signed by an algorithm that is not accepted"),
            ("HS256", "is signed by an algorithm that is not accepted"),
            ("es256", "is signed by an algorithm that is not accepted"),
            ("ES256", "read"),
        ] {
            assert_eq!(refused(&written(&json!({"alg": alg}), &json!({}))), why, "{alg}");
        }
        let crit = json!({"alg": "ES256", "crit": ["b64"], "b64": false});
        assert_eq!(
            refused(&written(&crit, &json!({}))),
            "requires JWT extensions that are not supported"
        );
        assert_eq!(refused(&"a".repeat(20_000)), "is longer than a token can be");
    }
}
