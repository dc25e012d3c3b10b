"""Where the resident process listens: folders, sockets, tokens and addresses that it takes or refuses."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from triskele import config
from triskele.edge.hook import client
from triskele.edge.process import listener
from triskele.errors import BadInput, Conflict


def test_a_data_folder_has_one_resident_whatever_the_environment_names(tmp_path: Path) -> None:
    deep = "/".join(["a-folder-with-a-long-name"] * 5)
    homes = ("/a", "/b", f"/a/{deep}", f"/b/{deep}")
    more = ({}, {"TRISKELE_STORE": "sqlite:////x.db"}, {"TRISKELE_CONFIG": "/x.toml"}, {"TRISKELE_MEMORY_OWNER": "ada"})
    places = [{client.Address({"TRISKELE_HOME": home, **each}).socket("http") for each in more} for home in homes]
    assert [len(place) for place in places] == [1] * len(homes)
    assert len(set().union(*places)) == len(homes)


def test_a_relative_store_means_the_folder_it_was_named_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    relative = client.Address({"TRISKELE_HOME": "/a", "TRISKELE_STORE": "sqlite:///notes.db"})
    assert config.sqlite_path(relative.choice[0]) == tmp_path / "notes.db"


def test_another_user_is_no_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        assert listener.is_owner(ours)
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        assert not listener.is_owner(ours)


@pytest.mark.parametrize(
    "text", ["0.0.0.0:80", ":80", "[::]:80", "192.168.1.5:80", "example.com:80", "127.0.0.1.nip.io:1"]
)
def test_public_addresses_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match="other machines can reach"):
        listener.http_address(text)


@pytest.mark.parametrize("text", ["", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "127.0.0.1:-1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="write HOST:PORT"):
        listener.http_address(text)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("127.0.0.1:80", ("127.0.0.1", 80)),
        ("localhost:0", ("127.0.0.1", 0)),
        ("[::1]:8", ("::1", 8)),
        ("127.9.9.9:1", ("127.9.9.9", 1)),
    ],
)
def test_http_addresses_are_taken(text: str, meant: tuple[str, int]) -> None:
    assert listener.http_address(text) == meant


def test_a_token_stays_unless_others_could_read_it(tmp_path: Path) -> None:
    path = tmp_path / "token"
    first = listener.standing_token(path)
    assert len(first) >= 40 and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert listener.standing_token(path) == first
    path.chmod(0o644)
    assert listener.standing_token(path) != first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_chosen_socket_is_refused_without_unix_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "AF_UNIX")
    with pytest.raises(BadInput, match="no unix sockets: use --http"):
        listener.chosen_socket(tmp_path / "chosen")


def test_a_chosen_socket_replaces_nothing_but_a_dead_socket(tmp_path: Path) -> None:
    path = tmp_path / "chosen"
    made = listener.chosen_socket(path)
    with pytest.raises(Conflict, match="another process listens"):
        listener.chosen_socket(path)
    made.socket.close()
    listener.chosen_socket(path).close()
    assert not path.exists()
    path.write_text("a letter")
    with pytest.raises(BadInput, match="not a socket"):
        listener.chosen_socket(path)
    with pytest.raises(BadInput, match="does not exist"):
        listener.chosen_socket(tmp_path / "nowhere" / "chosen")
    assert path.read_text() == "a letter"
