"""Language models: each service is spoken to in its own way, a command gets its input alone, none is trusted."""

from __future__ import annotations

import json
import logging
import os
import select
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import loopback
import pytest
from loopback import Book

from triskele.errors import BadInput, ModelUnavailable, Unavailable
from triskele.models.egress import REST_S, Departure, EgressClient, NotCleared
from triskele.models.llm import SERVICES, CommandLlm, EndpointLlm, HostedLlm, Llm, LlmCommand
from triskele.privacy.clearance import ClearedText, Quotes, clear_memory, clear_question
from triskele.types import Memory

PROMPT, END = "Answer this: ", "\nBe brief."
WORDS = frozenset({PROMPT, END})
TEXT = "where does the heron nest?"
ANSWER = "by the mill"
EVERY = sorted(SERVICES)

Start = Callable[..., tuple[EndpointLlm, loopback.Loopback]]
Run = Callable[..., CommandLlm]


def chat(content: object = ANSWER, ended: object = "stop", **message: object) -> dict[str, Any]:
    """A chat completion object."""
    reply = {"role": "assistant", "content": content, "refusal": None} | message
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "tiny"}
    return head | {
        "choices": [{"index": 0, "message": reply, "logprobs": None, "finish_reason": ended}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16},
    }


def message(*blocks: object, ended: object = "end_turn") -> dict[str, Any]:
    """A message object."""
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "tiny"}
    return head | {
        "content": list(blocks) if blocks else [{"type": "text", "text": ANSWER}],
        "stop_reason": ended,
        "stop_sequence": None,
        "usage": {"input_tokens": 11, "output_tokens": 5, "cache_read_input_tokens": None},
    }


def _is_asked_well(body: dict[str, Any], limit: str) -> bool:
    """Exactly the fields that are documented, and one message of the user with a text."""
    if set(body) != {"model", "messages", limit} or type(body[limit]) is not int or body[limit] < 1:
        return False
    (only,) = body["messages"]
    return set(only) == {"role", "content"} and only["role"] == "user" and bool(only["content"].strip())


def as_openai(path: str, body: dict[str, Any], limit: str = "max_completion_tokens") -> loopback.Answer:
    if path != "/v1/chat/completions" or not _is_asked_well(body, limit):
        return 400, {"error": {"message": "bad", "type": "invalid_request_error", "param": None, "code": None}}
    return 200, chat()


def as_compatible(path: str, body: dict[str, Any]) -> loopback.Answer:
    return as_openai(path, body, "max_tokens")


def as_anthropic(handler: loopback.Handler) -> None:
    """A turn, since the key stands in another header than the loopback server looks for."""
    seen = handler.state.seen[-1]
    if handler.headers.get("x-api-key") != loopback.KEY or "Authorization" in seen.headers:
        problem = {"type": "authentication_error", "message": f"invalid x-api-key {seen.headers}"}
        handler.reply(401, {"type": "error", "error": problem})
    elif (handler.headers.get("anthropic-version"), seen.path) != ("2023-06-01", "/v1/messages") or not _is_asked_well(
        seen.body, "max_tokens"
    ):
        handler.reply(400, {"type": "error", "error": {"type": "invalid_request_error", "message": "bad"}})
    else:
        handler.reply(200, message())


@pytest.fixture
def question() -> ClearedText:
    clearance = clear_question(TEXT, Quotes.of(()))
    assert clearance is not None
    return clearance


@pytest.fixture
def book() -> Book:
    return Book()


