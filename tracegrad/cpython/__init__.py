"""Assumptions about CPython: frames, instructions that run, reference counts, object layouts."""
