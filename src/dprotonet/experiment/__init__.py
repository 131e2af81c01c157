"""From config to objects to run folder: the only room where a string becomes a class."""
