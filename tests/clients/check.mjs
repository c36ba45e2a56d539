// The official TypeScript clients, in every protocol version they speak.
//
//     check.mjs v1|v2 http URL FOLDER         a server that runs on FOLDER
//     check.mjs v1|v2 stdio COMMAND FOLDER    a server that the client starts in FOLDER
//
// v1 is @modelcontextprotocol/sdk, v2 is @modelcontextprotocol/client. Prints
// `ok VERSION CHECK` for everything that went well and stops at the first thing
// that did not.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { copyFileSync, existsSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';

import { load } from '../../target/clients/load.mjs';

const [generation, transportKind, where, folder] = process.argv.slice(2);
const EXPECTED = JSON.parse(readFileSync(new URL('expected.json', import.meta.url), 'utf8'));
const PATIENCE = 60_000;
const LEGACY = ['2024-11-05', '2025-03-26', '2025-06-18', '2025-11-25'];
const MODERN = '2026-07-28';
const LOG_LEVEL = 'io.modelcontextprotocol/logLevel';
const INFO = { name: 'check', version: '1.0.0' };

/** What differs between the two generations. */
const generations = {
    async v1() {
        const { Client } = await load('@modelcontextprotocol/sdk/client/index.js');
        const { StdioClientTransport } = await load('@modelcontextprotocol/sdk/client/stdio.js');
        const { StreamableHTTPClientTransport } = await load('@modelcontextprotocol/sdk/client/streamableHttp.js');
        const types = await load('@modelcontextprotocol/sdk/types.js');
        return {
            versions: LEGACY,
            StdioClientTransport,
            StreamableHTTPClientTransport,
            client: () => new Client(INFO),
            // This client offers its newest version; a client of that time offered `version`.
            connect: (client, transport, version) => {
                const send = transport.send.bind(transport);
                transport.send = (message, options) =>
                    send(
                        message.method === 'initialize'
                            ? { ...message, params: { ...message.params, protocolVersion: version } }
                            : message,
                        options
                    );
                const set = transport.setProtocolVersion?.bind(transport);
                transport.setProtocolVersion = negotiated => {
                    client.negotiated = negotiated;
                    set?.(negotiated);
                };
                return client.connect(transport);
            },
            negotiated: client => client.negotiated,
            call: (client, params, options) => client.callTool(params, undefined, options),
            onLog: (client, handler) =>
                client.setNotificationHandler(types.LoggingMessageNotificationSchema, handler),
            onToolsChanged: (client, handler) =>
                client.setNotificationHandler(types.ToolListChangedNotificationSchema, handler),
            onProgress: (client, handler) =>
                client.setNotificationHandler(types.ProgressNotificationSchema, handler)
        };
    },
    async v2() {
        const { Client, StreamableHTTPClientTransport } = await load('@modelcontextprotocol/client');
        const { StdioClientTransport } = await load('@modelcontextprotocol/client/stdio');
        return {
            versions: [...LEGACY, MODERN],
            StdioClientTransport,
            StreamableHTTPClientTransport,
            client: version =>
                new Client(
                    INFO,
                    version === MODERN
                        ? { versionNegotiation: { mode: 'auto' } }
                        : { supportedProtocolVersions: [version] }
                ),
            connect: (client, transport) => client.connect(transport),
            negotiated: client => client.getNegotiatedProtocolVersion(),
            call: (client, params, options) => client.callTool(params, options),
            onLog: (client, handler) => client.setNotificationHandler('notifications/message', handler),
            onToolsChanged: (client, handler) =>
                client.setNotificationHandler('notifications/tools/list_changed', handler),
            onProgress: (client, handler) => client.setNotificationHandler('notifications/progress', handler)
        };
    }
};

/** What came unasked, for whoever waits for it. */
class Queue {
    items = [];
    waiting = [];

    put(item) {
        const next = this.waiting.shift();
        if (next) next(item);
        else this.items.push(item);
    }

    get() {
        if (this.items.length > 0) return Promise.resolve(this.items.shift());
        return new Promise(resolve => this.waiting.push(resolve));
    }
}

