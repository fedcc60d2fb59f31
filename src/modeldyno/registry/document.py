"""What the registry answers as kinds of documents."""

from __future__ import annotations

from modeldyno import codec
from modeldyno.core.registry.answer import RegistryAnswer
from modeldyno.core.registry.overview import VersionOverview
from modeldyno.interfaces.document import plain_kind
from modeldyno.views.registry import answer, version

ANSWER = plain_kind("answer", RegistryAnswer, answer.blocks, encode=codec.encode_document)
VERSION = plain_kind("version", VersionOverview, version.blocks, encode=codec.encode_document)
