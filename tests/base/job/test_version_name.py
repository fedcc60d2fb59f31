from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeldyno.base.errors import RequestError
from modeldyno.base.job.version_name import (
    LARGEST_NUMBER,
    SOURCE,
    VersionName,
    check_alias,
    check_description,
    check_model_name,
    engine_name,
    framework_name,
    name_from_label,
    parse_registered,
    task_name,
)

NAMES = st.from_regex(r"[A-Za-z0-9](?:[A-Za-z0-9._ +-]{0,9}[A-Za-z0-9._+-])?", fullmatch=True)
ALIASES = st.from_regex(r"[A-Za-z][A-Za-z0-9._-]{0,5}", fullmatch=True)
REFERENCES = st.one_of(
    st.builds(VersionName, model=NAMES),
    st.builds(VersionName, model=NAMES, number=st.integers(0, LARGEST_NUMBER)),
    st.builds(VersionName, model=NAMES, alias=ALIASES),
)
HOSTILE = [
    "",
    " ",
    ".",
    "..",
    "../etc/passwd",
    "/etc/passwd",
    "a/../b",
    "a\\..\\b",
    "..%2fetc",
    "a\0b",
    "a\nb",
    "digits\n",
    "dígits",
    "数字",
    "a\u202eb",
    "-rf",
    " digits",
    "digits ",
    "a@b",
    "a:b",
    "a" * 101,
]


class TestReference:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("digits", VersionName(model="digits")),
            ("digits/3", VersionName(model="digits", number=3)),
            ("digits/003", VersionName(model="digits", number=3)),
            ("digits@champion", VersionName(model="digits", alias="champion")),
            ("models:/digits/3", VersionName(model="digits", number=3)),
            ("models:/digits@champion", VersionName(model="digits", alias="champion")),
            ("models:/digits", VersionName(model="digits")),
            ("  my model v1.2 /7 ", VersionName(model="my model v1.2", number=7)),
            ("3", VersionName(model="3")),
        ],
    )
    def test_it_is_read(self, text: str, expected: VersionName) -> None:
        """A name, with a number or an alias, also as MLflow writes it."""
        assert VersionName.parse(text) == expected

    @given(REFERENCES)
    def test_it_reads_itself(self, name: VersionName) -> None:
        """What a reference is written as is read as the same reference, with MLflow's scheme as well."""
        assert VersionName.parse(str(name)) == name
        assert VersionName.parse(f"models:/{name}") == name

    @pytest.mark.parametrize(
        "text",
        [
            *HOSTILE[:3],
            "digits/",
            "digits/latest",
            "digits/-1",
            "digits/1.0",
            "digits/1234567890",
            "digits/٣",
            "digits/3@champion",
            "digits@",
            "digits@3",
            "digits@a@b",
            "digits@../x",
            "models:/",
            "models://digits/3",
            "runs:/digits",
            "a/../b",
            "../digits/3",
            "digits/../../3",
        ],
    )
    def test_what_is_none_is_refused(self, text: str) -> None:
        """In one short sentence."""
        with pytest.raises(RequestError) as caught:
            VersionName.parse(text)
        assert "\n" not in str(caught.value)

    @given(st.text("a/\\.@ 3\0\n:é", max_size=12))
    def test_nothing_that_is_read_holds_a_separator_of_paths(self, text: str) -> None:
        """Whatever was written."""
        with suppress(RequestError):
            name = VersionName.parse(text)
            assert not set("/\\\0\n") & set(name.model + (name.alias or ""))
            assert not name.model.startswith(".")

    def test_the_message_about_a_long_text_is_short(self) -> None:
        """It shows its beginning."""
        with pytest.raises(RequestError) as caught:
            VersionName.parse("/" * 10_000)
        assert len(str(caught.value)) < 200


class TestModelName:
    @pytest.mark.parametrize("text", ["digits", "ResNet-50 v1.5", "a", "7b", "bert_base+int8", "a" * 100])
    def test_letters_digits_and_a_few_signs(self, text: str) -> None:
        """A good name is returned unchanged."""
        assert check_model_name(text) == text

    @pytest.mark.parametrize("text", HOSTILE)
    def test_anything_else_is_refused(self, text: str) -> None:
        """A path, another script, a control character, a space at an end, and what is too long."""
        with pytest.raises(RequestError, match="is no name of a model"):
            check_model_name(text)


