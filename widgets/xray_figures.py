"""What a precision x-ray found, in words and figures: for the table, for copying, for the picture."""

from __future__ import annotations

import math
from typing import NamedTuple

from PySide6.QtCore import QCoreApplication
from PySide6.QtGui import QColor

from engine.events import Xray, XraySide, XrayToken
from widgets import theme
from widgets.format import bytes_text, count_text, duration_text, nats_text, number_text, percent_text, token_label

KL_MARKS = (0.0001, 0.001, 0.01, 0.1, 1.0)  # nats; the shade follows their logarithm


NOISE = 1.1  # speeds that are nearer than this are not told apart


def tr(text: str) -> str:
    return QCoreApplication.translate("Xray", text)


class Row(NamedTuple):
    """One line of the table: a value for each precision, or one for both in `reference` with `other` empty."""

    name: str
    reference: str
    other: str
    tooltip: str


def kl_share(nats: float | None) -> float:
    """How strongly a divergence is shaded, 0 to 1: by its logarithm from 0.0001 to 1 nat."""
    if nats is None or not nats > KL_MARKS[0]:
        return 0.0
    if nats >= KL_MARKS[-1]:
        return 1.0
    return math.log(nats / KL_MARKS[0]) / math.log(KL_MARKS[-1] / KL_MARKS[0])


def kl_shade(look: theme.Theme, nats: float | None) -> QColor | None:
    """What lies behind a token of this divergence, None for none; ink stays readable on it."""
    share = kl_share(nats)
    return theme.mixed(look.panel, look.surprise, (0.42 if look.dark else 0.62) * share) if share > 0.0 else None


def kl_text(nats: float | None) -> str:
    """A divergence, two figures of it: 0.00093 nats, 0.021 nats, 1.4 nats."""
    if nats is None or not math.isfinite(nats):
        return nats_text(nats)
    decimals = 2 if nats == 0.0 or nats >= 0.095 else min(8, 1 - math.floor(math.log10(nats)))
    return f"{number_text(nats, decimals)} {tr('nats')}"


def table(found: Xray) -> list[Row]:
    """The two columns."""
    one, two = found.reference, found.other
    measured = tr("Measured, both in one run.")

    def row(name: str, text, tooltip: str) -> Row:
        return Row(name, text(one), text(two), f"{tooltip}\n{measured}".strip())

    return [
        row(
            tr("perplexity"),
            lambda side: number_text(side.perplexity, 2),
            tr("exp of the mean surprise (−ln probability, in nats) of the text's own tokens: smaller is better."),
        ),
        row(tr("weights in memory"), lambda side: bytes_text(side.weights_bytes), tr("Block constants included.")),
        row(
            tr("decode speed"),
            lambda side: f"{number_text(side.decode_tokens_per_s, 1)} {tr('tok/s')}",
            tr(
                "Our loop with its telemetry: the median of {count} tokens that go on from the text's beginning."
            ).format(count=min(one.decode_tokens, two.decode_tokens)),
        ),
        row(tr("reading the text"), lambda side: duration_text(side.read_ms), tr("One pass over all its tokens.")),
        row(
            tr("load time"),
            lambda side: duration_text(side.load_ms),
            tr("From the files to a model that is ready; the files may lie in the system's cache."),
        ),
    ]


def summary(found: Xray) -> list[Row]:
    """What concerns both."""
    compared, flips = len(found.compared), len(found.flips)
    order = tr(
        "KL divergence of the two distributions, {reference} first, over the whole vocabulary, in nats: how much is "
        "lost in believing {other} where {reference} is right. 0: the same."
    ).format(reference=found.reference.precision, other=found.other.precision)
    return [
        Row(tr("KL divergence, mean"), kl_text(found.mean_kl_nats), "", order),
        Row(tr("KL divergence, largest"), kl_text(found.largest_kl_nats), "", order),
        Row(
            tr("same first choice"),
            tr("{share} · {flips} of {count} differ").format(
                share=percent_text(found.same_first_share), flips=count_text(flips), count=count_text(compared)
            ),
            "",
            tr("Where the most probable token is the same: there greedy decoding would go on in the same way."),
        ),
    ]


