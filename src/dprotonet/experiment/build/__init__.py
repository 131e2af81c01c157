"""A config becomes objects: the only place where a string becomes a class.

`data` reads data sets, `network` and `inference` build the layers, `training` what they learn by, `trackers`
where curves are sent.
"""