@pytest.fixture
def hosted(book: Book) -> Iterator[Start]:
    """Starts a service of a kind and a model that speaks to it; `turns` come before its ordinary answers."""
    opened: list[Any] = []

    def start(service: str, *turns: loopback.Turn, **details: Any) -> tuple[EndpointLlm, loopback.Loopback]:
        serving = loopback.serving(as_compatible if service == "compatible" else as_openai)
        state = serving.__enter__()
        state.turns.extend([*turns, *[as_anthropic] * (9 if service == "anthropic" else 0)])
        values: dict[str, Any] = {"model": "tiny", "key": loopback.KEY, "words": WORDS} | details
        model = HostedLlm(service=service, url=f"{state.url}/v1", **values)
        door = EgressClient({"far": model.endpoint}, book, pause=lambda seconds: None)
        opened.append((serving, door))
        return EndpointLlm(door, "far", model), state

    yield start
    for serving, door in opened:
        door.close()
        serving.__exit__(None, None, None)


@pytest.fixture
def run(book: Book) -> Run:
    """A command that is a few lines of Python."""

    def command(code: str, *arguments: str, ledger: Book = book, **details: Any) -> CommandLlm:
        clock = {"clock": details.pop("clock")} if "clock" in details else {}
        values: dict[str, Any] = {"timeout_s": 60.0, "words": WORDS} | details
        python = (sys.executable, "-I", "-c", f"import os, sys, time\n{code}")
        return CommandLlm(ledger, "mine", LlmCommand(arguments=(*python, *arguments), **values), **clock)

    return command


def ask(llm: Llm, *parts: Any, most_tokens: int = 200) -> str:
    return llm.complete(parts, most_tokens=most_tokens)


@pytest.mark.parametrize("service", EVERY)
def test_complete_returns_the_answer(hosted: Start, book: Book, question: ClearedText, service: str) -> None:
    llm, server = hosted(service, price_per_million=2.0)
    assert ask(llm, PROMPT, question, END) == ANSWER
    assert llm.name == f"{service} tiny"
    (seen,), (departure,), (bill,) = server.seen, book.departures, book.bills
    assert seen.body["messages"] == [{"role": "user", "content": f"{PROMPT}{TEXT}{END}"}]
    assert seen.body[SERVICES[service].limit] == 200
    assert (departure.endpoint, departure.texts, departure.characters) == ("far", 1, len(TEXT))
    assert (bill.tokens, bill.cost) == (16, pytest.approx(32e-6))


def test_services_have_their_addresses() -> None:
    assert {name: HostedLlm(service=name, model="m").endpoint.url for name in ("openai", "anthropic")} == {
        "openai": "https://api.openai.com/v1",
        "anthropic": "https://api.anthropic.com/v1",
    }
    assert HostedLlm(service="openai", model="m").endpoint.timeout_s == 10.0


@pytest.mark.parametrize(
    ("details", "told"),
    [
        ({"service": "telepathy", "model": "m"}, "choose one of"),
        ({"service": "openai", "model": ""}, "name one in your settings"),
        ({"service": "compatible", "model": "m"}, "is not valid"),
        ({"service": "compatible", "model": "m", "url": "http://example.com/v1"}, "https://"),
    ],
)
def test_settings_that_lead_nowhere_are_refused(details: dict[str, str], told: str) -> None:
    with pytest.raises(BadInput, match=told):
        _ = HostedLlm(**details).endpoint


class Lookalike(str):
    """A text with everything that one might ask of a cleared one, equal to any word."""

    text = TEXT
    source = ""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return hash(PROMPT)


NOT_CLEARED = [TEXT, Lookalike(TEXT), TEXT.encode(), None, [PROMPT], 7]


@pytest.mark.parametrize("part", NOT_CLEARED, ids=lambda part: type(part).__name__)
@pytest.mark.parametrize("service", EVERY)
def test_only_cleared_text_and_words_reach_a_service(
    hosted: Start, book: Book, question: ClearedText, service: str, part: Any
) -> None:
    llm, server = hosted(service)
    with pytest.raises(NotCleared) as caught:
        ask(llm, PROMPT, question, part)
    assert TEXT not in str(caught.value) and server.seen == [] and book.departures == []


