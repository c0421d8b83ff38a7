"""The server of the Model Context Protocol: its tools, and ``posh mcp`` as a process."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

import posh
from posh.cli import main
from posh.errors import MissingExtraError, find_install_command
from posh.integrations.mcp import make_server
from tests.collection.implementations import DATA
from tests.serve.service import create_remote

READS = ["list_collections", "search_text", "search_vector", "search_similar", "get_items", "count_items"]
RUN = "import sys; from posh.cli import main; sys.exit(main())"
WRITES = ["upsert_items", "update_payloads", "delete_items"]
PAYLOADS = [{"title": f"red {i}" if i % 2 else f"green {i}", "price": i} for i in range(50)]


@pytest.fixture
def folder(tmp_path):
    with posh.create(tmp_path / "shop", metric="cosine", text="title", metadata={"title": "Shop"}) as shop:
        shop.upsert(range(50), DATA[:50], PAYLOADS)
    return tmp_path


@pytest.fixture
def shop(folder):
    with posh.open(folder / "shop") as shop:
        yield shop


async def call(server, name: str, **arguments):
    return (await server.call_tool(name, arguments)).structured_content


async def test_clients_learn_what_there_is(shop):
    server = make_server({"shop": shop})
    assert [tool.name for tool in await server.list_tools()] == READS
    assert (await call(server, "list_collections"))["collections"] == [
        {
            "name": "shop",
            "items": 50,
            "columns": DATA.shape[1],
            "about": {"title": "Shop"},
            "fields": ["title", "price"],
            "text_fields": ["title"],
        }
    ]


async def test_searches_are_those_of_the_collection(shop):
    server, where = make_server({"shop": shop}), {"price": {"lt": 20}}
    for name, ours, theirs in (
        ("search_text", {"text": "red"}, {"text": "red"}),
        ("search_vector", {"vector": DATA[3].tolist()}, {"queries": DATA[3]}),
        ("search_similar", {"item_id": 7}, {"ids": [7]}),
    ):
        found = await call(server, name, collection="shop", k=5, filter=where, **ours)
        hits = shop.search(k=5, filter=where, payloads=True, **theirs)
        assert found["kind"] == hits.kind
        assert [hit["id"] for hit in found["hits"]] == [hit.id for hit in hits[0]]
        assert [hit["payload"] for hit in found["hits"]] == [hit.payload for hit in hits[0]]
        assert [hit["score"] for hit in found["hits"]] == [hit.score for hit in hits[0]]


async def test_items_are_read_and_counted(shop):
    server = make_server({"shop": shop})
    items = (await call(server, "get_items", collection="shop", ids=[1, "none"]))["items"]
    assert items == [{"id": 1, "payload": {"title": "red 1", "price": 1}}, None]
    assert await call(server, "count_items", collection="shop") == {"count": 50}
    costly = {"price": {"gte": 40}}
    assert await call(server, "count_items", collection="shop", filter=costly) == {"count": 10}


async def test_without_write_there_are_no_tools_that_write(shop):
    server = make_server({"shop": shop})
    assert all(tool.annotations.read_only_hint for tool in await server.list_tools())
    for name in WRITES:
        with pytest.raises(Exception, match=name):
            await server.call_tool(name, {"collection": "shop", "ids": [1]})
    assert shop.count() == 50


async def test_with_write_items_change(shop):
    server = make_server({"shop": shop}, write=True)
    assert [tool.name for tool in await server.list_tools()] == READS + WRITES
    vectors = DATA[:2].tolist()
    await call(server, "upsert_items", collection="shop", ids=["a", "b"], vectors=vectors)
    await call(server, "update_payloads", collection="shop", ids=["a"], payloads=[{"price": 7}])
    assert await call(server, "delete_items", collection="shop", ids=["b", "none"]) == {"deleted": 1}
    assert shop.get(["a", "b"])[0].payload == {"price": 7}
    assert shop.count() == 51


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("count_items", {"collection": "none"}, "expected one of shop, got 'none'"),
        ("search_vector", {"vector": [1.0]}, "columns"),
        ("search_similar", {"item_id": "none"}, "'none'"),
        ("search_text", {"text": "red", "k": 0}, "greater than or equal to 1"),
        ("count_items", {"filter": {"price": {"above": 3}}}, "above"),
    ],
)
async def test_errors_say_what_was_expected(folder, name, arguments, message):
    """As a client sees them."""
    async with connect(folder) as session:
        result = await session.call_tool(name, {"collection": "shop", **arguments})
    assert result.is_error
    assert message in result.content[0].text


def connect(folder, *options):
    """A session with ``posh mcp`` in a process of its own."""
    return _Session([sys.executable, "-c", RUN, "mcp", str(folder), *options])


class _Session:
    def __init__(self, command) -> None:
        self._command = command

    async def __aenter__(self):
        parameters = StdioServerParameters(command=self._command[0], args=self._command[1:])
        self._transport = stdio_client(parameters)
        self._session = ClientSession(*await self._transport.__aenter__())
        session = await self._session.__aenter__()
        await session.initialize()
        return session

    async def __aexit__(self, *error):
        await self._session.__aexit__(*error)
        await self._transport.__aexit__(*error)


async def test_a_reader_sees_what_another_process_writes(folder):
    with posh.open(folder / "shop") as shop:
        async with connect(folder / "shop") as session:
            before = await session.call_tool("count_items", {"collection": "shop"})
            shop.delete([1])
            after = await session.call_tool("count_items", {"collection": "shop"})
    assert (before.structured_content, after.structured_content) == ({"count": 50}, {"count": 49})


async def test_writes_of_a_client_are_durable(folder):
    async with connect(folder, "--write") as session:
        result = await session.call_tool("delete_items", {"collection": "shop", "ids": [1, 2]})
        assert result.structured_content == {"deleted": 2}
    with posh.open(folder / "shop") as shop:
        assert shop.count() == 48


async def test_collections_of_a_service(tmp_path):
    with create_remote(tmp_path, metric="cosine") as shop:
        shop.upsert([1, 2], DATA[:2])
        found = await call(make_server({"shop": shop}), "search_similar", collection="shop", item_id=1)
        assert [hit["id"] for hit in found["hits"]] == [2]


def test_standard_output_is_for_the_protocol_only(folder):
    command = [sys.executable, "-c", RUN, "mcp", str(folder)]
    done = subprocess.run(command, input="", capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == ""


def test_a_folder_without_collections_is_said_so(tmp_path, capsys):
    assert main(["mcp", str(tmp_path)]) == 2
    assert "expected a collection or a folder of collections, got neither" in capsys.readouterr().err


def test_without_the_extra_the_pip_line_is_printed(monkeypatch):
    monkeypatch.delitem(sys.modules, "posh.integrations.mcp")
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    with pytest.raises(MissingExtraError, match=re.escape(find_install_command("mcp"))):
        import posh.integrations.mcp  # noqa: F401
