// OpenAI Agents for JavaScript: a server with its list of tools cached, as its guide advises.

import { API_KEY, MODELS, PROMPT, bearerHeaders, load, runDriver } from "../../contract.mjs";

const agents = await load("@openai/agents");
const { Agent, MCPServerStdio, MCPServerStreamableHttp, OpenAIProvider, Runner } = agents;

class OpenAiAgentsDriver {
    apis = ["openai"];

    async open(how) {
        const [command, ...args] = how.command ?? [];
        this.server =
            how.transport === "stdio"
                ? new MCPServerStdio({ name: "moonlark", command, args, env: how.env, cacheToolsList: true })
                : new MCPServerStreamableHttp({
                      name: "moonlark",
                      url: how.url,
                      requestInit: { headers: bearerHeaders(how) },
                      cacheToolsList: true,
                  });
        await this.server.connect();
    }

    async list() {
        return (await this.server.listTools()).map((tool) => tool.name);
    }

    async call(tool, args) {
        const result = await this.server.callTool(tool, args);
        return [result?.isError === true, result?.content ?? result];
    }

    async converse(api, baseUrl) {
        const agent = new Agent({ name: "assistant", model: MODELS[api], mcpServers: [this.server] });
        const modelProvider = new OpenAIProvider({ apiKey: API_KEY, baseURL: baseUrl });
        const runner = new Runner({ modelProvider, tracingDisabled: true });
        return (await runner.run(agent, PROMPT)).finalOutput;
    }

    async close() {
        await this.server.close();
    }
}

await runDriver(new OpenAiAgentsDriver());
