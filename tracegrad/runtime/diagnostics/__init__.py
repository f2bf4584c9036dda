"""Diagnose programs: NaN origin, step times, and peaks of the machine."""
