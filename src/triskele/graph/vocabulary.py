"""Small word lists that tell names from the words around them."""

from __future__ import annotations

# Words that begin sentences or stand capitalised without naming anything.
COMMON = frozenset(
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
# Small words that stand inside a name, between two capitalised ones.
PARTICLES = frozenset(
    "of de la las los le les du des da das do dos di del della van von der den ten ter zu zum zur af av"
    " the al el bin ibn ben y e und et for".split()
)
# "Beauty and the Beast" is one name, "Alice and Bob" are two.
LEADS_ARTICLE = frozenset({"and"})
ARTICLES = frozenset({"the", "a", "an", "our", "my", "your", "their", "this", "these", "his", "her"})
# What stands between a thing and what is said of it.
COPULAS = frozenset(
    """
    is was are were isn't wasn't aren't has had have belongs means runs lives needs uses handles owns maintains keeps
    stores requires supports became becomes refers wants moved serves sends reads writes listens looks will must should
    can cannot may does doesn't expects returns speaks replaced replaces ist war sind waren hat gehört est était sont
    """.split()
)
