"""The engine on SGLang: a server of its own, or one that runs already, asked over its native HTTP interface.

Either way requests are streamed, timed and ended by the same code (engines/serving/): what differs is who owns the
server. Its package is not imported here: a server is a process of its own, with everything that it needs in its
arguments. Source of the interface: SGLang 0.5.23.
"""

import math
import queue
import sys
import threading
import uuid
from collections.abc import Generator, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from engines.chat import ChatTokenizer
from engines.checkpoints import model_digest
from engines.contract import BareForwards, EngineError, NumberFormat, Request, RoundSums, WarmUp
from engines.drafters.loading import refuse_other_template
from engines.sampling import Sampling, require
from engines.serving.arguments import ServerArm, Value, device_of, refusal_of
from engines.serving.client import Client, RefusedError
from engines.serving.directories import ModelFiles, check_drafter, find_model
from engines.serving.flight import LOST, Flight, Lane, sampling_params
from engines.serving.presence import missing_algorithm
from engines.serving.process import LOOPBACK, ServerProcess, free_port, refuse_used_port, wait_until
from engines.serving.resolved import check_server, read_rounds, resolved
from engines.speculation import Speculation
from engines.warming import warm_up
from results.alignment import read_alignment, stamps
from results.records import Completion

FLUSH_SECONDS = 30.0
DEATH_SECONDS = 10.0
"""For which a server that broke a connection off may take to be gone."""


