"""One event ↔ one line of a replay. Numbers survive exactly: Python writes the shortest text that reads back equal.

The JSON is strict: numbers that are not finite are null, and null reads back as NaN (a logit's as -inf: impossible).
"""

from __future__ import annotations

import base64
import json
import math
import re
from array import array
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from json.encoder import encode_basestring
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

from engine import events as ev
from engine.errors import SettingsRefused
from engine.redecided import BINS_OF_TAIL, Tail
from engine.settings import SamplingSettings

KINDS: dict[str, type] = {
    "load": ev.LoadProgress,
    "model": ev.Loaded,
    "unload": ev.Unloaded,
    "start": ev.RunStart,
    "prefill": ev.PrefillProgress,
    "token": ev.TokenEvent,
    "settings": ev.SettingsChanged,
    "end": ev.RunEnd,
    "error": ev.EngineError,
    "memory": ev.MemoryReading,
    "mark": ev.Mark,
}
_KIND_OF = {kind: name for name, kind in KINDS.items()}

# Halves of characters are no UTF-8; the others are ends of a line for some tools. Both can stand only inside strings.
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_LOGPROB_ROUNDING = 1e-3
_DECIMAL_BITS = 12_000  # beyond about 4,300 digits Python neither writes nor reads a decimal number


def header_line(header: dict[str, Any]) -> bytes:
    """The first line. `header` may hold anything that JSON can, and settings."""
    return json_line(header)


def line_of(event: ev.Event) -> bytes:
    """The line of an event, with its end."""
    if isinstance(event, ev.TokenEvent):
        return _token_line(event).encode() + b"\n"
    return json_line({"kind": _KIND_OF[type(event)]} | _plain(event))


def _escaped(text: str) -> str:
    return text if text.isascii() else _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _quoted(text: str) -> str:
    return _escaped(encode_basestring(text))


def json_line(value: Any) -> bytes:
    """A value as one line of strict JSON: what is not finite is null, huge numbers are hexadecimal strings."""
    try:
        text = _packed(value)
    except (TypeError, ValueError):  # events and settings, what is not finite, a number too long for decimal digits
        text = _packed(_plain(value))
    return _escaped(text).encode() + b"\n"


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, SamplingSettings):
        return settings_values(value)
    if is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, int) and not isinstance(value, bool):
        return seed_value(value)
    return value


def settings_values(settings: SamplingSettings) -> dict[str, Any]:
    """Settings as JSON has them."""
    values = {**settings.as_dict(), "seed": seed_value(settings.seed)}
    for name in ("logit_bias", "banned", "banned_sequences"):
        if not values[name]:
            del values[name]  # hardly any run has them, and they stand in each token's line
    return values


def seed_value(value: int) -> int | str:
    """A whole number as JSON has it; one too long for decimal digits is a hexadecimal string (FIL-21)."""
    return value if value.bit_length() <= _DECIMAL_BITS else hex(value)


# ---------------------------------------------------------------- tokens
# By hand, since there are many and each holds some forty alternatives.

TOP = 20  # alternatives spelled out; the others are packed in columns, which takes a quarter of the time and place

_packed = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def _number(value: float) -> str:
    # float.__repr__: a NumPy float's own would name its type.
    return float.__repr__(float(value)) if math.isfinite(value) else "null"


