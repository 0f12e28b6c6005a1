"""The database of the demo: its tables, the rows that they have at first, and how the schema changes meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import psycopg

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

PREFIX = "shop"
# The key columns of each table. `reviews` comes while everything runs.
KEYS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "customers": ("id",),
        "orders": ("id",),
        "order_lines": ("order_id", "line"),
        "documents": ("id",),
        "notes": ("id",),
        "reviews": ("id",),
    }
)
TABLES = """
CREATE TYPE order_state AS ENUM ('new', 'paid', 'sent', 'sent back');
CREATE TABLE customers (id bigint PRIMARY KEY, name text NOT NULL, email varchar(200), balance numeric(12, 2) NOT NULL,
    attributes jsonb, since timestamptz NOT NULL, active boolean NOT NULL DEFAULT true);
CREATE TABLE orders (id bigint PRIMARY KEY, customer bigint NOT NULL, state order_state NOT NULL, placed timestamp(3),
    total numeric(18, 4), tags text[], weight real);
CREATE TABLE order_lines (order_id bigint, line integer, sku text, quantity integer NOT NULL, price numeric(10, 2),
    PRIMARY KEY (order_id, line));
-- An update that leaves a long text as it is does not send it.
CREATE TABLE documents (id uuid PRIMARY KEY, title text, body text, raw bytea, revision smallint NOT NULL, day date,
    at timestamp, score double precision);
ALTER TABLE documents ALTER body SET STORAGE EXTERNAL, ALTER raw SET STORAGE EXTERNAL;
-- The keys of notes change, and a key change must send a long text: so the server logs whole rows.
CREATE TABLE notes (id bigint PRIMARY KEY, author bigint, body text);
ALTER TABLE notes ALTER body SET STORAGE EXTERNAL;
ALTER TABLE notes REPLICA IDENTITY FULL;
"""
ROWS = """
INSERT INTO customers SELECT i, 'customer ' || i, CASE WHEN i %% 3 > 0 THEN 'c' || i || '@example.com' END, i * 1.25,
    jsonb_build_object('n', i, 'vip', i %% 7 = 0), timestamptz '2020-01-01 00:00:00Z' + i * interval '1.000001 hours',
    true FROM generate_series(1, %(many)s) i;
INSERT INTO orders SELECT i, 1 + i %% %(many)s, 'new', timestamp '2024-01-01' + i * interval '1 minute', i * 1.0001,
    ARRAY['first', 'tag ' || i], i * 0.5 FROM generate_series(1, %(some)s) i;
INSERT INTO order_lines SELECT i, j, 'sku-' || j, j, i + 0.99 FROM generate_series(1, %(some)s) i,
    generate_series(1, 2) j;
INSERT INTO documents SELECT ('00000000-0000-4000-8000-' || lpad(i::text, 12, '0'))::uuid, 'document ' || i,
    repeat('text ' || i || ' ', 400), convert_to(repeat('bytes ' || i, 400), 'UTF8'), 0, date '2024-01-01' + i,
    timestamp '2024-01-01 12:00:00.000001' + i * interval '1 day', i / 7.0 FROM generate_series(1, %(few)s) i;
INSERT INTO notes SELECT i, i, repeat('note ' || i || ' ', 400) FROM generate_series(1, %(few)s) i;
"""
# At which share of the run each of them happens.
SCHEMA_CHANGES: tuple[tuple[float, str], ...] = (
    (0.25, "ALTER TABLE customers ADD COLUMN phone text"),
    (0.35, "ALTER TABLE order_lines ALTER quantity TYPE bigint"),
    (0.45, "CREATE TABLE reviews (id bigint PRIMARY KEY, stars integer, comment text, made timestamptz)"),
    (0.55, "ALTER TABLE orders ADD COLUMN discount numeric(6, 3)"),
    (0.65, "ALTER TABLE customers ALTER balance TYPE numeric(16, 2), ADD COLUMN seen timestamptz"),
    (0.75, "ALTER TABLE documents ALTER revision TYPE integer"),
)
MARKER, MARKER_ID = -1, "ffffffff-ffff-4fff-8fff-ffffffffffff"
# A last row for each table: when it has arrived, everything before it has.
MARKERS: Mapping[str, str] = MappingProxyType(
    {
        "customers": f"INSERT INTO customers (id, name, balance, since) VALUES ({MARKER}, 'marker', 0, now())",
        "orders": f"INSERT INTO orders (id, customer, state) VALUES ({MARKER}, 0, 'new')",
        "order_lines": f"INSERT INTO order_lines (order_id, line, quantity) VALUES ({MARKER}, 0, 0)",
        "documents": f"INSERT INTO documents (id, revision) VALUES ('{MARKER_ID}', 0)",
        "notes": f"INSERT INTO notes (id) VALUES ({MARKER})",
        "reviews": f"INSERT INTO reviews (id) VALUES ({MARKER})",
    }
)


def create(connection: Connection, many: int) -> None:
    """Create the tables with their first rows: `many` customers, and fewer of the others."""
    numbers = {"many": many, "some": many // 4, "few": max(20, many // 100)}
    connection.execute(TABLES)
    for statement in ROWS.strip().split(";\n"):
        text = statement.strip("; \n") % numbers if "%(" in statement else statement
        connection.execute(text.replace("%%", "%").encode())


def columns(connection: Connection, table: str) -> list[tuple[str, str]]:
    """The columns of a table, and PostgreSQL's names of their types."""
    found = connection.execute(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        [table],
    )
    return [(str(name), str(kind)) for name, kind in found]
