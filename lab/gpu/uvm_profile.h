/* uvm_profile.h - a device profile: every constant of the model of one GPU.
 *
 * Written as TOML in lab/pump_lab/profiles/, flattened by Python to "key=value;..." and
 * parsed here. Nothing else holds a constant of the cost model. "gbps" is
 * 10^9 bytes per second, which is the same as bytes per nanosecond.
 */
#ifndef PUMP_UVM_PROFILE_H
#define PUMP_UVM_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef PUMP_LAB_EXPORT
#pragma GCC visibility push(default)
#endif
/* cffi: begin */
#define UVM_PROFILE_MAX_KERNELS 128
#define UVM_PROFILE_NAME_BYTES 128

/* Timing of the kernels of one name. */
struct uvm_kernel_timing {
  char name[UVM_PROFILE_NAME_BYTES];
  double gbps;   /* touched bytes per nanosecond */
  double min_us; /* never faster than this */
};

struct uvm_profile {
  char name[UVM_PROFILE_NAME_BYTES];
  /* what the driver reports about the device */
  char device_name[UVM_PROFILE_NAME_BYTES];
  uint64_t memory_bytes;
  uint64_t l2_cache_bytes;
  uint64_t shared_bytes_per_block;
  uint64_t shared_bytes_per_block_optin;
  uint64_t shared_bytes_per_multiprocessor;
  uint32_t compute_major;
  uint32_t compute_minor;
  uint32_t multiprocessors;
  uint32_t threads_per_multiprocessor;
  uint32_t registers_per_block;
  uint32_t clock_khz;
  uint32_t memory_clock_khz;
  uint32_t memory_bus_bits;
  uint32_t pci_device;
  uint32_t kernel_count;
  /* the link */
  double prefetch_h2d_gbps;
  double copy_h2d_gbps;
  double copy_d2h_gbps;
  double duplex_in; /* share of its speed that a direction keeps when both are busy */
  double duplex_out;
  double piece_us; /* per piece of a block, beyond the first: a host page lies by itself */
  /* unified memory */
  double populate_gbps;
  double host_factor;          /* the parser has applied it to every time below */
  double fault_wake_us;        /* from a fault until the handler runs, if it was idle */
  double fault_base_us;        /* t0, per batch */
  double fault_replay_us;      /* t_replay, per batch */
  double fault_block_us;       /* t_blk */
  double fault_page_us;        /* t_pg, per 64 KiB page */
  double evict_us;             /* t_ev, host work per block evicted for a newcomer */
  double prefetch_call_us;     /* t_call */
  double prefetch_block_us;    /* t_hblk, per block and pass */
  double prefetch_second_pass; /* cost of the second pass, as a share of the first */
  double cpu_pte_us;           /* t_cpupte, per 4 KiB page mapped for the CPU */
  double cpu_unmap_us;         /* per part of a block on its way back */
  double cpu_unmap_page_us;    /* and per 64 KiB page of it */
  double host_alloc_us;        /* t_hostalloc, first host pages of a block */
  double host_page_kib;        /* of which the driver makes a block's host memory */
  double host_page_us;         /* per page of it beyond the first */
  double nonreplayable_us;     /* extra per block when a copy engine faults */
  double discard_call_us;      /* per range discarded: each is a call of the kernel */
  double discard_block_us;     /* per block unmapped by it */
  double advise_call_us;       /* per call of cuMemAdvise */
  double advise_block_us;      /* per block whose mappings it changes */
  double collapse_page_us;     /* per 4 KiB page of a duplicate that is written: a fault */
  double call_work_share;      /* of what a call's own steps take: the processor's work */
  double copy_wait_spin;       /* of its waits for copies: a spin, before it blocks */
  /* kernels */
  double kernel_gbps;
  double kernel_min_us;
  double launch_us;
  struct uvm_kernel_timing kernels[UVM_PROFILE_MAX_KERNELS];
};

/* Reads "key=value;key=value". Every key must be known, present once and in
 * bounds; kernel.NAME.gbps and kernel.NAME.min_us are optional. Returns 0, or -1
 * with a sentence in `error` that names the key. */
int uvm_profile_parse(const char *text, struct uvm_profile *out, char *error,
                      size_t error_bytes);

/* Which uses of a kernel are wide (GPU_WIDE) by its name: a bit for each in the order of
 * its parameters, the last for all that follow. */
#define UVM_WIDE_USES 16
#define UVM_WIDE_ALL 0xffff
uint32_t uvm_wide_uses(const char *name);
bool uvm_wide_use(uint32_t wide, uint32_t use);

/* Time of computing of a kernel with this name that touches so many bytes. */
uint64_t uvm_profile_kernel_ns(const struct uvm_profile *profile, const char *name,
                               uint64_t touched_bytes);

/* Time of a copy or memset inside the device's memory. */
uint64_t uvm_profile_fill_ns(const struct uvm_profile *profile, uint64_t length_bytes);
/* cffi: end */
#ifdef PUMP_LAB_EXPORT
#pragma GCC visibility pop
#endif

#endif
