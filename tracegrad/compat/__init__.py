"""Compatibility layers: names of other libraries, so that code written for them runs unchanged."""
