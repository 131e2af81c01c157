"""Learning: phases as data, one engine on accelerate, push, frozen features, checkpoints (Algorithm 2)."""
