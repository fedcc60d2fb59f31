"""Strategies: functions from a study to the trial to be made next. They know neither stores nor processes."""
