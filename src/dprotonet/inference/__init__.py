"""Region vectors to logits: prototypes, head, losses, and the push (Sections 3.1 and 3.3)."""
