"""Register models once: they are converted, checked, measured while machines are idle, and asked for.

``modeldyno.registry.add`` is ``modeldyno registry add``, and so on; `retrieve` finds versions by any
condition, and `work` is ``modeldyno worker``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from modeldyno.registry.api import add as add
    from modeldyno.registry.api import alias as alias
    from modeldyno.registry.api import answer as answer
    from modeldyno.registry.api import attach as attach
    from modeldyno.registry.api import detach as detach
    from modeldyno.registry.api import get as get
    from modeldyno.registry.api import history as history
    from modeldyno.registry.api import list as list
    from modeldyno.registry.api import measure as measure
    from modeldyno.registry.api import policy as policy
    from modeldyno.registry.api import push as push
    from modeldyno.registry.api import retrieve as retrieve
    from modeldyno.registry.api import rm as rm
    from modeldyno.registry.api import show as show
    from modeldyno.registry.api import tasks as tasks
    from modeldyno.registry.api import update as update
    from modeldyno.registry.api import webhook as webhook
    from modeldyno.registry.api import work as work
    from modeldyno.registry.device_idleness import idle_devices as idle_devices

else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "registry.api": """
                add alias answer attach detach get history list measure policy push retrieve rm show tasks
                update webhook work
            """,
            "registry.device_idleness": "idle_devices",
        },
    )
