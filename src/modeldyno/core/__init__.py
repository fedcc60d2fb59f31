"""Nouns and calculations: pure, standard library only (statistics alone uses numpy)."""
