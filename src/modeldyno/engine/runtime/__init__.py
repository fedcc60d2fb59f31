"""Executors: where a Job runs. Each maps Jobs to Results."""
