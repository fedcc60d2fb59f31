"""The registry's tables in the store: one module for each group of tables, one class over them."""
