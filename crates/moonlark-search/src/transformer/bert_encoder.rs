//! The encoder: pieces to numbers, layer by layer, and the mean of what comes out.
//!
//! Each layer lets every piece look at all others (attention), then changes each by
//! itself. It is computed in the order in which the weights were trained; what is saved is
//! that the three projections of attention are one product.

use super::ModelFileFault;
use super::matrix::{MatrixView, multiply_into};
use super::model_shape::ModelShape;
use super::weights_file::WeightsFile;

pub(super) struct BertEncoder {
    shape: ModelShape,
    /// A row for each piece, and one for each place.
    words: Vec<f32>,
    places: Vec<f32>,
    /// What is added to each piece of a text that stands alone.
    kind: Vec<f32>,
    norm: LayerNorm,
    layers: Vec<EncoderLayer>,
}

struct EncoderLayer {
    /// Queries, keys and values, one after the other.
    looks: LinearWeights,
    joins: LinearWeights,
    after_looking: LayerNorm,
    widens: LinearWeights,
    narrows: LinearWeights,
    after_changing: LayerNorm,
}

/// A row of weights for each number that comes out, and what is added to it.
struct LinearWeights {
    weights: Vec<f32>,
    bias: Vec<f32>,
}

struct LayerNorm {
    scale: Vec<f32>,
    shift: Vec<f32>,
}

/// What is computed on the way, in buffers that every layer uses again.
struct EncoderBuffers {
    looks: Vec<f32>,
    scores: Vec<f32>,
    seen: Vec<f32>,
    joined: Vec<f32>,
    wide: Vec<f32>,
}

impl BertEncoder {
    pub(super) fn read(
        file: &WeightsFile<'_>,
        shape: ModelShape,
    ) -> Result<BertEncoder, ModelFileFault> {
        let ModelShape { vocabulary, width, positions, kinds, .. } = shape;
        let words = file.read_tensor("embeddings.word_embeddings.weight", &[vocabulary, width])?;
        let places =
            file.read_tensor("embeddings.position_embeddings.weight", &[positions, width])?;
        let mut kind =
            file.read_tensor("embeddings.token_type_embeddings.weight", &[kinds, width])?;
        kind.truncate(width);
        let norm = LayerNorm::read(file, "embeddings", width)?;
        let layers = (0..shape.layers).map(|number| EncoderLayer::read(file, &shape, number));
        let layers = layers.collect::<Result<_, _>>()?;
        Ok(BertEncoder { shape, words, places, kind, norm, layers })
    }

    pub(super) fn shape(&self) -> &ModelShape {
        &self.shape
    }

    /// The mean of what comes out for each of the pieces; nothing if it was cancelled.
    pub(super) fn encode(
        &self,
        pieces: &[u32],
        is_cancelled: &dyn Fn() -> bool,
    ) -> Option<Vec<f32>> {
        let width = self.shape.width;
        let mut state = Vec::with_capacity(pieces.len() * width);
        for (piece, place) in pieces.iter().zip(self.places.chunks_exact(width)) {
            let start = *piece as usize * width;
            let word = self.words.get(start..start + width)?;
            let parts = word.iter().zip(place).zip(&self.kind);
            state.extend(parts.map(|((word, place), kind)| word + place + kind));
        }
        self.norm.apply(&mut state, self.shape.epsilon);
        let count = state.len() / width;
        let mut buffers = EncoderBuffers {
            looks: vec![0.0; count * 3 * width],
            scores: vec![0.0; count * count],
            seen: vec![0.0; count * width],
            joined: vec![0.0; count * width],
            wide: vec![0.0; count * self.shape.inner],
        };
        for layer in &self.layers {
            if is_cancelled() {
                return None;
            }
            layer.apply(&self.shape, count, &mut state, &mut buffers);
        }
        let mut mean = vec![0.0; width];
        for row in state.chunks_exact(width) {
            mean.iter_mut().zip(row).for_each(|(sum, it)| *sum += it);
        }
        mean.iter_mut().for_each(|it| *it /= count as f32);
        Some(mean)
    }
}

impl EncoderLayer {
    fn read(
        file: &WeightsFile<'_>,
        shape: &ModelShape,
        number: usize,
    ) -> Result<EncoderLayer, ModelFileFault> {
        let ModelShape { width, inner, .. } = *shape;
        let of = |name: &str| format!("encoder.layer.{number}.{name}");
        let linear = |name: &str, out: usize, from: usize| -> Result<_, ModelFileFault> {
            Ok(LinearWeights {
                weights: file.read_tensor(&of(&format!("{name}.weight")), &[out, from])?,
                bias: file.read_tensor(&of(&format!("{name}.bias")), &[out])?,
            })
        };
        let mut looks = linear("attention.self.query", width, width)?;
        for name in ["attention.self.key", "attention.self.value"] {
            let more = linear(name, width, width)?;
            looks.weights.extend(more.weights);
            looks.bias.extend(more.bias);
        }
        Ok(EncoderLayer {
            looks,
            joins: linear("attention.output.dense", width, width)?,
            after_looking: LayerNorm::read(file, &of("attention.output"), width)?,
            widens: linear("intermediate.dense", inner, width)?,
            narrows: linear("output.dense", width, inner)?,
            after_changing: LayerNorm::read(file, &of("output"), width)?,
        })
    }

