//! The host modules: what scripts can do beyond their language.
//!
//! One file per module, and [`host_modules`] is the one list of them. Each module
//! describes itself (see `moonlark_core::module`); nothing here knows an
//! engine. Whatever touches the world does so with a proof from
//! `moonlark_core::grant`, and what it can produce is bounded by the limits of
//! the call it runs in.

#![cfg_attr(not(test), forbid(unsafe_code))]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)
)]

mod args;
mod base64;
mod client;
mod connection_pool;
mod crypto;
mod csv;
mod data;
mod dns_lookup;
mod env;
mod exec;
mod fs;
mod fuzzy;
mod html;
mod http;
mod json;
mod log;
mod math;
mod postgres;
mod progress;
mod regex;
mod sleep;
mod sql;
mod sqlite;
mod testing_module;
mod time;
mod toml;
mod url;
mod yaml;

#[cfg(test)]
mod example_tests;
#[cfg(test)]
mod test_calls;

use moonlark_core::Module;

/// Every host module, in the order the reference lists them.
pub fn host_modules() -> Vec<Module> {
    vec![
        http::module(),
        json::module(),
        log::module(),
        env::module(),
        fs::module(),
        data::module(),
        exec::module(),
        sqlite::module(),
        postgres::module(),
        base64::module(),
        crypto::module(),
        time::module(),
        regex::module(),
        url::module(),
        toml::module(),
        yaml::module(),
        csv::module(),
        html::module(),
        fuzzy::module(),
        math::module(),
        sleep::module(),
        progress::module(),
        client::module(),
        testing_module::module(),
    ]
}
