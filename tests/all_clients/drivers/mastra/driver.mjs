// Mastra: MCPClient of @mastra/mcp, with the models of the AI SDK.

import { API_KEY, MODELS, PROMPT, bearerHeaders, load, runDriver } from "../../contract.mjs";

const { Agent } = await load("@mastra/core/agent");
const { MCPClient } = await load("@mastra/mcp");
const { createOpenAI } = await load("@ai-sdk/openai");
const { createAnthropic } = await load("@ai-sdk/anthropic");
const { createGoogleGenerativeAI } = await load("@ai-sdk/google");

// What it puts before the names of a server's tools.
const PREFIX = "moonlark_";
let opened = 0;

function chatModel(api, baseUrl) {
    switch (api) {
        case "openai":
            return createOpenAI({ baseURL: baseUrl, apiKey: API_KEY })(MODELS[api]);
        case "anthropic":
            return createAnthropic({ baseURL: `${baseUrl}/v1`, apiKey: API_KEY })(MODELS[api]);
        default:
            return createGoogleGenerativeAI({ baseURL: `${baseUrl}/v1beta`, apiKey: API_KEY })(MODELS[api]);
    }
}

class MastraDriver {
    apis = ["openai", "anthropic", "gemini"];

    async open(how) {
        const [command, ...args] = how.command ?? [];
        const server =
            how.transport === "stdio"
                ? { command, args, env: how.env }
                : { url: new URL(how.url), requestInit: { headers: bearerHeaders(how) } };
        this.client = new MCPClient({ id: `client-${++opened}`, servers: { moonlark: server } });
    }

    async list() {
        this.tools = await this.client.listTools();
        return Object.keys(this.tools).map((name) => name.slice(PREFIX.length));
    }

    async call(tool, args) {
        try {
            const result = await this.tools[PREFIX + tool].execute(args, {});
            return [result?.isError === true || result?.error === true, result];
        } catch (error) {
            // A tool that fails is an error like any other to it.
            return [true, error.message];
        }
    }

    async converse(api, baseUrl) {
        const agent = new Agent({
            id: "assistant",
            name: "assistant",
            instructions: "Help.",
            model: chatModel(api, baseUrl),
            tools: this.tools,
        });
        return (await agent.generate(PROMPT, { maxSteps: 4 })).text;
    }

    async close() {
        await this.client.disconnect();
    }
}

await runDriver(new MastraDriver());
