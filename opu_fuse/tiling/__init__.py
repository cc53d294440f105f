"""Tiles of a layer: which fit, what they load, how long they take."""
