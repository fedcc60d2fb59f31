"""Protocols of servers, each as pure functions: inputs to a request, an answer to outputs."""
