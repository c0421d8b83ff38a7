"""The proxies of docs/proxy.md pass on what the service answers, and nothing else is open."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager

import httpx
import pytest

from posh.client import Client
from posh.serve.sources import Folder
from tests.docs.pages import ROOT, blocks
from tests.serve.service import running

BLOCKS = {block.language: block.text for block in blocks((ROOT / "docs" / "proxy.md").read_text())}
NAME = "search.example.org"


@contextmanager
def kept_port():
    """A port that nobody else gets meanwhile: it is bound, but nobody listens."""
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(("127.0.0.1", 0))
        yield one.getsockname()[1]


def nginx_command(folder, service: str, port: int) -> list[str]:
    """The page's server, without its certificates: they would have to be made first."""
    text = (
        BLOCKS["nginx"]
        .replace("127.0.0.1:8765", service)
        .replace("listen 443 ssl", f"listen 127.0.0.1:{port}")
    )
    text = re.sub(r"^ *ssl_.*\n", "", text, flags=re.MULTILINE)
    paths = "".join(f"{kind}_temp_path {folder};" for kind in ("client_body", "proxy"))
    paths += "".join(f"{kind}_temp_path {folder}/{kind};" for kind in ("fastcgi", "uwsgi", "scgi"))
    user = "user root; " if os.geteuid() == 0 else ""  # else its workers could not write to our folder
    head = f"{user}daemon off; pid {folder}/pid; events {{}}\nhttp {{ access_log off; {paths}\n"
    (folder / "nginx.conf").write_text(f"{head}{text}}}\n")
    return ["nginx", "-e", "stderr", "-p", str(folder), "-c", str(folder / "nginx.conf")]


def caddy_command(folder, service: str, port: int) -> list[str]:
    """The page's site by HTTP, for the same reason."""
    text = BLOCKS["caddy"].replace("127.0.0.1:8765", service).replace(NAME, f"http://{NAME}:{port}", 1)
    site = text.replace("{\n", "{\n\tbind 127.0.0.1\n", 1)
    (folder / "Caddyfile").write_text(f"{{\n\tadmin off\n\tauto_https off\n}}\n{site}")
    return ["caddy", "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]


@contextmanager
def proxied(command, service, folder):
    """A proxy before a service; a client of it that asks for the name of the page."""
    with kept_port() as port, _started(command, service, folder, port) as client:
        yield client


@contextmanager
def _started(command, service, folder, port):
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            command(folder, service.removeprefix("http://"), port),
            env={"HOME": str(folder), "PATH": "/usr/sbin:/usr/bin:/bin"},
            stderr=log,
        )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers={"Host": NAME}) as client:
            deadline = time.monotonic() + 60
            while True:
                try:
                    client.get("/health")
                    break
                except httpx.ConnectError:
                    assert process.poll() is None, (folder / "log").read_text()
                    assert time.monotonic() < deadline
                    time.sleep(0.05)
            yield client
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.parametrize("command", [nginx_command, caddy_command], ids=["nginx", "caddy"])
def test_a_proxy_passes_requests_on(command, tmp_path):
    program = command.__name__.removesuffix("_command")
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    token = {"Authorization": "Bearer secret"}
    with running(Folder(tmp_path / "served"), token="secret") as service:
        with Client(service, token="secret") as direct:
            direct.create("shop", metric="cosine").upsert([1, 2], [[1.0, 0.0], [0.0, 1.0]])
        with proxied(command, service, tmp_path) as client:
            body = {"vectors": [[1.0, 0.1]], "k": 1}
            answer = client.post("/v1/collections/shop/search", json=body, headers=token)
            assert answer.json()["results"][0]["hits"][0]["id"] == 1
            assert client.post("/v1/collections/shop/search", json=body).status_code == 401
            assert client.get("/health").status_code == 200
            large = b"[" + b" " * (20 << 20)  # more than nginx takes by default, and not JSON
            given = token | {"Content-Type": "application/json"}
            assert client.post("/v1/collections/shop/search", content=large, headers=given).status_code == 400
    with running(Folder(tmp_path / "open")) as service, proxied(command, service, tmp_path) as client:
        assert client.get("/v1/collections").status_code == 403  # no token, so nobody from elsewhere
