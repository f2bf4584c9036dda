"""Functions that select, arrange, join and update elements."""
