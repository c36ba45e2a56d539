//! A service that holds requests until it is told, says which came, and the tools that call
//! it.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;

/// Requests of a path with `hold` in it wait for a word.
pub struct Gate {
    pub port: u16,
    /// The paths, as they came.
    pub came: mpsc::Receiver<String>,
    /// Lets one that waits go.
    pub go: mpsc::Sender<()>,
}

impl Gate {
    pub fn start() -> Gate {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (arrived, came) = mpsc::channel();
        let (go, going) = mpsc::channel::<()>();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut bytes = [0; 4096];
                let read = stream.read(&mut bytes).unwrap_or(0);
                let line = String::from_utf8_lossy(&bytes[..read]);
                let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
                let holds = path.contains("hold");
                if arrived.send(path).is_err() || holds && going.recv().is_err() {
                    return;
                }
                let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
                // Whoever asked may have been killed.
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        Gate { port, came, go }
    }
}

/// `visit` may do something twice when it is called twice, `look` does not.
pub const VISITS: [(&str, &str); 2] = [
    (
        "tools/visit.lua",
        "tool = { name = \"visit\", description = \"Visit a place\",\n\
             parameters = { { name = \"place\", type = \"string\", required = true } } }\n\
         function tool.execute(params, context)\n\
             return http.get(`http://127.0.0.1:{context.config.port}/{params.place}`).body\n\
         end\n",
    ),
    (
        "tools/look.lua",
        "tool = { name = \"look\", description = \"Look at a place\",\n\
             parameters = { { name = \"place\", type = \"string\", required = true } },\n\
             annotations = { read_only = true } }\n\
         function tool.execute(params, context)\n\
             return http.get(`http://127.0.0.1:{context.config.port}/{params.place}`).body\n\
         end\n",
    ),
];

/// The settings of both.
pub fn visiting(gate: &Gate) -> String {
    let port = gate.port;
    let table = |name: &str| {
        format!(
            "[tools.script.{name}]\npath = \"tools/{name}.lua\"\nallow = [\"net:127.0.0.1:{port}\"]\nport = {port}\n"
        )
    };
    table("visit") + &table("look")
}
