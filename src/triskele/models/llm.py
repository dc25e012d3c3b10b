"""The seam to language models: hosted ones behind the door, or a command of the user's. Both read cleared text only."""

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

from triskele.base import timestamps
from triskele.base.deadlines import within
from triskele.errors import BadInput, ModelUnavailable
from triskele.models.egress import (
    REST_S,
    Departure,
    EgressClient,
    Endpoint,
    EndpointUnavailable,
    Joined,
    Ledger,
    NotCleared,
)
from triskele.privacy.clearance import Cleared

COMMAND = "command"
_MOST_BYTES = 1_000_000
# Tokens of ordinary text hold three to five characters; what goes far beyond was not written within the limit.
_MOST_CHARACTERS_PER_TOKEN = 20
# Some open models write down first what they think.
_THOUGHT = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
_WHOLE = frozenset({"stop", "end_turn"})
_CUT_OFF = frozenset({"length", "max_tokens", "model_context_window_exceeded"})
_REFUSED = frozenset({"content_filter", "refusal"})
# What a program needs to find its files and to write text; a key or a proxy may stand in any other variable.
_KEPT_VARIABLES = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "SYSTEMROOT")
_LAST_WAIT_S = 1.0


class Llm(Protocol):
    """A language model that is asked once and answers once."""

    @property
    def name(self) -> str:
        """What it is called in errors."""

    def complete(self, parts: Sequence[str | Cleared], *, most_tokens: int) -> str:
        """The whole answer to the parts put together: cleared texts, and words that the model was set up with."""


@dataclass(frozen=True, slots=True)
class _Said:
    """What an answer holds, as yet unchecked."""

    text: object
    ended: object
    is_refused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Service:
    """How one kind of service is spoken to."""

    url: str
    path: str
    limit: str
    said: Callable[[Any], _Said]
    tokens: Callable[[Any], object]
    key_header: str = "Authorization"
    headers: Mapping[str, str] = field(default_factory=dict)


def _chat_said(answer: Any) -> _Said:
    choice = answer["choices"][0]
    message = choice["message"]
    return _Said(message["content"], choice["finish_reason"], message.get("refusal") is not None)


def _messages_said(answer: Any) -> _Said:
    # Blocks of other kinds hold what the model thought.
    texts = [block["text"] for block in answer["content"] if block["type"] == "text"]
    return _Said("".join(texts), answer["stop_reason"])


def _chat_tokens(answer: Any) -> object:
    return answer["usage"]["total_tokens"]


def _messages_tokens(answer: Any) -> object:
    return answer["usage"]["input_tokens"] + answer["usage"]["output_tokens"]


