"""A small stand-in of the hub on 127.0.0.1: search, listing, files with ranges and redirects, and every way to fail.

Large files (those named in `large`) are redirected, with the headers that the hub sends, to a "content network" that
goes by another host name; small ones are sent at once.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "c0ffee" + "0" * 34


@dataclass
class Repository:
    files: dict[str, bytes]
    large: tuple[str, ...] = ("model.safetensors",)
    commit: str = COMMIT
    facts: dict[str, Any] = field(default_factory=dict)
    gated: bool = False


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    query: dict[str, list[str]]
    range: str
    authorization: str
    host: str


class Hub:
    """What it holds and how it behaves. `asked`: every request so far."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.asked: list[Asked] = []
        self.refuse: dict[str, tuple[int, dict[str, str]]] = {}  # a part of a path -> status and headers
        self.refuse_times = 10**9  # how often it refuses
        self.cut_at: dict[str, int] = {}  # file -> the connection is cut after this many bytes of it, once
        self.hold_at: dict[str, int] = {}  # file -> silent after this many bytes, until `go_on`
        self.go_on = threading.Event()
        self.sent_instead: dict[str, bytes] = {}  # file -> what comes under its name
        self.ranges = True
        self.page = b""  # sent for everything: a network's sign-in page
        self.token = ""  # what opens gated repositories
        self.server: ThreadingHTTPServer | None = None

    @property
    def address(self) -> str:
        assert self.server is not None
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def ranges_asked(self, name: str) -> list[str]:
        return [asked.range for asked in self.asked if asked.method == "GET" and asked.path.endswith(name)]


def checksum(data: bytes, large: bool) -> str:
    if large:
        return hashlib.sha256(data).hexdigest()
    return hashlib.sha1(f"blob {len(data)}\0".encode() + data).hexdigest()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        url = urlsplit(self.path)
        hub, path = self.hub, unquote(url.path)
        told = self.headers.get
        hub.asked.append(
            Asked(
                self.command, path, parse_qs(url.query), told("range", ""), told("authorization", ""), told("host", "")
            )
        )
        for part, (status, headers) in hub.refuse.items():
            if part in path and hub.refuse_times > 0:
                hub.refuse_times -= 1
                return self.send(b'{"error":"refused"}', status, headers)
        if hub.page:
            return self.send(hub.page, 200, {"content-type": "text/html"})
        if path == "/api/models":
            return self.search(parse_qs(url.query))
        if match := re.fullmatch(r"/api/models/([^/]+(?:/[^/]+)?)", path):
            return self.listing(match[1])
        if match := re.fullmatch(r"/(.+?)/resolve/([^/]+)/(.+)", path):
            return self.resolve(match[1], match[2], match[3])
        if match := re.fullmatch(r"/content/(.+?)//(.+)", path):
            return self.file(match[1], match[2], {})
        return self.send(b"", 404, {})

    def send(self, body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_json(self, content: object) -> None:
        self.send(json.dumps(content).encode(), 200, {"content-type": "application/json"})

    def facts(self, name: str) -> dict[str, Any]:
        repository = self.hub.repositories[name]
        return {"id": name, "gated": "manual" if repository.gated else False, **repository.facts}

    def search(self, query: dict[str, list[str]]) -> None:
        wanted, task = query.get("search", [""])[0].lower(), query.get("filter", [""])[0]
        found = [self.facts(name) for name in self.hub.repositories if wanted in name.lower()]
        if task:
            found = [each for each in found if task == each.get("pipeline_tag") or task in each.get("tags", ())]
        found.sort(key=lambda each: -each.get("downloads", 0))
        self.send_json(found[: int(query.get("limit", ["1000"])[0])])

    def listing(self, name: str) -> None:
        if name not in self.hub.repositories:
            return self.send(b'{"error":"Repository not found"}', 401, {"x-error-code": "RepoNotFound"})
        repository = self.hub.repositories[name]
        siblings = []
        for file, data in repository.files.items():
            entry: dict[str, Any] = {"rfilename": file, "size": len(data), "blobId": checksum(data, False)}
            if file in repository.large:
                entry["lfs"] = {"sha256": checksum(data, True), "size": len(data), "pointerSize": 134}
            siblings.append(entry)
        return self.send_json({**self.facts(name), "sha": repository.commit, "siblings": siblings})

    def resolve(self, name: str, revision: str, file: str) -> None:
        repository = self.hub.repositories.get(name)
        if repository is None:
            return self.send(b"", 401, {"x-error-code": "RepoNotFound"})
        commit = {"x-repo-commit": repository.commit}
        if revision not in (repository.commit, "main"):
            return self.send(b"", 404, {"x-error-code": "RevisionNotFound"})
        if file not in repository.files:
            return self.send(b"", 404, commit | {"x-error-code": "EntryNotFound"})
        if repository.gated and self.headers.get("authorization") != f"Bearer {self.hub.token}":
            return self.send(b"", 403 if self.headers.get("authorization") else 401, {"x-error-code": "GatedRepo"})
        data = repository.files[file]
        if file not in repository.large:
            return self.file(name, file, commit | {"etag": f'"{checksum(data, False)}"'})
        port = self.hub.address.rpartition(":")[2]
        linked = {
            "x-linked-size": str(len(data)),
            "x-linked-etag": f'"{checksum(data, True)}"',
            "location": f"http://localhost:{port}/content/{name}//{file}",
        }
        return self.send(b"", 302, commit | linked)

    def file(self, name: str, file: str, headers: dict[str, str]) -> None:
        hub = self.hub
        data = hub.sent_instead.get(file, hub.repositories[name].files[file])
        begin, status, size = 0, 200, len(data)
        if hub.ranges and (match := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("range", ""))):
            begin, status = int(match[1]), 206
            data = data[: int(match[2] or size) + 1]
            headers = headers | {"content-range": f"bytes {begin}-{len(data) - 1}/{size}"}
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("content-length", str(len(data) - begin))
        self.end_headers()
        if self.command == "HEAD":
            return
        if (hold := hub.hold_at.get(file)) is not None and begin < hold:
            self.wfile.write(data[begin:hold])
            self.wfile.flush()
            hub.go_on.wait()
            begin = hold
        if (cut := hub.cut_at.pop(file, None)) is not None:
            self.wfile.write(data[begin:cut])
            self.wfile.flush()
            self.close_connection = True
            return
        with contextlib.suppress(ConnectionError):  # whoever asked has gone
            self.wfile.write(data[begin:])


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever asked may go at any time; a fault of the stand-in itself is printed."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextlib.contextmanager
def running_hub() -> Iterator[Hub]:
    """A hub that answers until the end of the block."""
    hub = Hub()
    server = Server(("127.0.0.1", 0), type("Handler", (Handler,), {"hub": hub}))
    hub.server = server
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        hub.go_on.set()
        server.shutdown()
        thread.join()
        server.server_close()
