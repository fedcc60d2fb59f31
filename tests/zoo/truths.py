"""What known architectures cost, derived by hand from their sizes.

Nothing here looks at a module: each class holds the sizes of an architecture, and `cost` adds up its terms.
The derivations are written out in docs/explanation/derivations.md.
"""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Multiply-accumulates (MACs) of a forward call, by what a backward pass adds to them; and parameters."""

    both: int = 0  # products of two operands that both take a gradient
    one: int = 0  # products of which one operand takes none: a layer that sees the input itself
    frozen: int = 0  # products that no gradient passes
    attention: int = 0  # scores and values
    parameters: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})

    def __mul__(self, times: int) -> Cost:
        return Cost(**{f.name: getattr(self, f.name) * times for f in fields(self)})

    __rmul__ = __mul__

    @property
    def forward(self) -> int:
        """MACs of one forward call."""
        return self.both + self.one + self.frozen + self.attention

    def training(self, *, fused: bool = False) -> int:
        """MACs of a forward and a backward call; fused attention computes its scores a second time."""
        attention = 3 * self.attention + (self.attention // 2 if fused else 0)
        return 3 * self.both + 2 * self.one + self.frozen + attention


def linear(rows: int, wide: int, out: int, *, bias: bool = True, of_input: bool = False) -> Cost:
    """A matrix of `out` x `wide` times `rows` vectors."""
    parameters = (wide + bias) * out
    macs = rows * wide * out
    return Cost(one=macs, parameters=parameters) if of_input else Cost(both=macs, parameters=parameters)


def conv(positions: int, inner: int, out: int, *, bias: bool = True, of_input: bool = False) -> Cost:
    """A convolution: for each output position and channel, `inner` = kernel area x channels of a group."""
    return linear(positions, inner, out, bias=bias, of_input=of_input)


def attend(queries: int, keys: int, wide: int) -> Cost:
    """Scores and values over all heads, `wide` = heads x width of a head; every query sees every key."""
    return Cost(attention=2 * queries * keys * wide)


def norm(wide: int) -> Cost:
    """A scale and a shift."""
    return Cost(parameters=2 * wide)


def table(rows: int, wide: int = 1) -> Cost:
    """Parameters that are looked up or multiplied element by element."""
    return Cost(parameters=rows * wide)


def untrained(cost: Cost) -> Cost:
    """Give the same products and parameters without any gradient."""
    return Cost(frozen=cost.forward, parameters=cost.parameters)


def halved(size: int) -> int:
    """Give the output size of a convolution of an odd kernel k, stride 2 and padding k // 2."""
    return (size + 1) // 2


@dataclass(frozen=True, kw_only=True)
class ResNet:
    """A residual network of two 3x3 a block, or of 1x1, 3x3, 1x1 with the stride in the middle."""

    depths: tuple[int, ...] = (3, 4, 6, 3)
    bottleneck: bool = True
    small_stem: bool = False  # 3x3 and no pooling, for images of 32 pixels
    classes: int = 1000
    height: int = 224
    width: int = 224
    stem: int = 64
    batch: int = 1

    def backbone(self, *, norms: bool = True) -> tuple[Cost, int, int]:
        """Give all but the classifier, and the size of the last map; frozen norms have no parameters."""
        height, width = self.height, self.width
        if not self.small_stem:
            height, width = halved(height), halved(width)
        cost = self._layer(
            height * width, (9 if self.small_stem else 49) * 3, self.stem, norms, of_input=True
        )
        if not self.small_stem:
            height, width = halved(height), halved(width)
        wide = self.stem
        for stage, depth in enumerate(self.depths):
            inner = self.stem * 2**stage
            out = 4 * inner if self.bottleneck else inner
            for block in range(depth):
                before = height * width
                if stage and not block:
                    height, width = halved(height), halved(width)
                after = height * width
                if self.bottleneck:
                    cost += self._layer(before, wide, inner, norms)
                    cost += self._layer(after, 9 * inner, inner, norms)
                    cost += self._layer(after, inner, out, norms)
                else:
                    cost += self._layer(after, 9 * wide, out, norms)
                    cost += self._layer(after, 9 * out, out, norms)
                if wide != out:
                    cost += self._layer(after, wide, out, norms)
                wide = out
        return cost, height, width

    def _layer(self, positions: int, inner: int, out: int, norms: bool, *, of_input: bool = False) -> Cost:
        product = conv(self.batch * positions, inner, out, bias=False, of_input=of_input)
        return product + norm(out) if norms else product

    @property
    def features(self) -> int:
        """Channels of the last map."""
        return (self.stem << len(self.depths) - 1) * (4 if self.bottleneck else 1)

    def cost(self) -> Cost:
        """Backbone and classifier."""
        return self.backbone()[0] + linear(self.batch, self.features, self.classes)


