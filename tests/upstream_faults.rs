//! Upstreams that misbehave, one fault at a time, and what comes of it: what
//! the caller is told, that neighbours do not notice, and that no process,
//! descriptor or memory is left.
//!
//! The faults themselves are in `faulty/`.

mod calls;
mod endings;
mod http;
mod late;
mod listing;
mod opening;
mod raw;
mod world;
