"""Rules for regions of loops and branches."""
