//! Whose sessions there are, which of them are in use, and who may have more.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use rmcp::model::{InitializeRequestParams, LoggingLevel, ProtocolVersion, RequestId};
use rmcp::transport::streamable_http_server::session::SessionId;

use super::connected_session::ConnectedSession;
use crate::principal::Principal;

/// Sessions at once. Each costs memory until it is closed or idle for too long.
const MAX_SESSIONS: usize = 1000;
/// Those of one caller that has shown who it is.
const MAX_SESSIONS_PER_CALLER: usize = 100;

#[derive(Default)]
pub(super) struct SessionTable(Mutex<SessionEntries>);

#[derive(Default)]
struct SessionEntries {
    sessions: HashMap<SessionId, McpSessionEntry>,
    /// By the ids that clients have, which need not be opened again.
    names: HashMap<String, SessionId>,
    /// Counts uses, to know which was used last.
    clock: u64,
}

#[derive(Default)]
struct McpSessionEntry {
    /// Who began it: nobody else gets to it.
    who: Principal,
    used: u64,
    /// Requests and streams that are open.
    open: usize,
    requests: HashSet<RequestId>,
    opening: SessionOpening,
    /// What its client said at the beginning, until that is sealed in its id.
    initialize: Option<InitializeRequestParams>,
    /// The version it speaks, once that is known.
    version: Option<ProtocolVersion>,
    /// The level of log messages that was written down last.
    level: Option<LoggingLevel>,
    /// What its calls need that the SDK does not serve.
    connected: Option<Arc<ConnectedSession>>,
}

/// How a session came to be known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum SessionOpening {
    #[default]
    New,
    /// It was begun in another process, and has not opened its stream since.
    TakenUp,
}

/// Whether there may be one more session.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SessionAdmission {
    Free,
    /// When this one, which nobody uses at the moment, is closed.
    After(SessionId),
    Full,
}

/// A request, or a stream, of a session while it is open.
pub(super) struct SessionUse {
    table: Arc<SessionTable>,
    session: SessionId,
    request: Option<RequestId>,
}

impl SessionTable {
    pub(super) fn insert(&self, id: SessionId, who: Principal, opening: SessionOpening) {
        let mut entries = self.0.lock();
        let used = entries.next_tick();
        let mut entry = McpSessionEntry::default();
        (entry.who, entry.used, entry.opening) = (who, used, opening);
        entries.sessions.insert(id, entry);
    }

    pub(super) fn note_initialized(
        &self,
        id: &str,
        params: InitializeRequestParams,
        version: ProtocolVersion,
    ) {
        if let Some(entry) = self.0.lock().sessions.get_mut(id) {
            (entry.initialize, entry.version) = (Some(params), Some(version));
        }
    }

    pub(super) fn note_connected(&self, session: Arc<ConnectedSession>) {
        if let Some(entry) = self.0.lock().sessions.get_mut(&session.name) {
            entry.connected = Some(session);
        }
    }

    /// The id that the client of a session has.
    pub(super) fn note_sealed_id(&self, sealed: &str, name: &str) {
        let mut entries = self.0.lock();
        if let Some((name, _)) = entries.sessions.get_key_value(name)
            && !entries.names.contains_key(sealed)
        {
            let name = name.clone();
            entries.names.insert(sealed.to_owned(), name);
        }
    }

    /// The session that the client knows by this id, if it is this caller's, with the
    /// version that it speaks.
    pub(super) fn find_connected(
        &self,
        sealed: &str,
        who: &Principal,
    ) -> Option<(Arc<ConnectedSession>, ProtocolVersion)> {
        let entries = self.0.lock();
        let entry = entries.sessions.get(entries.names.get(sealed)?)?;
        let is_callers = entry.who.name() == who.name();
        let connected = entry.connected.as_ref().filter(|_| is_callers)?;
        Some((connected.clone(), entry.version.clone()?))
    }

