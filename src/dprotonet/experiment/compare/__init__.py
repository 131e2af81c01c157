"""Every explainer on the same images, measured alike: `dprotonet compare`."""
