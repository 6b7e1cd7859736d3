"""Files → session. Blocking; says where it stands, can be cancelled at each tensor, gives memory back when it fails."""

from __future__ import annotations

import gc
import importlib.util
import logging
import os
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from engine.blueprint import FLOATS, Blueprint, read_blueprint
from engine.catalog import Located, resolve
from engine.control import Control
from engine.errors import Cancelled, CannotLoad, WorkbenchError
from engine.events import LOAD_STAGES, Event, Fact, LoadProgress
from engine.files import WeightFiles, weight_files
from engine.logs import log_path, quiet_libraries, start_logging
from engine.outline import outline
from engine.packed_layers import fit_cpu_kernels, refuse_what_does_not_run
from engine.placement import Placement, place
from engine.quantised import packing_notes, refuse_missing_kernels
from engine.readings import give_memory_back, read_memory, weights_apart
from engine.session import Session
from engine.session_facts import broken_generation_config, generation_defaults, session_facts
from engine.settings import LoadPlan, precision_named
from engine.skeleton import first_line
from engine.tensor_checks import Damage, file_dtype_note, missing_tensors, refuse_wrong_tensors, wrong_shape
from engine.tokenizers import load_tokenizer
from engine.trust import refuse_changed_code
from engine.weights_view import ShardClock, table_after_load

log = logging.getLogger(__name__)

EMIT_EVERY_S = 0.03  # progress faster than a screen shows would only cost
MAPPED_BYTES = 50_000_000  # smaller models vanish in the noise of a process


def load(
    plan: LoadPlan,
    emit: Callable[[Event], None],
    control: Control,
    leave_one_core: bool = True,
    before_weights: Callable[[], bool] | None = None,
) -> Session:
    """The loaded model. Emits LoadProgress for each stage of LOAD_STAGES, an Outline, ShardReads and a WeightsTable.

    before_weights: called when files, config, tokenizer and placement were found good, and nothing was read yet: the
    moment to let an older model go. Says whether memory became free, so that the placement is worked out again.
    leave_one_core: torch computes on all cores but one, so that a window stays quick (THR-8); the number of threads is
    set here and nowhere else. Raises CannotLoad, SettingsRefused and Cancelled, none of which holds a tensor or a
    frame (MEM-6, MEM-22); memory is given back before they are raised.
    """
    before_threads = set(threading.enumerate())
    failure: BaseException
    try:
        return _load(plan, emit, control, leave_one_core, before_weights or (lambda: False))
    except (WorkbenchError, Cancelled) as error:
        failure = error
    except Exception as error:  # the edge: whatever a library raises becomes plain text
        log.error("loading %s failed:\n%s", plan.model, traceback.format_exc())
        failure = _as_sentence(error)
    failure.__cause__ = failure.__context__ = None
    failure.with_traceback(None)
    _wait_for_loaders(before_threads)
    give_memory_back()
    raise failure


class _Stages:
    """Where the load stands: one progress event at each stage's beginning, and its time at its end."""

    def __init__(self, emit: Callable[[Event], None], control: Control) -> None:
        self.emit, self.control = emit, control
        self.total_bytes = 0
        self.times: dict[str, float] = {}
        self.name, self.began = "", 0.0

    def begin(self, name: str, detail: str = "") -> None:
        self.end()
        if self.control.cancelled():
            raise Cancelled
        self.name, self.began = name, time.perf_counter()
        self.tell(0, detail)

    def end(self) -> None:
        if self.name:
            self.times[self.name] = (time.perf_counter() - self.began) * 1e3
            self.tell(self.total_bytes)
            self.name = ""

    def say(self, detail: str) -> None:
        """What goes on now. Raises Cancelled."""
        if self.control.cancelled():
            raise Cancelled
        self.tell(0, detail)

    def tell(self, done_bytes: int, detail: str = "") -> None:
        elapsed = (time.perf_counter() - self.began) * 1e3
        self.emit(LoadProgress(self.name, done_bytes, self.total_bytes, elapsed, detail))