_CHAT = "/chat/completions"
SERVICES: Mapping[str, _Service] = {
    "openai": _Service(
        url="https://api.openai.com/v1",
        path=_CHAT,
        limit="max_completion_tokens",
        said=_chat_said,
        tokens=_chat_tokens,
    ),
    "anthropic": _Service(
        url="https://api.anthropic.com/v1",
        path="/messages",
        limit="max_tokens",
        said=_messages_said,
        tokens=_messages_tokens,
        key_header="x-api-key",
        headers={"anthropic-version": "2023-06-01"},
    ),
    # Ollama, llama.cpp, vLLM and whoever else speaks as OpenAI did: not all of them know the newer name of the limit.
    "compatible": _Service(url="", path=_CHAT, limit="max_tokens", said=_chat_said, tokens=_chat_tokens),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedLlm:
    """A hosted language model as the user's settings name it; `words` are the prompts of all who will ask it."""

    service: str
    model: str
    url: str = ""
    key: str = field(default="", repr=False)
    words: frozenset[str] = field(default=frozenset(), repr=False)
    timeout_s: float = 10.0
    price_per_million: float | None = None

    def __post_init__(self) -> None:
        """Refuse a service that nobody here speaks to."""
        if self.service not in SERVICES:
            raise BadInput(f"no language model service is called {self.service!r}: choose one of {', '.join(SERVICES)}")
        if not self.model:
            raise BadInput(f"which model of {self.service}? Name it in your settings")

    @property
    def spoken(self) -> _Service:
        """How its service is spoken to."""
        return SERVICES[self.service]

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint to open the door for."""
        spoken = self.spoken
        own = {spoken.path, spoken.limit, "model", self.model, "messages", "role", "user", "content"}
        return Endpoint(
            url=self.url or spoken.url,
            words=self.words | own,
            key=self.key,
            key_header=spoken.key_header,
            headers=spoken.headers,
            timeout_s=self.timeout_s,
            max_bytes=_MOST_BYTES,
            price_per_million=self.price_per_million,
        )


class DoorLlm:
    """An Llm that asks an endpoint of the door."""

    def __init__(self, door: EgressClient, endpoint: str, model: HostedLlm) -> None:
        self._door = door
        self._endpoint = endpoint
        self._model = model

    @property
    def name(self) -> str:
        """Service and model."""
        return f"{self._model.service} {self._model.model}"

    def complete(self, parts: Sequence[str | Cleared], *, most_tokens: int) -> str:
        """The whole answer to the parts put together, as one message of the user."""
        spoken = self._model.spoken
        message = {"role": "user", "content": Joined(tuple(parts))}
        body = {"model": self._model.model, "messages": [message], spoken.limit: most_tokens}
        try:
            answer = self._door.post(self._endpoint, spoken.path, body, spoken.tokens)
        except EndpointUnavailable as error:
            raise ModelUnavailable(str(error)) from None
        return _checked(self.name, self._finished(answer, most_tokens), most_tokens)

    def _finished(self, answer: Any, most_tokens: int) -> object:
        """The text of an answer that came to its end: half of one could say the opposite of the whole."""
        try:
            said = self._model.spoken.said(answer)
        except (LookupError, TypeError):
            raise _unknown_shape(self.name) from None
        ended = said.ended if isinstance(said.ended, str) else ""
        if said.is_refused or ended in _REFUSED:
            raise ModelUnavailable(f"{self.name} refuses to answer this")
        if ended in _CUT_OFF:
            raise ModelUnavailable(f"{self.name} was cut off after {most_tokens} tokens: its answer is not used")
        if ended not in _WHOLE:
            raise ModelUnavailable(f"{self.name} does not say that its answer is whole: it is not used")
        return said.text


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmCommand:
    """A command of the user's that reads a prompt from its input and prints the answer; never run by a shell."""

    # Not shown: some commands take a key as an argument.
    arguments: tuple[str, ...] = field(repr=False)
    words: frozenset[str] = field(default=frozenset(), repr=False)
    timeout_s: float = 10.0

    def __post_init__(self) -> None:
        """Refuse what cannot be run, or would be another program in every folder."""
        if not self.arguments or not self.arguments[0]:
            raise BadInput('which command answers? Write it as a list, like ["ollama", "run", "qwen3"]')
        if any("\0" in argument for argument in self.arguments):
            raise BadInput("the command in your settings holds a NUL character: write it anew")
        if os.path.dirname(self.arguments[0]) and not os.path.isabs(self.arguments[0]):
            raise BadInput("the command in your settings must be a plain name or a whole path, not a part of one")

    @property
    def program(self) -> str:
        """The name of the program, without its folder."""
        return os.path.basename(self.arguments[0])


class CommandLlm:
    """An Llm that is a command on this machine; nobody knows what it passes on, so it counts as leaving."""

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

    def complete(self, parts: Sequence[str | Cleared], *, most_tokens: int) -> str:
        """What the command prints for the parts put together; it is not told how many tokens it may take."""
        text = "".join(self._allowed(part) for part in parts)
        left_s = self._rests_until - self._clock()
        if left_s > 0:
            raise ModelUnavailable(f"{self.name} failed a moment ago and is asked again in {left_s:.0f} s")
        self._ledger.leaving(_departure(self._endpoint, parts))
        said = _decoded(self._printed(text.encode("utf-8", "replace")))
        if said is None:
            raise ModelUnavailable(f"{self.name} prints something that is no text")
        return _checked(self.name, said, most_tokens)

    def _allowed(self, part: object) -> str:
        if type(part) is Cleared:
            return part.text
        if type(part) is str and part in self._command.words:
            return part
        raise NotCleared(f"{self.name} was given a text that was not cleared; it was not run")

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
            raise ModelUnavailable(f"{self.name} prints more than {_MOST_BYTES:,} bytes")
        if status != 0:
            raise ModelUnavailable(f"{self.name} failed (exit status {status}): try it by hand")
        return printed

    def _started(self) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                self._command.arguments,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # Its complaints may repeat the text, and nobody reads them.
                stderr=subprocess.DEVNULL,
                env={name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ},
                # A project's folder could hold settings of the command, or another one of the same name.
                cwd=os.sep,
                start_new_session=True,
            )
        except OSError:
            raise ModelUnavailable(f"{self.name} cannot be started: check the command in your settings") from None


def _exchange(process: subprocess.Popen[bytes], content: bytes) -> tuple[bytes, int | None]:
    """What a command prints, no more than is of use, and its exit status; None where it was not waited for."""
    into, out = process.stdin, process.stdout
    assert into is not None and out is not None
    # Aside, for a command may print before it has read everything.
    threading.Thread(target=_feed, args=(into, content), name="triskele-command", daemon=True).start()
    with out:
        printed = out.read(_MOST_BYTES + 1)
    return printed, process.wait() if len(printed) <= _MOST_BYTES else None


def _feed(into: IO[bytes], content: bytes) -> None:
    # A command may end without having read everything.
    with suppress(OSError), into:
        into.write(content)


def _decoded(printed: bytes) -> str | None:
    # The error of a failed decoding holds all of the bytes: it is not passed on, not even as a cause.
    with suppress(UnicodeDecodeError):
        return printed.decode()
    return None


def _end(process: subprocess.Popen[bytes]) -> None:
    """Leave no process behind that could still be at work on the text."""
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            if os.name == "posix":
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_LAST_WAIT_S)


def _departure(endpoint: str, parts: Sequence[str | Cleared]) -> Departure:
    texts = [part for part in parts if isinstance(part, Cleared)]
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
    """An answer that can be used: a text, not empty and not endless."""
    if not isinstance(text, str):
        raise _unknown_shape(name)
    said = _THOUGHT.sub("", text).strip()
    if not said or said.startswith("<think>"):
        raise ModelUnavailable(f"{name} answers with nothing")
    most = most_tokens * _MOST_CHARACTERS_PER_TOKEN
    if len(said) > most:
        raise ModelUnavailable(f"{name} answers with more than {most:,} characters")
    return said


def _unknown_shape(name: str) -> ModelUnavailable:
    return ModelUnavailable(f"{name} answers in an unknown shape: check service and address in your settings")
