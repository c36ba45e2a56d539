//! The catalog in use with the policy in force, and what has been made of both:
//! a catalog for each class of callers, when the first of them comes.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use crate::call::Caller;
use crate::catalog::{Catalog, run_blocking};
use crate::policy::{CallPolicy, CallerClass};

/// Classes of callers whose catalogs are kept. There are as many as the operator
/// tells callers apart, which is far fewer.
const MAX_CALLER_CLASSES: usize = 64;

pub(super) struct PublishedCatalog {
    pub(super) catalog: Arc<Catalog>,
    pub(super) policy: Arc<CallPolicy>,
    /// Read without a lock; replaced whole by whoever adds one more.
    seen: ArcSwap<HashMap<CallerClass, CatalogViewCell>>,
    adding: Mutex<()>,
}

/// A catalog that the first of its callers makes, without a lock that others need.
type CatalogViewCell = Arc<OnceLock<Arc<Catalog>>>;

impl PublishedCatalog {
    pub(super) fn new(catalog: Arc<Catalog>, policy: Arc<CallPolicy>) -> Self {
        Self { catalog, policy, seen: ArcSwap::default(), adding: Mutex::default() }
    }

    /// The catalog as this caller sees it.
    pub(super) fn catalog_for(&self, caller: &Caller) -> Arc<Catalog> {
        if self.policy.is_empty() {
            return self.catalog.clone();
        }
        let class = self.policy.caller_class(caller);
        let known = self.seen.load().get(&class).cloned();
        let cell = known.unwrap_or_else(|| self.add_class(class));
        if let Some(catalog) = cell.get() {
            return catalog.clone();
        }
        run_blocking(|| {
            let make = || Arc::new(self.catalog.view_for(self.policy.rules_for(caller)));
            cell.get_or_init(make).clone()
        })
    }

    fn add_class(&self, class: CallerClass) -> CatalogViewCell {
        let _adding = self.adding.lock();
        let known = self.seen.load_full();
        if let Some(cell) = known.get(&class) {
            return cell.clone();
        }
        let mut more =
            if known.len() < MAX_CALLER_CLASSES { HashMap::clone(&known) } else { HashMap::new() };
        let cell = CatalogViewCell::default();
        more.insert(class, cell.clone());
        self.seen.store(Arc::new(more));
        cell
    }
}
