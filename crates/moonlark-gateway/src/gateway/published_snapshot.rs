//! The published snapshot: the catalog, the rules and the server's identity, with a
//! filtered catalog for each class of callers, made when the first of them comes.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use crate::admission::AdmissionLimits;
use crate::call::Caller;
use crate::per_catalog::run_blocking;
use crate::policy::{self, CallPolicy, CallerClass, RuleTerms, ToolViewer};
use crate::server_identity::ServerIdentity;
use moonlark_core::catalog::Catalog;

/// Classes of callers whose catalogs are kept. There are as many as the operator
/// tells callers apart, which is far fewer.
const MAX_CALLER_CLASSES: usize = 64;

/// What is to change of what is in force; the rest stays as it is.
#[derive(Default)]
pub struct SnapshotUpdate {
    pub catalog: Option<Catalog>,
    /// What rules have counted so far stays counted where they are the same.
    pub policy: Option<CallPolicy>,
    pub identity: Option<ServerIdentity>,
    pub admission: Option<AdmissionLimits>,
    pub max_artifact_bytes: Option<usize>,
}

impl From<Catalog> for SnapshotUpdate {
    fn from(catalog: Catalog) -> Self {
        Self { catalog: Some(catalog), ..Self::default() }
    }
}

impl From<CallPolicy> for SnapshotUpdate {
    fn from(policy: CallPolicy) -> Self {
        Self { policy: Some(policy), ..Self::default() }
    }
}

pub(super) struct PublishedSnapshot {
    pub(super) catalog: Arc<Catalog>,
    pub(super) policy: Arc<CallPolicy>,
    pub(super) identity: Arc<ServerIdentity>,
    /// Read without a lock; replaced whole by whoever adds one more.
    seen: ArcSwap<HashMap<CatalogViewClass, CatalogViewCell>>,
    adding: Mutex<()>,
    /// The callers that have tools of their own in the catalog.
    owners: HashSet<Arc<str>>,
}

/// Callers that see the same: those to whom the same rules apply and who own the same.
type CatalogViewClass = (CallerClass, ToolViewer);

/// A catalog that the first of its callers makes, without a lock that others need.
type CatalogViewCell = Arc<OnceLock<Arc<Catalog>>>;

impl PublishedSnapshot {
    pub(super) fn new(
        catalog: Arc<Catalog>,
        policy: Arc<CallPolicy>,
        identity: Arc<ServerIdentity>,
    ) -> Self {
        let (seen, adding, owners) = (ArcSwap::default(), Mutex::default(), catalog.tool_owners());
        Self { catalog, policy, identity, seen, adding, owners }
    }

    /// With what is given in the place of its own, or none if that is the same.
    pub(super) fn updated_with(
        &self,
        catalog: Option<&Arc<Catalog>>,
        policy: Option<&CallPolicy>,
        identity: Option<&Arc<ServerIdentity>>,
    ) -> Option<Self> {
        let policy = policy.filter(|it| !self.policy.has_same_rules(it));
        let identity = identity.filter(|it| **it != self.identity);
        if catalog.is_none() && policy.is_none() && identity.is_none() {
            return None;
        }
        let policy = policy.map(|it| Arc::new(it.continued_from(&self.policy)));
        Some(Self::new(
            catalog.unwrap_or(&self.catalog).clone(),
            policy.unwrap_or_else(|| self.policy.clone()),
            identity.unwrap_or(&self.identity).clone(),
        ))
    }

    /// With other limits of single callers, or none if they are the same.
    pub(super) fn with_caller_limits(&self, limits: &[(String, RuleTerms)]) -> Option<Self> {
        let policy = || Arc::new(self.policy.with_caller_limits(limits.to_vec()));
        let is_same = self.policy.has_same_caller_limits(limits);
        (!is_same).then(|| Self::new(self.catalog.clone(), policy(), self.identity.clone()))
    }

    /// The catalog as this caller sees it.
    pub(super) fn catalog_for(&self, caller: &Caller) -> Arc<Catalog> {
        let viewer = self.viewer_of(caller);
        if self.policy.is_empty() && viewer == ToolViewer::Everybody {
            return self.catalog.clone();
        }
        let class = (self.policy.caller_class(caller), viewer.clone());
        self.view_or_make(class, || {
            policy::view_for_rules(&self.catalog, self.policy.rules_for(caller), viewer)
        })
    }

    fn viewer_of(&self, caller: &Caller) -> ToolViewer {
        if self.owners.is_empty() || caller.is_at_home() {
            return ToolViewer::Everybody;
        }
        self.owners
            .get(caller.name())
            .map_or(ToolViewer::Nobody, |it| ToolViewer::Owner(it.clone()))
    }

    /// The catalog of this class, or what `make` makes. Other callers of the class wait
    /// for it, callers of other classes do not.
    fn view_or_make(
        &self,
        class: CatalogViewClass,
        make: impl FnOnce() -> Catalog,
    ) -> Arc<Catalog> {
        let known = self.seen.load().get(&class).cloned();
        let cell = known.unwrap_or_else(|| self.add_class(class));
        if let Some(catalog) = cell.get() {
            return catalog.clone();
        }
        run_blocking(|| cell.get_or_init(|| Arc::new(make())).clone())
    }

    fn add_class(&self, class: CatalogViewClass) -> CatalogViewCell {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A policy that tells `ann` and `ben` apart, and from everybody else.
    fn published() -> PublishedSnapshot {
        let rule = |caller: &str| {
            let terms = RuleTerms { callers: vec![caller.to_owned()], ..RuleTerms::default() };
            (format!("the rule for {caller}"), terms)
        };
        let policy = CallPolicy::new(vec![rule("ann"), rule("ben")]);
        PublishedSnapshot::new(Arc::default(), Arc::new(policy), Arc::default())
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_catalog_that_takes_long_to_make_holds_up_neither_other_callers_nor_the_only_thread()
    {
        let published = Arc::new(published());
        let [ann, ben, cleo] =
            ["ann", "ben", "cleo"].map(|name| Caller::new("mcp").with_name(name));
        let known = published.catalog_for(&cleo);
        let (begin, began) = tokio::sync::oneshot::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let slow = {
            let (published, class) =
                (published.clone(), (published.policy.caller_class(&ann), ToolViewer::Everybody));
            tokio::spawn(async move {
                published.view_or_make(class, || {
                    begin.send(()).unwrap();
                    ended.recv().unwrap();
                    Catalog::default()
                })
            })
        };
        began.await.unwrap();
        // One whose catalog is there, and one whose catalog is to be made.
        let others = tokio::spawn({
            let published = published.clone();
            async move { (published.catalog_for(&cleo), published.catalog_for(&ben)) }
        });
        let (again, made) = others.await.unwrap();
        assert!(Arc::ptr_eq(&again, &known) && !Arc::ptr_eq(&made, &known));
        end.send(()).unwrap();
        // Whoever comes later has what was made.
        assert!(Arc::ptr_eq(&slow.await.unwrap(), &published.catalog_for(&ann)));
    }
}
