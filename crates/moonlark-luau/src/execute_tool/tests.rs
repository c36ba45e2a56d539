//! Agents' scripts, rule by rule. The world they run in is in `world`; runs that
//! are interrupted have `shop` and `notebook`.

mod calls;
mod ending;
mod failures;
mod forked;
mod interrupted;
mod leftovers;
mod missing_fields;
mod notebook;
mod other_languages;
mod plans;
mod promises;
mod resumed;
mod same_again;
mod shop;
mod values;
mod world;
