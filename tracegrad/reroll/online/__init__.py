"""Loop detection while a loop is traced."""