    /// Cancel a call of a session that the SDK does not know.
    pub(super) fn cancel_call(&self, session: &str, request: &RequestId) {
        let connected = self.0.lock().sessions.get(session).and_then(|it| it.connected.clone());
        if let Some(connected) = connected {
            connected.cancel_call(request);
        }
    }

    pub(super) fn take_initialize(&self, id: &str) -> Option<InitializeRequestParams> {
        self.0.lock().sessions.get_mut(id)?.initialize.take()
    }

    pub(super) fn protocol_version(&self, id: &str) -> Option<ProtocolVersion> {
        self.0.lock().sessions.get(id)?.version.clone()
    }

    /// The session wants messages of this level; whether that is new.
    pub(super) fn note_level(&self, id: &str, level: LoggingLevel) -> bool {
        let mut entries = self.0.lock();
        let entry = entries.sessions.get_mut(id);
        entry.is_none_or(|it| it.level.replace(level) != Some(level))
    }

    /// The session opens its stream; what it was until then.
    pub(super) fn note_stream(&self, id: &str) -> SessionOpening {
        let mut entries = self.0.lock();
        let entry = entries.sessions.get_mut(id);
        entry.map(|it| std::mem::take(&mut it.opening)).unwrap_or_default()
    }

    pub(super) fn remove(&self, id: &str) {
        let mut entries = self.0.lock();
        let removed = entries.sessions.remove(id);
        entries.names.retain(|_, name| **name != *id);
        drop(entries);
        drop(removed);
    }

    /// The session was used.
    pub(super) fn mark_used(&self, id: &str) {
        let mut entries = self.0.lock();
        let now = entries.next_tick();
        if let Some(entry) = entries.sessions.get_mut(id) {
            entry.used = now;
        }
    }

    /// Begin a request of a session, or a stream; none if a request with the same id
    /// is open.
    pub(super) fn begin_request(
        self: &Arc<Self>,
        session: &SessionId,
        request: Option<RequestId>,
    ) -> Option<SessionUse> {
        let mut entries = self.0.lock();
        let now = entries.next_tick();
        if let Some(entry) = entries.sessions.get_mut(session) {
            if let Some(id) = &request
                && !entry.requests.insert(id.clone())
            {
                return None;
            }
            entry.open += 1;
            entry.used = now;
        }
        Some(SessionUse { table: self.clone(), session: session.clone(), request })
    }

    /// Whether this caller may have one more session, of those that are `open`.
    pub(super) fn admit_session(&self, who: &Principal, open: &[SessionId]) -> SessionAdmission {
        let mut entries = self.0.lock();
        // The SDK ends sessions by itself, too.
        let open: HashSet<&SessionId> = open.iter().collect();
        entries.sessions.retain(|id, _| open.contains(id));
        entries.names.retain(|_, name| open.contains(name));
        let total = entries.sessions.len();
        let own = entries.sessions.values().filter(|entry| entry.who.name() == who.name()).count();
        // Where nobody says who they are, all are one caller.
        let share = if who.name().is_some() { MAX_SESSIONS_PER_CALLER } else { MAX_SESSIONS };
        if own >= share {
            return entries
                .oldest_idle(who)
                .map_or(SessionAdmission::Full, SessionAdmission::After);
        }
        if total < MAX_SESSIONS {
            return SessionAdmission::Free;
        }
        let largest = entries.largest_holder();
        let oldest = largest.and_then(|largest| entries.oldest_idle(&largest));
        oldest.map_or(SessionAdmission::Full, SessionAdmission::After)
    }

    fn end_request(&self, session: &SessionId, request: Option<&RequestId>) {
        let mut entries = self.0.lock();
        let now = entries.next_tick();
        if let Some(entry) = entries.sessions.get_mut(session) {
            entry.open = entry.open.saturating_sub(1);
            entry.used = now;
            if let Some(id) = request {
                entry.requests.remove(id);
            }
        }
    }
}

