//! The catalog in use with the policy in force, and what has been made of both:
//! a catalog for each class of callers, when the first of them comes.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use crate::call::Caller;
use crate::catalog::{Catalog, run_aside};
use crate::policy::{Class, Policy};

/// Classes of callers whose catalogs are kept. There are as many as the operator
/// tells callers apart, which is far fewer.
const MOST: usize = 64;

pub(super) struct Published {
    pub(super) catalog: Arc<Catalog>,
    pub(super) policy: Arc<Policy>,
    /// Read without a lock; replaced whole by whoever adds one more.
    seen: ArcSwap<HashMap<Class, MadeOnce>>,
    adding: Mutex<()>,
}

/// A catalog that the first of its callers makes, without a lock that others need.
type MadeOnce = Arc<OnceLock<Arc<Catalog>>>;

impl Published {
    pub(super) fn new(catalog: Arc<Catalog>, policy: Arc<Policy>) -> Self {
        Self { catalog, policy, seen: ArcSwap::default(), adding: Mutex::default() }
    }

    /// The catalog as this caller sees it.
    pub(super) fn catalog_for(&self, caller: &Caller) -> Arc<Catalog> {
        if self.policy.is_empty() {
            return self.catalog.clone();
        }
        let class = self.policy.class(caller);
        let known = self.seen.load().get(&class).cloned();
        let cell = known.unwrap_or_else(|| self.add(class));
        if let Some(catalog) = cell.get() {
            return catalog.clone();
        }
        run_aside(|| {
            let make = || Arc::new(self.catalog.seen_by(self.policy.rules_for(caller)));
            cell.get_or_init(make).clone()
        })
    }

    fn add(&self, class: Class) -> MadeOnce {
        let _adding = self.adding.lock();
        let known = self.seen.load_full();
        if let Some(cell) = known.get(&class) {
            return cell.clone();
        }
        let mut more = if known.len() < MOST { HashMap::clone(&known) } else { HashMap::new() };
        let cell = MadeOnce::default();
        more.insert(class, cell.clone());
        self.seen.store(Arc::new(more));
        cell
    }
}
