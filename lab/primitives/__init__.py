"""Measures which setting of each variable of schedules and code is faster on each engine."""
