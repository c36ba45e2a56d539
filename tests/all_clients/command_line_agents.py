"""The agents on the command line: how each is told of Moonlark and of the mock of its model."""

import json
import os
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
PROMPT = "Do what is needed."
RUN_TIMEOUT_S = 120
TOKEN_VARIABLE = "MOONLARK_TIER_TOKEN"


@dataclass
class AgentRun:
    """What came of one run of an agent; what it sent to the model is with the model."""

    status: int | None
    output: str


class CommandLineAgent:
    name = title = package = api = ""

    @property
    def folder(self):
        return HERE / "agents" / self.name

    def command(self, installation, workplace, how, base_url):
        """Write the settings into the workplace: (command, environment)."""
        raise NotImplementedError

    def run(self, installation, how, base_url, when_ended=lambda: None):
        """Run it to its end; `when_ended` looks at what it has left before that is ended too."""
        with tempfile.TemporaryDirectory(prefix="all-clients-") as folder:
            workplace = Path(folder)
            (workplace / "home").mkdir()
            (workplace / "work").mkdir()
            command, environment = self.command(installation, workplace, how, base_url)
            environment = {
                "PATH": f"{installation.node().parent}{os.pathsep}{os.environ['PATH']}",
                "HOME": str(workplace / "home"),
                "TMPDIR": tempfile.gettempdir(),
                "TERM": "dumb",
                "NO_COLOR": "1",
                "CI": "1",
                TOKEN_VARIABLE: how.get("token") or "",
                **environment,
            }
            # A file, since the end of a pipe would also wait for what the agent has left.
            with open(workplace / "output", "w+b") as output:
                process = subprocess.Popen(
                    [str(part) for part in command],
                    cwd=workplace / "work",
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
                try:
                    status = process.wait(RUN_TIMEOUT_S)
                    when_ended()
                except subprocess.TimeoutExpired:
                    status = None
                finally:
                    end_group(process)
                output.seek(0)
                return AgentRun(status, output.read().decode(errors="replace"))


def end_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def server_entry(how):
    """An entry of `mcpServers` as most clients write it."""
    if how["transport"] == "stdio":
        command, *args = how["command"]
        return {"type": "stdio", "command": command, "args": args, "env": how["env"]}
    entry = {"type": "http", "url": how["url"]}
    if how.get("token"):
        entry["headers"] = {"Authorization": f"Bearer {how['token']}"}
    return entry


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return path


class ClaudeCode(CommandLineAgent):
    name, title, package, api = "claude_code", "Claude Code", "@anthropic-ai/claude-code", "anthropic"

    def command(self, installation, workplace, how, base_url):
        config = write_json(workplace / "mcp.json", {"mcpServers": {"moonlark": server_entry(how)}})
        command = [installation.native_program(self.name, "claude"), "-p", PROMPT]
        command += ["--mcp-config", config, "--strict-mcp-config", "--allowedTools", "mcp__moonlark"]
        return command, {
            "ANTHROPIC_BASE_URL": base_url,
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            # Otherwise it may keep tools back until the model searches for them.
            "ENABLE_TOOL_SEARCH": "false",
        }


class Codex(CommandLineAgent):
    name, title, package, api = "codex", "Codex CLI", "@openai/codex", "openai"

    def command(self, installation, workplace, how, base_url):
        lines = [
            'model = "gpt-5.4"',
            'model_provider = "mock"',
            "[model_providers.mock]",
            'name = "mock"',
            f'base_url = "{base_url}"',
            'wire_api = "responses"',
            "[mcp_servers.moonlark]",
            'default_tools_approval_mode = "approve"',
            # Otherwise 0.169 does not wait for a server that it starts, and its first request, which
            # is the only one of `exec`, has none of its tools.
            'required = true',
        ]
        if how["transport"] == "stdio":
            command, *args = how["command"]
            lines += [f"command = {json.dumps(command)}", f"args = {json.dumps(args)}"]
            lines += ["[mcp_servers.moonlark.env]"]
            lines += [f"{key} = {json.dumps(value)}" for key, value in how["env"].items()]
        else:
            lines.append(f'url = "{how["url"]}"')
            if how.get("token"):
                lines.append(f'bearer_token_env_var = "{TOKEN_VARIABLE}"')
        home = workplace / "home" / ".codex"
        home.mkdir()
        (home / "config.toml").write_text("\n".join(lines) + "\n")
        command = [installation.bin(self.name, "codex"), "exec", "--skip-git-repo-check", "--ephemeral"]
        command += ["--dangerously-bypass-approvals-and-sandbox", PROMPT]
        return command, {"CODEX_HOME": str(home), "OPENAI_API_KEY": "none"}


class GeminiCli(CommandLineAgent):
    name, title, package, api = "gemini_cli", "Gemini CLI", "@google/gemini-cli", "gemini"

    def command(self, installation, workplace, how, base_url):
        entry = server_entry(how)
        entry.pop("type")
        if "url" in entry:
            entry["httpUrl"] = entry.pop("url")
        settings = {
            "mcpServers": {"moonlark": {**entry, "trust": True}},
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "privacy": {"usageStatisticsEnabled": False},
            "telemetry": {"enabled": False},
            "general": {"disableAutoUpdate": True},
        }
        write_json(workplace / "home" / ".gemini" / "settings.json", settings)
        command = [installation.bin(self.name, "gemini"), "-m", "gemini-2.5-flash", "--approval-mode", "yolo"]
        return [*command, "--skip-trust", "-p", PROMPT], {
            "GEMINI_API_KEY": "none",
            "GOOGLE_GEMINI_BASE_URL": base_url,
        }


class QwenCode(CommandLineAgent):
    name, title, package, api = "qwen_code", "Qwen Code", "@qwen-code/qwen-code", "openai"

    def command(self, installation, workplace, how, base_url):
        entry = server_entry(how)
        entry.pop("type")
        if "url" in entry:
            entry["httpUrl"] = entry.pop("url")
        settings = {
            "mcpServers": {"moonlark": {**entry, "trust": True}},
            "security": {"auth": {"selectedType": "openai"}},
            "privacy": {"usageStatisticsEnabled": False},
            "telemetry": {"enabled": False},
            "general": {"disableAutoUpdate": True},
            # Otherwise it keeps tools back until the model searches for them.
            "tools": {"toolSearch": {"enabled": False}},
        }
        write_json(workplace / "home" / ".qwen" / "settings.json", settings)
        command = [installation.bin(self.name, "qwen"), "--approval-mode", "yolo", "-p", PROMPT]
        return command, {
            "OPENAI_API_KEY": "none",
            "OPENAI_BASE_URL": base_url,
            "OPENAI_MODEL": "qwen3-coder-plus",
        }


class OpenCode(CommandLineAgent):
    name, title, package, api = "opencode", "opencode", "opencode-ai", "openai"

    def command(self, installation, workplace, how, base_url):
        if how["transport"] == "stdio":
            entry = {"type": "local", "command": how["command"], "environment": how["env"]}
        else:
            entry = {"type": "remote", "url": how["url"], "oauth": False}
            if how.get("token"):
                entry["headers"] = {"Authorization": f"Bearer {how['token']}"}
        config = {
            "autoupdate": False,
            "share": "disabled",
            "model": "mock/gpt-4.1",
            "small_model": "mock/gpt-4.1",
            "provider": {
                "mock": {
                    "npm": "@ai-sdk/openai-compatible",
                    "name": "mock",
                    "options": {"baseURL": base_url, "apiKey": "none"},
                    "models": {"gpt-4.1": {"name": "mock"}},
                }
            },
            "mcp": {"moonlark": {**entry, "enabled": True, "timeout": 20000}},
        }
        path = write_json(workplace / "opencode.json", config)
        program = installation.native_program(self.name, "opencode")
        return [program, "run", PROMPT], {
            "OPENCODE_CONFIG": str(path),
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_PERMISSION": json.dumps({"*": "allow"}),
        }


class ContinueCli(CommandLineAgent):
    name, title, package, api = "continue_cli", "Continue", "@continuedev/cli", "openai"

    def command(self, installation, workplace, how, base_url):
        entry = {"name": "moonlark"}
        if how["transport"] == "stdio":
            command, *args = how["command"]
            entry.update(type="stdio", command=command, args=args, env=how["env"])
        else:
            entry.update(type="streamable-http", url=how["url"])
            if how.get("token"):
                entry["requestOptions"] = {"headers": {"Authorization": f"Bearer {how['token']}"}}
        model = {"name": "mock", "provider": "openai", "model": "gpt-4.1", "apiBase": base_url, "apiKey": "none"}
        model["capabilities"] = ["tool_use"]
        config = {"name": "tier", "version": "1.0.0", "schema": "v1", "models": [model], "mcpServers": [entry]}
        # JSON is YAML.
        path = write_json(workplace / "config.yaml", config)
        command = [installation.bin(self.name, "cn"), "--config", path, "--auto", "-p", PROMPT]
        return command, {"CONTINUE_TELEMETRY_ENABLED": "0", "CONTINUE_API_BASE": base_url}


AGENTS = [ClaudeCode(), Codex(), GeminiCli(), QwenCode(), OpenCode(), ContinueCli()]
