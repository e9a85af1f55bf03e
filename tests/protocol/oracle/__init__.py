"""What the product must answer, told by plain values. It shares no code with the product.

`values.py` is what there is to know of a run, `rules.py` which checkpoints stay, `world.py` one
place and how a manifest is written there; `writer.py`, `acting.py` and `operator.py` are one
holder of a run, `keeping.py` what is done with runs as a whole, `sharing.py` how workers share
them. Invariant: each method does in one step what the product does by reads and conditional
writes, and raises `Refused` with the name of the error where the product must refuse.
"""

from tests.protocol.oracle.keeping import collect, copy, delete, export, fork, import_
from tests.protocol.oracle.operator import Handle
from tests.protocol.oracle.sharing import free, offer, submit
from tests.protocol.oracle.values import FAULTS, FINE, Act, Fate, Fates, Hold, Life, Refused, Saved, Waiting
from tests.protocol.oracle.world import Desk, World

__all__ = [
    "FAULTS",
    "FINE",
    "Act",
    "Desk",
    "Fate",
    "Fates",
    "Handle",
    "Hold",
    "Life",
    "Refused",
    "Saved",
    "Waiting",
    "World",
    "collect",
    "copy",
    "delete",
    "export",
    "fork",
    "free",
    "import_",
    "offer",
    "submit",
]
