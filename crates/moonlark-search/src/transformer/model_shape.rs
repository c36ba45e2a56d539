//! The shape of a model: the numbers of `config.json` that decide how it is computed.

use serde_json::{Map, Value};

use super::ModelFileFault;

/// Larger models take seconds for a question. They are what a service is for.
const MAX_HIDDEN_WIDTH: usize = 1024;
const MAX_ENCODER_LAYERS: usize = 24;
const MAX_INNER_WIDTH: usize = 4096;
const MAX_VOCABULARY_PIECES: usize = 300_000;
const MAX_POSITIONS: usize = 8192;
/// Pieces of a text that are read, its ends included: sentence models are trained on as
/// many.
const MAX_TEXT_PIECES: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ModelShape {
    pub(super) vocabulary: usize,
    pub(super) width: usize,
    pub(super) layers: usize,
    pub(super) heads: usize,
    pub(super) inner: usize,
    pub(super) positions: usize,
    pub(super) kinds: usize,
    /// What is added to a variance before it divides.
    pub(super) epsilon: f32,
    /// Pieces of a text that are read.
    pub(super) pieces: usize,
}

impl ModelShape {
    pub(super) fn parse(config: &[u8]) -> Result<ModelShape, ModelFileFault> {
        let config: Map<String, Value> = serde_json::from_slice(config)
            .map_err(|error| ModelFileFault(format!("config.json is no JSON object: {error}")))?;
        let word = |key: &str| config.get(key).and_then(Value::as_str);
        match word("model_type") {
            Some("bert") | None => {}
            Some(other) => {
                let other: String = other.chars().take(40).collect();
                return Err(ModelFileFault(format!(
                    "config.json: model_type is {other:?}; only \"bert\" can be run"
                )));
            }
        }
        if let Some(other) = word("hidden_act").filter(|it| *it != "gelu") {
            let other: String = other.chars().take(40).collect();
            return Err(ModelFileFault(format!(
                "config.json: hidden_act is {other:?}; only \"gelu\" can be computed"
            )));
        }
        if word("position_embedding_type").is_some_and(|it| it != "absolute") {
            let fault = "config.json: only absolute positions can be computed";
            return Err(ModelFileFault(fault.to_owned()));
        }
        let number = |key: &str, most: usize| {
            let found = config.get(key).and_then(Value::as_u64);
            found
                .and_then(|it| usize::try_from(it).ok())
                .filter(|it| (1..=most).contains(it))
                .ok_or_else(|| {
                    ModelFileFault(format!(
                        "config.json: {key} has to be a number from 1 to {most}"
                    ))
                })
        };
        let positions = number("max_position_embeddings", MAX_POSITIONS)?;
        let shape = ModelShape {
            vocabulary: number("vocab_size", MAX_VOCABULARY_PIECES)?,
            width: number("hidden_size", MAX_HIDDEN_WIDTH)?,
            layers: number("num_hidden_layers", MAX_ENCODER_LAYERS)?,
            heads: number("num_attention_heads", MAX_HIDDEN_WIDTH)?,
            inner: number("intermediate_size", MAX_INNER_WIDTH)?,
            positions,
            kinds: number("type_vocab_size", 16)?,
            epsilon: config.get("layer_norm_eps").and_then(Value::as_f64).unwrap_or(1e-12) as f32,
            pieces: positions.min(MAX_TEXT_PIECES),
        };
        if !shape.width.is_multiple_of(shape.heads) {
            return Err(ModelFileFault(format!(
                "config.json: hidden_size {} is no multiple of num_attention_heads {}",
                shape.width, shape.heads
            )));
        }
        if shape.pieces < 3 || !(0.0..0.1).contains(&shape.epsilon) {
            let fault = "config.json: max_position_embeddings or layer_norm_eps makes no sense";
            return Err(ModelFileFault(fault.to_owned()));
        }
        Ok(shape)
    }
}
