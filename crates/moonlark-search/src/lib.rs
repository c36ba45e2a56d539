//! What search is made of, for documents and for functions alike: words of a
//! text, what each of them weighs, vectors, and both judgements as one.
//!
//! Everything here is a function of what it is given. Where texts come from,
//! where postings and vectors are kept, and what a hit looks like is known by
//! those who call it.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod action_words;
pub mod bm25;
pub mod embedding_model;
pub mod fuse;
pub mod language;
pub mod parsed_query;
pub mod proximity;
pub mod query_clauses;
pub mod query_literals;
mod row_bitmap;
pub mod title_match;
pub mod tokenizer;
pub mod transformer;
pub mod vectors;

pub use action_words::{SAME_ACTION_WEIGHT, leading_action};
pub use bm25::{Bm25Weights, FieldWeight};
pub use embedding_model::StaticEmbeddingModel;
pub use fuse::{
    CollectionStats, CosineStats, FusedScore, FusionCandidate, FusionWeights, for_each_fused_score,
    fuse_scores, fuse_weighted_scores,
};
pub use language::TextLanguage;
pub use parsed_query::{ParsedQuery, QueryWeights, WeightedTerm};
pub use proximity::ProximityGain;
pub use query_clauses::{split_clauses, split_requests};
pub use query_literals::{LITERAL_WEIGHT, QueryLiterals};
pub use row_bitmap::RowBitmap;
pub use title_match::{TitleGain, title_gain};
pub use tokenizer::{TermRole, TextTerm, for_each_term, for_each_term_in, normalize_name};
pub use transformer::{ModelFileFault, TransformerFiles, TransformerModel};
pub use vectors::{NearestRows, cosine_similarity, quantize_vector, top_k};
