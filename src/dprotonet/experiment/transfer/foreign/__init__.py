"""Networks of other programs: each file reads one program's names into a `Found`, for `import_network`.

`protopnet` ProtoPNet, Gen-ProtoPNet and TesNet · `st_protopnet` · `pip_net` · `cabrnet` · `trunk` which
backbone it is
"""
