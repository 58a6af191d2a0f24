"""The simulator: a program, pump and a GPU on a virtual clock. docs/simulator.md."""
