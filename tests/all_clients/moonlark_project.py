"""Projects of the tier in temporary folders, and the Moonlark that serves them."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

FIXTURE = Path(__file__).parent / "fixture"
START_TIMEOUT_S = 60
TOKEN = "tier-token-5dcb9f2e31"

SETTINGS = {
    "plain": """
[mcp_servers.stock]
command = {python}
args = [{server}, "{folder}/stock.json"]
expose = "{expose}"

[apis.shop]
spec = "shop.json"
base_url = "{api}"
expose = "{expose}"
""",
    "awkward": """
[mcp_servers.odd]
command = {python}
args = [{server}, "{folder}/awkward.json"]
expose = "{expose}"

[mcp_servers.bare]
command = {python}
args = [{server}, "{folder}/bare.json"]
expose = "{expose}"
prefix = ""

[apis.forge]
spec = "forge.json"
base_url = "{api}"
expose = "{expose}"
""",
}


class ApiServer:
    """Answers the requests of the projects' OpenAPI documents with what arrived."""

    def __init__(self):
        self.requests = []
        handler = type("BoundHandler", (EchoHandler,), {"requests": self.requests})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class EchoHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    requests = None

    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        answer = {"method": self.command, "path": self.path}
        if body:
            answer["body"] = json.loads(body)
        self.requests.append(answer)
        data = json.dumps(answer, sort_keys=True).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_POST = do_GET

    def log_message(self, *_):
        pass


class MoonlarkProject:
    """A project folder of its own, with what it takes to start or reach its Moonlark."""

    def __init__(self, moonlark, parent, name, fixture, expose, api, token=None):
        self.moonlark = moonlark
        self.token = token
        self.api = api
        self.folder = Path(parent) / name
        shutil.copytree(FIXTURE / fixture, self.folder)
        (self.folder / "tools").mkdir(exist_ok=True)
        server = shutil.copy(FIXTURE / "upstream_server.py", self.folder)
        quoted = json.dumps
        settings = SETTINGS[fixture].format(
            python=quoted(sys.executable),
            server=quoted(str(server)),
            # In full, since a server is started in a folder that is not ours to choose.
            folder=self.folder,
            expose=expose,
            api=api.address,
        )
        if token:
            settings += f'\n[server.auth]\ntokens = {{ tier = "{token}" }}\n'
        (self.folder / "moonlark.toml").write_text(settings)

    def stdio(self):
        """How a client starts Moonlark itself."""
        return {
            "transport": "stdio",
            "command": [str(self.moonlark), "stdio", "--config", str(self.folder / "moonlark.toml")],
            "env": moonlark_environment(),
        }

    def arrived(self):
        """All calls that have reached the upstream servers and the API of this project so far."""
        calls = []
        for path in sorted(self.folder.glob("*.calls")):
            calls += [json.loads(line) for line in path.read_text().splitlines()]
        return calls + self.api.requests

    def leave_nothing(self):
        """End what still runs in this folder: its processes name it in their arguments."""
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def processes(self):
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    # Clients name the folder too; only Moonlark and its upstream servers count.
                    command = (entry / "cmdline").read_bytes().split(b"\0")
                    state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
                except OSError:
                    continue
                folder = str(self.folder).encode()
                ours = command[0] == str(self.moonlark).encode() or folder + b"/upstream_server.py" in command
                named = any(folder in argument for argument in command)
                if ours and named and state != "Z":
                    found.append(int(entry.name))
        return found

    def leftovers(self):
        """Files that a Moonlark that has gone should not have left."""
        folder = self.folder / ".moonlark"
        if not folder.is_dir():
            return []
        return sorted(p.name for p in folder.iterdir() if p.name.startswith(".tmp") or p.suffix == ".sock")


class MoonlarkServer:
    """`moonlark serve` for a project; it can be restarted where it is."""

    def __init__(self, project):
        self.project = project
        self.port = 0
        self.process = None
        self.log_path = project.folder.with_suffix(".log")
        self.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/mcp"

    def how(self, token=None):
        """How a client reaches it."""
        return {"transport": "http", "url": self.url, "token": token}

    def start(self):
        with open(self.log_path, "ab") as log:
            begin = log.tell()
            self.process = subprocess.Popen(
                [
                    str(self.project.moonlark),
                    "serve",
                    "--port",
                    str(self.port),
                    "--config",
                    str(self.project.folder / "moonlark.toml"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=moonlark_environment(),
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and self.process.poll() is None:
            with open(self.log_path, "rb") as log:
                log.seek(begin)
                found = re.search(rb"listening on http://127\.0\.0\.1:(\d+)", log.read())
            if found:
                self.port = int(found[1])
                if self.is_ready():
                    return
            time.sleep(0.05)
        raise RuntimeError(f"moonlark serve did not start: {self.log_path.read_text()[-2000:]}")

    def is_ready(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/ready", timeout=5) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def restart(self):
        self.stop()
        self.start()

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def list_tools(self):
        """What it lists when everything is there, asked without any client's library."""
        session = RawSession(self.url, self.project.token)
        return session.request("tools/list")["tools"]


class RawSession:
    """The least that is a client over HTTP."""

    VERSION = "2025-06-18"

    def __init__(self, url, token):
        self.url = url
        self.headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        if token:
            self.headers["Authorization"] = f"Bearer {token}"
        params = {
            "protocolVersion": self.VERSION,
            "capabilities": {},
            "clientInfo": {"name": "tier", "version": "1"},
        }
        self.request("initialize", params)
        self.headers["MCP-Protocol-Version"] = self.VERSION
        self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def request(self, method, params=None):
        text = self.post({"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}})
        messages = [text] if text.startswith("{") else re.findall(r"^data: ?(\{.*)$", text, re.MULTILINE)
        for message in map(json.loads, messages):
            if message.get("id") == 1:
                return message["result"]
        raise RuntimeError(f"no answer to {method}: {text}")

    def post(self, message):
        request = urllib.request.Request(self.url, json.dumps(message).encode(), self.headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            if session := answer.headers.get("Mcp-Session-Id"):
                self.headers["Mcp-Session-Id"] = session
            return answer.read().decode()


def moonlark_environment():
    """What Moonlark is started with: nothing of this machine's settings, so that runs are alike."""
    return {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "NO_COLOR": "1", "RUST_BACKTRACE": "0"}
