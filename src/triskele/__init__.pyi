from triskele.engine.opening import open as open
from triskele.engine.protocol import Engine as Engine
from triskele.serving.http.client import connect as connect

__version__: str
