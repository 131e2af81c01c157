"""A trained run as a web page and an API: `create_app` over a `Service`.

HTTP never computes: routes hand work to the service, whose threads do it. Pages are plain HTML, CSS and ES
modules in static/, without a build step. fastapi is imported here and nowhere else; it is the extra `web`.
"""
