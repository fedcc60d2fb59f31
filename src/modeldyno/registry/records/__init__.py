"""The registry's values: models, versions, what they were converted to, tasks, figures and answers."""
