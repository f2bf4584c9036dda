"""Integer analyses of graphs: intervals, affine forms, trip counts, and the windows that loops read and write."""