def _token_line(event: ev.TokenEvent) -> str:
    stages = ",".join([f'["{s.name}",{s.kept_tokens:d},{_number(s.logsumexp)}]' for s in event.stages])
    top, more = _alternatives(event)
    u = "null" if event.u is None else _number(event.u)
    forced = '"forced":true,' if event.forced else ""
    held = f'"held":{_quoted(event.held)},' if event.held else ""
    return (
        f'{{"kind":"token","run_id":{event.run_id:d},"lane":{event.lane:d},"step":{event.step:d},'
        f'"token_id":{event.token_id:d},"text":{_quoted(event.text)},"token_text":{_quoted(event.token_text)},'
        f'"special":{"true" if event.special else "false"},"u":{u},"logprob":{_number(event.logprob)},'
        f'"final_logprob":{_number(event.final_logprob)},"rank":{event.rank:d},'
        f'"entropy_nats":{_number(event.entropy_nats)},"final_entropy_nats":{_number(event.final_entropy_nats)},'
        f'"logsumexp":{_number(event.logsumexp)},"draw_low":{_number(event.draw_low)},'
        f'"draw_high":{_number(event.draw_high)},"kv_bytes":{event.kv_bytes:d},'
        f'"kv_allocated_bytes":{event.kv_allocated_bytes:d},"forward_ms":{_number(event.forward_ms)},'
        f'"sampling_ms":{_number(event.sampling_ms)},"context_used_tokens":{event.context_used_tokens:d},'
        f'"vocab_size":{event.vocab_size:d},"temperature":{_number(event.temperature)},'
        f'"stop_cut":{"true" if event.stop_cut else "false"},{forced}{held}"settings":{_settings_json(event.settings)},'
        f'"stages":[{stages}],"top":[{top}]{more}{_tail_json(event.tail)}}}'
    )


def _tail_json(tail: Tail | None) -> str:
    if tail is None:
        return ""
    return (
        f',"tail":{{"ids":{_packed(tail.ids.tolist())},"logits":"{_float32s(tail.logits)}","below":{_number(tail.below)},'
        f'"first_bin":{tail.first_bin:d},"counts":{_packed(tail.counts.tolist())},"masses":"{_float32s(tail.masses)}",'
        f'"seen_count":{tail.seen_count:d},"seen_mass":{_number(tail.seen_mass)}}}'
    )


def _float32s(values: array) -> str:
    """Base64 of little-endian float32: half as long as the shortest decimals, and exact."""
    return base64.b64encode(np.array(values, dtype="<f4").tobytes()).decode()


def _floats(text: Any, count: int) -> array:
    values = np.frombuffer(base64.b64decode(_str(text), validate=True), dtype="<f4")
    if values.size != count:
        raise ValueError("the columns are not equally long")
    return array("f", values.astype(np.float32).tobytes())


def _tail(v: Any) -> Tail | None:
    if v is None:
        return None
    ids, counts = array("i", _list(v["ids"])), array("i", _list(v["counts"]))
    first = _int(v["first_bin"])
    if not 0 <= first <= first + len(counts) <= BINS_OF_TAIL or any(count < 0 for count in counts):
        raise ValueError("bins that are not known")
    below = v["below"]
    return Tail(
        ids=ids,
        logits=_floats(v["logits"], len(ids)),
        below=-math.inf if below is None else _float(below),
        first_bin=first,
        counts=counts,
        masses=_floats(v["masses"], len(counts)),
        seen_count=_int(v["seen_count"]),
        seen_mass=_float(v["seen_mass"]),
    )


def _alternatives(event: ev.TokenEvent) -> tuple[str, str]:
    """What stands in "top", and the packed rest. The chosen one is always in "top"; probabilities as in Candidate."""
    ids, logits, adjusted = event.candidate_ids, event.candidate_logits, event.candidate_adjusted
    cuts, texts = event.candidate_cuts, event.candidate_texts
    names = tuple([figures.name for figures in event.stages])
    penalised, drawn = adjusted is not logits, event.u is not None
    shown, rest = list(range(min(TOP, len(ids)))), list(range(TOP, len(ids)))
    if event.token_id in ids[TOP:]:
        shown.append(ids.index(event.token_id, TOP))
        rest.remove(shown[-1])
    shapes, values = [], []
    for i, probs in zip(shown, _probabilities(event, shown), strict=True):
        cut = cuts[i]
        shape, reached = _template(names, cut, penalised, drawn)
        shapes.append(shape)
        values += ids[i], _quoted(texts[i]), logits[i]
        if penalised:
            values.append(adjusted[i])
        values += probs[:reached]
        if not cut:
            values.append(probs[-1] if drawn else float(ids[i] == event.token_id))
    shape = ",".join(shapes)
    if any(v.__class__ is float and not math.isfinite(v) for v in values):
        shape = shape.replace("%.6g", "%s")
        values = ["null" if v.__class__ is float and not math.isfinite(v) else v for v in values]
    top = shape % tuple(values)
    if not rest:
        return top, ""
    more = f',"more":{{"ids":{_packed([ids[i] for i in rest])},"texts":[{",".join([_quoted(texts[i]) for i in rest])}]'
    more += f',"logits":{_packed(_nulls(logits, rest))}'
    if penalised:
        more += f',"adjusted":{_packed(_nulls(adjusted, rest))}'
    more += f',"cuts":{_packed([cuts[i] for i in rest])}'
    if len(shown) > TOP:
        more += f',"chosen_at":{shown[-1]}'
    return top, more + "}"


