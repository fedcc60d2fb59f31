from __future__ import annotations

import os
import signal
import subprocess
import sys

from modeldyno.engine.runtime import reaper


def test_the_end_is_seen_where_the_caller_ignores_ends_of_children() -> None:
    """The reaper exits like its command, even if it was started with SIGCHLD ignored."""
    code = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "os.execv(sys.executable, [sys.executable, '-I', '-S', *sys.argv[1:]])\n"
    )
    command = [sys.executable, "-c", code, reaper.__file__, str(os.getpid()), "/bin/sh", "-c", "exit 3"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            assert process.wait(timeout=20) == 3
        finally:
            process.send_signal(signal.SIGTERM)
