"""Language models, hosted or a command; both read cleared text only."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Any, Protocol

from triskele.errors import BadInput, ModelUnavailable
from triskele.models.deadlines import within
from triskele.models.egress import (
    REST_S,
    Departure,
    EgressClient,
    Endpoint,
    Joined,
    Ledger,
    NotCleared,
    ServiceModel,
)
from triskele.privacy.clearance import ClearedText
from triskele.text import timestamps

COMMAND = "command"
_MOST_BYTES = 1_000_000
# Tokens of ordinary text hold three to five characters; a much longer reply ignored its limit.
_MOST_CHARACTERS_PER_TOKEN = 20
# Some open models write their reasoning before the reply.
_THOUGHT = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
_COMPLETE = frozenset({"stop", "end_turn"})
_CUT_OFF = frozenset({"length", "max_tokens", "model_context_window_exceeded"})
_REFUSED = frozenset({"content_filter", "refusal"})
# What a program needs to find its files and to write text; any other variable may hold a key or a proxy.
_KEPT_VARIABLES = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "SYSTEMROOT")
_LAST_WAIT_S = 1.0


class Llm(Protocol):
    """A language model that gives one reply to one prompt."""

    @property
    def name(self) -> str:
        """The name shown in errors."""

    def complete(self, parts: Sequence[str | ClearedText], *, most_tokens: int) -> str:
        """The complete reply to cleared texts joined with configured words."""


@dataclass(frozen=True, slots=True)
class _Reply:
    """The unchecked content of a response."""

    text: object
    ended: object
    is_refused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _ChatService:
    """The request and response format of one service."""

    url: str
    path: str
    limit: str
    reply: Callable[[Any], _Reply]
    tokens: Callable[[Any], object]
    key_header: str = "Authorization"
    headers: Mapping[str, str] = field(default_factory=dict)


def _chat_reply(answer: Any) -> _Reply:
    choice = answer["choices"][0]
    message = choice["message"]
    return _Reply(message["content"], choice["finish_reason"], message.get("refusal") is not None)


def _messages_reply(answer: Any) -> _Reply:
    # Blocks of other kinds hold the model's reasoning.
    texts = [block["text"] for block in answer["content"] if block["type"] == "text"]
    return _Reply("".join(texts), answer["stop_reason"])


def _chat_tokens(answer: Any) -> object:
    return answer["usage"]["total_tokens"]


def _messages_tokens(answer: Any) -> object:
    return answer["usage"]["input_tokens"] + answer["usage"]["output_tokens"]


_CHAT = "/chat/completions"
SERVICES: Mapping[str, _ChatService] = {
    "openai": _ChatService(
        url="https://api.openai.com/v1",
        path=_CHAT,
        limit="max_completion_tokens",
        reply=_chat_reply,
        tokens=_chat_tokens,
    ),
    "anthropic": _ChatService(
        url="https://api.anthropic.com/v1",
        path="/messages",
        limit="max_tokens",
        reply=_messages_reply,
        tokens=_messages_tokens,
        key_header="x-api-key",
        headers={"anthropic-version": "2023-06-01"},
    ),
    # Ollama, llama.cpp, vLLM and others with OpenAI's interface; not all of them support the newer name of the limit.
    "compatible": _ChatService(url="", path=_CHAT, limit="max_tokens", reply=_chat_reply, tokens=_chat_tokens),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedLlm(ServiceModel):
    """A hosted language model; `words` are all prompts it may get."""

    words: frozenset[str] = field(default=frozenset(), repr=False)
    price_per_million: float | None = None

    def __post_init__(self) -> None:
        """Refuse an unknown service and a missing model."""
        if self.service not in SERVICES:
            raise BadInput(f"unknown language model service {self.service!r}: choose one of {', '.join(SERVICES)}")
        if not self.model:
            raise BadInput(f"no model of {self.service} is set: name one in your settings")

    @property
    def protocol(self) -> _ChatService:
        """The request and response format of its service."""
        return SERVICES[self.service]

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint for the egress client."""
        protocol = self.protocol
        own = {protocol.path, protocol.limit, "model", self.model, "messages", "role", "user", "content"}
        return Endpoint(
            url=self.url or protocol.url,
            words=self.words | own,
            key=self.key,
            key_header=protocol.key_header,
            headers=protocol.headers,
            timeout_s=self.timeout_s,
            max_bytes=_MOST_BYTES,
            price_per_million=self.price_per_million,
        )


class EndpointLlm:
    """An Llm behind an endpoint of the egress client."""

    def __init__(self, client: EgressClient, endpoint: str, model: HostedLlm) -> None:
        self._client = client
        self._endpoint = endpoint
        self._model = model

    @property
    def name(self) -> str:
        """Service and model."""
        return f"{self._model.service} {self._model.model}"

    def complete(self, parts: Sequence[str | ClearedText], *, most_tokens: int) -> str:
        """The complete reply to the joined parts, sent as one user message."""
        protocol = self._model.protocol
        message = {"role": "user", "content": Joined(tuple(parts))}
        body = {"model": self._model.model, "messages": [message], protocol.limit: most_tokens}
        answer = self._client.post(self._endpoint, protocol.path, body, protocol.tokens)
        return _checked(self.name, self._finished(answer, most_tokens), most_tokens)

    def _finished(self, answer: Any, most_tokens: int) -> object:
        """The text of a complete reply; half of one is refused."""
        try:
            reply = self._model.protocol.reply(answer)
        except (LookupError, TypeError):
            raise _unknown_shape(self.name) from None
        ended = reply.ended if isinstance(reply.ended, str) else ""
        if reply.is_refused or ended in _REFUSED:
            raise ModelUnavailable(f"{self.name} refused to reply")
        if ended in _CUT_OFF:
            raise ModelUnavailable(f"{self.name} was cut off after {most_tokens} tokens; its reply is not used")
        if ended not in _COMPLETE:
            raise ModelUnavailable(f"{self.name} did not mark its reply as complete; it is not used")
        return reply.text


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmCommand:
    """A command that reads a prompt and prints the reply, without shell."""

    # Not shown: some commands take a key as an argument.
    arguments: tuple[str, ...] = field(repr=False)
    words: frozenset[str] = field(default=frozenset(), repr=False)
    timeout_s: float = 10.0

    def __post_init__(self) -> None:
        """Refuse a command that cannot run or depends on the working directory."""
        if not self.arguments or not self.arguments[0]:
            raise BadInput('no command is set: write it as a list, like ["ollama", "run", "qwen3"]')
        if any("\0" in argument for argument in self.arguments):
            raise BadInput("the command in your settings holds a NUL character: remove it")
        if os.path.dirname(self.arguments[0]) and not os.path.isabs(self.arguments[0]):
            raise BadInput("the command in your settings must be a plain name or an absolute path")

    @property
    def program(self) -> str:
        """The name of the program, without its folder."""
        return os.path.basename(self.arguments[0])


