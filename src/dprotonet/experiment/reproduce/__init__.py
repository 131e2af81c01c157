"""The paper's tables and figures by one command each: what to run, what is missing, ours beside theirs."""