def _probabilities(event: ev.TokenEvent, places: list[int]) -> list[list[float]]:
    """For each of these alternatives its probability at each stage, as events.Candidate has them."""
    raw = np.array(event.candidate_logits)[places]
    changed = np.array(event.candidate_adjusted)[places]
    columns, scale = [], 1.0
    for figures in event.stages:
        if figures.name == "temperature":
            scale = 1.0 / event.temperature
        with np.errstate(over="ignore", invalid="ignore"):  # logits may be impossible, temperatures tiny
            columns.append((raw if figures.name == "raw" else changed * scale) - figures.logsumexp)
    return np.exp(np.minimum(columns, 0.0)).T.tolist() if columns else [[] for _ in places]


def _nulls(values: array, rest: list[int]) -> list[float | None]:
    return [values[i] if math.isfinite(values[i]) else None for i in rest]


@cache
def _template(stages: tuple[str, ...], cut: int, penalised: bool, drawn: bool) -> tuple[str, int]:
    """The shape of one alternative for `%`, and how many stages it has a probability at."""
    cut_by = ev.FILTERS[cut - 1] if cut else None
    reached = stages[: stages.index(cut_by)] if cut_by in stages else stages
    probs = "".join([f'"{name}":%.6g,' for name in reached])
    logit = '"logit":%s,"adjusted":%s' if penalised else '"logit":%s'
    final, by = ("null", f'"{cut_by}"') if cut_by else ("%.6g", "null")
    return f'{{"id":%d,"text":%s,{logit},"probs":{{{probs}"final":{final}}},"cut_by":{by}}}', len(reached)


_settings_text: tuple[SamplingSettings, str] | None = None


def _settings_json(settings: SamplingSettings) -> str:
    global _settings_text  # the newest only: it is the same object for thousands of tokens
    known = _settings_text
    if known is None or known[0] is not settings:
        known = _settings_text = settings, json.dumps(settings_values(settings), separators=(",", ":"))
    return known[1]


# What reading a line raises when it does not hold what it should.
DAMAGED = (KeyError, TypeError, ValueError, IndexError, OverflowError, AttributeError, SettingsRefused)

_CUT_CODES = {None: 0} | {name: 1 + index for index, name in enumerate(ev.FILTERS)}


