"""Register models once: they are converted, checked, measured while machines are idle, and asked for."""
