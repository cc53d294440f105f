"""Ways to choose groups, behind one interface (`registry.py`)."""