RESNET50 = ResNet()
RESNET18 = ResNet(depths=(2, 2, 2, 2), bottleneck=False)
RESNET18_CIFAR = ResNet(
    depths=(2, 2, 2, 2), bottleneck=False, small_stem=True, classes=10, height=32, width=32
)


@dataclass(frozen=True, kw_only=True)
class ConvNext:
    """ConvNeXt: a depthwise 7x7 and two pointwise layers a block."""

    depths: tuple[int, ...] = (3, 3, 9, 3)
    widths: tuple[int, ...] = (96, 192, 384, 768)
    classes: int = 1000
    size: int = 224
    batch: int = 1

    def cost(self) -> Cost:
        """Patches, stages with what shrinks the map between them, classifier."""
        side = self.size // 4
        cost = conv(self.batch * side**2, 16 * 3, self.widths[0], of_input=True) + norm(self.widths[0])
        for stage, (depth, wide) in enumerate(zip(self.depths, self.widths, strict=True)):
            if stage:
                before = self.widths[stage - 1]
                side //= 2
                cost += norm(before) + conv(self.batch * side**2, 4 * before, wide)
            rows = self.batch * side**2
            depthwise = conv(rows, 49, wide)
            pointwise = linear(rows, wide, 4 * wide) + linear(rows, 4 * wide, wide)
            cost += depth * (depthwise + norm(wide) + pointwise + table(wide))
        return cost + norm(self.widths[-1]) + linear(self.batch, self.widths[-1], self.classes)


