"""scripts/first_call: measures a GPU in its first minutes, and adopts the results.

call.py runs bounded steps and packs the results after each of them. steps.py defines the steps,
here.py sizes them for a desktop computer, and main.py is the command. adopt.py turns the packed
results into a device profile, pages and a list of contradicted settings. Only adopt.py needs more
than Python's standard library.
"""
