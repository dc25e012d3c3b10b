"""The tool that shows a secret: never without the user's consent, which only the user's client can give."""

from __future__ import annotations

from typing import Annotated

from mcp.server.mcpserver import AcceptedElicitation, Elicit, ElicitationResult, Resolve
from pydantic import BaseModel, Field

from triskele.errors import BadInput
from triskele.serving.mcp import answers
from triskele.serving.mcp.arguments import Id
from triskele.serving.mcp.caller import Request, caller, client_name
from triskele.types import is_secret


class Consent(BaseModel):
    """What the user is asked."""

    reveal: bool = Field(description="Show the text of this secret to the agent, and so to the model behind it.")


def ask_user(request: Request, id: Id) -> Elicit[Consent]:
    """The question to the user; refused where the client cannot ask."""
    memory = caller(request).get(id)
    if not is_secret(memory):
        raise BadInput(f"{memory.id} is no secret: memory_get tells its text")
    said = request.client_capabilities
    if said is None or said.elicitation is None:
        raise BadInput(
            "this client cannot ask the user for consent:"
            f" the user can see the text with `triskele secrets reveal {memory.id}`"
        )
    who = client_name(request) or "An agent"
    return Elicit(f"{who} asks for the text of the secret “{memory.content}” ({memory.id}).", Consent)


def memory_reveal(
    request: Request, id: Id, consent: Annotated[ElicitationResult[Consent], Resolve(ask_user)]
) -> answers.Revealed:
    """Show the text of a secret."""
    if not (isinstance(consent, AcceptedElicitation) and consent.data.reveal):
        raise BadInput("the user did not consent: the secret stays sealed")
    engine = caller(request).engine
    memory = engine.get(id)
    return answers.Revealed(id=memory.id, title=memory.content, text=engine.reveal(memory.id))
