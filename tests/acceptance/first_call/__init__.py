"""scripts/first_call: measures a GPU in its first minutes, and adopts the results.

The command is main.py. `call.py` runs bounded steps and packs the results after each step.
`steps.py` defines the steps, and here.py sizes them for a desktop computer. `adopt.py` turns the
packed results into a device profile, pages and a list of contradicted settings. Only adopt.py needs
more than Python's standard library.
"""
