"""Made the store beside this file with the code of 0.1.0 (commit 8133084): python make.py FOLDER.

It writes home.tar.gz (the data folder: database and index files), export.jsonl and answers.json (what 0.1.0 exported
and recalled). Later versions cannot run it; it is kept to tell what the store holds.
"""

from __future__ import annotations

import json
import os
import sys
import tarfile
import tempfile
from pathlib import Path

from triskele import config
from triskele.curation import adoption
from triskele.curation.usage import note_injection
from triskele.engine import Engine
from triskele.exchange.transfer import export_memories
from triskele.recall.plan import Plan
from triskele.types import LinkKind, Sensitivity

AS_OF = "2026-11-20"
PASSPHRASE = "nine herons on the weir"
NOTES = (
    ("The weir at Holm Bridge is opened every Monday at six by Marta Lindqvist", {"tags": ["weir", "river"]}),
    ("Marta Lindqvist keeps the gauge log of Holm Bridge in a green notebook", {"category": "people"}),
    ("The gauge at Holm Bridge reads in centimetres above the old sill", {}),
    ("A level of 240 at the gauge means that the lower meadow floods within a day", {"importance": 0.9}),
    ("The lower meadow belongs to the Aldersey farm and is mown in late June", {"tags": ["meadow"]}),
    ("Aldersey farm lends the boat to the river watch between April and October", {}),
    ("The boat of the river watch is called Petrel and needs two people to launch", {"category": "procedures"}),
    ("Petrel leaks at the third rivet on the port side; carry the small bailer", {"category": "lessons"}),
    ("Tomas Hruby repaired Petrel with copper nails in 2023", {"category": "people"}),
    ("Tomas Hruby wants to be called after eight in the evening", {"category": "preferences"}),
    ("The otter family below the weir has three young this year", {"tags": ["otter"]}),
    ("Otters are counted from the footbridge on the first Sunday of each month", {"tags": ["otter"]}),
    ("The footbridge is closed when the wind is above eight on the Beaufort scale", {}),
    ("Kingfishers nest in the clay bank opposite the boathouse", {"tags": ["birds"]}),
    ("The boathouse key hangs behind the gauge board", {"sensitivity": Sensitivity.PRIVATE}),
    ("River watch meetings start at half past seven in the Anchor", {"project": ""}),
    ("The Anchor serves soup on meeting nights, which the treasurer pays", {"project": ""}),
    ("Ines Okafor is the treasurer of the river watch", {"category": "people", "project": ""}),
    ("Water samples go to the laboratory in Tarn Street before noon", {"category": "procedures"}),
    ("Nitrate in the sample of May was 31 milligrams per litre", {"valid_from": "2026-05-04"}),
    ("The laboratory in Tarn Street closes for stocktaking in the first week of July", {}),
    ("We decided to sample at the weir and no longer at the mill", {"category": "decisions"}),
    ("The mill race was dredged in 2024 and carries no gauge", {}),
    ("Eel traps may be checked only by the licence holder", {"valid_to": "2026-12-31"}),
)
TALK = (
    "How high was the river last night?",
    "Two hundred and ten at the gauge, and rising slowly",
    "Then somebody should warn the farm before Friday",
)
QUESTIONS = (
    "who opens the weir",
    "what happens when the gauge reads 240",
    "what is wrong with the boat",
    "when can Tomas be called",
    "how many young do the otters have",
    "where do the kingfishers nest",
    "who pays for the soup",
    "nitrate in the water",
    "where are samples taken",
    "Aldersey farm",
)


def fill(engine: Engine) -> None:
    """Everything that a store of 0.1.0 can hold."""
    ids = [engine.remember(text, **details).id for text, details in NOTES]
    engine.remember_all(
        [engine.draft(text, session="talk 1", position=place) for place, text in enumerate(TALK)], batch="talk"
    )
    engine.edit(ids[2], content="The gauge at Holm Bridge reads in centimetres above the new sill", tags=["gauge"])
    engine.edit(ids[3], importance=0.95)
    engine.remember("Petrel was sealed with tar in spring and no longer leaks", supersedes=ids[7])
    engine.link(ids[19], LinkKind.RESOLVED_BY, ids[21])
    engine.link(ids[5], LinkKind.SEE_ALSO, ids[6])
    engine.link(ids[0], LinkKind.PART_OF, ids[3])
    engine.unlink(ids[0], LinkKind.PART_OF, ids[3])
    engine.forget(ids[12], ids[22])
    engine.forget(ids[13])
    engine.undo()
    gone = engine.remember("This line is erased again").id
    engine.erase(gone)
    hidden = {"sensitivity": Sensitivity.SECRET, "title": "gauge cabinet"}
    secret = engine.remember("the code of the gauge cabinet is 7391", **hidden).id
    engine.edit(secret, importance=0.8)
    engine.reveal(secret)
    engine.embed()
    engine.recall("who opens the weir")
    engine.recall("which boat do we have")
    memories = engine.browse(limit=3)
    note_injection(engine.store, memories, conversation="talk-7", tokens={each.id: 12 for each in memories})
    semantic = engine.semantic()
    assert semantic is not None
    plan = Plan(weights={"lexical": 0.9, "dense": 1.0, "graph": 0.4}, fusion="cc")
    adoption.adopt(engine.store, plan, fingerprint=semantic.embedder.fingerprint, questions=40)
    engine.remember("Written last and not embedded yet: the ice gauge is stored in the Anchor")


def main(target: Path) -> None:
    """Write the three files."""
    os.environ["TRISKELE_PASSPHRASE"] = PASSPHRASE
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        environment = {
            "TRISKELE_HOME": str(home),
            "TRISKELE_PROJECT": "river",
            "TRISKELE_RECALL_LOG": "true",
            "TRISKELE_PRIVACY_KEY": "passphrase",
        }
        with Engine(config.load(environment), Path(folder)) as engine:
            fill(engine)
        with tarfile.open(target / "home.tar.gz", "w:gz") as archive:
            archive.add(home, "home", filter=lambda each: None if each.name.endswith(".lock") else each)
        # After the archive: a recall embeds what waits.
        with Engine(config.load(environment), Path(folder)) as engine:
            export_memories(engine, target / "export.jsonl", include_private=True)
            answers = {
                question: [hit.memory.id for hit in engine.recall(question, as_of=AS_OF, logged=False).hits]
                for question in QUESTIONS
            }
        (target / "answers.json").write_text(json.dumps(answers, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