class TestAlias:
    @pytest.mark.parametrize("text", ["champion", "Prod-2", "v1.2_x", "a" * 50])
    def test_it_begins_with_a_letter(self, text: str) -> None:
        """A good alias is returned unchanged; a number would be taken for a version."""
        assert check_alias(text) == text

    @pytest.mark.parametrize("text", ["", "3", "-a", "a b", "a/b", "ä", "a\n", "a" * 51])
    def test_anything_else_is_refused(self, text: str) -> None:
        """In a sentence that says what an alias is."""
        with pytest.raises(RequestError, match="is no alias; use up to 50 letters"):
            check_alias(text)


class TestNameFromLabel:
    @pytest.mark.parametrize(
        ("label", "name"),
        [
            ("digits.onnx", "digits.onnx"),
            ("models/My Net.pt", "models-My-Net.pt"),
            ("../../etc/passwd", "etc-passwd"),
            ("网络", "model"),
            ("", "model"),
            ("__init__", "init"),
        ],
    )
    def test_other_characters_become_dashes(self, label: str, name: str) -> None:
        """And those at the ends fall away."""
        assert name_from_label(label) == name

    @given(st.text(max_size=120))
    def test_any_label_gives_a_name(self, label: str) -> None:
        """The name can be registered, and read back from a reference."""
        name = check_model_name(name_from_label(label))

        assert VersionName.parse(f"{name}/3") == VersionName(model=name, number=3)


@pytest.mark.parametrize(
    ("labels", "task", "sentence"),
    [
        ({str(number): "" for number in range(101)}, None, "101 labels are too many"),
        ({"a": "x" * 2000}, "", "The label a has 2,002 characters"),
        ({}, "x" * 2001, "The task has 2,001 characters"),
    ],
)
def test_what_is_said_of_a_version_can_be_listed(
    labels: dict[str, str], task: str | None, sentence: str
) -> None:
    """Up to 100 labels, and 2,000 characters a text."""
    check_description({"a": "x" * 1998}, task="x" * 2000, dataset=None)

    with pytest.raises(RequestError, match=sentence):
        check_description(labels, task=task)


@pytest.mark.parametrize(
    ("word", "name"), [("PyTorch", "torch"), ("scikit-learn", "sklearn"), ("onnx", "onnx"), ("Own", "Own")]
)
def test_a_framework_has_the_name_by_which_it_is_imported(word: str, name: str) -> None:
    assert framework_name(word) == name


def test_words_of_modelci_for_tasks_and_engines() -> None:
    """Its three tasks in any spelling, its engines as the forms that they run; other words stay."""
    assert {task_name(word) for word in ("Image_Classification", "IMAGE_CLASSIFICATION")} == {
        "image classification"
    }
    assert task_name("Fraud_Detection") == "Fraud_Detection"
    assert [engine_name(word) for word in ("TFS", "TRT", "PYTORCH", "TORCHSCRIPT", "ONNX")] == [
        "savedmodel", "tensorrt", "torch", "torchscript", "onnx",
    ]  # fmt: skip
    assert framework_name("PyTorch") == "torch"


@pytest.mark.parametrize(
    ("text", "model", "number", "recipe"),
    [
        ("digits", "digits", None, SOURCE),
        ("digits/3", "digits", 3, SOURCE),
        ("digits/3 onnx-int8", "digits", 3, "onnx-int8"),
        ("text recognition/3 onnx", "text recognition", 3, "onnx"),
    ],
)
def test_a_registered_name_may_have_a_number_and_a_recipe(
    text: str, model: str, number: int | None, recipe: str
) -> None:
    """A recipe follows a number only, as names have spaces; without one it is the source."""
    parsed = parse_registered(text)

    assert parsed is not None
    name, chosen = parsed
    assert (name.model, name.number, chosen) == (model, number, recipe)


@pytest.mark.parametrize("text", ["net.onnx:x", "models/net/digits.onnx", "-rf", "http://127.0.0.1:80#x"])
def test_what_cannot_be_a_registered_name_is_none(text: str) -> None:
    """It may be a path, a reference or a URL."""
    assert parse_registered(text) is None
