//! Integration tests of Moonlark; see `tests/README.md`.
#![cfg(test)]
mod smoke;