impl SessionEntries {
    fn next_tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn oldest_idle(&self, who: &Principal) -> Option<SessionId> {
        let idle =
            self.sessions.iter().filter(|(_, it)| it.who.name() == who.name() && it.open == 0);
        idle.min_by_key(|(_, entry)| entry.used).map(|(id, _)| id.clone())
    }

    /// Who has most.
    fn largest_holder(&self) -> Option<Principal> {
        let mut holders: Vec<(&Principal, usize)> = Vec::new();
        for entry in self.sessions.values() {
            match holders.iter_mut().find(|(who, _)| who.name() == entry.who.name()) {
                Some((_, count)) => *count += 1,
                None => holders.push((&entry.who, 1)),
            }
        }
        holders.into_iter().max_by_key(|(_, count)| *count).map(|(who, _)| who.clone())
    }
}

impl Drop for McpSessionEntry {
    fn drop(&mut self) {
        if let Some(connected) = &self.connected {
            connected.end_calls();
        }
    }
}

impl Drop for SessionUse {
    fn drop(&mut self) {
        self.table.end_request(&self.session, self.request.as_ref());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: impl std::fmt::Display) -> SessionId {
        name.to_string().into()
    }

    fn all(table: &SessionTable) -> Vec<SessionId> {
        table.0.lock().sessions.keys().cloned().collect()
    }

    #[test]
    fn a_caller_makes_room_with_its_own_oldest_and_never_with_anothers() {
        let table = Arc::new(SessionTable::default());
        let (alice, bob) = (Principal::with_name("alice"), Principal::with_name("bob"));
        table.insert(id("alice"), alice.clone(), SessionOpening::New);
        for number in 0..MAX_SESSIONS_PER_CALLER {
            assert_eq!(table.admit_session(&bob, &all(&table)), SessionAdmission::Free);
            table.insert(id(number), bob.clone(), SessionOpening::New);
        }
        assert_eq!(table.admit_session(&bob, &all(&table)), SessionAdmission::After(id(0)));
        table.mark_used("0");
        assert_eq!(table.admit_session(&bob, &all(&table)), SessionAdmission::After(id(1)));
        assert_eq!(table.admit_session(&alice, &all(&table)), SessionAdmission::Free);
        // What is in use stays.
        let uses: Vec<SessionUse> = (0..MAX_SESSIONS_PER_CALLER)
            .map(|number| table.begin_request(&id(number), None).unwrap())
            .collect();
        assert_eq!(table.admit_session(&bob, &all(&table)), SessionAdmission::Full);
        drop(uses);
        assert_eq!(table.admit_session(&bob, &all(&table)), SessionAdmission::After(id(0)));
        // What the SDK has ended takes no place.
        assert_eq!(table.admit_session(&bob, &[]), SessionAdmission::Free);
    }

    #[test]
    fn when_there_are_too_many_whoever_has_most_makes_room() {
        let table = Arc::new(SessionTable::default());
        for number in 0..MAX_SESSIONS {
            table.insert(
                id(number),
                Principal::with_name(format!("caller {}", number / 99)),
                SessionOpening::New,
            );
        }
        table.insert(id("more"), Principal::with_name("caller 3"), SessionOpening::New);
        let late = Principal::with_name("late");
        assert_eq!(table.admit_session(&late, &all(&table)), SessionAdmission::After(id(3 * 99)));
    }

    #[test]
    fn an_id_is_taken_for_as_long_as_its_request_is_open() {
        let table = Arc::new(SessionTable::default());
        table.insert(id("s"), Principal::default(), SessionOpening::New);
        let number = || Some(RequestId::Number(7));
        let first = table.begin_request(&id("s"), number());
        assert!(first.is_some());
        assert!(table.begin_request(&id("s"), number()).is_none());
        assert!(table.begin_request(&id("other"), number()).is_some());
        drop(first);
        assert!(table.begin_request(&id("s"), number()).is_some());
    }
}
