"""A sweep: what it is told, in a file, by options or in Python; where points lead; from Study to Studies."""
