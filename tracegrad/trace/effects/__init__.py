"""Effects of traced code: what it writes to objects from outside, and the templates of its results."""
