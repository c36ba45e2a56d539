"""The clients of the tier: frameworks, which have drivers, and agents on the command line."""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass
class Framework:
    name: str
    title: str
    # The package whose version the report names.
    package: str
    # The folder with the driver, where it is not the one of the same name.
    driver: str = ""

    @property
    def folder(self):
        return HERE / "drivers" / self.name

    @property
    def is_python(self):
        return (self.folder / "requirements.txt").exists()

    def driver_command(self, installation):
        folder = HERE / "drivers" / (self.driver or self.name)
        if self.is_python:
            return [str(installation.python(self.name)), str(folder / "driver.py")]
        return [str(installation.node()), "--experimental-import-meta-resolve", str(folder / "driver.mjs")]

    def driver_environment(self, installation):
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(installation.home(self.name)),
            "TMPDIR": tempfile.gettempdir(),
            "PYTHONPATH": str(HERE),
            "PYTHONDONTWRITEBYTECODE": "1",
            "ALL_CLIENTS_PACKAGES": str(installation.folder(self.name)),
            # Nothing may be sent anywhere, and keys that some ask for even with a mock.
            "OTEL_SDK_DISABLED": "true",
            "CREWAI_DISABLE_TELEMETRY": "true",
            "CREWAI_TRACING_ENABLED": "false",
            "MASTRA_TELEMETRY_DISABLED": "1",
            "ANONYMIZED_TELEMETRY": "false",
            "OPENAI_API_KEY": "none",
            "ANTHROPIC_API_KEY": "none",
            "GOOGLE_API_KEY": "none",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        }


FRAMEWORKS = [
    Framework("langchain", "LangChain", "langchain-mcp-adapters"),
    Framework("openai_agents", "OpenAI Agents (Python)", "openai-agents"),
    Framework("openai_agents_js", "OpenAI Agents (JS)", "@openai/agents"),
    Framework("pydantic_ai", "Pydantic AI", "pydantic-ai-slim"),
    Framework("llama_index", "LlamaIndex", "llama-index-tools-mcp"),
    Framework("crewai", "CrewAI", "crewai-tools"),
    Framework("autogen", "AutoGen", "autogen-ext"),
    Framework("semantic_kernel", "Semantic Kernel", "semantic-kernel"),
    Framework("google_adk", "Google ADK", "google-adk"),
    Framework("dspy", "DSPy", "dspy"),
    Framework("agno", "Agno", "agno"),
    Framework("ai_sdk", "AI SDK 7", "@ai-sdk/mcp"),
    Framework("ai_sdk_6", "AI SDK 6", "@ai-sdk/mcp", driver="ai_sdk"),
    Framework("mastra", "Mastra", "@mastra/mcp"),
]
