//! `crypto`: digests, random values, comparison without a timing leak.

use hmac::{Hmac, Mac};
use moonlark_core::value::TextOrBytes;
use moonlark_core::{Module, Problem, Result};
use moonlark_gateway::Call;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest, Sha256, Sha512};
use subtle::ConstantTimeEq;

use crate::args::NoArgs;

pub(crate) fn module() -> Module {
    Module::new("crypto", "Hash, sign, compare, and make random values.")
        .pure()
        .function("sha256", "The SHA-256 digest, in lower-case hexadecimal.", sha256)
        .example(
            json!({"data": "abc"}),
            json!("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        )
        .fails(json!({"data": 1}), "expected a string")
        .function("sha512", "The SHA-512 digest, in lower-case hexadecimal.", sha512)
        .example(
            json!({"data": "abc"}),
            json!(
                "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f"
            ),
        )
        .fails(json!({}), "data")
        .function("hmac_sha256", "Sign with HMAC-SHA-256, in lower-case hexadecimal.", hmac_sha256)
        .example(
            json!({"key": "Jefe", "data": "what do ya want for nothing?"}),
            json!("5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"),
        )
        .fails(json!({"key": "k"}), "data")
        .function("random_bytes", "Random bytes, fit for keys.", random_bytes)
        .varying_example(json!({"count": 16}))
        .example(json!({"count": 0}), json!(""))
        .fails(json!({"count": 65537}), "between 0 and 65536")
        .function("uuid", "A random UUID (version 4).", uuid)
        .varying_example(json!({}))
        .function("constant_time_eq", "Compare two secrets without telling how far they agree.", constant_time_eq)
        .example(json!({"a": "token", "b": "token"}), json!(true))
        .example(json!({"a": "token", "b": "tokem"}), json!(false))
        .fails(json!({"a": "token"}), "b")
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CryptoDigestArgs {
    /// Text or bytes.
    data: TextOrBytes,
}

fn sha256(_: &Call, args: CryptoDigestArgs) -> Result<String> {
    Ok(encode_hex(&Sha256::digest(&args.data.0)))
}

fn sha512(_: &Call, args: CryptoDigestArgs) -> Result<String> {
    Ok(encode_hex(&Sha512::digest(&args.data.0)))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CryptoHmacArgs {
    /// The secret key.
    key: TextOrBytes,
    /// What to sign.
    data: TextOrBytes,
}

fn hmac_sha256(_: &Call, args: CryptoHmacArgs) -> Result<String> {
    let mut mac = Hmac::<Sha256>::new_from_slice(&args.key.0)
        .map_err(|error| Problem::bad_request(format!("the key does not work: {error}")))?;
    mac.update(&args.data.0);
    Ok(encode_hex(&mac.finalize().into_bytes()))
}

const MAX_RANDOM_BYTES: i64 = 64 * 1024;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CryptoRandomBytesArgs {
    /// How many bytes, up to 65536.
    count: i64,
}

fn random_bytes(call: &Call, args: CryptoRandomBytesArgs) -> Result<TextOrBytes> {
    let count = usize::try_from(args.count).ok().filter(|_| args.count <= MAX_RANDOM_BYTES);
    let Some(count) = count else {
        return Err(Problem::bad_request(format!(
            "count must be between 0 and {MAX_RANDOM_BYTES}, got {}",
            args.count
        )));
    };
    let mut bytes = vec![0; count];
    call.fill_random(&mut bytes)?;
    Ok(TextOrBytes(bytes))
}

fn uuid(call: &Call, _: NoArgs) -> Result<String> {
    let mut bytes = [0; 16];
    call.fill_random(&mut bytes)?;
    Ok(uuid::Builder::from_random_bytes(bytes).into_uuid().to_string())
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CryptoConstantTimeEqArgs {
    /// One secret.
    a: TextOrBytes,
    /// The other.
    b: TextOrBytes,
}

fn constant_time_eq(_: &Call, args: CryptoConstantTimeEqArgs) -> Result<bool> {
    Ok(args.a.0.ct_eq(&args.b.0).into())
}

pub(crate) fn encode_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
