"""A server of SGLang's native interface without SGLang: it answers every request with the same scripted rounds.

It speaks over a real socket, in a thread: what is tested is what goes over the wire. It may pause between rounds, send
several rounds as one chunk, refuse, or die.
"""

import json
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

INFO: dict[str, Any] = {
    "version": "0.5.23",
    "speculative_algorithm": None,
    "speculative_num_draft_tokens": None,
    "incremental_streaming_output": True,
    "enable_deterministic_inference": False,
    "max_req_input_len": 4000,
}


@dataclass(slots=True, kw_only=True)
class Script:
    """What the server does.

    chunks:     rounds that are sent together; the first chunk begins with the prefill's token
    nodes:      drafted tokens of a round; 0: no speculation
    dies_after: requests that it still answers
    """

    chunks: list[list[list[int]]]
    nodes: int = 0
    pause_seconds: float = 0.0
    queue_seconds: float = 0.0
    refuses: str | None = None
    flush_refused: str | None = None
    dies_after: int | None = None
    finish: str = "stop"
    incremental: bool = True
    info: dict[str, Any] = field(default_factory=dict)
    model_path: str = "/models/verifier"


class FakeServer:
    """A context manager; keeps the requests that it got, by path."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.seen: dict[str, list[dict[str, Any]]] = {}
        self.aborted: set[str] = set()
        self.under_way = self.most_under_way = self.answered = 0
        self.lock = threading.Lock()
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.http.daemon_threads = True
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}"

    @property
    def info(self) -> dict[str, Any]:
        script = self.script
        drafts = {"speculative_algorithm": "SPECDIFF2", "speculative_num_draft_tokens": script.nodes + 1}
        drafts["speculative_num_steps"] = script.nodes
        return (
            INFO | {"incremental_streaming_output": script.incremental} | (drafts if script.nodes else {}) | script.info
        )

    def die(self) -> None:
        """Stop listening, as a process that is gone."""
        threading.Thread(target=self.http.shutdown, daemon=True).start()
        self.http.server_close()

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        with suppress(OSError):
            self.http.shutdown()
            self.http.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None: ...

            def do_GET(self) -> None:
                answers = {
                    "/ready": {},
                    "/server_info": server.info,
                    "/model_info": {"model_path": server.script.model_path},
                }
                self._send(200 if self.path in answers else 404, answers.get(self.path, {}))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
                path = self.path.split("?")[0]
                server.seen.setdefault(path, []).append(body)
                if path == "/abort_request":
                    server.aborted.add(body["rid"])
                    self._send(200, {})
                elif path == "/flush_cache":
                    refused = server.script.flush_refused
                    self._send(400 if refused else 200, {"error": {"message": refused}})
                elif server.script.refuses:
                    self._send(400, {"error": {"message": server.script.refuses}})
                else:
                    server.answer(self, body)

            def _send(self, status: int, value: dict[str, Any]) -> None:
                text = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

        return Handler

    def answer(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        """Stream the scripted chunks, until an abort ends them."""
        with self.lock:
            self.under_way += 1
            self.most_under_way = max(self.most_under_way, self.under_way)
        handler.send_response(200)
        handler.end_headers()
        script, dies = self.script, self.script.dies_after == self.answered
        sent: list[int] = []
        histogram = [0] * (script.nodes + 1)
        for at, rounds in enumerate(script.chunks):
            time.sleep(script.pause_seconds)
            is_aborted = body["rid"] in self.aborted
            is_last = is_aborted or at + 1 == len(script.chunks)
            for each in rounds[1:] if at == 0 else rounds:
                histogram[len(each) - 1] += 1
            tokens = [token for each in rounds for token in each]
            sent += tokens
            meta: dict[str, Any] = {"queue_time": script.queue_seconds, "cached_tokens": 0, "finish_reason": None}
            if is_last:
                meta["finish_reason"] = {"type": "abort" if is_aborted else script.finish}
                meta |= {"spec_correct_drafts_histogram": histogram} if script.nodes else {}
            chunk = {"output_ids": tokens if script.incremental else list(sent), "meta_info": meta}
            with suppress(BrokenPipeError, ConnectionResetError):
                handler.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
                handler.wfile.flush()
            if dies and at == 1:
                self.die()
                return
            if is_last:
                break
        with suppress(BrokenPipeError, ConnectionResetError):
            handler.wfile.write(b"data: [DONE]\n\n")
        with self.lock:
            self.under_way -= 1
            self.answered += 1
