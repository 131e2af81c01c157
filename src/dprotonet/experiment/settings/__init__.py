"""Which values a run has: defaults, what a network, a mode or a recipe implies, and what is refused.

`recipes.resolve` makes every setting final, by the tables of `recipe_tables` and `paper_values`;
`config_check` and `idle_settings` refuse what cannot work or would be ignored.
"""
