"""What the registry answers as kinds of documents."""

from __future__ import annotations

from modeldyno.base import codec
from modeldyno.base.document_kind import plain_kind
from modeldyno.registry.records.answer import RegistryAnswer
from modeldyno.registry.records.overview import VersionOverview
from modeldyno.registry.views import answer, version

ANSWER = plain_kind(RegistryAnswer, answer.blocks, encode=codec.encode_document)
VERSION = plain_kind(VersionOverview, version.blocks, encode=codec.encode_document)
