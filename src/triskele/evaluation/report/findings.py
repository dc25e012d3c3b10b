"""What speaks against the numbers, before they are shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triskele.evaluation.report.markup import Html, element
from triskele.evaluation.report.reading import Reading


def findings(reading: Reading, *, public: bool) -> Html:
    """Alarms in red, then what has to be kept in mind; examples are of the data set and stay private."""
    if not reading.findings:
        return element("p", "The guards found nothing to object to.", class_="quiet")
    return element("ul", *(_finding(each, public=public) for each in reading.findings), class_="findings")


def _finding(found: Mapping[str, Any], *, public: bool) -> Html:
    shown = () if public else found.get("examples", ())
    examples = element("small", f" For example: {', '.join(shown)}") if shown else Html()
    return element("li", found["said"], examples, class_=found["severity"])
