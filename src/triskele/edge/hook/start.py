"""The file that clients run at every prompt: `python -I -S start.py EVENT [--client NAME] …`.

Python compiles the file that it runs each time, but an imported one only once, so this file is short.
"""

import sys

sys.path.append(__file__[: -len("/start.py")])
try:
    import client  # type: ignore[import-not-found]

    client.run(sys.argv[1:])
finally:
    # An error here must not fail the prompt.
    import os

    os._exit(0)