def _load(
    plan: LoadPlan,
    emit: Callable[[Event], None],
    control: Control,
    leave_one_core: bool,
    before_weights: Callable[[], bool],
) -> Session:
    precision = precision_named(plan.precision)
    stages = _Stages(emit, control)
    stages.begin("blueprint")
    located = resolve(plan.model)
    files = None if located.gguf else weight_files(located.folder, plan.allow_pickle)
    stages.total_bytes = files.total_bytes if files else located.path.stat().st_size
    if plan.trust_remote_code and not located.gguf:
        refuse_changed_code(located.folder, plan.code_digest)
    stages.tell(0, "importing torch and transformers")
    _prepare_libraries(leave_one_core)
    stages.began = time.perf_counter()  # a stage's time is the model's, not the libraries'
    blueprint = read_blueprint(located, plan.trust_remote_code, files, plan.tie_lm_head)
    refuse_missing_kernels(blueprint.quantised)
    precision, float_dtype = blueprint.chosen(precision)
    _refuse_precision(precision, plan.precision, blueprint)
    tokenizer, tokenizer_notes = load_tokenizer(blueprint)
    generation, generation_notes = broken_generation_config(blueprint)

    stages.begin("skeleton")
    if files:
        refuse_wrong_tensors(blueprint, files)
    placement = place(plan, blueprint, precision, float_dtype)
    emit(outline(blueprint, precision, float_dtype))
    if control.cancelled():
        raise Cancelled
    if before_weights():
        placement = place(plan, blueprint, precision, float_dtype)
    if placement.disk_bytes:
        stages.tell(0, f"{placement.disk_bytes:,} bytes will lie on disk")

    stages.begin("weights")
    _freeze_libraries()
    give_memory_back(collect=False)
    before = read_memory().process_bytes
    clock = ShardClock(files, located.path if located.gguf else None, emit)
    watch = _Watch(stages, files, clock)
    offload = None
    if "disk" in placement.devices and plan.offload_folder is None:
        offload = tempfile.TemporaryDirectory(prefix="glasswork-offload-")
    folder = plan.offload_folder or (offload.name if offload else None)
    try:
        model, told = _from_pretrained(plan, blueprint, precision, float_dtype, placement, folder, watch, generation)
    except BaseException:
        if offload:
            offload.cleanup()
        raise
    stages.end()  # "placement", which began when the last tensor had been read

    stages.begin("kernels")
    model.eval().requires_grad_(False)
    fit_cpu_kernels(model)
    packed_by_others = blueprint.quantisation not in ("", "bitsandbytes")
    if packed_by_others:  # some unpack with their first forward: what they weigh is measured after it
        refuse_what_does_not_run(model, blueprint.quantisation, control)
    notes = _judge(model, told, blueprint, files, watch, precision)
    emit(table_after_load(blueprint, files, model, told, clock.shards))
    notes += [
        n
        for n in (file_dtype_note(blueprint, precision_named(plan.precision), float_dtype), _tie_note(model, blueprint))
        if n
    ]
    from engine import bandwidth  # it imports torch, and this module does not before it must
    from engine.decode_path import decode_path

    held = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    mapped = held > MAPPED_BYTES and read_memory().process_bytes - before < held * 0.5
    path = decode_path(model, plan.kernel, mapped, stages.say, control.cancelled)
    defaults, default_notes = generation_defaults(located)
    facts = session_facts(
        model,
        tokenizer,
        blueprint,
        plan,
        placement,
        precision,
        float_dtype,
        notes=(
            *blueprint.notes,
            *(files.notes if files else ()),
            *placement.notes,
            *packing_notes(blueprint.quantised),
            *notes,
            *tokenizer_notes,
            *generation_notes,
            *default_notes,
        ),
        defaults=defaults,
        decode_path=path.sentence,
    )
    read_bytes = bandwidth.bytes_read_per_token(model, facts.weights_bytes)
    compiled = path.words if path.kernel == "compiled" else "no"
    facts = replace(
        facts,
        facts=(*facts.facts, Fact("Kernel", path.words, "measured"), Fact("torch.compile", compiled, "measured")),
        kernel=path.kernel,
        kernel_words=path.words,
        kernel_figures=path.figures,
        packed_bytes=path.packed_bytes,
        packing_bytes=path.packed_bytes - (path.replaced_bytes if mapped else 0),
        read_bytes_per_s=bandwidth.read_bandwidth(model),
        read_bytes_per_token=read_bytes - path.replaced_bytes + path.read_bytes,
    )
    stages.end()
    give_memory_back(collect=False)
    after = read_memory().process_bytes
    if mapped and not path.packed_bytes and facts.devices == ("cpu",):
        notes = (*facts.notes, "The weights are mapped from the file: their memory arrives with the first word.")
        facts = replace(facts, notes=notes)
    facts = replace(
        facts,
        stage_ms=tuple((name, stages.times.get(name, 0.0)) for name in LOAD_STAGES),
        memory_before_bytes=before,
        memory_after_bytes=after,
    )
    if precision not in FLOATS or blueprint.quantisation == "bitsandbytes":
        # Measured before: on some processors bitsandbytes lays its constants out anew with the first forward.
        refuse_what_does_not_run(model, facts.precision, control)
    generation, windows = model.generation_config, plan.keep_windows
    session = Session(model, tokenizer, facts, generation, blueprint, path.lean, path.threads, keep_windows=windows)
    session.offload_folder = offload
    return session


