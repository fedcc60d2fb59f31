"""Test suite that every importer must pass.

Inherit, and name the importer and sample files of its tool; pytest does the rest::

    from modeldyno.testing.importers import ImporterSuite

    class TestMyTool(ImporterSuite):
        name = "mytool"
        examples = (Path(__file__).parent / "golden" / "mytool.json",)
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, ClassVar

import pytest

from modeldyno.base import codec, plugins
from modeldyno.base.errors import ModelDynoError
from modeldyno.exchange import import_

if TYPE_CHECKING:
    from pathlib import Path

MUTATIONS = 300


class ImporterSuite:
    """An importer reads real files, and refuses damaged ones with one sentence."""

    name: ClassVar[str]
    examples: ClassVar[tuple[Path, ...]]

    def test_it_claims_its_own_files_and_no_others(self) -> None:
        """A file is recognised by its content, by one importer alone."""
        for example in self.examples:
            file = import_.decode_file(example, example.read_bytes())
            claiming = [name for name, importer in plugins.usable("importer") if importer.claims(file)]
            assert claiming == [self.name], example.name

    @pytest.mark.parametrize(
        "content",
        [b"", b"{}", b"[]", b"null", b"a,b\n1,2\n", b"\xff\xfe", b'{"a": {"b": []}}', b"{\n}\n{\n}"],
    )
    def test_it_claims_nothing_else(self, content: bytes, tmp_path: Path) -> None:
        """What may be anything is refused in a sentence, with or without the name of the tool."""
        path = tmp_path / "other"
        path.write_bytes(content)
        for tool in (self.name, None):
            with pytest.raises(ModelDynoError):
                import_.read(path, tool)

    def test_results_are_documents(self) -> None:
        """Each Result survives being written and read, and says who measured it."""
        for example in self.examples:
            for result in import_.read(example):
                assert codec.decode(codec.encode(result)) == result
                assert result.job.backend == "imported"
                assert self.name in result.environment.software
                assert result.doubts[0].code == "imported"

    def test_reading_twice_gives_the_same(self) -> None:
        """The same content has the same ids."""
        for example in self.examples:
            assert import_.read(example) == import_.read(example)

    def test_damaged_files_are_read_or_refused_in_a_sentence(self, tmp_path: Path) -> None:
        """Whatever three bytes become, or wherever a file ends, there is no other error than ours."""
        rng = random.Random(7)
        path = tmp_path / "damaged"
        for number in range(MUTATIONS):
            content = bytearray(self.examples[number % len(self.examples)].read_bytes()[: 2**16])
            if number % 3 == 0:
                del content[rng.randrange(len(content)) :]
            for _ in range(3):
                at = rng.randrange(max(1, len(content)))
                content[at : at + rng.randrange(3)] = rng.choice(_REPLACEMENTS)
            path.write_bytes(content)
            try:
                import_.read(path, self.name)
            except ModelDynoError as error:
                assert "\n" not in str(error)  # noqa: PT017 - either outcome is right


_REPLACEMENTS = (
    b"",
    b"-",
    b"null",
    b'"',
    b"}",
    b"[1]",
    b"1e400",
    b"9" * 30,
    b"{}",
    b"\x00",
    b"NaN",
    b",",
    b"x",
    b"\xc3",
)
