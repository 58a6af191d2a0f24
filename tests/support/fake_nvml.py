"""A module pynvml of a machine with one GPU; the file named by USED says what is used of it."""

NVML = """
import os, time
class Memory:
    total = 1000 << 20
    @property
    def free(self):
        return self.total - int(open(os.environ["USED"]).read())
def nvmlInit(): pass
def nvmlDeviceGetCount(): return 1
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetUUID(handle): return "GPU-01234567-89ab-cdef-0123-456789abcdef"
def nvmlDeviceGetMemoryInfo(handle):
    while open(os.environ["USED"]).read() == "hangs": time.sleep(0.01)
    return Memory()
"""
