//! The catalog in use with the policy in force, and what has been made of both:
//! a catalog for each class of callers, when the first of them comes.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use crate::call::Caller;
use crate::catalog::Catalog;
use crate::policy::{Class, Policy};

/// Classes of callers whose catalogs are kept. There are as many as the operator
/// tells callers apart, which is far fewer.
const MOST: usize = 64;

pub(super) struct Published {
    pub(super) catalog: Arc<Catalog>,
    pub(super) policy: Arc<Policy>,
    /// Read without a lock; replaced whole by whoever makes one more.
    seen: ArcSwap<HashMap<Class, Arc<Catalog>>>,
    making: Mutex<()>,
}

impl Published {
    pub(super) fn new(catalog: Arc<Catalog>, policy: Arc<Policy>) -> Self {
        Self { catalog, policy, seen: ArcSwap::default(), making: Mutex::default() }
    }

    /// The catalog as this caller sees it.
    pub(super) fn catalog_for(&self, caller: &Caller) -> Arc<Catalog> {
        if self.policy.is_empty() {
            return self.catalog.clone();
        }
        let class = self.policy.class(caller);
        if let Some(catalog) = self.seen.load().get(&class) {
            return catalog.clone();
        }
        let _making = self.making.lock();
        let known = self.seen.load_full();
        if let Some(catalog) = known.get(&class) {
            return catalog.clone();
        }
        let catalog = Arc::new(self.catalog.seen_by(self.policy.rules_for(caller)));
        let mut more = match known.len() < MOST {
            true => HashMap::clone(&known),
            false => HashMap::new(),
        };
        more.insert(class, catalog.clone());
        self.seen.store(Arc::new(more));
        catalog
    }
}
