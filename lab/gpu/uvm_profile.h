/* uvm_profile.h - a device profile: every constant of the model of one GPU.
 *
 * Profiles are TOML files in lab/pump_lab/profiles/. Python flattens them to
 * "key=value;...", which is parsed here. All constants of the cost model are in profiles.
 * "gbps" is 10^9 bytes per second, which equals bytes per nanosecond.
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

/* The timing of all kernels with this name. */
struct uvm_kernel_timing {
  char name[UVM_PROFILE_NAME_BYTES];
  double gbps;   /* touched bytes per ns */
  double min_us; /* least time of a kernel */
};

struct uvm_profile {
  char name[UVM_PROFILE_NAME_BYTES];
  /* reported by the driver about the device */
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
  double duplex_in; /* share of its speed that a direction keeps while both are busy */
  double duplex_out;
  double piece_us; /* for each piece of a block after the first; a piece is a host page */
  /* reads of the host's memory by kernels (uvm_remote.c) */
  double remote_gbps; /* aligned reads of 128 bytes, of little memory; 0: copy_h2d_gbps */
  double remote_us;   /* latency of a read */
  double remote_walk_ns;   /* an access whose address translation is not cached */
  double remote_reach_gib; /* memory in 2 MiB host pages whose translations are cached */
  /* unified memory */
  double populate_gbps;
  double host_factor;          /* the parser multiplies all host times below by it */
  double fault_wake_us;        /* from a fault until an idle handler runs */
  double fault_base_us;        /* t0, per batch */
  double fault_replay_us;      /* t_replay, per batch */
  double fault_block_us;       /* t_blk */
  double fault_page_us;        /* t_pg, per 64 KiB page */
  double evict_us;             /* t_ev, CPU work to evict a block for another */
  double prefetch_call_us;     /* t_call, per prefetch call */
  double prefetch_block_us;    /* t_hblk, per block and pass */
  double prefetch_second_pass; /* cost of the second pass, as a share of the first */
  double cpu_pte_us;           /* t_cpupte, per 4 KiB page mapped for the CPU */
  double cpu_unmap_us;         /* per part of a block that the CPU mapped, on its return */
  double cpu_unmap_page_us;    /* additional, per 64 KiB page of that part */
  double host_alloc_us;        /* t_hostalloc, first host pages of a block */
  double host_page_kib;        /* page size of a block's host memory */
  double host_page_us;         /* per host page of a block after the first */
  double nonreplayable_us;     /* additional, per block, for faults of a copy engine */
  double discard_call_us;      /* per discarded range, which is one system call */
  double discard_block_us;     /* per block that the discard unmaps */
  double advise_call_us;       /* per call of cuMemAdvise */
  double advise_block_us;      /* per block whose mappings the advice changes */
  double collapse_page_us;     /* a fault, per written 4 KiB page of a duplicate */
  double call_work_share;      /* share of a call's own steps that is CPU work */
  double copy_wait_spin;       /* share of a wait for copies that spins; the rest blocks */
  /* kernels */
  double kernel_gbps;
  double kernel_min_us;
  double launch_us;
  struct uvm_kernel_timing kernels[UVM_PROFILE_MAX_KERNELS];
};

/* Reads "key=value;key=value". Every key must be known, present once and in bounds;
 * kernel.NAME.gbps and kernel.NAME.min_us are optional. Returns 0, or -1 with a sentence
 * in `error` that names the key. */
int uvm_profile_parse(const char *text, struct uvm_profile *out, char *error,
                      size_t error_bytes);

/* Returns which uses of a kernel are wide (GPU_WIDE), by the kernel's name: one bit per
 * parameter in order; the last bit covers all further parameters. */
#define UVM_WIDE_USES 16
#define UVM_WIDE_ALL 0xffff
uint32_t uvm_wide_uses(const char *name);
bool uvm_wide_use(uint32_t wide, uint32_t use);

/* Returns the computing time of a kernel with this name that touches `touched_bytes`. */
uint64_t uvm_profile_kernel_ns(const struct uvm_profile *profile, const char *name,
                               uint64_t touched_bytes);

/* Returns the time of a copy or memset inside the device's memory. */
uint64_t uvm_profile_fill_ns(const struct uvm_profile *profile, uint64_t length_bytes);
/* cffi: end */
#ifdef PUMP_LAB_EXPORT
#pragma GCC visibility pop
#endif

#endif