class SglangEngine:
    """One arm on one server. `stream` is for one thread at a time."""

    def __init__(
        self,
        model: str,
        *,
        speculation: Speculation | None = None,
        number_format: NumberFormat = "float32",
        drafter_format: NumberFormat | None = None,
        threads: int = 1,
        max_context: int | None = None,
        thinking: bool | None = None,
        concurrency: int = 1,
        server: Mapping[str, Value] | None = None,
        url: str | None = None,
        seeds: bool = True,
        log: Path | None = None,
        port: int | None = None,
    ) -> None:
        """Start a server and wait until it is up, or connect to the one at `url`.

        Args:
            server: SGLang's own arguments, passed through
            seeds:  whether the seeds of requests count; a server of ours is then started for deterministic inference
            log:    file to which the server's output goes; a temporary one without it
        """
        allowed = f"number_format, {number_format!r}: SGLang has one format for target and drafter"
        require(drafter_format in (None, number_format), "drafter_format", drafter_format, allowed)
        self.model, self.drafter = find_model(model), None
        self.chat = ChatTokenizer(self.model.folder, thinking=thinking)
        context = min(self.model.context, max_context or self.model.context)
        if speculation and speculation.drafters:
            self.drafter = find_model(speculation.drafters[0])
            check_drafter(self.drafter, self.model, speculation, context, started=url is None)
            refuse_other_template(self.drafter.folder, self.chat, self.model.folder)
        device, more = device_of(server or {})
        self.arm = ServerArm(
            model=self.model.name,
            drafter=self.drafter.name if self.drafter else None,
            speculation=speculation,
            number_format=number_format,
            device=device,
            threads=threads,
            concurrency=concurrency,
            context=context,
            limited=max_context is not None,
            seeds=seeds,
            more=more,
        )
        self.process: ServerProcess | None = None
        self.client = Client(url) if url else self._start(log, port or free_port())
        try:
            self.lane = self._connect()
        except BaseException:  # an interrupt, too, must leave no server behind
            self.close()
            raise

    def _start(self, log: Path | None, port: int) -> Client:
        """A server of our own, up. It goes again where it does not come up."""
        missing = missing_algorithm(self.arm.algorithm, self.arm.device)  # of a plugin SGLang would only log it
        if missing:
            raise FileNotFoundError(f"engine 'sglang': {missing}")
        refuse_used_port(LOOPBACK, port)
        command = [sys.executable, "-m", "sglang.launch_server", *self.arm.command_line]
        command += ["--host", LOOPBACK, "--port", str(port)]
        log = log or Path(mkdtemp(prefix="streak-")) / "server.log"
        client = Client(f"http://{LOOPBACK}:{port}")
        self.process = ServerProcess(command, self.arm.environment, log)
        try:
            wait_until(client.is_up, self.process)
        except BaseException:  # the same
            self.close()
            raise
        return client

    def _connect(self) -> Lane:
        """What requests need to know of the server. Raises ValueError where it does not serve this arm."""
        try:
            self.info = self.client.server_info()
            served = self.client.model_info()
        except LOST as error:
            raise OSError(f"{self.client.url}: no server answers: {error}") from None
        except RefusedError as refusal:
            raise ValueError(f"{self.client.url}: not a server of SGLang's native interface: {refusal}") from None
        check_server(self.arm, self.info, served, self.client.url)
        limit = int(self.info.get("max_req_input_len") or self.arm.context) + 1
        return Lane(
            client=self.client,
            chat=self.chat,
            context=min(self.arm.context, limit),
            vocab_size=self.model.vocab_size,
            nodes=int(self.info.get("speculative_num_draft_tokens") or 1) - 1 if self.arm.algorithm else 0,
            seeds=self.arm.seeds,
            incremental=bool(self.info.get("incremental_streaming_output")),
        )

    def stream(self, requests: Iterable[Request]) -> Generator[Completion, None, None]:
        """Completions as they end, from an empty prefix cache; up to `concurrency` requests are under way at once.

        Raises EngineError where the server is lost: what had been under way is lost with it.
        """
        self.flush()
        waiting, flying = iter(requests), dict[str, Flight]()
        landed: queue.SimpleQueue[tuple[str, Completion | Exception]] = queue.SimpleQueue()
        try:
            while True:
                for request in islice(waiting, self.arm.concurrency - len(flying)):
                    flight = Flight(self.lane, request, uuid.uuid4().hex, refusal_of(self.arm, request.sampling))
                    flying[flight.rid] = flight
                    threading.Thread(target=fly, args=(flight, landed), daemon=True).start()
                if not flying:
                    return
                rid, outcome = landed.get()
                del flying[rid]
                if isinstance(outcome, LOST):
                    raise self._loss(outcome) from None
                if isinstance(outcome, Exception):
                    raise outcome
                yield outcome
        finally:
            for flight in flying.values():
                flight.leave()

    def flush(self) -> None:
        """Empty the prefix cache. Raises EngineError where the server cannot, as while others use it."""
        try:
            refusal = self.client.flush(FLUSH_SECONDS)
        except LOST as error:
            raise self._loss(error) from None
        if refusal:
            raise EngineError(f"{self.client.url}: the prefix cache cannot be emptied: {refusal}")

    def _loss(self, error: Exception) -> EngineError:
        """What became of the server, as far as it can be told."""
        place = f"{self.client.url}: the server is lost ({type(error).__name__})"
        if self.process is None:
            return EngineError(place)
        code = self.process.wait(DEATH_SECONDS)
        end = "it still runs, but broke a connection off" if code is None else f"it ended with code {code}"
        return EngineError(f"{place}; {end}: {self.process.reason()} (log: {self.process.log})")

    def warm_up(self, requests: Iterable[Request]) -> WarmUp:
        """Decode until the step time settles, and forget it: the prefix cache is emptied."""
        found = warm_up(self.stream, requests, self.arm.concurrency)
        self.flush()
        return found

    def bare_forwards(self, context: int, nodes: int) -> BareForwards | None:  # noqa: ARG002 (the protocol's)
        """None: a server does not time its forwards apart."""
        return None

    def round_sums(self) -> dict[int, RoundSums]:
        """Rounds as the plugin counts them inside the server; none on a GPU, or where the server has no plugin."""
        try:
            info = self.client.server_info()
        except LOST as error:
            raise self._loss(error) from None
        return read_rounds(info)

    def token_gap(self, request: Request, prefix: Sequence[int], first: int, second: int) -> float:
        """Distance of two tokens' log-probabilities at temperature 0, in the server's own format.

        Infinite above: no server tells the noise of a seeded draw, so that no difference passes for a tie.
        """
        if request.sampling.temperature > 0:
            return math.inf
        body = {
            "input_ids": [*self.chat.prompt_ids(request.messages), *prefix],
            "sampling_params": sampling_params(Sampling(), 1, self.chat, seeds=False),
            "return_logprob": True,
            "token_ids_logprob": [first, second],
        }
        try:
            meta = self.client.generate(body)["meta_info"]
        except LOST as error:
            raise self._loss(error) from None
        found = {token: float(log_probability) for log_probability, token, _ in meta["output_token_ids_logprobs"][0]}
        return abs(found[first] - found[second])

    def describe(self) -> dict[str, Any]:
        """Resolved settings and digests; no path of this machine."""
        described: dict[str, Any] = {
            "engine": "sglang",
            "model_digest": digest(self.model),
            "number_format": self.arm.number_format,
            "threads": self.arm.threads,
            "context": self.lane.context,
            "concurrency": self.arm.concurrency,
            "chat_template": self.chat.template_digest,
            "seeds": self.arm.seeds,
            "server_is_ours": self.process is not None,
            "server": resolved(self.info),
        }
        if self.chat.thinking is not None:
            described["thinking"] = self.chat.thinking
        if self.drafter:
            described["drafter_digest"] = digest(self.drafter)
            record = read_alignment(self.drafter.folder)
            described |= stamps(dict.fromkeys(self.arm.speculation.drafters if self.arm.speculation else (), record))
        return described

    def close(self) -> None:
        """End the server, if it is ours, and all its children."""
        if self.process:
            self.process.close()


def fly(flight: Flight, landed: "queue.SimpleQueue[tuple[str, Completion | Exception]]") -> None:
    """A thread's work: one request to its end."""
    try:
        landed.put((flight.rid, flight.fly()))
    except Exception as error:  # noqa: BLE001 (raised again where the stream is drawn)
        landed.put((flight.rid, error))


def digest(model: ModelFiles) -> str:
    """Changes with the model: of its files, or the hub's own revision."""
    return model_digest(model.folder) if model.is_local else model.folder.name
