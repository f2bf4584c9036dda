"""The allocator of arenas."""
