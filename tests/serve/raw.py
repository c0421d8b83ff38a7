"""Connections without a client that would set headers right."""

from __future__ import annotations

import socket

HEALTH = b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n"
CHUNKED = b"transfer-encoding: chunked"


def raw(address: str) -> socket.socket:
    host, port = address.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=20)
    return connection


def head(*headers: bytes) -> bytes:
    lines = [
        b"POST /v1/collections/things/get HTTP/1.1",
        b"host: 127.0.0.1",
        b"content-type: application/json",
        *headers,
    ]
    return b"\r\n".join(lines) + b"\r\n\r\n"


def response(connection: socket.socket) -> tuple[int, bytes]:
    content = b""
    while b"\r\n\r\n" not in content or not content.rstrip().endswith((b"}", b"received.")):
        part = connection.recv(65536)
        if not part:
            break
        content += part
    top, _, body = content.partition(b"\r\n\r\n")
    return int(top.split()[1]), body


def ended(connection: socket.socket) -> bytes:
    """All that comes until the service closes the connection."""
    content = b""
    try:
        while part := connection.recv(65536):
            content += part
    except ConnectionResetError:
        pass
    return content


def answers(connection: socket.socket, n: int) -> list[tuple[bytes, bytes]]:
    """The next n answers, each as its head and its body."""
    found, content = [], b""
    while len(found) < n:
        top, end, rest = content.partition(b"\r\n\r\n")
        length = int(top.lower().partition(b"content-length: ")[2].split()[0]) if end else 0
        if end and len(rest) >= length:
            found.append((top, rest[:length]))
            content = rest[length:]
            continue
        part = connection.recv(1 << 20)
        assert part, f"expected {n} answers, got {len(found)} and {content[:200]!r}"
        content += part
    assert content == b""
    return found


def is_refused(connection: socket.socket, part: bytes, most: int) -> bool:
    """Whether the service stops taking this part, again and again, before it took so many bytes."""
    connection.settimeout(3)  # a service that reads takes the next part in milliseconds
    try:
        for _ in range(most // len(part)):
            connection.sendall(part)
    except (ConnectionError, TimeoutError):  # it may close the connection, or only not read from it
        return True
    return False