def explanation(found: Xray) -> str:
    """Why the smaller of the two was slower, and what each really computes with; only what was measured."""
    small, large = sorted((found.other, found.reference), key=lambda side: side.weights_bytes)
    parts = []
    if found.slower_because:
        times = number_text(large.decode_tokens_per_s / max(small.decode_tokens_per_s, 1e-9), 1)
        saved = percent_text(1 - small.weights_bytes / large.weights_bytes, 0)
        parts.append(
            tr(
                "{small} takes {saved} less memory than {large}, and needed {times} times as long for a word here."
            ).format(small=small.precision, large=large.precision, saved=saved, times=times)
        )
        parts.append(
            {
                "unpacking": tr(
                    "Its weights lie packed and are unpacked to a floating type again for every word: that work costs "
                    "more than the smaller reading saves on this processor."
                ),
                "no kernels": tr(
                    "This processor has no products in its number type, so each one is made in another type and "
                    "converted."
                ),
                "unknown": tr("Why is not known: other work on this computer can do that, so measure again."),
            }[found.slower_because]
        )
    elif (
        small.weights_bytes < large.weights_bytes and small.decode_tokens_per_s > large.decode_tokens_per_s * NOISE > 0
    ):
        parts.append(
            tr("{small} wrote {times} times as fast as {large} here: each word reads all weights, and it has fewer "
               "bytes of them.").format(
                small=small.precision,
                large=large.precision,
                times=number_text(small.decode_tokens_per_s / large.decode_tokens_per_s, 1),
            )
        )  # fmt: skip
    parts += [f"{side.precision}: {_what_ran(side)}" for side in (found.reference, found.other)]
    return "\n".join([*parts, *found.notes])


def _what_ran(side: XraySide) -> str:
    packed = tr("quantised layers: {words}").format(words=side.words) if side.words else ""
    return f"{packed}; {side.decode_path}" if packed else side.decode_path


def title(found: Xray) -> str:
    return tr("{model} · {other} against {reference}").format(
        model=found.model, other=found.other.precision, reference=found.reference.precision
    )


def about_token(found: Xray, at: int) -> str:
    """What the two made of one place, in a line or two."""
    token: XrayToken = found.tokens[at]
    name = f"“{token_label(token.label)}”"
    if token.kl_nats is None:
        return tr("{token} · the first token: nothing comes before it that could predict it").format(token=name)
    one, two = found.reference.precision, found.other.precision
    of_this = tr("{token} · {kl} · its probability {first} in {one}, {second} in {two}").format(
        token=name, kl=kl_text(token.kl_nats), one=one, two=two,
        first=percent_text(math.exp(token.reference_logprob)), second=percent_text(math.exp(token.other_logprob)),
    )  # fmt: skip
    here, there = (f"“{token_label(text)}”" for text in (token.reference_choice, token.other_choice))
    first, second = token.reference_choice_probs, token.other_choice_probs
    if not token.flipped:
        choice = tr("both would choose {token} ({first} and {second})").format(
            token=here, first=percent_text(first[0]), second=percent_text(first[1])
        )
    else:
        choice = tr(
            "another first choice: {one} takes {here} ({first}; in {two} {first_there}), "
            "{two} takes {there} ({second}; in {one} {second_here})"
        ).format(
            one=one, two=two, here=here, there=there, first=percent_text(first[0]), first_there=percent_text(first[1]),
            second=percent_text(second[1]), second_here=percent_text(second[0]),
        )  # fmt: skip
    return f"{of_this}\n{choice}"


def as_rows(found: Xray) -> list[tuple[str, str, str]]:
    """The whole table as text, its heading first."""
    heading = ("", found.reference.precision, found.other.precision)
    return [heading, *((row.name, row.reference, row.other) for row in (*table(found), *summary(found)))]


def as_tsv(found: Xray) -> str:
    """For a spreadsheet."""
    return "\n".join("\t".join(row) for row in as_rows(found)) + "\n"


def as_markdown(found: Xray) -> str:
    heading, *rows = as_rows(found)
    lines = [heading, ("---", "---:", "---:"), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in lines) + "\n"
