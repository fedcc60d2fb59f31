"""Why a recurrent layer of torch cannot be exported, told from what it raised."""

from __future__ import annotations

from modeldyno.models.static.source_line import describe_packed_layer, packed_layer

_LAYER = """
class LSTM:
    def forward(self, input, batch_sizes):
        raise TypeError("type must be tuple of ints, but got FakeTensor")
"""


def _raised(batch_sizes: object, file: str = "/site-packages/torch/nn/modules/rnn.py") -> Exception:
    """Return what a layer of this file raises."""
    space: dict[str, type] = {}
    exec(compile(_LAYER, file, "exec"), space)
    try:
        space["LSTM"]().forward(None, batch_sizes)
    except TypeError as error:
        return error
    raise AssertionError


def test_a_layer_of_packed_sequences_is_named_with_the_line_that_calls_it() -> None:
    """That of the user's code, which is what can be changed."""
    sentence = describe_packed_layer(_raised([2, 1]))

    assert sentence.startswith("LSTM of packed sequences cannot be exported (test_packed_sequences.py:")


def test_what_another_layer_raises_says_nothing_of_packed_sequences() -> None:
    """One that was given a padded batch, and one that is not torch's."""
    assert packed_layer(_raised(None)) == ""
    assert describe_packed_layer(_raised([2, 1], "net.py")) == ""


def test_without_a_line_of_the_user_the_sentence_has_none() -> None:
    """A model from a library."""
    error = _raised([2, 1])
    assert error.__traceback__ is not None
    error.__traceback__ = error.__traceback__.tb_next

    assert describe_packed_layer(error).startswith("LSTM of packed sequences cannot be exported: how many")