@cache
def _freeze_libraries() -> None:
    """Takes all that was imported out of the garbage collector's sight, once.

    A collection took 0.28 s with torch and transformers in it, in which nothing else runs: a cancelled load came back
    that much later, and a window stood still whenever Python collected by itself.
    """
    gc.collect()
    gc.freeze()


def _prepare_libraries(leave_one_core: bool) -> None:
    """Imports torch and transformers, without network, without words on the terminal, with a set number of threads."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # a local folder is looked up on the hub otherwise, for 20 s
    import torch
    import transformers  # noqa: F401  adds its handler and its progress bars, taken away below

    if not logging.getLogger().handlers:  # nobody set the log up: Python would print each warning to the terminal
        start_logging()
    quiet_libraries()
    cores = os.cpu_count() or 1
    torch.set_num_threads(max(1, cores - 1) if leave_one_core else cores)


def _refuse_precision(precision: str, asked: str | None, blueprint: Blueprint) -> None:
    if precision in FLOATS:
        return
    if blueprint.quantisation and asked:
        raise CannotLoad(
            "The weights are already quantised ({method}), so {precision} cannot be made from them.",
            "Load them as the files say, without choosing a precision.",
            method=blueprint.quantisation,
            precision=precision,
        )
    if importlib.util.find_spec("bitsandbytes") is None:
        raise CannotLoad(
            "{precision} needs the package bitsandbytes, which is not installed.",
            "Install it (pip install bitsandbytes), or choose bfloat16.",
            precision=precision,
        )


# ---------------------------------------------------------------- weights


class _Watch:
    """Follows transformers' loader through its progress hook: one step per parameter (LOD-30).

    Tells progress, raises Cancelled, and looks at each tensor's numbers where they come from a safetensors file.
    """

    def __init__(self, stages: _Stages, files: WeightFiles | None, clock: ShardClock) -> None:
        self.stages, self.files, self.clock = stages, files, clock
        self.damage = Damage()
        self.steps = 0
        self._looked_over: set[Path] = set()
        self._done, self._told_at = 0, 0.0

    def hook(self, factory: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        """What transformers' progress bars become. Only the loader's own hands over its parameters."""
        if args and "weights" in str(kwargs.get("desc", "")).lower():
            return self.watched(args[0])
        return factory(*args, **kwargs)

    def watched(self, parameters: Any) -> Iterator[Any]:
        share = self.stages.total_bytes // max(1, len(parameters))
        for self.steps, item in enumerate(parameters):
            name, mapping = item
            self._read(name, mapping, share)
            yield item
        self._look_for_stop()
        self.clock.end()
        self.stages.begin("placement")

    def _look_for_stop(self) -> None:
        if self.stages.control.cancelled():
            raise Cancelled

    def _read(self, name: str, mapping: Any, share: int) -> None:
        """What this parameter is made of comes next: the files that it is the first to need are looked over."""
        self._look_for_stop()
        tensors = self.files.tensors if self.files else {}
        sources = [
            tensors[source]
            for names in getattr(mapping, "layer_targets", {}).values()
            for source in names
            if source in tensors
        ]
        if not sources:  # a pickle or GGUF file, whose tensors are not known apart
            self.clock.step([], share)
            self._tell(name, share)
        for file in dict.fromkeys(source.file for source in sources):
            if file not in self._looked_over:
                self._looked_over.add(file)
                for stretch in self.damage.look_over([entry for entry in tensors.values() if entry.file == file]):
                    self.clock.step(stretch)
                    self._tell(stretch[-1].name, sum(entry.bytes for entry in stretch))
                    self._look_for_stop()

    def _tell(self, name: str, more_bytes: int) -> None:
        self._done += more_bytes
        if (now := time.perf_counter()) - self._told_at > EMIT_EVERY_S:
            self._told_at = now
            self.stages.tell(min(self._done, self.stages.total_bytes), name)


def _from_pretrained(
    plan: LoadPlan,
    blueprint: Blueprint,
    precision: str,
    float_dtype: str,
    placement: Placement,
    offload_folder: str | None,
    watch: _Watch,
    generation: Any,
) -> tuple[Any, dict[str, Any]]:
    """transformers' model, and what its loader tells of missing, unexpected and mismatched tensors.

    generation: a GenerationConfig in place of the folder's, None for that.
    """
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging as transformers_logging

    located = blueprint.located
    options: dict[str, Any] = {
        "dtype": getattr(torch, float_dtype),
        "device_map": placement.device_map,
        "local_files_only": True,
        "trust_remote_code": plan.trust_remote_code,  # always said: otherwise it asks on standard input (LOD-4)
        "output_loading_info": True,
        "ignore_mismatched_sizes": True,  # told in the info; its own error names no tensor (LOD-7)
    }
    if offload_folder:
        options["offload_folder"] = offload_folder
    if plan.attention:
        options["attn_implementation"] = plan.attention
    if located.gguf:
        from transformers import GgufConfig

        options |= {"gguf_file": located.gguf, "quantization_config": GgufConfig(dequantize=True)}
    else:
        options |= {"config": blueprint.config, "use_safetensors": not plan.allow_pickle or _has_safetensors(located)}
    if generation is not None:
        options["generation_config"] = generation
    if precision not in FLOATS:
        options["quantization_config"] = _quantisation(plan, precision, getattr(torch, float_dtype))
    previous = transformers_logging.set_tqdm_hook(watch.hook)
    try:
        with weights_apart():
            loaded: Any = AutoModelForCausalLM.from_pretrained(str(located.folder), **options)
        return loaded
    finally:
        transformers_logging.set_tqdm_hook(previous)


def _has_safetensors(located: Located) -> bool:
    return any(located.folder.glob("*.safetensors"))


def _quantisation(plan: LoadPlan, precision: str, float_dtype: Any) -> Any:
    """bitsandbytes' settings."""
    import torch
    from transformers import BitsAndBytesConfig

    if precision == "int8":
        return BitsAndBytesConfig(load_in_8bit=True, llm_int8_threshold=float(plan.int8_threshold))
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type=precision,
        bnb_4bit_use_double_quant=plan.double_quantisation,
        bnb_4bit_compute_dtype=getattr(torch, plan.compute_dtype) if plan.compute_dtype else float_dtype,
    )


