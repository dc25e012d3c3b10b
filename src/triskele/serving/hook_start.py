"""What agents' clients start at every prompt: `python -I -S hook_start.py EVENT [--client NAME] …`.

A file that is started is compiled each time, one that is imported only once: that is all this one is for.
"""

import os
import sys

sys.path.append(os.path.dirname(__file__))
try:
    import hook_client  # type: ignore[import-not-found]

    hook_client.run(sys.argv[1:])
finally:
    # Whatever happened, a prompt does not fail.
    os._exit(0)
