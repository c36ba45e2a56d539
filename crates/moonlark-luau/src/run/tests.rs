//! Agents' scripts, rule by rule. The world they run in is in `world`.

mod calls;
mod ending;
mod promises;
mod values;
mod world;
