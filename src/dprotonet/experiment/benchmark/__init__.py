"""Tables of many runs: networks × backbones × data sets × seeds, from one TOML file."""
