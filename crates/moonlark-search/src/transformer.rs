//! A small transformer from files on disk: text to a vector that says what it means.
//!
//! An encoder of the BERT family, as `all-MiniLM-L6-v2` is one: weights as safetensors,
//! a vocabulary of word pieces, a few numbers about its shape. It is slower than the
//! model in the binary by a factor of thousands and knows more. Whoever made the files is
//! not trusted: everything in them is checked before it is used, so that they can be
//! wrong, but can do no harm.

mod bert_encoder;
mod bert_tokenizer;
mod matrix;
mod model_shape;
mod weights_file;

use std::fmt;

use bert_encoder::BertEncoder;
use bert_tokenizer::BertTokenizer;
use model_shape::ModelShape;
use weights_file::WeightsFile;

/// The files of a model, as they are on disk.
#[derive(Debug, Clone, Copy)]
pub struct TransformerFiles<'a> {
    /// `model.safetensors`.
    pub weights: &'a [u8],
    /// `tokenizer.json`, or `vocab.txt`.
    pub vocabulary: &'a [u8],
    /// `config.json`.
    pub shape: &'a [u8],
}

/// Why files are no model that can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelFileFault(pub(crate) String);

pub struct TransformerModel {
    tokenizer: BertTokenizer,
    encoder: BertEncoder,
}

impl TransformerModel {
    /// The most bytes that a file of weights may have.
    pub const MAX_WEIGHTS_BYTES: u64 = 256 << 20;
    /// The same for each of the other files.
    pub const MAX_OTHER_BYTES: u64 = 8 << 20;

    /// Reads and checks everything; takes some tenths of a second.
    pub fn parse(files: TransformerFiles<'_>) -> Result<TransformerModel, ModelFileFault> {
        let shape = ModelShape::parse(files.shape)?;
        let tokenizer = BertTokenizer::parse(files.vocabulary, shape.vocabulary)?;
        let encoder = BertEncoder::read(&WeightsFile::parse(files.weights)?, shape)?;
        Ok(TransformerModel { tokenizer, encoder })
    }

    /// How many numbers a vector has.
    pub fn dimensions(&self) -> usize {
        self.encoder.shape().width
    }

    pub fn layers(&self) -> usize {
        self.encoder.shape().layers
    }

    /// The vector of a text, of length one. Nothing if `is_cancelled` says so, which is
    /// asked some times on the way. A text is read as far as its first 254 pieces.
    pub fn embed(&self, text: &str, is_cancelled: &dyn Fn() -> bool) -> Option<Vec<f32>> {
        let pieces = self.tokenizer.pieces(text, self.encoder.shape().pieces);
        let mut vector = self.encoder.encode(&pieces, is_cancelled)?;
        let norm = vector.iter().map(|it| it * it).sum::<f32>().sqrt();
        if norm.is_finite() && norm > 0.0 {
            vector.iter_mut().for_each(|it| *it /= norm);
        } else {
            vector.fill(0.0);
        }
        Some(vector)
    }
}

impl fmt::Display for ModelFileFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for ModelFileFault {}

#[cfg(test)]
mod tests;
