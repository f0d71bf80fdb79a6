"""The history of the schema; each revision is a file of versions/, numbered in order."""