    fn apply(
        &self,
        shape: &ModelShape,
        count: usize,
        state: &mut [f32],
        buffers: &mut EncoderBuffers,
    ) {
        let EncoderBuffers { looks, scores, seen, joined, wide } = buffers;
        self.looks.apply(state, count, looks);
        self.look_around(shape, count, looks, scores, seen);
        self.joins.apply(seen, count, joined);
        add_to(state, joined);
        self.after_looking.apply(state, shape.epsilon);
        self.widens.apply(state, count, wide);
        wide.iter_mut().for_each(|it| *it = gelu(*it));
        self.narrows.apply(wide, count, joined);
        add_to(state, joined);
        self.after_changing.apply(state, shape.epsilon);
    }

    /// Attention: each piece takes from the others what they have, the more the more its
    /// query is like their keys.
    fn look_around(
        &self,
        shape: &ModelShape,
        count: usize,
        looks: &[f32],
        scores: &mut [f32],
        seen: &mut [f32],
    ) {
        let (width, head_width) = (shape.width, shape.width / shape.heads);
        let part = |first: usize| MatrixView::part(looks, first, count, head_width, 3 * width);
        let scale = 1.0 / (head_width as f32).sqrt();
        for first in (0..width).step_by(head_width) {
            let [query, key, value] = [first, width + first, 2 * width + first].map(part);
            multiply_into(query, key.transposed(), scores, 0, count);
            for row in scores.chunks_exact_mut(count) {
                softmax(row, scale);
            }
            multiply_into(MatrixView::new(scores, count, count), value, seen, first, width);
        }
    }
}

impl LinearWeights {
    fn apply(&self, from: &[f32], rows: usize, out: &mut [f32]) {
        let width = self.bias.len();
        let columns = self.weights.len() / width;
        let weights = MatrixView::new(&self.weights, width, columns).transposed();
        multiply_into(MatrixView::new(from, rows, columns), weights, out, 0, width);
        out.chunks_exact_mut(width).for_each(|row| add_to(row, &self.bias));
    }
}

impl LayerNorm {
    fn read(file: &WeightsFile<'_>, of: &str, width: usize) -> Result<LayerNorm, ModelFileFault> {
        let read = |part: &str| file.read_tensor(&format!("{of}.LayerNorm.{part}"), &[width]);
        Ok(LayerNorm { scale: read("weight")?, shift: read("bias")? })
    }

    fn apply(&self, state: &mut [f32], epsilon: f32) {
        let width = self.scale.len();
        for row in state.chunks_exact_mut(width) {
            let mean = row.iter().sum::<f32>() / width as f32;
            let square = |it: f32| it * it;
            let variance = row.iter().map(|it| square(it - mean)).sum::<f32>() / width as f32;
            let by = 1.0 / (variance + epsilon).sqrt();
            let weights = self.scale.iter().zip(&self.shift);
            for (it, (scale, shift)) in row.iter_mut().zip(weights) {
                *it = (*it - mean) * by * scale + shift;
            }
        }
    }
}

fn add_to(sum: &mut [f32], more: &[f32]) {
    sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
}

/// Shares that add up to one.
fn softmax(row: &mut [f32], scale: f32) {
    let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0;
    for it in row.iter_mut() {
        *it = ((*it - most) * scale).exp();
        sum += *it;
    }
    row.iter_mut().for_each(|it| *it /= sum);
}

fn gelu(it: f32) -> f32 {
    0.5 * it * (1.0 + erf(it * std::f32::consts::FRAC_1_SQRT_2))
}

/// The error function as a quotient of polynomials, exact to some parts in ten million:
/// without `exp`, many are computed at once.
fn erf(it: f32) -> f32 {
    const NUMERATOR_FACTORS: [f32; 7] = [
        -2.726_142_3e-10,
        2.770_681_4e-8,
        -2.101_024e-6,
        -5.692_506_5e-5,
        -7.349_906_3e-4,
        -2.954_6e-3,
        -1.609_603_3e-2,
    ];
    const DENOMINATOR_FACTORS: [f32; 5] =
        [-1.456_607_2e-5, -2.133_740_6e-4, -1.682_827e-3, -7.373_329e-3, -1.426_473_9e-2];
    let it = it.clamp(-4.0, 4.0);
    let square = it * it;
    let polynomial = |of: &[f32]| of.iter().fold(0.0, |sum, factor| sum * square + factor);
    it * polynomial(&NUMERATOR_FACTORS) / polynomial(&DENOMINATOR_FACTORS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_function_is_near_enough() {
        for (at, expected) in [
            (0.0, 0.0),
            (0.1, 0.112_462_92),
            (0.5, 0.520_499_9),
            (1.0, 0.842_700_8),
            (-1.5, -0.966_105_15),
            (2.5, 0.999_593),
            (9.0, 1.0),
        ] {
            assert!((erf(at) - expected).abs() < 1e-6, "{at}: {} {expected}", erf(at));
        }
    }

    #[test]
    fn shares_add_up_to_one_however_large_the_numbers() {
        let mut row = [1e30, 1e30, -1e30];
        softmax(&mut row, 1.0);
        assert_eq!(row, [0.5, 0.5, 0.0]);
    }
}
