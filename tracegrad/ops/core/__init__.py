"""What an op is: declaration, forms, dispatch, and samples."""
