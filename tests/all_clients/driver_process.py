"""A driver as the harness sees it: a process that answers one request after the other.

One process serves all sessions of a framework, since importing one takes seconds. A
request that takes too long costs the process; the next request starts another.
"""

import json
import os
import queue
import signal
import subprocess
import threading
import time
from pathlib import Path

HERE = Path(__file__).parent
START_TIMEOUT_S = 120


class DriverProcess:
    def __init__(self, framework, installation, log_path):
        self.framework = framework
        self.installation = installation
        self.log_path = log_path
        self.process = None
        self.lines = None

    def request(self, timeout_s, **request):
        """The driver's answer, or an answer of our own that says why there is none."""
        if self.process is None:
            self.start()
            hello = self.exchange({"do": "hello"}, START_TIMEOUT_S)
            if not hello["ok"]:
                return hello
            self.apis = hello["apis"]
        return self.exchange(request, timeout_s)

    def exchange(self, request, timeout_s):
        began = time.monotonic()
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
            line = self.lines.get(timeout=timeout_s)
        except (queue.Empty, OSError):
            line = None
        if not line:
            gone = self.process.poll()
            self.stop()
            error = f"no answer within {timeout_s} s" if gone is None else f"the driver ended with status {gone}"
            return {"ok": False, "error": error, "seconds": time.monotonic() - began}
        return {**json.loads(line), "seconds": time.monotonic() - began}

    def start(self):
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                self.framework.driver_command(self.installation),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self.framework.driver_environment(self.installation),
                start_new_session=True,
            )
        self.lines = queue.Queue()
        threading.Thread(target=read_lines, args=(self.process.stdout, self.lines), daemon=True).start()

    def stop(self):
        if self.process is None:
            return
        process, self.process = self.process, None
        try:
            process.stdin.close()
            process.wait(3)
        except (OSError, subprocess.TimeoutExpired):
            pass
        # The group also has what the framework started and forgot.
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


def read_lines(stream, lines):
    for line in stream:
        lines.put(line)
    lines.put(None)