@pytest.mark.parametrize("service", EVERY)
@pytest.mark.parametrize("status", [429, 500, 529])
def test_a_failure_passes(hosted: Start, book: Book, question: ClearedText, service: str, status: int) -> None:
    llm, _ = hosted(service, loopback.refuse(status, Retry_After="1"), loopback.half)
    assert ask(llm, PROMPT, question) == ANSWER
    assert [departure.attempt for departure in book.departures] == [1, 2, 3]


BAD: dict[str, tuple[loopback.Turn, str]] = {
    "busy": (loopback.refuse(429, Retry_After="999"), "status 429"),
    "broken": (loopback.refuse(500), "reports an internal error"),
    "half": (loopback.half, "closed the connection early"),
    "garbage": (loopback.say(b"<html>" + TEXT.encode()), "not JSON"),
    "a stream": (loopback.say(b'data: {"choices": [{"delta": {"content": "by"}}]}\n\n'), "not JSON"),
    "endless": (loopback.say(b'"' + b"x" * 1_000_001 + b'"'), "more than 1,000,000 bytes"),
    "nothing": (loopback.say({}), "unknown format"),
    "null": (loopback.say(None), "unknown format"),
    "a list": (loopback.say([1]), "unknown format"),
    "a text": (loopback.say(TEXT), "unknown format"),
    "numbers": (loopback.say({"choices": 7, "content": 7, "stop_reason": "end_turn"}), "unknown format"),
    "no parts": (loopback.say({"choices": [], "content": [1], "stop_reason": "end_turn"}), "unknown format"),
}


def _shown(error: BaseException | None) -> str:
    shown = "".join(traceback.format_exception(error))
    while error is not None:
        shown += repr(error)
        error = error.__cause__ or error.__context__
    return shown


@pytest.mark.parametrize("service", EVERY)
@pytest.mark.parametrize("kind", BAD, ids=lambda name: name.replace(" ", "-"))
def test_malformed_answer_is_reported_without_text_or_key(
    hosted: Start, question: ClearedText, caplog: pytest.LogCaptureFixture, service: str, kind: str
) -> None:
    caplog.set_level(logging.DEBUG)
    turn, told = BAD[kind]
    llm, _ = hosted(service, *[turn] * 3)
    with pytest.raises(ModelUnavailable, match=told) as caught:
        ask(llm, PROMPT, question)
    shown = _shown(caught.value) + caplog.text + repr(llm._model) + repr(llm._model.endpoint)
    assert TEXT not in shown and loopback.KEY not in shown and "\n" not in str(caught.value)


@pytest.mark.parametrize("service", EVERY)
def test_a_service_that_hangs_is_left(hosted: Start, question: ClearedText, service: str) -> None:
    llm, _ = hosted(service, loopback.hang, timeout_s=0.3)
    with pytest.raises(ModelUnavailable, match=r"did not answer within 0\.3 s"):
        ask(llm, PROMPT, question)


@pytest.mark.parametrize("service", EVERY)
def test_wrong_key_is_reported_once_and_not_shown(hosted: Start, question: ClearedText, service: str) -> None:
    llm, server = hosted(service, key="sk-wrong-9931")
    with pytest.raises(ModelUnavailable, match="refused the key") as caught:
        ask(llm, PROMPT, question)
    assert "9931" not in _shown(caught.value) + repr(llm._model) and len(server.seen) == 1


def text(said: object) -> dict[str, object]:
    return {"type": "text", "text": said}


