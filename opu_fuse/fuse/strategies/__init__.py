"""Ways to choose groups, with one interface (`registry.py`)."""