# ---------------------------------------------------------------- judging what was loaded


def _judge(
    model: Any,
    told: dict[str, Any],
    blueprint: Blueprint,
    files: WeightFiles | None,
    watch: _Watch,
    precision: str,
) -> list[str]:
    """Notes on the loaded model. Raises CannotLoad for what transformers loads with random or damaged numbers."""
    nothing = WeightFiles("none", ())
    missing: list[str]
    if mismatched := sorted(told.get("mismatched_keys", ()), key=str):
        raise wrong_shape(*mismatched[0])
    if missing := sorted(told.get("missing_keys", ())):
        raise missing_tensors(missing, blueprint, files or nothing)
    if not watch.damage.looked_at and not blueprint.quantisation:  # a pickle or GGUF: its tensors are known only now
        for name, parameter in model.named_parameters():
            watch.damage.look(name, parameter.detach())
    if refusal := watch.damage.refusal(
        len(files.tensors) if files and files.tensors else _count(model), precision, files
    ):
        raise refusal
    unexpected: list[str] = sorted(told.get("unexpected_keys", ()))
    if not unexpected:
        return []
    names = ", ".join(unexpected[:3]) + (f", … ({len(unexpected)} in all)" if len(unexpected) > 3 else "")
    return [f"Tensors in the files that this model does not use: {names}."]


def _count(model: Any) -> int:
    return sum(1 for _ in model.parameters())


def _tie_note(model: Any, blueprint: Blueprint) -> str:
    head, table = model.get_output_embeddings(), model.get_input_embeddings()
    loaded_tied = head is not None and getattr(head, "weight", None) is getattr(table, "weight", 0)
    if blueprint.skeleton.tied and head is not None and not loaded_tied:
        return "config.json says that head and embedding are one tensor; the files hold two, and both were loaded."
    return ""


# ---------------------------------------------------------------- failing


def _as_sentence(error: Exception) -> CannotLoad:
    said = first_line(error)
    low = said.lower()
    if isinstance(error, MemoryError) or "out of memory" in low or "can't allocate memory" in low:
        return CannotLoad(
            "The memory does not suffice for this model: {said}.",
            "Choose a smaller precision, or a device map with disk offload.",
            said=said,
        )
    if isinstance(error, ImportError):
        return CannotLoad(
            "A package that this model needs is missing: {said}.", "Install it, or choose another model.", said=said
        )
    return CannotLoad(
        "The model could not be loaded: {said}.",
        "The whole report is in {log}.",
        said=said,
        log=log_path(),
    )


def _wait_for_loaders(before: set[threading.Thread]) -> None:
    """Waits until the loader's own reading threads, which it does not wait for itself, have ended."""
    for thread in set(threading.enumerate()) - before:
        if thread.name.startswith("ThreadPoolExecutor"):
            thread.join(timeout=5)
