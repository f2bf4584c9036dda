"""The definition of ops: declaration, forms, dispatch, and samples."""