class Reader:
    """Lines → events. Keeps one object for equal settings and texts, so that ten thousand tokens stay small."""

    def __init__(self) -> None:
        self._settings: dict[tuple[Any, ...], SamplingSettings] = {}
        self._texts: dict[str, str] = {}

    def event(self, values: dict[str, Any]) -> ev.Event:
        """The event of a line of a known kind. Raises KeyError, TypeError or ValueError when the line is damaged."""
        if values["kind"] == "token":
            return self._token(values)
        event = built(KINDS[values["kind"]], values)
        if isinstance(event, ev.RunStart):
            for token_id in (*(token.token_id for token in event.prompt_tokens), *event.written):
                _id(token_id)
        return event

    def _token(self, v: dict[str, Any]) -> ev.TokenEvent:
        top, more = v["top"], v.get("more")
        ids, texts = [c["id"] for c in top], [c["text"] for c in top]
        raw, cuts = [c["logit"] for c in top], [_CUT_CODES[c["cut_by"]] for c in top]
        changed = [c["adjusted"] for c in top] if top and "adjusted" in top[0] else None
        if more is not None:
            columns = [(ids, more["ids"]), (texts, more["texts"]), (raw, more["logits"]), (cuts, more["cuts"])]
            if changed is not None:
                columns.append((changed, more["adjusted"]))
            _join(columns, more.get("chosen_at"))
        logits = _logits(raw)
        stages = tuple(
            [ev.StageFigures(_one_of(name, ev.STAGES), _int(n), _float(lse)) for name, n, lse in v["stages"]]
        )
        if top and (not stages or stages[0].name != "raw"):
            raise ValueError("the stages do not begin with the raw one")
        temperature = _float(v["temperature"])
        if temperature <= 0.0 and any(figures.name == "temperature" for figures in stages):
            raise ValueError("a greedy choice has no stage of the temperature")
        return ev.TokenEvent(
            run_id=_place(v["run_id"]),
            lane=_place(v["lane"]),
            step=_place(v["step"]),
            token_id=_id(v["token_id"]),
            text=_str(v["text"]),
            token_text=self._shared(v["token_text"]),
            special=_bool(v["special"]),
            candidate_ids=array("i", ids),
            candidate_logits=logits,
            candidate_adjusted=logits if changed is None else _logits(changed),
            candidate_cuts=_cut_bytes(cuts),
            candidate_texts=tuple([self._shared(text) for text in texts]),
            logsumexp=_float(v["logsumexp"]),
            entropy_nats=_float(v["entropy_nats"]),
            final_entropy_nats=_float(v["final_entropy_nats"]),
            stages=stages,
            vocab_size=_id(v["vocab_size"]),
            rank=_int(v["rank"]),
            logprob=_logprob(v["logprob"]),
            final_logprob=-math.inf if v["final_logprob"] is None else _logprob(v["final_logprob"]),
            u=None if v["u"] is None or not math.isfinite(v["u"]) else _float(v["u"]),
            draw_low=_float(v["draw_low"]),
            draw_high=_float(v["draw_high"]),
            temperature=temperature,
            settings=self._shared_settings(v["settings"]),
            forward_ms=_float(v["forward_ms"]),
            sampling_ms=_float(v["sampling_ms"]),
            kv_bytes=_int(v["kv_bytes"]),
            kv_allocated_bytes=_int(v["kv_allocated_bytes"]),
            context_used_tokens=_int(v["context_used_tokens"]),
            stop_cut=_bool(v["stop_cut"]),
            tail=_tail(v.get("tail")),
            forced=_bool(v.get("forced", False)),
            held=_str(v.get("held", "")),
        )

    def _shared(self, text: str) -> str:
        return self._texts.setdefault(text, text) if text.__class__ is str else _str(text)

    def _shared_settings(self, values: dict[str, Any]) -> SamplingSettings:
        key = tuple([(name, str(value) if isinstance(value, list) else value) for name, value in values.items()])
        found = self._settings.get(key)
        if found is None:
            found = self._settings[key] = settings_from(values)
        return found


def _join(columns: list[tuple[list[Any], list[Any]]], chosen_at: int | None) -> None:
    """Puts the packed rest behind the spelled-out ones, and the chosen one back to its place in the order."""
    count = len(columns[0][1])
    for top, rest in columns:
        if len(_list(rest)) != count:
            raise ValueError("the columns are not equally long")
        last = top.pop() if chosen_at is not None else None
        top += rest
        if chosen_at is not None:
            top.insert(_int(chosen_at), last)


def _cut_bytes(codes: list[int]) -> bytes:
    if codes and max(codes) > len(ev.FILTERS):
        raise ValueError("a filter that is not known")
    return bytes(codes)


def _logits(values: list[Any]) -> array:
    """A logit that is null is impossible; one that is not finite says nothing either and is taken as that (FIL-22)."""
    if None in values:
        values = [-math.inf if value is None else value for value in values]
    found = array("d", values)
    if not all(map(math.isfinite, found)):
        found = array("d", [value if math.isfinite(value) else -math.inf for value in found])
    return found


def _int(value: Any) -> int:
    if value.__class__ is not int:
        raise TypeError(f"{value!r:.40} is not a whole number")
    if not -(2**63) <= value < 2**63:
        raise ValueError("nothing is counted so far")
    return value


