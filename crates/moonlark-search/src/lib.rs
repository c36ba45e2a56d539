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

pub use bm25::{Bm25, Field};
pub use fuse::{Candidate, Collection, Cosines, Fused, fuse};
pub use likeness::{TitleGain, title_gain};
pub use model::Model;
pub use neighbours::Neighbours;
pub use question::{Question, Weighed, Weights};
pub use vectors::{Bits, Found, cosine, quantise, top_k};
pub use words::{Role, Term, bare, terms};
