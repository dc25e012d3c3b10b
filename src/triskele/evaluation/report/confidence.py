"""Whether confidence tells the questions that have no answer."""

from __future__ import annotations

from triskele.evaluation.report.markup import Html, element, scrolling
from triskele.evaluation.report.reading import Reading
from triskele.evaluation.report.wording import value

_HEAD = ("arm", "against", "n", "AUROC", "precision", "answerable kept")


def confidence(reading: Reading) -> Html:
    """AUROC, and what the threshold keeps, for each arm that tells its confidence."""
    head = element("tr", *(element("th", title, scope="col") for title in _HEAD))
    rows = (
        element(
            "tr",
            element("th", name, scope="row"),
            element("td", kind),
            element("td", f"{told['answerable']:,} + {found['n']:,}"),
            *(element("td", value(found[key])) for key in ("auroc", "precision", "coverage")),
        )
        for name, told in reading.abstention.items()
        for kind, found in told["kinds"].items()
    )
    made = element("table", element("thead", head), element("tbody", *rows), class_="confidence")
    return scrolling(made, "confidence against questions without an answer")
