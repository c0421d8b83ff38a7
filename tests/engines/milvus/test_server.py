"""Tokens and TLS of a real server: Milvus 2.3.5, the newest on PyPI, which has no sparse vectors yet.

It listens on all addresses, so it runs only where there is nothing but loopback: .ci/milvus sees to that.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from posh.engines.milvus import Milvus
from posh.errors import ServiceError

pytestmark = [
    pytest.mark.skipif(
        os.environ.get("POSH_TEST_MILVUS_SERVER") != "1",
        reason="starts a server on all addresses: see .ci/milvus, which sets POSH_TEST_MILVUS_SERVER=1",
    ),
    # Of the package that starts the server: it looks for free ports with sockets that it does not close.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
OPENSSL = shutil.which("openssl")
GOOD = "root:Milvus"  # Milvus's first account
ACCEPTED = "expected Milvus 2.4 or newer, which has sparse vectors, got v2.3.5"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """A folder with an authority, a server and a client that it knows, and an authority that nobody knows."""
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(command: str) -> None:
        subprocess.run(
            [shutil.which("openssl"), *command.split()], cwd=folder, check=True, capture_output=True
        )

    for name in ("ca", "other"):
        openssl(
            f"req -x509 -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.pem -days 2 -subj /CN={name}"
        )
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost")
    for name in ("server", "client"):
        openssl(f"req -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.csr -subj /CN={name}")
        openssl(
            f"x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out {name}.pem -days 2 "
            "-extfile names"
        )
    return folder


@pytest.fixture(params=[1, 2], ids=["TLS", "TLS of both sides"])
def server(request, certificates, tmp_path):
    """The number of its kind of TLS, and its port."""
    assert {name for _, name in socket.if_nameindex()} == {"lo"}, "other machines could reach the server"
    from milvus import MilvusServer

    started = MilvusServer()
    started.set_base_dir(str(tmp_path / "milvus"))
    options = {"authorization_enabled": True, "tls_mode": request.param}
    for key, file in (("server_pem", "server.pem"), ("server_key", "server.key"), ("ca_pem", "ca.pem")):
        options[f"{key}_path"] = str(certificates / file)
    for key, value in options.items():
        started.config.set(key, value)
    started.start()
    yield request.param, started.listen_port
    started.stop()


def refused(address: str, **options: str) -> str:
    """Why a connection was refused."""
    with pytest.raises(ServiceError) as caught:
        Milvus(address, timeout=5, **options)
    return str(caught.value)


def test_tokens_and_tls(server, certificates):
    """What fails comes first: pymilvus uses a connection again that has the same address and token."""
    tls, port = server
    plain, secure = f"http://127.0.0.1:{port}", f"https://127.0.0.1:{port}"
    ca, other = path(certificates, "ca.pem"), path(certificates, "other.pem")
    own = {"certificate": path(certificates, "client.pem"), "key": path(certificates, "client.key")}
    good = {"ca_file": ca} | (own if tls == 2 else {})
    assert "Milvus refuses the token (auth check failure" in refused(secure, token="root:wrong", **good)
    assert "Milvus refuses the token (missing authorization" in refused(secure, **good)
    wrong = [{"address": plain}, good | {"ca_file": other}, good | {"server_name": "elsewhere"}]
    if tls == 2:
        wrong += [{"ca_file": ca}, good | {"certificate": other, "key": path(certificates, "other.key")}]
    for options in wrong:
        why = refused(**{"address": secure, "token": GOOD} | options)
        assert "got none (failed to connect" in why, options
        assert "correct the address or the TLS files" in why
    assert ACCEPTED in refused(secure, token=GOOD, **good)


def path(folder: Path, name: str) -> str:
    return str(folder / name)