class CommandLlm:
    """An Llm run as a command; its texts count as sent."""

    def __init__(
        self, ledger: Ledger, endpoint: str, command: LlmCommand, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._ledger = ledger
        self._endpoint = endpoint
        self._command = command
        self._clock = clock
        self._rests_until = 0.0

    @property
    def name(self) -> str:
        """The program's name."""
        return f"the command {self._command.program}"

    def complete(self, parts: Sequence[str | ClearedText], *, most_tokens: int) -> str:
        """The output of the command, which gets no limit of tokens."""
        text = "".join(self._allowed(part) for part in parts)
        left_s = self._rests_until - self._clock()
        if left_s > 0:
            raise ModelUnavailable(f"{self.name} failed recently; the next attempt is in {left_s:.0f} s")
        self._ledger.leaving(_departure(self._endpoint, parts))
        printed = _decoded(self._printed(text.encode("utf-8", "replace")))
        if printed is None:
            raise ModelUnavailable(f"{self.name} printed something that is not UTF-8 text")
        return _checked(self.name, printed, most_tokens)

    def _allowed(self, part: object) -> str:
        if type(part) is ClearedText:
            return part.text
        if type(part) is str and part in self._command.words:
            return part
        raise NotCleared(f"{self.name} got a text that was not cleared; it was not run")

    def _printed(self, content: bytes) -> bytes:
        process = self._started()
        try:
            printed, status = within(self._command.timeout_s, lambda: _exchange(process, content))
        except TimeoutError:
            self._rests_until = self._clock() + REST_S
            raise ModelUnavailable(f"{self.name} did not answer within {self._command.timeout_s:g} s") from None
        finally:
            _end(process)
        if len(printed) > _MOST_BYTES:
            raise ModelUnavailable(f"{self.name} printed more than {_MOST_BYTES:,} bytes")
        if status != 0:
            raise ModelUnavailable(f"{self.name} failed (exit status {status}): run it in a terminal to see why")
        return printed

    def _started(self) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                self._command.arguments,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # Its error output may repeat the text, and is not read.
                stderr=subprocess.DEVNULL,
                env={name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ},
                # A project's folder could hold settings of the command, or another command with the same name.
                cwd=os.sep,
                start_new_session=True,
            )
        except OSError:
            raise ModelUnavailable(f"{self.name} cannot be started: check the command in your settings") from None


def _exchange(process: subprocess.Popen[bytes], content: bytes) -> tuple[bytes, int | None]:
    """Output and exit status of a command; None beyond the size limit."""
    into, out = process.stdin, process.stdout
    assert into is not None and out is not None
    # In a thread, because a command may print before it has read everything.
    threading.Thread(target=_feed, args=(into, content), name="triskele-command", daemon=True).start()
    with out:
        printed = out.read(_MOST_BYTES + 1)
    return printed, process.wait() if len(printed) <= _MOST_BYTES else None


def _feed(into: IO[bytes], content: bytes) -> None:
    # A command may end without having read everything.
    with suppress(OSError), into:
        into.write(content)


def _decoded(printed: bytes) -> str | None:
    # A UnicodeDecodeError holds all of the bytes: it is not passed on, not even as a cause.
    with suppress(UnicodeDecodeError):
        return printed.decode()
    return None


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and its children if they still run."""
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            if os.name == "posix":
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_LAST_WAIT_S)


def _departure(endpoint: str, parts: Sequence[str | ClearedText]) -> Departure:
    texts = [part for part in parts if isinstance(part, ClearedText)]
    return Departure(
        endpoint=endpoint,
        host=COMMAND,
        at=timestamps.now(),
        attempt=1,
        texts=len(texts),
        characters=sum(len(text.text) for text in texts),
        memories=frozenset(text.source for text in texts if text.source),
    )


def _checked(name: str, text: object, most_tokens: int) -> str:
    """A usable reply: a text that is neither empty nor too long."""
    if not isinstance(text, str):
        raise _unknown_shape(name)
    reply = _THOUGHT.sub("", text).strip()
    if not reply or reply.startswith("<think>"):
        raise ModelUnavailable(f"{name} returned an empty reply")
    most = most_tokens * _MOST_CHARACTERS_PER_TOKEN
    if len(reply) > most:
        raise ModelUnavailable(f"{name} returned more than {most:,} characters")
    return reply


def _unknown_shape(name: str) -> ModelUnavailable:
    return ModelUnavailable(f"{name} returned an unknown format: check service and address in your settings")
