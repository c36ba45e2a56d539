//! The cache of check results: many runs of one script need one check.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use moonlark_core::Catalog;
use parking_lot::Mutex;

use super::CheckedScript;

/// How many scripts, and how much of them, are remembered of one catalog.
const MAX_CACHED_SCRIPTS: usize = 256;
const MAX_CACHED_BYTES: usize = 4 << 20;
/// How many catalogs: callers who see different tools have different ones.
const MAX_CACHED_CATALOGS: usize = 8;

/// For one catalog: the next one has other tools.
#[derive(Default)]
struct CatalogCheckCache {
    catalog: Weak<Catalog>,
    found: HashMap<String, CheckedScript>,
    bytes: usize,
}

static CHECK_CACHES: Mutex<Vec<CatalogCheckCache>> = Mutex::new(Vec::new());

pub(super) fn find_cached_check(script: &str, catalog: &Arc<Catalog>) -> Option<CheckedScript> {
    let all = CHECK_CACHES.lock();
    all.iter().find(|kept| kept.is_for_catalog(catalog))?.found.get(script).cloned()
}

pub(super) fn cache_check(script: &str, catalog: &Arc<Catalog>, found: &CheckedScript) {
    let mut all = CHECK_CACHES.lock();
    let full = |kept: &CatalogCheckCache| {
        kept.found.len() == MAX_CACHED_SCRIPTS || kept.bytes + script.len() > MAX_CACHED_BYTES
    };
    let known =
        all.iter().position(|kept| kept.is_for_catalog(catalog)).map(|known| all.remove(known));
    let fresh =
        || CatalogCheckCache { catalog: Arc::downgrade(catalog), ..CatalogCheckCache::default() };
    let mut kept = known.filter(|kept| !full(kept)).unwrap_or_else(fresh);
    kept.bytes += script.len();
    kept.found.insert(script.to_owned(), found.clone());
    all.retain(|kept| kept.catalog.strong_count() > 0);
    if all.len() == MAX_CACHED_CATALOGS {
        all.remove(0);
    }
    all.push(kept);
}

impl CatalogCheckCache {
    fn is_for_catalog(&self, catalog: &Arc<Catalog>) -> bool {
        // A weak reference keeps the address from being used again.
        std::ptr::eq(self.catalog.as_ptr(), Arc::as_ptr(catalog))
    }
}
