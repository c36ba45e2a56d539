// Calls a tool as the official TypeScript client does, with a user who answers
// what they are asked, or without one.
//
//     ask.mjs URL approve|refuse|decline|cancel|nobody TOOL ARGUMENTS
//
// Prints one line of JSON: the answer, and what the user was asked.

import { load } from '../../target/clients/load.mjs';

const [url, answer, tool, args] = process.argv.slice(2);
const { Client } = await load('@modelcontextprotocol/sdk/client/index.js');
const { StreamableHTTPClientTransport } = await load('@modelcontextprotocol/sdk/client/streamableHttp.js');
const { ElicitRequestSchema } = await load('@modelcontextprotocol/sdk/types.js');

const asked = [];
const capabilities = answer === 'nobody' ? {} : { elicitation: { form: {} } };
const client = new Client({ name: 'ask', version: '1.0.0' }, { capabilities });
if (answer !== 'nobody') {
    client.setRequestHandler(ElicitRequestSchema, request => {
        asked.push(request.params.message);
        const accepted = answer === 'approve' || answer === 'refuse';
        return accepted ? { action: 'accept', content: { approve: answer === 'approve' } } : { action: answer };
    });
}
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
const result = await client.callTool({ name: tool, arguments: JSON.parse(args) });
console.log(
    JSON.stringify({
        asked,
        is_error: result.isError === true,
        text: result.content.map(block => block.text ?? '').join('\n'),
        structured: result.structuredContent ?? null
    })
);
await client.close();
