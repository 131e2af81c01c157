"""`python -m dprotonet`, also for torchrun and accelerate launch."""

from dprotonet.cli.main import script

if __name__ == "__main__":
    script()
