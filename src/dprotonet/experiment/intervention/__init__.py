"""Truth by intervention: `subject` is one image with its parts changed, `check` the loop, `result` the answer."""
