//! Stands in for the crate `minstant`, which the type checker of Luau asks for the time.
//!
//! That crate measures the processor's clock before `main` runs, for 13 milliseconds of
//! processor time, in every process that is linked with it, be it a worker or
//! `moonlark --version`. The checker only needs the time that has passed, which the
//! standard library knows. This can go when `luau-common` and `luau-vm` no longer depend
//! on it.

#![forbid(unsafe_code)]

pub use std::time::Instant;
