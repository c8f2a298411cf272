"""The verbs that all similarities have, and the drivers that run their steps."""
