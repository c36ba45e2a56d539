//! What the last checks found: many runs of one script need one check.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use moonlark_core::Catalog;
use parking_lot::Mutex;

use super::CheckedScript;

/// How many scripts, and how much of them, are remembered of one catalog.
const SCRIPTS: usize = 256;
const BYTES: usize = 4 << 20;
/// How many catalogs: callers who see different tools have different ones.
const CATALOGS: usize = 8;

/// For one catalog: the next one has other tools.
#[derive(Default)]
struct Kept {
    catalog: Weak<Catalog>,
    found: HashMap<String, CheckedScript>,
    bytes: usize,
}

static KEPT: Mutex<Vec<Kept>> = Mutex::new(Vec::new());

pub(super) fn find(script: &str, catalog: &Arc<Catalog>) -> Option<CheckedScript> {
    let all = KEPT.lock();
    all.iter().find(|kept| kept.is_for(catalog))?.found.get(script).cloned()
}

pub(super) fn keep(script: &str, catalog: &Arc<Catalog>, found: &CheckedScript) {
    let mut all = KEPT.lock();
    let full = |kept: &Kept| kept.found.len() == SCRIPTS || kept.bytes + script.len() > BYTES;
    let known = all.iter().position(|kept| kept.is_for(catalog)).map(|known| all.remove(known));
    let fresh = || Kept { catalog: Arc::downgrade(catalog), ..Kept::default() };
    let mut kept = known.filter(|kept| !full(kept)).unwrap_or_else(fresh);
    kept.bytes += script.len();
    kept.found.insert(script.to_owned(), found.clone());
    all.retain(|kept| kept.catalog.strong_count() > 0);
    if all.len() == CATALOGS {
        all.remove(0);
    }
    all.push(kept);
}

impl Kept {
    fn is_for(&self, catalog: &Arc<Catalog>) -> bool {
        // A weak reference keeps the address from being used again.
        std::ptr::eq(self.catalog.as_ptr(), Arc::as_ptr(catalog))
    }
}
