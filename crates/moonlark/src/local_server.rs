//! The running server of a project, for the other processes of its owner.
//!
//! A process that serves a project (`moonlark serve`, or the first `moonlark
//! stdio`) listens on a Unix socket in `.moonlark/`. Commands and further `stdio`
//! processes find it there and use it: scripts are loaded and upstream servers
//! started once for all of them, and every call takes the way through that one
//! gateway. Whoever may connect is the operator: the operating system says which
//! user the other end is, and only the owner of the process is let in.
//!
//! [`project_socket`] is about being found, [`greeting`] about what both ends say first,
//! [`socket_sessions`] about what is served, [`stdio_bridge`] about a `stdio` that attaches.

mod greeting;
mod project_socket;
mod socket_sessions;
mod stdio_bridge;

pub(crate) use greeting::{
    ConnectionPurpose, LocalServerLookup, LocalServerSummary, canonical_config_path,
    find_local_server,
};
pub(crate) use greeting::{connection_lost_problem, read_json_line, write_json_line};
pub(crate) use project_socket::{ProjectSocket, SocketClaim};
pub(crate) use socket_sessions::{LocalServer, ServingCommand};
pub(crate) use stdio_bridge::{BridgeBackend, bridge_stdio};
