"""What a transformer is made of, as far as its memory depends on it."""

from dataclasses import dataclass, replace
from enum import StrEnum

from jobs.reading import SpecError
from scheduler.estimate.checks import one_of, whole

HEAD_DIM = 128
WIDTH_PER_LAYER = 128
"""Hidden size ÷ layers of a typical decoder (Llama 2 7B: 128), for models of which only the size is known."""


class Norm(StrEnum):
    """Which normalisation a block has."""

    LAYER = "layer"
    RMS = "rms"


@dataclass(frozen=True, slots=True)
class Architecture:
    """A stack of ``layers`` equal blocks between an embedding of ``vocab`` × ``hidden`` and an output head.

    ``kv_heads`` is below ``heads`` with grouped queries; ``gated`` feed-forward layers (SwiGLU) have three matrices
    instead of two; ``tied`` models use the embedding as their head; ``positions`` are learned ones (0: none, or
    rotary); ``parallel`` blocks feed attention and feed-forward from one norm; ``dropout`` is whether training keeps
    dropout masks. ``parameters`` is the published count, None to work it out. Raises SpecError naming the field.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    intermediate: int
    vocab: int
    gated: bool = True
    tied: bool = False
    positions: int = 0
    parallel: bool = False
    dropout: bool = False
    norm: Norm = Norm.RMS
    parameters: int | None = None
    source: str = ""

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        for field in ("layers", "hidden", "heads", "kv_heads", "intermediate", "vocab"):
            whole(field, getattr(self, field), most=10**7)
        whole("positions", self.positions, least=0, most=10**9)
        if self.parameters is not None:
            whole("parameters", self.parameters)
        one_of("norm", self.norm, Norm)
        if self.hidden % self.heads:
            raise SpecError("heads", f"must divide hidden ({self.hidden}), {self.heads} does not")
        if self.heads % self.kv_heads:
            raise SpecError("kv_heads", f"must divide heads ({self.heads}), {self.kv_heads} does not")

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.hidden // self.heads

    @property
    def kv_width(self) -> int:
        """Width of a token's keys, and of its values, in one layer."""
        return self.kv_heads * self.head_dim

    @property
    def embedding_parameters(self) -> int:
        """Token and position embeddings."""
        return (self.vocab + self.positions) * self.hidden

    @property
    def head_parameters(self) -> int:
        """The output head's own matrix; 0 where it is the embedding."""
        return 0 if self.tied else self.vocab * self.hidden

    @property
    def layer_parameters(self) -> int:
        """One block: query and output h² each, keys and values h × kv, the feed-forward matrices, two norms.

        Biases are left out: below 0.2 % of any model in the table.
        """
        attention = 2 * self.hidden * (self.hidden + self.kv_width)
        return attention + (3 if self.gated else 2) * self.hidden * self.intermediate + 2 * self.hidden

    @property
    def counted_parameters(self) -> int:
        """All of them as the fields above give them."""
        return self.layers * self.layer_parameters + self.embedding_parameters + self.head_parameters

    @property
    def total_parameters(self) -> int:
        """The published count, else the counted one."""
        return self.parameters or self.counted_parameters

    @property
    def block_parameters(self) -> int:
        """All but embeddings and head."""
        return max(0, self.total_parameters - self.embedding_parameters - self.head_parameters)


def typical(parameters: int, vocab: int = 32_000) -> Architecture:
    """A decoder of usual proportions with about this many parameters.

    From N ≈ 12 × layers × hidden² beside the embeddings (Kaplan et al. 2020, "Scaling Laws for Neural Language
    Models", section 2.1) with hidden = 128 × layers.
    """
    whole("parameters", parameters, least=1_000_000)

    def decoder(layers: int) -> Architecture:
        hidden = layers * WIDTH_PER_LAYER
        heads, name = hidden // HEAD_DIM, f"{parameters / 1e9:g}B"
        small = min(vocab, max(1, parameters // (4 * hidden)))
        return Architecture(name, layers, hidden, heads, heads, round(hidden * 8 / 3), small)

    most = round((parameters / (12 * WIDTH_PER_LAYER**2)) ** (1 / 3)) + 1
    sizes = map(decoder, range(max(1, most // 2), most + 1))
    nearest = min(sizes, key=lambda each: abs(each.counted_parameters - parameters))
    return replace(nearest, parameters=parameters)
