//! Something made from a catalog, once for each that is in use.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::Catalog;

/// How many catalogs it is kept for.
const MOST: usize = 64;

/// What is kept must not hold the catalog itself, which would then never go.
pub struct PerCatalog<T>(Mutex<Vec<(Weak<Catalog>, Arc<T>)>>);

impl<T> Default for PerCatalog<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> PerCatalog<T> {
    /// What there is for `catalog`, or what `make` makes. Whoever comes
    /// meanwhile waits for it.
    pub fn of(&self, catalog: &Arc<Catalog>, make: impl FnOnce() -> T) -> Arc<T> {
        let mut all = self.0.lock();
        // A weak reference keeps the address from being used again.
        let is = |known: &Weak<Catalog>| std::ptr::eq(known.as_ptr(), Arc::as_ptr(catalog));
        if let Some((_, made)) = all.iter().find(|(known, _)| is(known)) {
            return made.clone();
        }
        all.retain(|(known, _)| known.strong_count() > 0);
        if all.len() == MOST {
            all.remove(0);
        }
        let made = Arc::new(make());
        all.push((Arc::downgrade(catalog), made.clone()));
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_catalog_has_its_own_for_as_long_as_it_is_in_use() {
        let per = PerCatalog::default();
        let catalogs = [Arc::new(Catalog::default()), Arc::new(Catalog::default())];
        assert_eq!(*per.of(&catalogs[0], || 1), 1);
        assert_eq!(*per.of(&catalogs[1], || 2), 2);
        assert_eq!(*per.of(&catalogs[0], || 3), 1);
        drop(catalogs);
        assert_eq!(*per.of(&Arc::default(), || 4), 4);
        assert_eq!(per.0.lock().len(), 1);
    }
}
