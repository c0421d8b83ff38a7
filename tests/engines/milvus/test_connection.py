"""The connection to Milvus: files, tokens, TLS, and servers that cannot be used; beside a stand-in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from posh.engines.milvus import Milvus, MilvusCollection
from posh.errors import ServiceError, StorageError
from tests.collection.implementations import DATA, SPARSE
from tests.engines.milvus import fake

URI = "http://127.0.0.1:19530"


@pytest.fixture
def client(monkeypatch):
    monkeypatch.delenv("POSH_MILVUS_TOKEN", raising=False)
    return fake.install(monkeypatch)


def asked(client) -> dict[str, Any]:
    """What the last connection was made with."""
    return [options for operation, options in client.asked if operation == "connect"][-1]


def test_errors_of_files(client, tmp_path):
    client.failing["connect"] = fake.MilvusException(1, "the file has been opened by another program")
    with pytest.raises(StorageError, match="expected a file that Milvus Lite can open"):
        Milvus(tmp_path / "shop.db")
    with pytest.raises(StorageError, match="expected a file in an existing folder"):
        Milvus(tmp_path / "nowhere" / "shop.db")
    for wrong in ("shop", "shop.txt", "ftp://host", "my shop.db", "x" * 40 + ".db"):
        with pytest.raises(ValueError, match="expected the address of a server"):
            Milvus(wrong)


def test_access_is_passed_on(client, monkeypatch):
    monkeypatch.setenv("POSH_MILVUS_TOKEN", "from:environment")
    milvus = Milvus(URI, database="shops", consistency="Bounded")
    assert (asked(client)["token"], asked(client)["db_name"]) == ("from:environment", "shops")
    Milvus(URI, token="own:token")
    assert asked(client)["token"] == "own:token"
    collection = MilvusCollection(milvus, "shop", SPARSE)
    collection.search(DATA[0])
    assert client.asked[-1][1]["consistency_level"] == "Bounded"
    collection.close()
    assert client.asked[-1][0] == "search"  # a connection that was given stays open
    milvus.close()
    assert client.asked[-1][0] == "close"
    with pytest.raises(ValueError, match="expected an open connection"):
        milvus.list_names()
    with pytest.raises(ValueError, match="consistency to be one of 'Strong', 'Session'"):
        Milvus(URI, consistency="strong")


def test_files_for_tls(client, tmp_path):
    address = URI.replace("http", "https")
    ca, mine, key = (str(tmp_path / name) for name in ("ca.pem", "me.pem", "me.key"))
    for path in (ca, mine, key):
        Path(path).touch()
    with pytest.raises(ValueError, match="expected an address that begins with https:// for ca_file"):
        Milvus(URI, ca_file=ca)
    with pytest.raises(
        ValueError, match="expected certificate, key and ca_file together, got only ca_file, key"
    ):
        Milvus(address, ca_file=ca, key=key)
    with pytest.raises(FileNotFoundError, match=r"expected a TLS file, found none: '.*nowhere.pem'"):
        Milvus(address, ca_file=str(tmp_path / "nowhere.pem"))
    Milvus(address, ca_file=ca)
    assert (asked(client)["server_pem_path"], asked(client).get("ca_pem_path")) == (ca, None)
    Milvus(address, ca_file=ca, certificate=mine, key=key, server_name="milvus")
    assert (asked(client)["ca_pem_path"], asked(client)["client_pem_path"]) == (ca, mine)
    assert (asked(client)["client_key_path"], asked(client)["server_name"]) == (key, "milvus")
    assert "server_pem_path" not in asked(client)  # pymilvus would then ignore the certificate


def test_a_server_without_sparse_vectors_is_refused(client):
    client.version = "v2.3.5-lite"
    with pytest.raises(ServiceError, match=r"expected Milvus 2\.4 or newer, .* got v2\.3\.5-lite"):
        Milvus(URI)


def test_a_server_that_does_not_tell_its_version_is_accepted(client):
    client.failing["get_server_version"] = fake.MilvusException(12, "status = StatusCode.UNIMPLEMENTED")
    assert Milvus(URI).list_names() == []
    client.failing["get_server_version"] = fake.MilvusException(1, "UNAVAILABLE")
    with pytest.raises(ServiceError, match="expected a Milvus server that answers"):
        Milvus(URI)


def test_nothing_is_left_of_a_collection_without_its_index(client):
    client.failing["create_index"] = fake.MilvusException(65, "out of luck")
    with pytest.raises(ServiceError, match="could not create_index"):
        MilvusCollection(URI, "shop", SPARSE)
    assert client.databases[URI] == {}