UNUSABLE: list[tuple[str, Any, str]] = [
    ("openai", chat(ended="length"), "cut off after 200 tokens"),
    ("openai", chat(ended="content_filter"), "refused to reply"),
    ("openai", chat(None, refusal="I cannot help"), "refused to reply"),
    ("openai", chat(refusal="I cannot help"), "refused to reply"),
    ("openai", chat(ended="tool_calls"), "did not mark its reply as complete"),
    ("openai", chat(ended=None), "did not mark its reply as complete"),
    ("openai", chat(ended=["stop"]), "did not mark its reply as complete"),
    ("openai", chat(None), "unknown format"),
    ("openai", chat([{"type": "text", "text": ANSWER}]), "unknown format"),
    ("openai", chat(""), "returned an empty reply"),
    ("openai", chat(" \n"), "returned an empty reply"),
    ("openai", chat("<think>about herons</think>\n"), "returned an empty reply"),
    ("openai", chat("<think>about herons"), "returned an empty reply"),
    ("openai", chat("x" * 4001), "more than 4,000 characters"),
    ("anthropic", message(ended="max_tokens"), "cut off after 200 tokens"),
    ("anthropic", message(ended="model_context_window_exceeded"), "cut off"),
    ("anthropic", message(ended="refusal"), "refused to reply"),
    ("anthropic", message(ended="pause_turn"), "did not mark its reply as complete"),
    ("anthropic", message(ended=None), "did not mark its reply as complete"),
    ("anthropic", message(text(None)), "unknown format"),
    ("anthropic", message({"type": "thinking", "thinking": "hm"}), "returned an empty reply"),
    ("anthropic", message(text("x" * 4001)), "more than 4,000 characters"),
]


@pytest.mark.parametrize(("service", "answer", "told"), UNUSABLE)
def test_half_answers_and_refusals_are_no_answers(
    hosted: Start, question: ClearedText, service: str, answer: Any, told: str
) -> None:
    llm, _ = hosted(service, loopback.say(answer))
    with pytest.raises(ModelUnavailable, match=told) as caught:
        ask(llm, PROMPT, question)
    assert ANSWER not in str(caught.value) and "help" not in str(caught.value)


def test_thinking_is_no_part_of_the_answer(hosted: Start, question: ClearedText) -> None:
    thought = chat(f"\n<think>the mill?\nor the weir</think>\n\n{ANSWER} <think>\n")
    assert ask(hosted("compatible", loopback.say(thought))[0], PROMPT, question) == f"{ANSWER} <think>"
    blocks = message({"type": "thinking", "thinking": "the weir", "signature": "x"}, text("by "), text("the mill"))
    assert ask(hosted("anthropic", loopback.say(blocks))[0], PROMPT, question) == ANSWER
    long = chat(f"<think>{'x' * 5000}</think>{ANSWER}")
    assert ask(hosted("openai", loopback.say(long))[0], PROMPT, question) == ANSWER


ECHO = "print('heard', sys.stdin.read())"


@pytest.mark.slow
def test_a_command_reads_its_input_and_prints_its_answer(
    run: Run, book: Book, question: ClearedText, make_memory: Callable[..., Memory]
) -> None:
    memory = make_memory("the heron nests by the mill")
    assert ask(run(ECHO), PROMPT, question, END, clear_memory(memory)) == f"heard {PROMPT}{TEXT}{END}{memory.content}"
    (departure,) = book.departures
    assert (departure.endpoint, departure.host, departure.attempt) == ("mine", "command", 1)
    assert (departure.texts, departure.characters) == (2, len(TEXT) + len(memory.content))
    assert departure.memories == {memory.id} and TEXT not in repr(departure)


