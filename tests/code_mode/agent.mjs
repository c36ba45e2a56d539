// The official TypeScript clients as agents that write scripts.
//
//     agent.mjs v1|v2 http URL CASES FOLDER         a server that runs
//     agent.mjs v1|v2 stdio COMMAND CASES FOLDER    a server that the client starts in FOLDER
//
// CASES is a file of scripts and what must come of them. Prints `ok VERSION NAME`
// for each that ended so, and stops at the first that did not.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';

import { load } from '../../target/clients/load.mjs';

const [generation, transportKind, where, casesFile, folder] = process.argv.slice(2);
const CASES = JSON.parse(readFileSync(casesFile, 'utf8'));
const INFO = { name: 'agent', version: '1.0.0' };
const SURFACE = ['execute', 'get_function_docs', 'list_functions', 'search_docs'];
const PATIENCE = 300_000;

/** What differs between the two generations: how to connect, and how to call. */
const generations = {
    async v1() {
        const { Client } = await load('@modelcontextprotocol/sdk/client/index.js');
        const { StdioClientTransport } = await load('@modelcontextprotocol/sdk/client/stdio.js');
        const { StreamableHTTPClientTransport } = await load('@modelcontextprotocol/sdk/client/streamableHttp.js');
        return {
            StdioClientTransport,
            StreamableHTTPClientTransport,
            versions: ['2025-11-25'],
            client: () => new Client(INFO),
            call: (client, params) => client.callTool(params, undefined, { timeout: PATIENCE })
        };
    },
    async v2() {
        const { Client, StreamableHTTPClientTransport } = await load('@modelcontextprotocol/client');
        const { StdioClientTransport } = await load('@modelcontextprotocol/client/stdio');
        return {
            StdioClientTransport,
            StreamableHTTPClientTransport,
            versions: ['2025-11-25', '2026-07-28'],
            client: version =>
                new Client(
                    INFO,
                    version === '2026-07-28'
                        ? { versionNegotiation: { mode: 'auto' } }
                        : { supportedProtocolVersions: [version] }
                ),
            call: (client, params) => client.callTool(params, { timeout: PATIENCE })
        };
    }
};

function compare({ fails = false, value, types, says = [] }, { content, structuredContent, isError }) {
    assert.equal(isError ?? false, fails, JSON.stringify(content));
    if (value !== undefined) {
        assert.deepEqual(structuredContent, value);
        assert.deepEqual(JSON.parse(content[0].text), value);
    }
    if (types) {
        assert.deepEqual(
            content.map(block => block.type),
            types
        );
    }
    for (const word of says) {
        assert.ok(
            content.some(block => block.text?.includes(word)),
            `no ${word} in ${JSON.stringify(content)}`
        );
    }
}

const sdk = await generations[generation]();
for (const version of sdk.versions) {
    const client = sdk.client(version);
    const transport =
        transportKind === 'http'
            ? new sdk.StreamableHTTPClientTransport(new URL(where))
            : new sdk.StdioClientTransport({ command: where, args: ['stdio'], cwd: folder });
    await client.connect(transport);
    const tools = (await client.listTools()).tools.map(tool => tool.name);
    assert.deepEqual(
        SURFACE.filter(name => tools.includes(name)),
        SURFACE
    );
    for (const item of CASES) {
        compare(item, await sdk.call(client, { name: 'execute', arguments: { script: item.script } }));
        console.log(`ok ${version} ${item.name}`);
    }
    await client.close();
}
process.exit(0);
