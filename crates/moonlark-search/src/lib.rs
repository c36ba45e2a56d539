//! What search is made of, for documents and for functions alike: words of a
//! text, what each of them weighs, vectors, and both judgements as one.
//!
//! Everything here is a function of what it is given. Where texts come from,
//! where postings and vectors are kept, and what a hit looks like is known by
//! those who call it.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod bm25;
pub mod fuse;
pub mod likeness;
pub mod model;
pub mod neighbours;
pub mod question;
pub mod vectors;
pub mod words;

pub use bm25::{Bm25Weights, FieldWeight};
pub use fuse::{CollectionStats, CosineStats, FusedScore, FusionCandidate, fuse_scores};
pub use likeness::{TitleGain, title_gain};
pub use model::StaticEmbeddingModel;
pub use neighbours::ProximityGain;
pub use question::{ParsedQuery, QueryWeights, WeightedTerm};
pub use vectors::{NearestRows, RowBitmap, cosine_similarity, quantize_vector, top_k};
pub use words::{TermRole, TextTerm, for_each_term, normalize_name};
