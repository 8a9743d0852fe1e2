"""The native HTTP interface of a running server: blocking calls, and one streamed answer as its chunks arrive.

Knows paths and JSON; what a chunk means is for engines/serving/flight.py. Every call has a connection of its own, so
that threads share nothing.
"""

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

CALL_SECONDS = 60.0
SILENCE_SECONDS = 1800.0
"""Longest wait for a chunk: a request may stand in a queue for long."""
HTTP_OK = 200
EVENT, LAST_EVENT = b"data:", b"[DONE]"
LONGEST_MESSAGE = 500


class RefusedError(ValueError):
    """The server says that a request is not allowed."""


class Client:
    """One server by its URL. Calls raise OSError or http.client.HTTPException where it does not answer."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = -1
        # Name and password would be dropped in silence, and a space is no part of a request's first line.
        unused = parts.query or parts.fragment or "@" in parts.netloc or len(url.split()) != 1
        if parts.scheme not in ("http", "https") or not parts.hostname or port == -1 or unused:
            raise ValueError(f"url = {url!r} is not allowed; allowed: http://HOST:PORT of a running server")
        self.url = url.rstrip("/")
        self._connection = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._host, self._port, self._prefix = parts.hostname, port, parts.path.rstrip("/")

    def is_up(self) -> bool:
        """Whether it takes requests."""
        try:
            status, _ = self._call("GET", "/ready")
        except (OSError, http.client.HTTPException):
            return False
        return status == HTTP_OK

    def server_info(self) -> dict[str, Any]:
        """Its resolved arguments and its state."""
        return self._json("GET", "/server_info")

    def model_info(self) -> dict[str, Any]:
        """What model it serves."""
        return self._json("GET", "/model_info")

    def generate(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """One answer, whole. Raises RefusedError."""
        return self._json("POST", "/generate", body)

    def abort(self, request_id: str) -> None:
        """End a request; its stream then ends with what it has."""
        self._call("POST", "/abort_request", {"rid": request_id})

    def flush(self, patience_seconds: float) -> str | None:
        """Empty the prefix cache once nothing runs, for which the server waits; what is wrong, or None."""
        status, text = self._call("POST", f"/flush_cache?timeout={patience_seconds:g}")
        return None if status == HTTP_OK else message_of(text)

    def stream(self, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Chunks of a streamed answer, each as soon as it is there. Raises RefusedError."""
        with closing(self._connection(self._host, self._port, timeout=SILENCE_SECONDS)) as connection:
            response = self._ask(connection, "POST", "/generate", {**body, "stream": True})
            if response.status != HTTP_OK:
                raise RefusedError(message_of(response.read().decode(errors="replace")))
            while line := response.readline():
                event = line.strip()
                if not event.startswith(EVENT):
                    continue
                event = event.removeprefix(EVENT).strip()
                if event == LAST_EVENT:
                    return
                chunk = json.loads(event)
                if "error" in chunk:
                    raise RefusedError(message_of(event.decode(errors="replace")))
                yield chunk
            raise ConnectionResetError("the stream broke off")

    def _json(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        status, text = self._call(method, path, body)
        if status != HTTP_OK:
            raise RefusedError(f"{path}: {message_of(text)}")
        try:
            value = json.loads(text)
        except ValueError:
            raise RefusedError(f"{path}: the answer is not JSON") from None
        if not isinstance(value, dict):
            raise RefusedError(f"{path}: the answer is not an object")
        return value

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, str]:
        with closing(self._connection(self._host, self._port, timeout=CALL_SECONDS)) as connection:
            response = self._ask(connection, method, path, body)
            return response.status, response.read().decode(errors="replace")

    def _ask(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: Mapping[str, Any] | None
    ) -> http.client.HTTPResponse:
        content = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} if content else {}
        connection.request(method, f"{self._prefix}{path}", content, headers)
        return connection.getresponse()


def message_of(text: str) -> str:
    """The message inside an error's JSON, in one line; else the text itself."""
    try:
        found = json.loads(text)
        error = found.get("error", found)
        message = error if isinstance(error, str) else error["message"]
    except (ValueError, KeyError, TypeError, AttributeError):
        message = text
    return " ".join(str(message).split())[:LONGEST_MESSAGE] or "no reason given"
