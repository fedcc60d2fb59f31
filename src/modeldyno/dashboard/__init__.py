"""The dashboard: what the store has, as pages of a browser and as JSON.

`app.py` has the table of pages; each is a function from what was asked to a `DashboardPage`, whose blocks are
those that terminal and report show.
"""