@pytest.mark.slow
def test_a_command_sees_the_text_in_its_input_alone(
    run: Run, question: ClearedText, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SOME_API_KEY", loopback.KEY)
    monkeypatch.setenv("HTTPS_PROXY", "http://elsewhere")
    monkeypatch.setenv("LD_PRELOAD", "")
    monkeypatch.chdir(tmp_path)
    tricky = "$(touch pwned); `touch pwned` | $HOME"
    code = "import json; print(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd(), os.getsid(0) == os.getpid()]))"
    arguments, environment, folder, leads = json.loads(ask(run(code, tricky, ""), PROMPT, question, most_tokens=999))
    assert arguments == [tricky, ""] and not (tmp_path / "pwned").exists()
    variables = {"PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR"}
    assert set(environment) - {"__CF_USER_TEXT_ENCODING"} <= variables and environment["PATH"] == os.environ["PATH"]
    assert TEXT not in repr(environment) and loopback.KEY not in repr(environment)
    assert folder == os.sep and leads


@pytest.mark.parametrize("part", NOT_CLEARED, ids=lambda part: type(part).__name__)
def test_only_cleared_text_and_words_reach_a_command(
    run: Run, book: Book, question: ClearedText, tmp_path: Path, part: Any
) -> None:
    ran = tmp_path / "ran"
    with pytest.raises(NotCleared) as caught:
        ask(run("open(sys.argv[1], 'w')", str(ran)), PROMPT, question, part)
    assert TEXT not in str(caught.value) and not ran.exists() and book.departures == []


def test_a_command_is_not_run_unless_it_can_be_recorded(run: Run, question: ClearedText, tmp_path: Path) -> None:
    class Torn(Book):
        def leaving(self, departure: Departure) -> None:
            raise Unavailable("the ledger cannot be written")

    ran = tmp_path / "ran"
    with pytest.raises(Unavailable, match="ledger"):
        ask(run("open(sys.argv[1], 'w')", str(ran), ledger=Torn()), PROMPT, question)
    assert not ran.exists()


FAILING: dict[str, tuple[str, str]] = {
    "fails": ("sys.exit(3)", r"failed \(exit status 3\)"),
    "fails after its answer": ("print('by the mill', flush=True); sys.exit(1)", "exit status 1"),
    "is killed": ("import signal; os.kill(os.getpid(), signal.SIGKILL)", "exit status -9"),
    "complains": ("sys.stderr.write(sys.stdin.read()); sys.exit(2)", "exit status 2"),
    "prints nothing": ("sys.stdin.read()", "returned an empty reply"),
    "prints blanks": ("print('  \\n ')", "returned an empty reply"),
    "prints no text": ("sys.stdout.buffer.write(b'\\xff\\xfe' + sys.stdin.buffer.read())", "not UTF-8 text"),
    "prints too much": ("print('x' * 4001)", "more than 4,000 characters"),
    "floods": ("while True: print('x' * 10_000)", "more than 1,000,000 bytes"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", FAILING, ids=lambda name: name.replace(" ", "-"))
def test_failed_command_is_reported_without_text_or_arguments(
    run: Run, question: ClearedText, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], kind: str
) -> None:
    caplog.set_level(logging.DEBUG)
    code, told = FAILING[kind]
    llm = run(code, f"--key={loopback.KEY}")
    with pytest.raises(ModelUnavailable, match=told) as caught:
        ask(llm, PROMPT, question)
    shown = _shown(caught.value) + caplog.text + "".join(capfd.readouterr()) + repr(llm._command)
    assert TEXT not in shown and loopback.KEY not in shown and "\n" not in str(caught.value)


# Holds the pipe named by its first argument open for writing as long as it lives, and says so.
HOLD = "held = os.open(sys.argv[1], os.O_WRONLY); os.write(held, b'x')\n"
CHILD = f"import os, sys, time\n{HOLD}time.sleep(600)"
FORK = f"import subprocess; subprocess.Popen([sys.executable, '-I', '-c', {CHILD!r}, sys.argv[1]])\n"
LINGERING = {
    "leaves a child that hangs": (FORK, "did not answer within 3 s"),
    "hangs with its child": (f"{FORK}{HOLD}time.sleep(600)", "did not answer within 3 s"),
    "floods and stays": (
        f"{HOLD}try:\n    os.write(1, b'x' * 2_000_000)\nexcept OSError: pass\ntime.sleep(600)",
        "more than 1,000,000 bytes",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", LINGERING, ids=lambda name: name.replace(" ", "-"))
def test_nothing_of_a_command_lives_on(run: Run, question: ClearedText, tmp_path: Path, kind: str) -> None:
    code, told = LINGERING[kind]
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(ModelUnavailable, match=told):
        ask(run(code, str(fifo), timeout_s=3), PROMPT, question)
    assert os.read(reader, 9) in (b"x", b"xx"), "it did live"
    # The pipe ends when nobody holds it any more.
    assert select.select([reader], [], [], 10)[0] and os.read(reader, 9) == b""
    os.close(reader)
    for thread in threading.enumerate():
        if thread.name in ("triskele-deadline", "triskele-command"):
            thread.join(10)
            assert not thread.is_alive()


@pytest.mark.slow
def test_a_command_has_the_time_that_the_settings_give(
    run: Run, question: ClearedText, monkeypatch: pytest.MonkeyPatch
) -> None:
    times: list[float] = []

    def at_once(seconds: float, work: Callable[[], Any]) -> Any:
        times.append(seconds)
        return work()

    monkeypatch.setattr("triskele.models.llm.within", at_once)
    assert ask(run("print('done')", timeout_s=7), PROMPT, question) == "done"
    assert times == [7]


@pytest.mark.slow
def test_after_hanging_a_command_rests(run: Run, book: Book, question: ClearedText) -> None:
    now = [100.0]
    llm = run("time.sleep(600 if sys.stdin.read() else 0)", timeout_s=0.2, clock=lambda: now[0])
    for told in ("did not answer", "failed recently", "failed recently"):
        with pytest.raises(ModelUnavailable, match=told):
            ask(llm, PROMPT, question)
    assert len(book.departures) == 1
    now[0] += REST_S
    with pytest.raises(ModelUnavailable, match="did not answer"):
        ask(llm, PROMPT, question)


@pytest.mark.slow
def test_a_command_may_ignore_its_input_or_print_before_reading(run: Run, make_memory: Callable[..., Memory]) -> None:
    long = clear_memory(make_memory("x" * 900_000))
    assert ask(run("print('early')"), long) == "early"
    chatty = "print('a' * 300_000, flush=True); print(len(sys.stdin.read()))"
    assert ask(run(chatty), long, most_tokens=20_000).split("\n")[1] == "900000"


@pytest.mark.slow
def test_lone_surrogates_do_not_stop_a_command(run: Run, make_memory: Callable[..., Memory]) -> None:
    memory = make_memory("x")
    object.__setattr__(memory, "content", "a\ud800b")
    assert ask(run(ECHO), clear_memory(memory)) == "heard a?b"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "no command is set"),
        (("",), "no command is set"),
        (("a", "b\0c"), "NUL"),
        (("./asker",), "absolute path"),
        (("bin/asker",), "absolute path"),
        (("~/asker",), "absolute path"),
    ],
)
def test_commands_that_cannot_be_meant_are_refused(arguments: tuple[str, ...], told: str) -> None:
    with pytest.raises(BadInput, match=told):
        LlmCommand(arguments=arguments)


@pytest.mark.slow
def test_missing_program_is_reported(book: Book, question: ClearedText, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program")
    for first in ("no-such-program-here", str(plain), str(tmp_path)):
        llm = CommandLlm(book, "mine", LlmCommand(arguments=(first, loopback.KEY), words=WORDS))
        with pytest.raises(ModelUnavailable, match="cannot be started: check the command") as caught:
            ask(llm, PROMPT, question)
        assert loopback.KEY not in _shown(caught.value) and Path(first).name in str(caught.value)


@pytest.mark.slow
def test_a_projects_folder_offers_no_program(
    book: Book, question: ClearedText, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    planted = tmp_path / "asker"
    planted.write_text("#!/bin/sh\necho planted\n")
    planted.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f".::{os.environ['PATH']}")
    with pytest.raises(ModelUnavailable, match="cannot be started"):
        ask(CommandLlm(book, "mine", LlmCommand(arguments=("asker",), words=WORDS)), PROMPT, question)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert ask(CommandLlm(book, "mine", LlmCommand(arguments=("asker",), words=WORDS)), PROMPT, question) == "planted"
