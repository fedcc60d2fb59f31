"""Named regions of a program's own code: marked by `profiled`, recorded call by call, summed up as a Result.

Frames are the calls that are open, meters tell their memory, the recorder decorates and counts. They import
the standard library and little of the core: a program that only marks its functions pays for no more.
"""
