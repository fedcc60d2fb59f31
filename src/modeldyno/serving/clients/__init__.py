"""Client protocols of inference servers, as pure functions: inputs to a request, a reply to outputs."""
