"""What the registry shows: lists, a version, an answer."""