@dataclass(frozen=True, kw_only=True)
class Vit:
    """A vision transformer with a class token and a classifier on it."""

    hidden: int = 768
    layers: int = 12
    heads: int = 12
    intermediate: int = 3072
    patch: int = 16
    classes: int = 1000
    size: int = 224
    batch: int = 1

    def cost(self) -> Cost:
        """Patches, layers, classifier."""
        patches = (self.size // self.patch) ** 2
        seq, wide = patches + 1, self.hidden
        cost = conv(self.batch * patches, 3 * self.patch**2, wide, of_input=True) + table(seq + 1, wide)
        cost += self.layers * encoder_layer(self.batch, seq, wide, self.intermediate)
        return cost + norm(wide) + linear(self.batch, wide, self.classes)


def encoder_layer(batch: int, seq: int, wide: int, intermediate: int) -> Cost:
    """Four projections, attention, two feed-forward layers, two norms; with biases."""
    rows = batch * seq
    projections = 4 * linear(rows, wide, wide)
    feed_forward = linear(rows, wide, intermediate) + linear(rows, intermediate, wide)
    return projections + batch * attend(seq, seq, wide) + feed_forward + 2 * norm(wide)


@dataclass(frozen=True, kw_only=True)
class Bert:
    """BERT without a head."""

    hidden: int = 768
    layers: int = 12
    heads: int = 12
    intermediate: int = 3072
    vocab: int = 30522
    positions: int = 512
    pooler: bool = True
    seq: int = 128
    batch: int = 1

    def cost(self) -> Cost:
        """Tables, layers, and the pooler on the first token."""
        wide = self.hidden
        tables = table(self.vocab + self.positions + 2, wide) + norm(wide)
        layers = self.layers * encoder_layer(self.batch, self.seq, wide, self.intermediate)
        return tables + layers + (linear(self.batch, wide, wide) if self.pooler else Cost())


@dataclass(frozen=True, kw_only=True)
class Gpt2:
    """GPT-2 with its language head, which is the table of tokens."""

    hidden: int = 768
    layers: int = 12
    heads: int = 12
    vocab: int = 50257
    positions: int = 1024
    seq: int = 512
    batch: int = 1

    def cost(self) -> Cost:
        """Tables, layers, logits of all positions."""
        wide = self.hidden
        tables = table(self.vocab + self.positions, wide)
        layers = self.layers * encoder_layer(self.batch, self.seq, wide, 4 * wide)
        return tables + layers + norm(wide) + head(self.batch * self.seq, wide, self.vocab)


def head(rows: int, wide: int, vocab: int) -> Cost:
    """Logits by the matrix that is the table of tokens: a product, and no parameters of its own."""
    return Cost(both=rows * wide * vocab)


@dataclass(frozen=True, kw_only=True)
class Llama:
    """Llama with its own language head and groups of query heads that share keys and values."""

    hidden: int = 4096
    layers: int = 32
    heads: int = 32
    kv_heads: int = 8
    intermediate: int = 14336
    vocab: int = 128256
    seq: int = 512
    batch: int = 1

    @property
    def head_width(self) -> int:
        """Width of a head."""
        return self.hidden // self.heads

    def attention(self) -> Cost:
        """Projections, scores and values."""
        rows, wide, kv = self.batch * self.seq, self.hidden, self.kv_heads * self.head_width
        outer = linear(rows, wide, wide, bias=False) + linear(rows, wide, wide, bias=False)
        shared = 2 * linear(rows, wide, kv, bias=False)
        return outer + shared + self.batch * attend(self.seq, self.seq, wide)

    def feed_forward(self) -> Cost:
        """Gate, up, down."""
        return gated(self.batch * self.seq, self.hidden, self.intermediate)

    def cost(self) -> Cost:
        """Table, layers, logits of all positions."""
        wide = self.hidden
        layers = self.layers * (self.attention() + self.feed_forward() + table(2, wide))
        logits = linear(self.batch * self.seq, wide, self.vocab, bias=False)
        return table(self.vocab, wide) + layers + table(wide) + logits

    def angles(self) -> Cost:
        """What older releases of transformers add: the angles of RoPE as a matrix product, once a call."""
        return Cost(frozen=self.head_width // 2 * self.seq)


def gated(rows: int, wide: int, intermediate: int) -> Cost:
    """Gate, up and down, without biases."""
    return 2 * linear(rows, wide, intermediate, bias=False) + linear(rows, intermediate, wide, bias=False)


@dataclass(frozen=True, kw_only=True)
class Mixtral(Llama):
    """Mixtral: Llama whose feed-forward is a choice of experts. By default one of a tiny size."""

    hidden: int = 512
    layers: int = 4
    heads: int = 8
    kv_heads: int = 2
    intermediate: int = 1792
    vocab: int = 32000
    seq: int = 256
    experts: int = 8
    chosen: int = 2

    def feed_forward(self) -> Cost:
        """The router sees every token, and `chosen` experts see each."""
        rows = self.batch * self.seq
        router = linear(rows, self.hidden, self.experts, bias=False)
        expert = gated(1, self.hidden, self.intermediate)
        parameters = self.experts * expert.parameters
        return router + Cost(both=rows * self.chosen * expert.both, parameters=parameters)

    def dense(self) -> Cost:
        """Every expert sees every token."""
        unchosen = self.experts - self.chosen
        share = gated(self.batch * self.seq, self.hidden, self.intermediate).both
        return self.cost() + Cost(both=self.layers * unchosen * share)


@dataclass(frozen=True, kw_only=True)
class T5:
    """T5 of version 1.0: encoder and decoder, no biases, the head is the table of tokens."""

    hidden: int = 512
    head_width: int = 64
    heads: int = 8
    intermediate: int = 2048
    layers: int = 6
    vocab: int = 32128
    buckets: int = 32
    seq: int = 512
    target: int = 128
    batch: int = 1

    def _attention(self, queries: int, keys: int) -> Cost:
        wide, inner = self.hidden, self.heads * self.head_width
        query_and_out = 2 * linear(self.batch * queries, wide, inner, bias=False)
        key_and_value = 2 * linear(self.batch * keys, wide, inner, bias=False)
        return query_and_out + key_and_value + self.batch * attend(queries, keys, inner) + table(wide)

    def _feed_forward(self, seq: int) -> Cost:
        wide, rows = self.hidden, self.batch * seq
        up, down = (
            linear(rows, wide, self.intermediate, bias=False),
            linear(rows, self.intermediate, wide, bias=False),
        )
        return up + down + table(wide)

    def cost(self) -> Cost:
        """One table of tokens, encoder, decoder, logits of all target positions."""
        encoder = self.layers * (self._attention(self.seq, self.seq) + self._feed_forward(self.seq))
        own, across = self._attention(self.target, self.target), self._attention(self.target, self.seq)
        decoder = self.layers * (own + across + self._feed_forward(self.target))
        tables = table(self.vocab, self.hidden) + 2 * (table(self.buckets, self.heads) + table(self.hidden))
        return tables + encoder + decoder + head(self.batch * self.target, self.hidden, self.vocab)


@dataclass(frozen=True, kw_only=True)
class Whisper:
    """Whisper: two convolutions over a spectrogram, encoder, decoder; the head is the table of tokens."""

    hidden: int = 384
    heads: int = 6
    layers: int = 4
    intermediate: int = 1536
    vocab: int = 51865
    bins: int = 80
    frames: int = 3000
    positions: int = 448
    target: int = 64
    batch: int = 1

    @property
    def seq(self) -> int:
        """Positions after the convolution of stride 2."""
        return self.frames // 2

    def _attention(self, queries: int, keys: int) -> Cost:
        wide = self.hidden
        query_and_out = 2 * linear(self.batch * queries, wide, wide)
        key = linear(self.batch * keys, wide, wide, bias=False)
        value = linear(self.batch * keys, wide, wide)
        return query_and_out + key + value + self.batch * attend(queries, keys, wide) + norm(wide)

    def _feed_forward(self, seq: int) -> Cost:
        wide, rows = self.hidden, self.batch * seq
        up, down = linear(rows, wide, self.intermediate), linear(rows, self.intermediate, wide)
        return up + down + norm(wide)

    def cost(self) -> Cost:
        """Convolutions, encoder, decoder, logits of all target positions."""
        wide = self.hidden
        first = conv(self.batch * self.frames, 3 * self.bins, wide, of_input=True)
        second = conv(self.batch * self.seq, 3 * wide, wide)
        tables = table(self.seq + self.positions + self.vocab, wide)
        encoder = self.layers * (self._attention(self.seq, self.seq) + self._feed_forward(self.seq))
        own, across = self._attention(self.target, self.target), self._attention(self.target, self.seq)
        decoder = self.layers * (own + across + self._feed_forward(self.target))
        logits = head(self.batch * self.target, wide, self.vocab)
        return first + second + tables + encoder + decoder + 2 * norm(wide) + logits


@dataclass(frozen=True, kw_only=True)
class Mamba:
    """Mamba by the step-by-step scan; the head is the table of tokens."""

    hidden: int = 768
    layers: int = 24
    state: int = 16
    kernel: int = 4
    expand: int = 2
    rank: int = 48
    vocab: int = 50280
    seq: int = 64
    batch: int = 1

    def cost(self) -> Cost:
        """Table, layers, logits of all positions."""
        wide, inner, rows = self.hidden, self.expand * self.hidden, self.batch * self.seq
        cost = linear(rows, wide, 2 * inner, bias=False)
        # The padding is on both sides, and what lies beyond the sequence is cut off afterwards.
        cost += conv(self.batch * (self.seq + self.kernel - 1), self.kernel, inner)
        cost += linear(rows, inner, self.rank + 2 * self.state, bias=False)
        cost += linear(rows, self.rank, inner)
        # Each step reads its state of inner x state by a vector. The state itself grows element by element.
        cost += Cost(both=rows * inner * self.state)
        cost += linear(rows, inner, wide, bias=False)
        cost += table(self.state + 1, inner) + table(wide)
        return table(self.vocab, wide) + self.layers * cost + table(wide) + head(rows, wide, self.vocab)


@dataclass(frozen=True, kw_only=True)
class Unet:
    """The denoiser of tests/zoo/unet.py."""

    latent: int = 4
    widths: tuple[int, ...] = (64, 128, 256)
    attends: tuple[bool, ...] = (False, True, True)
    blocks: int = 2
    heads: int = 4
    context: int = 256
    words: int = 77
    size: int = 32
    batch: int = 1

    def _residual(self, wide: int, out: int, side: int) -> Cost:
        positions = self.batch * side**2
        time = linear(self.batch, 4 * self.widths[0], out)
        layers = conv(positions, 9 * wide, out) + conv(positions, 9 * out, out)
        shortcut = conv(positions, wide, out) if wide != out else Cost()
        return norm(wide) + norm(out) + layers + time + shortcut

    def _transformer(self, wide: int, side: int) -> Cost:
        seq = side**2
        rows = self.batch * seq
        ends = norm(wide) + 2 * conv(rows, wide, wide)
        out = linear(rows, wide, wide)
        own = 3 * linear(rows, wide, wide, bias=False) + out + self.batch * attend(seq, seq, wide)
        words = 2 * linear(self.batch * self.words, self.context, wide, bias=False, of_input=True)
        across = (
            linear(rows, wide, wide, bias=False) + words + out + self.batch * attend(seq, self.words, wide)
        )
        feed_forward = linear(rows, wide, 8 * wide) + linear(rows, 4 * wide, wide)
        return ends + own + across + feed_forward + 3 * norm(wide)

    def _block(self, level: int, wide: int, side: int) -> Cost:
        out = self.widths[level]
        block = self._residual(wide, out, side)
        return block + self._transformer(out, side) if self.attends[level] else block

    def cost(self) -> Cost:
        """Time, the way down, the middle, the way up with what the way down left, the last convolution."""
        first, last, levels = self.widths[0], self.widths[-1], len(self.widths)
        time = linear(self.batch, first, 4 * first, of_input=True) + linear(self.batch, 4 * first, 4 * first)
        side, wide = self.size, first
        cost = time + conv(self.batch * side**2, 9 * self.latent, first, of_input=True)
        left = [first]
        for level, out in enumerate(self.widths):
            for _ in range(self.blocks):
                cost += self._block(level, wide, side)
                wide = out
                left.append(wide)
            if level < levels - 1:
                side //= 2
                cost += conv(self.batch * side**2, 9 * wide, wide)
                left.append(wide)
        cost += 2 * self._residual(last, last, side) + self._transformer(last, side)
        for level in reversed(range(levels)):
            for _ in range(self.blocks + 1):
                cost += self._block(level, wide + left.pop(), side)
                wide = self.widths[level]
            if level:
                side *= 2
                cost += conv(self.batch * side**2, 9 * wide, wide)
        return cost + norm(first) + conv(self.batch * side**2, 9 * first, self.latent)


@dataclass(frozen=True, kw_only=True)
class Detr:
    """DETR on a ResNet whose parameters take no gradient and whose norms are constants."""

    backbone: ResNet = ResNet(height=800, width=1066)
    hidden: int = 256
    heads: int = 8
    layers: int = 6
    intermediate: int = 2048
    queries: int = 100
    labels: int = 91

    def _feed_forward(self, rows: int) -> Cost:
        wide = self.hidden
        return linear(rows, wide, self.intermediate) + linear(rows, self.intermediate, wide) + norm(wide)

    def _attention(self, queries: int, keys: int) -> Cost:
        wide, batch = self.hidden, self.backbone.batch
        projections = 2 * linear(batch * queries, wide, wide) + 2 * linear(batch * keys, wide, wide)
        return projections + batch * attend(queries, keys, wide) + norm(wide)

    def cost(self) -> Cost:
        """Backbone, projection, encoder, decoder, labels and boxes."""
        wide, batch = self.hidden, self.backbone.batch
        features, height, width = self.backbone.backbone(norms=False)
        seq, rows = height * width, batch * self.queries
        projection = conv(batch * seq, self.backbone.features, wide, of_input=True)
        encoder = self.layers * (self._attention(seq, seq) + self._feed_forward(batch * seq))
        own, across = self._attention(self.queries, self.queries), self._attention(self.queries, seq)
        decoder = self.layers * (own + across + self._feed_forward(rows)) + norm(wide)
        # The first values of the decoder are made of zeros, which take no gradient.
        zeros = rows * wide**2
        decoder += Cost(both=-zeros, one=zeros)
        heads = linear(rows, wide, self.labels + 1) + 2 * linear(rows, wide, wide) + linear(rows, wide, 4)
        return untrained(features) + projection + encoder + decoder + table(self.queries, wide) + heads
