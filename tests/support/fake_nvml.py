"""A module pynvml for a machine with one GPU; the file named by USED contains the used bytes."""

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
NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES = 0, 1
class NVMLError(Exception): pass
def nvmlDeviceGetIndex(handle): return 3
def nvmlDeviceGetMinorNumber(handle): raise NVMLError("not supported")
def nvmlDeviceGetName(handle): return b"NVIDIA H100"
class Rates:
    gpu = 87
def nvmlDeviceGetUtilizationRates(handle): return Rates()
def nvmlDeviceGetComputeRunningProcesses(handle): return ["one", "other"]
def nvmlDeviceGetPcieThroughput(handle, way):
    if way == NVML_PCIE_UTIL_TX_BYTES: raise NVMLError("not supported")
    return 3 << 20
"""

MAIN = "from pumpd.service.cards import main; main()"
"""Code of the process that queries NVML; PYTHONPATH makes it find this module."""
