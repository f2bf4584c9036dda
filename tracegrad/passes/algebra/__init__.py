"""Algebraic rules: simplification, common subexpressions, masks, slices, and shapes."""