/** The checks of one connection, in order. */
function checks(sdk, client, version) {
    const modern = version === MODERN;
    const logs = new Queue();
    const changes = new Queue();
    const reports = new Queue();
    sdk.onLog(client, ({ params: { level, data } }) => logs.put({ level, data }));
    sdk.onToolsChanged(client, () => changes.put());
    sdk.onProgress(client, ({ params }) => reports.put(params));

    async function expect({ tool, arguments: given, text, structured, is_error }) {
        const result = await sdk.call(client, { name: tool, arguments: given });
        assert.deepEqual(result.content, [{ type: 'text', text }]);
        assert.deepEqual(result.structuredContent, structured);
        assert.equal(result.isError, is_error);
    }

    async function waitForTools(names) {
        let listed;
        do {
            await changes.get();
            listed = (await client.listTools()).tools.map(tool => tool.name);
        } while (listed.sort().join() !== [...names].sort().join());
    }

    return {
        async connect() {
            assert.equal(sdk.negotiated(client), version);
            assert.equal(client.getServerVersion().name, 'moonlark');
            assert.equal(client.getServerCapabilities().tools.listChanged, true);
            // Only a modern server answers `server/discover`.
            assert.equal(client.getDiscoverResult?.() !== undefined, modern);
        },

        async list_tools() {
            const { tools } = await client.listTools();
            assert.deepEqual(
                tools.map(tool => tool.name),
                EXPECTED.tools
            );
            assert.deepEqual(tools.find(tool => tool.name === 'echo').inputSchema, EXPECTED.schema);
        },

        call: () => expect(EXPECTED.call),

        // The client compares the result with the tool's output schema.
        validated_call: () => expect(EXPECTED.validated_call),

        refused_call: () => expect(EXPECTED.refused_call),

        // A Starlark extension answers with content of every kind.
        async content_call() {
            const { content } = await sdk.call(client, { name: 'picture', arguments: {} });
            const expected = [...EXPECTED.content];
            // The first version has no audio.
            if (version === '2024-11-05') expected[2] = EXPECTED.audio_before_2025;
            assert.deepEqual(content, expected);
        },

        async unknown_tool() {
            await assert.rejects(sdk.call(client, { name: 'nope', arguments: {} }), error => {
                assert.equal(error.code, -32602);
                assert.equal(error.data.code, 'not_found');
                return true;
            });
        },

        // Only the last call's message is as severe as what was asked for. A
        // modern client that does not ask gets none.
        async log_messages() {
            for (const level of modern ? [undefined, 'warning', 'info'] : ['warning', 'info']) {
                if (!modern) await client.setLoggingLevel(level);
                await sdk.call(client, {
                    name: 'countdown',
                    arguments: { from: level === 'info' ? 2 : 1, pause: 0 },
                    ...(modern && level && { _meta: { [LOG_LEVEL]: level } })
                });
            }
            assert.deepEqual(await logs.get(), EXPECTED.log);
        },

        // Not by `onprogress`: with it, this client loses a report that it reads
        // together with the answer.
        async progress() {
            const result = await sdk.call(client, {
                name: 'countdown',
                arguments: { from: 4, pause: 0.01 },
                _meta: { progressToken: 'countdown' }
            });
            assert.deepEqual(result.structuredContent, { done: true, counted: 4 });
            for (const [progress, total, message] of EXPECTED.progress) {
                const expected = { progressToken: 'countdown', progress, total, message };
                assert.deepEqual(await reports.get(), expected);
            }
            assert.deepEqual(reports.items, []);
        },

        // The script waits for this server, and hangs up when it is stopped.
        async cancel() {
            const server = createServer(socket => socket.on('error', () => {}).resume()).listen(0, '127.0.0.1');
            await once(server, 'listening');
            const asked = once(server, 'connection');
            const abort = new AbortController();
            // It may ask for the rest of the answer, and is told that there is none. Were it told
            // that there may be more, it would ask again and again.
            const resumable = [];
            const call = sdk.call(
                client,
                { name: 'linger', arguments: { url: `http://127.0.0.1:${server.address().port}/` } },
                { signal: abort.signal, onresumptiontoken: token => resumable.push(token) }
            );
            const refused = assert.rejects(call);
            const [socket] = await Promise.race([asked, refused]);
            const hungUp = once(socket, 'close');
            abort.abort();
            await refused;
            await hungUp;
            server.close();
            assert.ok(resumable.length <= 1, `asked again: ${resumable}`);
            await expect(EXPECTED.call);
            assert.equal(existsSync(join(folder, 'tools', 'went_on')), false);
        },

        async tools_changed() {
            const late = join(folder, 'tools', 'late.lua');
            const aside = join(folder, 'late.lua');
            // It ends with the connection.
            if (modern) await client.listen({ toolsListChanged: true });
            copyFileSync(new URL('late.lua', import.meta.url), aside);
            renameSync(aside, late);
            await waitForTools([...EXPECTED.tools, 'late']);
            rmSync(late);
            await waitForTools(EXPECTED.tools);
        }
    };
}

async function within(promise, what) {
    const timeout = new Promise((_, reject) => {
        setTimeout(() => reject(new Error(`${what} takes too long`)), PATIENCE).unref();
    });
    return Promise.race([promise, timeout]);
}

const sdk = await generations[generation]();
for (const version of sdk.versions) {
    const client = sdk.client(version);
    const transport =
        transportKind === 'http'
            ? new sdk.StreamableHTTPClientTransport(new URL(where))
            : new sdk.StdioClientTransport({ command: where, args: ['stdio'], cwd: folder });
    const todo = checks(sdk, client, version);
    const complaints = [];
    client.onerror = error => complaints.push(error.message);
    let what = 'connect';
    try {
        await within(sdk.connect(client, transport, version), what);
        for (const [name, check] of Object.entries(todo)) {
            what = name;
            await within(check(), name);
            console.log(`ok ${version} ${name}`);
        }
        what = 'disconnect';
        await transport.terminateSession?.();
        assert.deepEqual(complaints, []);
        await client.close();
        console.log(`ok ${version} ${what}`);
    } catch (error) {
        console.error(error);
        console.error(`failed ${version} ${what}: ${error.message}`);
        process.exit(1);
    }
}
