// The contract between the harness and a driver in JavaScript; contract.py says what it is.

import { createInterface } from "node:readline";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { join } from "node:path";

export const PROMPT = "Do what is needed.";
export const MODELS = { openai: "gpt-4.1", anthropic: "claude-sonnet-4-5", gemini: "gemini-2.5-flash" };
export const API_KEY = "none";

/** The framework's packages are not beside the driver but where they were installed. */
export async function load(name) {
    const folder = join(process.env.ALL_CLIENTS_PACKAGES, "package.json");
    const require = createRequire(folder);
    const { resolve } = import.meta;
    try {
        return await import(resolve(name, pathToFileURL(folder)));
    } catch {
        return await import(pathToFileURL(require.resolve(name)));
    }
}

export function bearerHeaders(how) {
    return how.token ? { Authorization: `Bearer ${how.token}` } : {};
}

export async function runDriver(driver) {
    const answer = process.stdout.write.bind(process.stdout);
    // Frameworks print; only answers may go to the stdout that the harness reads.
    process.stdout.write = process.stderr.write.bind(process.stderr);
    // What a framework forgets to catch is told, and does not end the driver.
    process.on("unhandledRejection", (error) => console.error("unhandled:", error));
    process.on("uncaughtException", (error) => console.error("uncaught:", error));
    for await (const line of createInterface({ input: process.stdin })) {
        let reply;
        try {
            reply = { ok: true, ...(await performRequest(driver, JSON.parse(line))) };
        } catch (error) {
            console.error(error);
            reply = { ok: false, error: describeError(error) };
        }
        answer(JSON.stringify(reply) + "\n");
    }
    process.exit(0);
}

async function performRequest(driver, request) {
    switch (request.do) {
        case "hello":
            return { apis: driver.apis };
        case "open":
            await driver.open(request);
            return {};
        case "list":
            return { names: await driver.list() };
        case "call": {
            const [failed, text] = await driver.call(request.tool, request.arguments);
            return { failed, text: typeof text === "string" ? text : JSON.stringify(text) };
        }
        case "converse":
            return { text: String(await driver.converse(request.api, request.base_url)) };
        case "close":
            await driver.close();
            return {};
    }
}

function describeError(error) {
    const own = error instanceof Error ? `${error.name}: ${error.message}` : JSON.stringify(error);
    return error?.cause ? `${own} <- ${describeError(error.cause)}` : own;
}
