//! `base64`: text and bytes to Base64 and back.

use base64::DecodeError;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, Engine, GeneralPurpose, GeneralPurposeConfig};
use moonlark_core::value::TextOrBytes;
use moonlark_core::{Module, Problem, Result};
use moonlark_gateway::Call;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::args::check_result_size;

pub(crate) fn module() -> Module {
    Module::new("base64", "Encode and decode Base64.")
        .pure()
        .function("encode", "Encode text or bytes as Base64.", |call: &Call, args| {
            encode_with_engine(call, &STANDARD_BASE64, args)
        })
        .example(json!({"data": "hi"}), json!("aGk="))
        .example(json!({"data": ""}), json!(""))
        .fails(json!({"data": 1}), "expected a string")
        .function(
            "decode",
            "Decode Base64; padding may be missing, white space is skipped.",
            |_: &Call, args| decode_with_engine(&STANDARD_BASE64, args),
        )
        .example(json!({"text": "aGk="}), json!("hi"))
        .example(json!({"text": "aG\nk"}), json!("hi"))
        .fails(json!({"text": "%%%"}), "invalid Base64")
        .function(
            "encode_url",
            "Encode for URLs and file names: - and _, no padding.",
            |call: &Call, args| encode_with_engine(call, &URL_SAFE_BASE64, args),
        )
        .example(json!({"data": "a??>"}), json!("YT8_Pg"))
        .fails(json!({"data": {}}), "expected a string")
        .function(
            "decode_url",
            "Decode what encode_url made; padding may be there.",
            |_: &Call, args| decode_with_engine(&URL_SAFE_BASE64, args),
        )
        .example(json!({"text": "YT8_Pg"}), json!("a??>"))
        .fails(json!({"text": "YT8/Pg"}), "invalid Base64")
}

const ANY_PADDING_CONFIG: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const STANDARD_BASE64: GeneralPurpose =
    GeneralPurpose::new(&alphabet::STANDARD, ANY_PADDING_CONFIG);
const URL_SAFE_BASE64: GeneralPurpose =
    GeneralPurpose::new(&alphabet::URL_SAFE, ANY_PADDING_CONFIG.with_encode_padding(false));

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Base64EncodeArgs {
    /// Text or bytes.
    data: TextOrBytes,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Base64DecodeArgs {
    /// Base64 text.
    text: TextOrBytes,
}

fn encode_with_engine(
    call: &Call,
    engine: &GeneralPurpose,
    args: Base64EncodeArgs,
) -> Result<String> {
    check_result_size(call, args.data.0.len().div_ceil(3) * 4)?;
    Ok(engine.encode(args.data.0))
}

fn decode_with_engine(engine: &GeneralPurpose, args: Base64DecodeArgs) -> Result<TextOrBytes> {
    let mut text = args.text.0;
    // Mail and several APIs break the lines of what they encode.
    text.retain(|byte| !byte.is_ascii_whitespace());
    engine.decode(&text).map(TextOrBytes).map_err(|error| {
        let why = match error {
            DecodeError::InvalidByte(at, _) => {
                format!("character {} is not one of its characters", at + 1)
            }
            DecodeError::InvalidLastSymbol(..) => "the last character carries no whole byte".into(),
            DecodeError::InvalidLength(_) => "its length cannot be right".into(),
            DecodeError::InvalidPadding => "the padding is wrong".into(),
        };
        Problem::bad_request(format!("invalid Base64: {why}"))
    })
}
