"""Run chunks on the thread pool, and place its threads on CPUs."""
