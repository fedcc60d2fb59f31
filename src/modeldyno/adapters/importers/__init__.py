"""Results of other load generators, in our words; each module is one tool.

An importer says whether a file is of its tool, and what the file tells: requests where they are there, else
figures, and a doubt for each definition that is another than ours. The files were read in the sources of the
tools, and real ones lie beside the tests.
"""

from __future__ import annotations
