"""The command line: one short file a command. tyro and rich live here and nowhere else."""
