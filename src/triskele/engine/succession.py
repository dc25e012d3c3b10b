"""The rule that text of a tool or a web page does not replace the user's words."""

from __future__ import annotations

from triskele.errors import BadInput
from triskele.store.protocols import OwnerStore
from triskele.types import LinkKind, Origin

_UNTRUSTED = (Origin.TOOL, Origin.WEB)


def refuse_to_replace_the_user(store: OwnerStore, id: str, origin: Origin) -> None:
    """Refuse that a text of a tool or a web page supersedes the words of the user, or their successor."""
    if origin not in _UNTRUSTED:
        return
    if any(memory.origin is Origin.USER for memory in store.memories(_succeeded_by(store, id)).values()):
        raise BadInput(
            f"{id} holds what the user said, and a text of origin {origin} cannot supersede it: store the text"
            " without `supersedes` and propose the change to the user, who can make it with `triskele link`"
        )


def _succeeded_by(store: OwnerStore, id: str) -> list[str]:
    """A memory, and those that it supersedes, one after the other."""
    chain, seen = [id], {id}
    for newer in chain:
        links = store.links([newer], kind=LinkKind.SUPERSEDES)
        older = {link.target for link in links if link.source == newer} - seen
        seen |= older
        chain += sorted(older)
    return chain
