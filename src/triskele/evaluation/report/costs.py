"""What each arm costs: time per question and bytes per memory."""

from __future__ import annotations

from triskele.evaluation.report.charts import spans
from triskele.evaluation.report.markup import Html, element, scrolling
from triskele.evaluation.report.reading import Reading

_TIMES = ("p50", "p95", "mean", "max")
_HEAD = {"arm": None, **{f"{name} ms": None for name in _TIMES}, "": "plot", "bytes per memory": None}


def costs(reading: Reading) -> Html:
    """Latency and size of every arm."""
    times = [(arm["latency_ms"]["p50"], arm["latency_ms"]["p95"]) for arm in reading.arms.values()]
    head = element("tr", *(element("th", title, scope="col", class_=class_) for title, class_ in _HEAD.items()))
    rows = (
        element(
            "tr",
            element("th", name, scope="row"),
            *(element("td", f"{arm['latency_ms'][key]:,.2f}") for key in _TIMES),
            element("td", span, class_="plot"),
            element("td", f"{arm['bytes_per_memory']:,.0f}"),
        )
        for (name, arm), span in zip(reading.arms.items(), spans(times), strict=True)
    )
    made = element("table", element("thead", head), element("tbody", *rows), class_="costs")
    return scrolling(made, "latency and bytes per memory")
