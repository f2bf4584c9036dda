"""Loop passes: fusion, tiling, batching, and elimination of residuals."""
