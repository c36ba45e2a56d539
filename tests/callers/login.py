"""The official Python client, which is told by the server where to log in.

    login.py URL

Prints what the tool `whoami` answers. In place of a person, the redirect of the
provider is followed here.
"""

import asyncio
import sys
from urllib.parse import parse_qs, urlparse

import httpx2
from mcp import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientMetadata


class Memory:
    """Forgets everything at the end."""

    tokens = client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client_info):
        self.client = client_info


async def main(url: str):
    came: dict[str, str] = {}

    async def open_page(address: str):
        async with httpx2.AsyncClient(follow_redirects=False, trust_env=False) as browser:
            answer = await browser.get(address)
        query = parse_qs(urlparse(answer.headers["location"]).query)
        came.update({key: values[0] for key, values in query.items()})

    async def come_back():
        return AuthorizationCodeResult(**came)

    metadata = OAuthClientMetadata(client_name="suite", redirect_uris=["http://127.0.0.1:1/callback"])
    login = OAuthClientProvider(url, metadata, Memory(), open_page, come_back)
    async with httpx2.AsyncClient(auth=login, trust_env=False, timeout=60) as http:
        async with Client(streamable_http_client(url, http_client=http)) as client:
            answer = await client.call_tool("whoami", {})
            print(answer.content[0].text)


asyncio.run(main(sys.argv[1]))
