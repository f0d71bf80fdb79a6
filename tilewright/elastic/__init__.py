"""Several models on one device: what runs beside a critical model, and how much of it."""
