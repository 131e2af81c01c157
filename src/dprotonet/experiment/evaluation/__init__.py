"""How accurate a run is, and the simple classifiers of frozen features that it has to beat."""
