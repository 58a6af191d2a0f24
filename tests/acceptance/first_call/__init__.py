"""scripts/first_call: what a card answers in its first minutes, and what becomes of the answers.

call.py runs steps, each bounded, and packs what they found after each one; steps.py has the steps,
here.py what is different on a computer of one's own, main.py the command. adopt.py makes a profile,
pages and a list of settings from the packed results. Running needs no more than Python's standard
library.
"""
