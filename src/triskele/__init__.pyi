from triskele.edge.http.client import connect as connect
from triskele.engine.opening import open as open
from triskele.engine.protocol import Engine as Engine

__version__: str
