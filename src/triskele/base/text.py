"""Letters of all scripts: which are written without spaces, which only mark others, and when two words are one."""

from __future__ import annotations

import unicodedata

# Scripts written without spaces: Thai to Khmer, kana, Han, Hangul.
UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
# Vowel signs and accents that Python's \w leaves out would break words apart.
MARKS = "\u0300-\u036f\u0483-\u0489\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed\u0900-\u0dff\u200c\u200d"


def fold(word: str) -> str:
    """Lower case, compatibility forms joined, accents off Latin letters and kept elsewhere."""
    if word.isascii():
        return word.lower()
    decomposed = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", word).casefold())
    kept: list[str] = []
    for character in decomposed:
        is_accent = unicodedata.combining(character) != 0
        if not (is_accent and kept and kept[-1].isascii()):
            kept.append(character)
    return unicodedata.normalize("NFC", "".join(kept))
