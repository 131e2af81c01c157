"""Images with labels, and what is known of them: built-in birds, folders, transforms."""
