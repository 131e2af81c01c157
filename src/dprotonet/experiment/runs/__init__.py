"""Training runs and their folders.

`trainer` trains one network into one `run_folder`, which `claim` keeps for one process. `cross_validation`
and `choose_mode` are several runs, `result_file` is what each came to.
"""
