"""pump-run's additions to frameworks' environments, and the conflicts that it reports."""

import pytest

from pump.cli.support import options
from pump.cli.support.environment import Parts, choices, for_job, notes
from pump.cli.support.lines import BadInputError
from pump.config.settings import JobConfig

JOB = JobConfig(command=["job"])
TENSOR = JOB._replace(granularity="tensor")
TORCH, TORCH_OLD = "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"
JAX = "XLA_PYTHON_CLIENT_ALLOCATOR"


def made(environ: dict[str, str], config: JobConfig = TENSOR) -> dict[str, str]:
    return for_job(config, Parts("/libpump.so"), environ)


def test_tensor_granularity_sets_every_frameworks_switch() -> None:
    job = made({"HOME": "/h"})
    assert job["PUMP_GRANULARITY"] == "tensor"
    assert job[TORCH_OLD] == "backend:cudaMallocAsync"
    assert job[JAX] == "cuda_async"
    assert job["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"
    assert job["CUDF_PANDAS_RMM_MODE"] == "async"
    assert notes(TENSOR, {}) == []


def test_native_which_is_the_default_leaves_frameworks_alone() -> None:
    environ = {TORCH: "max_split_size_mb:64", JAX: "platform", "PYTHONPATH": "/x"}
    job = made(environ, JOB)
    assert {name: job[name] for name in environ} == environ
    assert TORCH_OLD not in job
    assert job["PUMP_GRANULARITY"] == "native"


def test_native_lets_jax_exceed_the_gpu_unless_the_user_has_chosen_how() -> None:
    preallocate, unified = "XLA_PYTHON_CLIENT_PREALLOCATE", "TF_FORCE_UNIFIED_MEMORY"
    assert {JAX: "cuda_async", preallocate: "false"}.items() <= made({}, JOB).items()
    chosen = made({preallocate: "true"}, JOB)
    assert (chosen[JAX], chosen[preallocate]) == ("cuda_async", "true")
    fractions = ("XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_CLIENT_MEM_FRACTION")
    for name, value in {JAX: "bfc", unified: "1", **dict.fromkeys(fractions, "0.9")}.items():
        job = made({name: value}, JOB)
        assert job[name] == value and preallocate not in job
        assert name == JAX or JAX not in job


def test_without_the_shim_nothing_is_changed() -> None:
    environ = {TORCH: "expandable_segments:True"}
    assert for_job(TENSOR, Parts(None), environ) == environ


def test_what_a_user_has_chosen_is_kept_beside_the_switch() -> None:
    environ = {TORCH: "roundup_power2_divisions:[256:1,512:2],pinned_num_register_threads:4"}
    job = made(environ)
    expected = "backend:cudaMallocAsync,pinned_num_register_threads:4"
    assert job[TORCH] == job[TORCH_OLD] == expected
    assert notes(TENSOR, environ) == [
        f"{TORCH}: backend:cudaMallocAsync, which tensor granularity selects, ignores "
        "roundup_power2_divisions"
    ]
    chosen = {TORCH_OLD: "backend:cudaMallocAsync,x:1", "XLA_PYTHON_CLIENT_PREALLOCATE": "true"}
    job = made(chosen)
    assert {name: job[name] for name in chosen} == chosen


CONFLICTS = [
    ({TORCH: "backend:native"}, "backend:native"),
    ({TORCH_OLD: "max_split_size_mb:9, backend:native"}, TORCH_OLD),
    ({"TORCHINDUCTOR_CUDAGRAPHS": "1"}, "TORCHINDUCTOR_CUDAGRAPHS needs"),
    ({"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}, "PYTORCH_NO_CUDA_MEMORY_CACHING"),
    ({JAX: "platform"}, "XLA_PYTHON_CLIENT_ALLOCATOR=platform"),
    ({"TF_FORCE_UNIFIED_MEMORY": "1"}, "TF_FORCE_UNIFIED_MEMORY"),
    ({"CUDF_PANDAS_RMM_MODE": "managed_pool"}, "CUDF_PANDAS_RMM_MODE=managed_pool"),
]


@pytest.mark.parametrize(("environ", "named"), CONFLICTS)
def test_each_conflict_is_named_with_the_remedy(environ: dict[str, str], named: str) -> None:
    with pytest.raises(BadInputError, match=named) as error:
        made(environ)
    assert "--granularity native" in str(error.value)
    assert "\n" not in str(error.value)
    made(environ, JOB)  # with native there is no conflict


AUTO = JOB._replace(granularity="auto")


def test_auto_sets_the_switches_of_frameworks_without_a_conflict() -> None:
    job = made({JAX: "platform", TORCH: "max_split_size_mb:64"}, AUTO)
    assert job[JAX] == "platform" and "XLA_PYTHON_CLIENT_PREALLOCATE" not in job
    assert job[TORCH] == job[TORCH_OLD] == "backend:cudaMallocAsync"
    assert job["PUMP_GRANULARITY"] == "auto"
    assert choices(JOB, {}) == choices(TENSOR, {}) == []
    torch, jax, rmm = choices(AUTO, {JAX: "platform"})
    assert torch == (
        f"PyTorch: tensor ({TORCH_OLD}=backend:cudaMallocAsync), because no known conflict exists"
    )
    assert jax.startswith(f"JAX: native, because {JAX}=platform chooses another allocator")
    assert rmm.startswith("RMM: tensor")


@pytest.mark.parametrize(("environ", "named"), CONFLICTS)
def test_auto_leaves_alone_what_something_stands_against_and_says_what(
    environ: dict[str, str], named: str
) -> None:
    job = made(environ, AUTO)
    assert {name: job[name] for name in environ} == environ
    (left,) = [choice for choice in choices(AUTO, environ) if "native, because" in choice]
    assert named in left


def test_expandable_segments_stay_as_they_are_unless_tensors_are_units() -> None:
    environ = {TORCH_OLD: "expandable_segments:True"}
    native = JOB._replace(granularity="native")
    assert made(environ, native)[TORCH_OLD] == environ[TORCH_OLD] and notes(native, environ) == []
    tensor = JOB._replace(granularity="tensor")
    assert made(environ, tensor)[TORCH_OLD] == "backend:cudaMallocAsync"
    assert any("expandable_segments" in note for note in notes(tensor, environ))


def test_the_option_knows_its_names() -> None:
    asked = options.parse(["--granularity", "native", "job"])
    assert asked.settings == {"granularity": "native"}
    with pytest.raises(BadInputError, match="tensor"):
        options.parse(["--granularity", "tensors", "job"])
