//! The public keys of an identity provider, and which signatures are theirs.
//!
//! Where keys come from is not known here, and nothing in a token leads to one.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents,
    UnparsedPublicKey, VerificationAlgorithm,
};
use serde::Deserialize;
use serde_json::Value as Json;

/// Keys of one provider that are looked at; real ones have a handful.
const MAX_ISSUER_KEYS: usize = 64;

/// Every algorithm that [`VerificationKey::has_signed`] knows. None of them can be computed with
/// what is public, as `none` and those with a shared secret can.
pub(crate) const ACCEPTED_ALGORITHMS: [&str; 10] =
    ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA", "Ed25519"];

/// One key for signatures.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct VerificationKey {
    pub(crate) id: Option<String>,
    /// The one algorithm it is for, if the provider says so.
    algorithm: Option<String>,
    public: PublicKeyMaterial,
}

#[derive(Debug, Clone, PartialEq)]
enum PublicKeyMaterial {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

/// A key as RFC 7517 writes it.
#[derive(Deserialize)]
struct JsonWebKey {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    key_ops: Option<Vec<String>>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

/// The keys of a set that can verify signatures; others are passed over. None if
/// it is no set of keys.
pub(crate) fn parse_key_set(set: &[u8]) -> Option<Vec<VerificationKey>> {
    #[derive(Deserialize)]
    struct JsonWebKeySet {
        keys: Vec<Json>,
    }
    let set: JsonWebKeySet = serde_json::from_slice(set).ok()?;
    let keys = set.keys.into_iter().filter_map(|key| serde_json::from_value(key).ok());
    Some(keys.filter_map(VerificationKey::from_jwk).take(MAX_ISSUER_KEYS).collect())
}

impl VerificationKey {
    fn from_jwk(jwk: JsonWebKey) -> Option<VerificationKey> {
        let signs = jwk.usage.is_none_or(|usage| usage == "sig")
            && jwk.key_ops.is_none_or(|all| all.iter().any(|it| it == "verify"));
        let bytes = |text: Option<String>| URL_SAFE_NO_PAD.decode(text?).ok();
        let point = |x: Option<String>, y: Option<String>, length: usize| {
            let (x, y) = (bytes(x)?, bytes(y)?);
            (x.len() == length && y.len() == length).then(|| [&[4], &*x, &*y].concat())
        };
        let public = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
            ("RSA", None) => PublicKeyMaterial::Rsa {
                n: strip_leading_zeros(bytes(jwk.n)?),
                e: strip_leading_zeros(bytes(jwk.e)?),
            },
            ("EC", Some("P-256")) => PublicKeyMaterial::P256(point(jwk.x, jwk.y, 32)?),
            ("EC", Some("P-384")) => PublicKeyMaterial::P384(point(jwk.x, jwk.y, 48)?),
            ("OKP", Some("Ed25519")) => PublicKeyMaterial::Ed25519(bytes(jwk.x)?),
            _ => return None,
        };
        signs.then_some(VerificationKey { id: jwk.kid, algorithm: jwk.alg, public })
    }

    /// Whether the holder of this key made the signature, by this algorithm. An
    /// algorithm that is not for keys of this kind made nothing.
    pub(crate) fn has_signed(&self, signature: &[u8], of: &[u8], algorithm: &str) -> bool {
        let plain = |by: &'static dyn VerificationAlgorithm, key: &[u8]| {
            UnparsedPublicKey::new(by, key).verify(of, signature).is_ok()
        };
        let rsa = |by: &RsaParameters, n: &[u8], e: &[u8]| {
            RsaPublicKeyComponents { n, e }.verify(by, of, signature).is_ok()
        };
        if self.algorithm.as_ref().is_some_and(|own| own != algorithm) {
            return false;
        }
        match (&self.public, algorithm) {
            (PublicKeyMaterial::Rsa { n, e }, "RS256") => rsa(&RSA_PKCS1_2048_8192_SHA256, n, e),
            (PublicKeyMaterial::Rsa { n, e }, "RS384") => rsa(&RSA_PKCS1_2048_8192_SHA384, n, e),
            (PublicKeyMaterial::Rsa { n, e }, "RS512") => rsa(&RSA_PKCS1_2048_8192_SHA512, n, e),
            (PublicKeyMaterial::Rsa { n, e }, "PS256") => rsa(&RSA_PSS_2048_8192_SHA256, n, e),
            (PublicKeyMaterial::Rsa { n, e }, "PS384") => rsa(&RSA_PSS_2048_8192_SHA384, n, e),
            (PublicKeyMaterial::Rsa { n, e }, "PS512") => rsa(&RSA_PSS_2048_8192_SHA512, n, e),
            (PublicKeyMaterial::P256(key), "ES256") => plain(&ECDSA_P256_SHA256_FIXED, key),
            (PublicKeyMaterial::P384(key), "ES384") => plain(&ECDSA_P384_SHA384_FIXED, key),
            (PublicKeyMaterial::Ed25519(key), "EdDSA" | "Ed25519") => plain(&ED25519, key),
            _ => false,
        }
    }
}

/// Without zeros in front, which some providers write.
fn strip_leading_zeros(bytes: Vec<u8>) -> Vec<u8> {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    bytes[zeros..].to_vec()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kept(key: Json) -> usize {
        parse_key_set(json!({ "keys": [key] }).to_string().as_bytes()).unwrap().len()
    }

    #[test]
    fn only_public_keys_for_signatures_are_kept() {
        let (a, b) = (URL_SAFE_NO_PAD.encode([7; 32]), URL_SAFE_NO_PAD.encode([7; 31]));
        for (expected, key) in [
            (1, json!({"kty": "OKP", "crv": "Ed25519", "x": a})),
            (1, json!({"kty": "OKP", "crv": "Ed25519", "x": a, "use": "sig"})),
            (1, json!({"kty": "OKP", "crv": "Ed25519", "x": a, "key_ops": ["verify"]})),
            (1, json!({"kty": "EC", "crv": "P-256", "x": a, "y": a, "more": [1]})),
            (1, json!({"kty": "RSA", "n": a, "e": "AQAB"})),
            (0, json!({"kty": "OKP", "crv": "Ed25519", "x": a, "use": "enc"})),
            (0, json!({"kty": "OKP", "crv": "Ed25519", "x": a, "key_ops": ["sign"]})),
            (0, json!({"kty": "OKP", "crv": "X25519", "x": a})),
            (0, json!({"kty": "OKP", "crv": "Ed25519", "x": "%"})),
            (0, json!({"kty": "EC", "crv": "P-256", "x": a, "y": b})),
            (0, json!({"kty": "EC", "crv": "secp256k1", "x": a, "y": a})),
            (0, json!({"kty": "oct", "k": a, "alg": "HS256"})),
            (0, json!({"kty": "RSA", "n": a})),
            (0, json!(["RSA"])),
        ] {
            assert_eq!(kept(key.clone()), expected, "{key}");
        }
        assert_eq!(parse_key_set(b"{}"), None);
        assert_eq!(parse_key_set(b"[1"), None);
    }
}