def _seed(value: Any) -> int:
    """Any whole number; one too long for decimal digits is a hexadecimal string."""
    if isinstance(value, str):
        return int(value, 16)
    if value.__class__ is not int:
        raise TypeError(f"{value!r:.40} is no seed")
    return value


def _place(value: Any) -> int:
    """A run, a lane or a step: they are counted from 0 on."""
    if _int(value) < 0:
        raise ValueError(f"{value} is no place")
    return value


def _id(value: Any) -> int:
    """A token's number: those of every tokenizer and model fit into 31 bits."""
    if not 0 <= _int(value) < 2**31:
        raise ValueError(f"{value!r:.40} is no token")
    return value


def _float(value: Any) -> float:
    if value is None:
        return math.nan
    if value.__class__ is not float and value.__class__ is not int:
        raise TypeError(f"{value!r:.40} is not a number")
    value = float(value)
    return value if math.isfinite(value) else math.nan


def _logprob(value: Any) -> float:
    """No probability is above 1, but for rounding: what says so is damaged, and its exp would not even be a number."""
    if (logprob := _float(value)) > _LOGPROB_ROUNDING:
        raise ValueError(f"{logprob} is no logarithm of a probability")
    return logprob


def _str(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is not a text")
    return value


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r:.40} is neither true nor false")
    return value


def _one_of(value: Any, known: tuple[str, ...]) -> str:
    if value not in known:
        raise ValueError(f"{value!r:.40} is not known")
    return known[known.index(value)]


def settings_from(values: Any) -> SamplingSettings:
    """Settings as JSON has them. Raises SettingsRefused, TypeError and ValueError for what they cannot be."""
    values = dict(values)
    if isinstance(values.get("seed"), str):
        values["seed"] = _seed(values["seed"])
    return SamplingSettings.from_dict(values)


# ---------------------------------------------------------------- the other events, by their fields' types


def built(kind: type, values: Any) -> Any:
    """An object of a dataclass from a line's values; fields that a line lacks take their default."""
    made = {}
    for name, (decode, required) in _decoders(kind).items():
        if name in values:
            made[name] = decode(values[name])
        elif required:
            raise KeyError(name)
    return kind(**made)


_known: dict[type, dict[str, tuple[Callable[[Any], Any], bool]]] = {}


def _decoders(kind: type) -> dict[str, tuple[Callable[[Any], Any], bool]]:
    if kind not in _known:
        hints = get_type_hints(kind)
        _known[kind] = {
            f.name: (
                _decoder(hints[f.name], _WHOLE.get(f.name, _int)),
                f.default is MISSING and f.default_factory is MISSING,
            )
            for f in fields(kind)
        }
    return _known[kind]


def _decoder(hint: Any, whole: Callable[[Any], int]) -> Callable[[Any], Any]:
    """whole: how whole numbers are read."""
    if hint is SamplingSettings:
        return settings_from
    if hint is int:
        return whole
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    parts = get_args(hint)
    if isinstance(hint, UnionType):  # X | None is the only kind of union in events
        inner = _decoder(next(part for part in parts if part is not NoneType), whole)
        return lambda value: None if value is None else inner(value)
    if get_origin(hint) is tuple:
        if parts[1] is ...:
            inner = _decoder(parts[0], whole)
            return lambda value: tuple([inner(item) for item in _list(value)])
        inners = [_decoder(part, whole) for part in parts]
        return lambda value: tuple([inner(item) for inner, item in zip(inners, _list(value), strict=True)])
    if is_dataclass(hint):
        return lambda value: built(hint, value)  # type: ignore[arg-type]
    raise TypeError(f"no way to read {hint} from a line")


# Fields whose whole numbers are no mere counts.
_WHOLE: dict[str, Callable[[Any], int]] = {
    "seed": _seed, "seeds": _seed, "run_id": _place, "lane": _place, "lanes": _place, "step": _place,
}  # fmt: skip
_SIMPLE: dict[Any, Callable[[Any], Any]] = {float: _float, str: _str, bool: _bool}


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r:.40} is not a list")
    return value
