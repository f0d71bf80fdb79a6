"""Engine and page in real browsers, against the real server and really compiled bundles."""
