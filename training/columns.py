"""Numbers that the prepared arrays and their readers share."""

EMPTY, CLS, SEP = 0, 1, 2
MARKERS = ("", "[CLS]", "[SEP]")
PAIR = ("query", "text", "speaker", "before", "before_speaker", "before2", "origin", "source", "kind")
PLAIN, DIALOGUE, SHORT, CHAIN = range(4)
