"""DProtoNet: image classifiers that show their reasons."""
