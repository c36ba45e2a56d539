//! Code mode from outside: agents' scripts through `execute`, over every way in,
//! with servers that remember what they saw.
//!
//! What scripts do inside, module by module, is tested with the engine; here is
//! what an agent is answered, and what the servers behind it notice.

mod artifacts;
mod check_worker;
mod checked;
mod discovery;
mod early;
mod expose;
mod hostile;
mod limits;
mod many;
mod parallel;
mod progress;
mod real;
mod seeds;
pub mod upstream;
mod values;
mod ways;
mod world;
