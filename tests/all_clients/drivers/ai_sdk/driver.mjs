// The AI SDK: createMCPClient of @ai-sdk/mcp, with the models of OpenAI, Anthropic and Google.

import { API_KEY, MODELS, PROMPT, bearerHeaders, load, runDriver } from "../../contract.mjs";

const { generateText, stepCountIs, isStepCount } = await load("ai");
const { createMCPClient } = await load("@ai-sdk/mcp");
const { StdioMCPTransport, Experimental_StdioMCPTransport } = await load("@ai-sdk/mcp/mcp-stdio");
const { createOpenAI } = await load("@ai-sdk/openai");
const { createAnthropic } = await load("@ai-sdk/anthropic");
const { createGoogleGenerativeAI } = await load("@ai-sdk/google");

const atMost = isStepCount ?? stepCountIs;
const StdioTransport = StdioMCPTransport ?? Experimental_StdioMCPTransport;

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

class AiSdkDriver {
    apis = ["openai", "anthropic", "gemini"];

    async open(how) {
        const [command, ...args] = how.command ?? [];
        const transport =
            how.transport === "stdio"
                ? new StdioTransport({ command, args, env: how.env })
                : { type: "http", url: how.url, headers: bearerHeaders(how) };
        this.client = await createMCPClient({ transport });
    }

    async list() {
        this.tools = await this.client.tools();
        return Object.keys(this.tools);
    }

    async call(tool, args) {
        const result = await this.tools[tool].execute(args, { toolCallId: "1", messages: [] });
        return [result.isError === true, result.content];
    }

    async converse(api, baseUrl) {
        const model = chatModel(api, baseUrl);
        const { text } = await generateText({
            model,
            tools: this.tools,
            prompt: PROMPT,
            stopWhen: atMost(4),
            maxRetries: 0,
        });
        return text;
    }

    async close() {
        await this.client.close();
    }
}

await runDriver(new AiSdkDriver());
