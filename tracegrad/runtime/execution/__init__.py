"""Execute compiled programs: entry callables, tiers, strided inputs, and images."""
