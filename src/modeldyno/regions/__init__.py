"""Profile named regions of a program's own code: marked by `profiled`, recorded call by call.

Frames are open calls, meters measure their memory, the recorder decorates and counts. They import only the
standard library and little of `base`, so that marking functions costs little import time.
"""
