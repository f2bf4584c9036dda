"""The thread pool, and on which cores its threads run."""
