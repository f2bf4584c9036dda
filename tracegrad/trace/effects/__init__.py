"""Effects of traced code: writes to objects from outside, and templates of results."""
