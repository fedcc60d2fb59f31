"""Search strategies: functions from a study to its next trial. They know neither stores nor processes."""
