"""Text in all scripts: letters, folding, sentence ends, stop words and tokens."""

from __future__ import annotations

import math
import re
import unicodedata

# Scripts written without spaces: Thai to Khmer, kana, Han, Hangul.
UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
# Scripts whose runs of characters are whole sentences: a quotation is compared by their pieces.
DENSE_SCRIPTS = r"\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\u3040-\u30ff"
# Vowel signs and accents that Python's \w leaves out would break words apart.
MARKS = "\u0300-\u036f\u0483-\u0489\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed\u0900-\u0dff\u200c\u200d"
SENTENCE_END = r"(?<=[.!?。！？])\s+|(?<=[。！？])|\n+"

# Words that a query is ranked without, unless it holds no others.
STOP_WORDS = frozenset(
    """
    a about above after again all also am an and any anyone anything are as at be because been before being below
    between both but by can could did do does doing done down during each either else ever every few for from
    further get gets getting give given go goes going gone got had has have having he her here hers herself him
    himself his how however i if in into is it its itself just kind let like lot made make makes many may maybe me
    might mine more most much must my myself neither no nor not now of off oh ok okay on once one only or other our
    ours ourselves out over own please really same shall she should since so some someone something such tell than
    that the their theirs them themselves then there these they thing things this those though through thus to too
    under until up upon us very was we well were what whatever when where whether which while who whom whose why
    will with within without would yes yet you your yours yourself yourselves
    s t d ll m re ve don didn doesn isn aren wasn weren won wouldn couldn shouldn hasn haven hadn
    """.split()
)
# Greetings, thanks, answers and commands to go on: a prompt of these, stop words, numbers and letters has no topic.
CONVERSATIONAL_WORDS = frozenset(
    """
    hi hiya hello hey howdy yo greetings morning afternoon evening night bye goodbye welcome
    thank thanks thx ty cheers appreciated sorry worries problem pls plz
    yep yeah yea ya yup nope nah sure fine right correct exactly true absolutely definitely certainly agreed alright
    good great nice cool perfect excellent awesome amazing wonderful fantastic brilliant lovely super wow better best
    bad wrong idea job mind sense work works working look looks seems sounds
    lgtm sgtm ack nvm lol haha hm hmm uh um ah aha huh oops
    continue proceed next step commit push merge run execute start begin stop cancel abort quit exit wait hold pause
    resume try retry repeat redo undo revert rerun back ahead forward keep carry come move take ship apply accept
    approve approved confirm confirmed reject skip ignore save finish finished ready help check fix change show open
    close explain first second third last two three previous option both another others moment minute sec
    hallo danke bitte ja nein genau weiter bonjour salut merci oui hola gracias ciao grazie
    """.split()
)
# Words that begin sentences or are capitalised without being names.
COMMON_WORDS = frozenset(
    """
    a about above according actually after again all almost also although always am amazing among an and another any
    anyone anything anyway are as ask at avoid aw awesome back be because been before being below besides between both
    bring but by bye call can cannot check close congrats cool could currently dear did do does don't done during each
    either else enjoy even ever every everyone everything except few finally first fix for former from further get give
    glad go good great had happy has have having he hello her here hers hey hi his hmm hope how however i i'd i'll i'm
    i've if in indeed inside instead into is isn't it it'd it'll it's its just keep last lately later let let's like
    lol look looks lots made make many may maybe me might mine more moreover most move much must my near neither never
    new next nice no none nope nor not note nothing now of off often oh ok okay old on once one only open or other our
    out outside over own per perhaps please prefer put rather read really recently remember restart run same see seems
    send set several shall she should similarly since so some someone something sometimes soon sorry sounds start still
    stop such super sure take tell thank thanks that that's the their them then there there's therefore these they
    they're this those though through thus to today together tomorrow tonight too totally true try turn two under
    unfortunately unless until up update upon us use used usually very via wait was way we we're we've well were what
    what's whatever when whenever where whereas which while who whose why will wish with within without wow write
    yeah yep yes yesterday yet you you'll you're you've your yours yup
    monday tuesday wednesday thursday friday saturday sunday
    january february march april may june july august september october november december
    jan feb mar apr jun jul aug sep sept oct nov dec mon tue wed thu fri sat sun
    """.split()
)
# Words that a quotation is compared without.
QUOTE_STOP_WORDS = frozenset(
    """a about after again all also am an and any are as at be because been before but by can could did do does don for
    from get go got had has have he her here him his how i if in into is it its just know like make me more most my need
    new no not now of on one only or other our out over please remember said say see she should so some tell than that
    the their them then there these they thing this those time to too up us use want was we well were what when where
    which who why will with would yes you your s t
    aber als am an auch auf aus bei bin bis das dass dem den der des die dies doch du ein eine einem einen einer er es
    für gibt habe haben hat hatte ich ihr im in ist ja kann kein keine man mein meine mich mir mit nach nicht noch nur
    oder sich sie sind so um und uns unser von vor war waren was wann warum wer wie wird wo wurde zu zum zur""".split()
)
# Words that the title of a secret is made without.
TITLE_STOP_WORDS = frozenset(
    "the an of for to in on at is was are it its this that my our your her his and or with from by be use used remember"
    " please again new old one do not lose der die das ein eine für von vom im am an auf ist war und oder mit mein"
    " unser lautet bitte neu alt".split()
)
# Words that mark a phrase as a sentence, not as a password.
SENTENCE_WORDS = frozenset(
    "the is are in see ask stored for to of and or must at least das der die im ist und siehe".split()
)
# `C++` and `F#` are more than letters.
_CHARACTERS_PER_TOKEN = 4
_WORD = re.compile(r"[^\W\d][+#]+|\w+")


def has_topic(text: str) -> bool:
    """Whether any word of a text says what it is about."""
    return any(map(_is_topical, _WORD.findall(fold(text))))


def _is_topical(word: str) -> bool:
    has_letter = any(character.isalpha() for character in word)
    is_one_letter = len(word) == 1 and word.isascii()
    return has_letter and not is_one_letter and word not in STOP_WORDS and word not in CONVERSATIONAL_WORDS


def fold(word: str) -> str:
    """Lower case, compatibility forms joined, accents off Latin letters and kept elsewhere."""
    if word.isascii():
        return word.lower()
    decomposed = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", word).casefold())
    fitted: list[str] = []
    for character in decomposed:
        is_accent = unicodedata.combining(character) != 0
        if not (is_accent and fitted and fitted[-1].isascii()):
            fitted.append(character)
    return unicodedata.normalize("NFC", "".join(fitted))


def tokens_of(text: str) -> int:
    """About how many tokens of a language model a text takes; scripts without spaces take one per character."""
    unspaced = 0 if text.isascii() else len(re.findall(f"[{UNSPACED}]", text))
    return max(1, unspaced + math.ceil((len(text) - unspaced) / _CHARACTERS_PER_TOKEN))
