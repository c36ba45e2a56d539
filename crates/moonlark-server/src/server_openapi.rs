//! The server's own OpenAPI document, made from the catalog.

use moonlark_core::{Catalog, Tool};
use serde_json::{Map, Value as Json, json};

use crate::MOONLARK_VERSION;

/// OpenAPI 3.1: the fixed routes and one path per tool.
pub(crate) fn build_openapi_document(catalog: &Catalog) -> Json {
    let mut paths = Map::new();
    paths.insert("/health".into(), json!({"get": {
        "operationId": "health",
        "summary": "Whether the server is up",
        "responses": {"200": {"description": "It is", "content": {"application/json": {"schema": {
            "type": "object",
            "properties": {"status": {"type": "string"}, "version": {"type": "string"}},
        }}}}},
    }}));
    paths.insert("/tools/list".into(), json!({"get": {
        "operationId": "list_tools",
        "summary": "All tools with the schemas of their parameters",
        "responses": {"200": {"description": "The tools", "content": {"application/json": {"schema": {
            "type": "object",
            "properties": {"tools": {"type": "array", "items": {"$ref": "#/components/schemas/Tool"}}},
            "required": ["tools"],
        }}}}},
    }}));
    for tool in catalog.tools_for_agents() {
        paths.insert(format!("/tools/{}", tool.name), tool_operation(tool));
    }
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Moonlark", "version": MOONLARK_VERSION, "description": "Tools for agents, over REST."},
        "paths": paths,
        "components": {
            "schemas": {
                "Tool": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string"},
                        "title": {"type": "string"},
                        "description": {"type": "string"},
                        "builtin": {"type": "boolean"},
                        "parameters": {"type": "object"},
                    },
                    "required": ["name", "description", "builtin", "parameters"],
                },
                "Approval": {
                    "type": "object",
                    "properties": {"approval": {
                        "type": "object",
                        "properties": {
                            "id": {"type": "string"},
                            "token": {"type": "string", "description": "For the header Moonlark-Approval"},
                            "expires_at": {"type": "string", "format": "date-time"},
                            "tool": {"type": "string"},
                            "arguments": {},
                            "effects": {"type": "array", "items": {"type": "string"}},
                            "run": {"type": "string"},
                            "how": {"type": "string"},
                        },
                        "required": ["id", "token", "expires_at", "tool", "arguments", "effects", "how"],
                    }},
                    "required": ["approval"],
                },
                "Problem": {
                    "type": "object",
                    "properties": {"error": {
                        "type": "object",
                        "properties": {
                            "code": {"type": "string"},
                            "message": {"type": "string"},
                            "hint": {"type": "string"},
                            "retryable": {"type": "boolean"},
                            "retry_after": {"type": "integer"},
                        },
                        "required": ["code", "message"],
                    }},
                    "required": ["error"],
                },
            },
        },
    })
}

fn tool_operation(tool: &Tool) -> Json {
    let problem = |text: &str| {
        json!({
            "description": text,
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
        })
    };
    let result = match &tool.output {
        Some(schema) => Json::Object((**schema.json()).clone()),
        None => json!({}),
    };
    json!({"post": {
        "operationId": tool.name,
        "summary": tool.description,
        "requestBody": {"content": {"application/json": {"schema": **tool.input.json()}}},
        "responses": {
            "200": {"description": "The tool's result", "content": {"application/json": {"schema": {
                "type": "object",
                "properties": {"result": result},
                "required": ["result"],
            }}}},
            "202": {"description": "Somebody has to approve the call: send it again with the token", "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Approval"}}}},
            "400": problem("The parameters do not fit"),
            "401": problem("Credentials are missing or invalid"),
            "403": problem("The caller may not do this"),
            "408": problem("The tool ran past its deadline"),
            "413": problem("The request is too large"),
            "415": problem("The request body is not JSON"),
            "429": problem("Too many calls are in progress"),
            "500": problem("The tool failed"),
            "503": problem("Something the tool needs is not there"),
        },
    }})
}
