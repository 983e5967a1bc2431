"""How psycopg sends and reads text and JSON: whatever text PostgreSQL cannot hold goes in and comes out unchanged."""

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap
from psycopg.types.json import set_json_dumps, set_json_loads
from psycopg.types.string import StrDumperUnknown, TextLoader

from medlive.db.mapping import dump_json, from_stored, load_json, to_stored


class _AnyTextDumper(StrDumperUnknown):
    def dump(self, obj: str) -> Buffer | None:
        return super().dump(to_stored(obj))


class _AnyTextLoader(TextLoader):
    def load(self, data: Buffer) -> str:
        return from_stored(str(data, "utf-8"))


ADAPTERS = AdaptersMap(psycopg.adapters)
ADAPTERS.register_dumper(str, _AnyTextDumper)
for _type in ("text", "varchar"):
    ADAPTERS.register_loader(_type, _AnyTextLoader)
set_json_dumps(dump_json, ADAPTERS)
set_json_loads(load_json, ADAPTERS)
