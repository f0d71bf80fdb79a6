"""Which setting of each variable of schedules and code is faster, engine by engine."""
