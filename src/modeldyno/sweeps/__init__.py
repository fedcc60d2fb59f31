"""Use case: sweep a space of configurations; read its file or options, map points to Jobs, run trials."""
