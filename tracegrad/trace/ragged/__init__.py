"""Arrays with symbolic sizes, and slices with dynamic bounds."""
