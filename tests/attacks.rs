//! Attacks from outside: names and origins that are not ours, pages in a real
//! browser, and forged tokens. None of them calls a tool or reads anything.

mod browser;
mod hosts;
mod provider;
mod tokens;

pub use hosts::ROUTES;
pub use provider::{Provider, Signer};
