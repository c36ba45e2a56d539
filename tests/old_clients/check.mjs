// One version of the TypeScript SDK against Moonlark: `check.mjs INSTALLED PACKAGE http URL`
// or `check.mjs INSTALLED PACKAGE stdio BINARY FOLDER`, where INSTALLED is the folder that
// PACKAGE is installed in.
//
// Prints one line for each step that went well, and whatever the SDK gives to `onerror`.
// After `change…` the test adds a tool; after `restart…` it restarts the server, and says
// so by a line of input.
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [folder, name, way, ...where] = process.argv.slice(2);
const load = (path) => import(pathToFileURL(`${folder}/node_modules/${name}/dist/${path}`));
const say = (line) => console.log(line);
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

// Later versions have their modules in a folder for each kind.
async function find(path) {
    for (const place of [`esm/${path}`, path]) {
        try {
            return await load(place);
        } catch (error) {
            if (error.code !== "ERR_MODULE_NOT_FOUND") throw error;
        }
    }
    throw new Error(`${name} has no ${path}`);
}

const { Client } = await find("client/index.js");
const { ToolListChangedNotificationSchema } = await find("types.js");

async function transport() {
    if (way === "http") {
        const { StreamableHTTPClientTransport } = await find("client/streamableHttp.js");
        return new StreamableHTTPClientTransport(new URL(where[0]));
    }
    const { StdioClientTransport } = await find("client/stdio.js");
    // Not every version has a way to say in which folder.
    const args = ["-c", 'cd "$1" && exec "$0" stdio 2>/dev/null', ...where];
    return new StdioClientTransport({ command: "sh", args });
}

const client = new Client({ name: "old", version: "1" }, { capabilities: {} });
client.onerror = (error) => say(`logged: ${error}`);
let tell;
const told = new Promise((resolve) => (tell = resolve));
client.setNotificationHandler(ToolListChangedNotificationSchema, () => tell());
try {
    await client.connect(await transport());
    say("connected");
    const { tools } = await client.listTools();
    say(`listed ${tools.map((tool) => tool.name).sort().join(" ")}`);
    const called = await client.callTool({ name: "echo", arguments: { message: "hi" } });
    say(`called ${called.content[0].text}`);
    const failed = await client.callTool({ name: "echo", arguments: {} });
    say(`failed ${failed.isError}`);
    const content = await client.callTool({ name: "gallery", arguments: {} });
    say(`content ${content.content.map((block) => block.type).join(" ")}`);
    const sound = await client.callTool({ name: "sound", arguments: {} });
    say(`sound ${sound.content[0].type}`);
    say("change…");
    await told;
    say("told of a change");
    if (way === "http") {
        say("restart…");
        await lines.next();
        const again = await client.callTool({ name: "echo", arguments: { message: "again" } });
        say(`called ${again.content[0].text}`);
        await client.listTools();
    }
    await client.close();
    say("closed");
} catch (error) {
    say(`raised: ${error}`);
}
say("end");
process.exit(0);
