//! The model in the binary: text to a vector that says what it is about.
//!
//! A static embedding: every piece of a word has a vector of its own, and that
//! of a text is their mean. It was distilled from a transformer;
//! `model/README.md` says how, and under which licence. It has read English
//! only.

mod model_file;
mod wordpiece;

use std::sync::LazyLock;

use wordpiece::WordPieceTokenizer;

/// The one model there is.
#[derive(Default)]
pub struct StaticEmbeddingModel {
    pieces: WordPieceTokenizer,
    /// A row for each piece, two numbers to a byte: the low halves of the bytes
    /// are the first half of the numbers, the high halves the second.
    rows: &'static [u8],
    /// What the numbers of each row are multiplied by.
    scales: Vec<f32>,
    dimensions: usize,
}

/// Changes whenever vectors made before can no longer be compared with those
/// made now.
const STATIC_MODEL_ID: &str = "moonlark-static-2";

/// Half a byte is from 0 to 15, and stands for a number from -7.5 to 7.5.
const HALF_BYTE_MIDDLE: f32 = 7.5;

/// Bytes of a text that are looked at.
const MAX_EMBEDDED_TEXT_BYTES: usize = 1024 * 1024;

impl StaticEmbeddingModel {
    /// Read when it is first used.
    pub fn builtin() -> &'static StaticEmbeddingModel {
        static BUILTIN_MODEL: LazyLock<StaticEmbeddingModel> =
            LazyLock::new(model_file::load_builtin);
        &BUILTIN_MODEL
    }

    pub fn id(&self) -> &'static str {
        STATIC_MODEL_ID
    }

    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// The vector of a text, of length one; of a text without words, all
    /// zeroes.
    pub fn embed(&self, text: &str) -> Vec<f32> {
        let mut sum = vec![0.0_f32; self.dimensions];
        let text = &text[..text.floor_char_boundary(MAX_EMBEDDED_TEXT_BYTES)];
        self.pieces.for_each_piece(text, |piece| self.add_piece_vector(piece, &mut sum));
        let norm = sum.iter().map(|it| it * it).sum::<f32>().sqrt();
        if norm > 0.0 {
            sum.iter_mut().for_each(|it| *it /= norm);
        }
        sum
    }

    fn add_piece_vector(&self, piece: u32, sum: &mut [f32]) {
        let half = self.dimensions / 2;
        let start = piece as usize * half;
        let (Some(row), Some(scale)) =
            (self.rows.get(start..start + half), self.scales.get(piece as usize))
        else {
            return;
        };
        let (first, second) = sum.split_at_mut(half);
        for ((first, second), byte) in first.iter_mut().zip(second).zip(row) {
            *first += scale * (f32::from(byte & 15) - HALF_BYTE_MIDDLE);
            *second += scale * (f32::from(byte >> 4) - HALF_BYTE_MIDDLE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(one: &str, other: &str) -> f32 {
        let (one, other) = (
            StaticEmbeddingModel::builtin().embed(one),
            StaticEmbeddingModel::builtin().embed(other),
        );
        one.iter().zip(&other).map(|(a, b)| a * b).sum()
    }

    #[test]
    fn what_means_the_same_is_near_without_a_word_in_common() {
        assert!(near("delete a file", "remove documents from disk") > 0.4);
        assert!(near("delete a file", "weather in Paris") < 0.1);
        assert!(near("buy a car", "purchase an automobile") > 0.4);
    }

    #[test]
    fn spelling_does_not_matter() {
        assert!(near("Café déjà-vu!", "cafe deja vu") > 0.999);
    }

    #[test]
    fn a_vector_has_length_one_or_none() {
        let length = |text: &str| {
            StaticEmbeddingModel::builtin().embed(text).iter().map(|it| it * it).sum::<f32>().sqrt()
        };
        assert!((length("read a file") - 1.0).abs() < 1e-5);
        assert!((length(&"read a file ".repeat(200_000)) - 1.0).abs() < 1e-3);
        for nothing in ["", " \n", "?!", "\0", &"x".repeat(5_000)] {
            assert_eq!(length(nothing), 0.0, "{nothing:.9}");
        }
    }
}
