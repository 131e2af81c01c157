"""Truth by intervention: `subject` is one image with parts changed, `check` the loop, `result` the answer."""
