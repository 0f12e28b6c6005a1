"""Random expressions of each type, as SQL text that Spark and tidelog both evaluate, over the columns of `values`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import strategies as st

from tests.log.predicate.values import TEXTS, quoted

Strategy = st.SearchStrategy[str]


def _of(*choices: str) -> Strategy:
    return st.sampled_from(choices)


def _form(form: str, **parts: Strategy) -> Strategy:
    """Texts made by putting drawn parts into the form."""
    names = list(parts)
    return st.tuples(*parts.values()).map(lambda drawn: form.format(**dict(zip(names, drawn, strict=True))))


def _forms(forms: str, **parts: Strategy) -> list[Strategy]:
    """One strategy for each line, with those parts that it names."""
    lines = [line.strip() for line in forms.strip().splitlines()]
    return [_form(line, **{name: part for name, part in parts.items() if f"{{{name}}}" in line}) for line in lines]


_COMPARISON = _of("=", "!=", "<>", "<", "<=", ">", ">=", "<=>")
_SMALL_NUMBER = st.integers(-3, 9).map(str)
_INTERVALS = _of(
    "INTERVAL 1 DAY", "INTERVAL 3 DAYS", "INTERVAL -2 DAY", "INTERVAL '1' MONTH", "INTERVAL 2 YEARS", "INTERVAL 1 WEEK",
    "INTERVAL 90 MINUTES", "INTERVAL '1 day 2 hours'", "INTERVAL 1 DAY 2 HOURS", "INTERVAL '1-2' YEAR TO MONTH",
    "INTERVAL 1.5 SECONDS", "INTERVAL 13 MONTHS", "INTERVAL -1 MONTH",
)  # fmt: skip
_DAY_INTERVALS = _of("INTERVAL 1 DAY", "INTERVAL -40 DAYS", "INTERVAL 1 WEEK", "INTERVAL 11 MONTHS", "INTERVAL 4 YEARS")
_PATTERNS = st.lists(_of("%", "_", "a", "b", "B", "\\\\%", "\\\\_", "\\\\\\\\", "é", "ß", ".", "x"), max_size=4).map(
    "".join
)
_LITERAL_TEXTS = st.sampled_from(TEXTS).map(quoted)


# Conditions without parentheses, so that only the grammar groups them. Some are errors in Spark.
_SIDES = _of("a", "b", "c", "TRUE", "FALSE", "NULL", "(b = c)", "coalesce(c, a = b)")
_CHAINS = st.lists(st.tuples(_COMPARISON, _SIDES), max_size=3).flatmap(
    lambda rest: _SIDES.map(lambda first: " ".join([first, *(f"{sign} {side}" for sign, side in rest)]))
)
_PREDICATES = st.one_of(
    _form("{no}BETWEEN {low} AND {high}", no=_of("", "NOT "), low=_CHAINS, high=_CHAINS),
    _form("{no}IN ({x}, {y})", no=_of("", "NOT "), x=_CHAINS, y=_CHAINS),
    _form("IS {no}DISTINCT FROM {x}", no=_of("", "NOT "), x=_CHAINS),
    _of("IS NULL", "IS NOT NULL", "IS TRUE", "IS NOT TRUE", "IS FALSE", "IS UNKNOWN"),
)
_CONDITIONS = _form(
    "{no}{chain} {predicate}",
    no=_of("", "", "", "NOT ", "!", "NOT NOT "),
    chain=_CHAINS,
    predicate=st.just("") | _PREDICATES | _form("{x} {y}", x=_PREDICATES, y=_of("= c", "IS NULL", "< NOT a")),
)
GROUPINGS = st.lists(st.tuples(_CONDITIONS, _of("AND", "OR")), min_size=1, max_size=3).map(
    lambda parts: " ".join(f"{text} {join}" for text, join in parts).rsplit(" ", 1)[0]
)

_DATE_PARTS = ("year", "month", "day", "dayofmonth", "quarter", "dayofweek", "weekday", "dayofyear", "weekofyear")


class Expressions:
    """Strategies by type, each at most `depth` levels deep."""

    def __init__(self, depth: int) -> None:
        self._inner = Expressions(depth - 1) if depth else None
        leaves: dict[str, Strategy] = {
            "int": _of("i", "y") | _SMALL_NUMBER,
            "long": _of("n", "st.x", "3000000000"),
            "double": _of("f", "0.5D", "2e0", "-1.25D"),
            "decimal": _of("m", "1.5", "0.25", "-3.10", "10.0"),
            "text": _of("s", "u", "st.in.y", "st.`In`.y") | _LITERAL_TEXTS,
            "boolean": _of("b", "c", "true", "false", "(b IS NULL)", "(s IS NOT NULL)"),
            "date": _of("d", "e", "DATE '2020-02-29'", "DATE '2021-1-1'"),
            "time": _of("t", "TIMESTAMP '2020-02-29 12:34:56.789'", "TIMESTAMP '2021-01-31T23:59:59+01:00'"),
            "naive": _of("z", "TIMESTAMP_NTZ '2020-02-29 12:34:56.789'"),
        }
        self.by_type = {name: leaf if depth == 0 else self._deeper(name, leaf) for name, leaf in leaves.items()}

    def _deeper(self, name: str, leaf: Strategy) -> Strategy:
        inner = self._inner.by_type if self._inner else {}
        same = inner[name]
        choices = _forms(
            """
            coalesce({a}, {b})
            nvl({a}, {b})
            nullif({a}, {b})
            if({condition}, {a}, {b})
            CASE WHEN {condition} THEN {a} WHEN {other} THEN {b} END
            CASE WHEN {condition} THEN {a} ELSE {b} END
            CASE {i} WHEN 1 THEN {a} WHEN {j} THEN {b} ELSE NULL END
            nvl2({i}, {a}, {b})
            greatest({a}, {b})
            least({a}, {b}, {a})
            """,
            a=same, b=same, condition=inner["boolean"], other=inner["boolean"], i=inner["int"], j=inner["int"],
        )  # fmt: skip
        return st.one_of(leaf, *choices, *_BY_TYPE[name](inner))


def _numbers(inner: dict[str, Strategy]) -> Strategy:
    return st.one_of(inner["int"], inner["long"], inner["double"], inner["decimal"])


def _arithmetic(a: Strategy, b: Strategy) -> list[Strategy]:
    return [
        _form("({a} {o} {b})", a=a, b=b, o=_of("+", "-", "*", "%")),
        *_forms("(- {a})\nabs({a})\nround({a}, 1)\nround({a}, -1)\npmod({c}, 3)", a=a, c=_of("i", "n")),
    ]


def _ints(inner: dict[str, Strategy]) -> list[Strategy]:
    return [
        *_arithmetic(inner["int"], inner["int"]),
        *_forms(
            """
            length({s})
            char_length({s})
            octet_length({s})
            instr({s}, {x})
            locate({x}, {s})
            position({x} IN {s})
            {part}({d})
            {part}({t})
            {clock}({t})
            {clock}({z})
            extract({field} FROM {t})
            datediff({d}, {e})
            datediff({t}, {d})
            CAST({n} AS INT)
            CAST({m} AS INT)
            CAST({b} AS INT)
            CAST({i} AS TINYINT)
            CAST({i} AS SMALLINT)
            CAST({f} AS INT)
            """,
            s=inner["text"], x=_LITERAL_TEXTS | _of("u"), d=inner["date"], e=inner["date"], t=inner["time"],
            z=inner["naive"],
            n=inner["long"], m=inner["decimal"], b=inner["boolean"], i=inner["int"], f=inner["double"],
            part=_of(*_DATE_PARTS),
            clock=_of("hour", "minute", "second"),
            field=_of("YEAR", "MONTH", "DAY", "WEEK", "DOY", "DAYOFWEEK", "QUARTER", "HOUR", "MINUTE"),
        ),
    ]  # fmt: skip


def _longs(inner: dict[str, Strategy]) -> list[Strategy]:
    return [
        *_arithmetic(inner["long"], inner["int"]),
        *_forms(
            """
            ({i} DIV {j})
            ({i} - 5L)
            ({i} * 3S + 127Y)
            (y + -7Y)
            CAST({i} AS BIGINT)
            CAST({m} AS BIGINT)
            CAST({t} AS BIGINT)
            floor({f})
            ceil({f})
            ceiling({i})
            unix_seconds({t})
            unix_millis({t})
            unix_micros({t})
            """,
            i=inner["int"], j=inner["int"], m=inner["decimal"], t=inner["time"], f=inner["double"],
        ),
    ]  # fmt: skip


def _doubles(inner: dict[str, Strategy]) -> list[Strategy]:
    return [
        *_arithmetic(inner["double"], _numbers(inner)),
        *_forms(
            """
            ({i} / {j})
            ({f} / {i})
            ({g} + {i})
            ({g} * 2)
            CAST({i} AS DOUBLE)
            CAST({m} AS DOUBLE)
            CAST({i} AS FLOAT)
            sign({m})
            sqrt(abs({f}))
            """,
            i=inner["int"], j=inner["int"], f=inner["double"], g=_of("g"), m=inner["decimal"],
        ),
    ]  # fmt: skip


def _decimals(inner: dict[str, Strategy]) -> list[Strategy]:
    return [
        *_arithmetic(inner["decimal"], st.one_of(inner["int"], inner["decimal"], inner["long"], _of("w"))),
        *_forms(
            """
            ({m} / {n})
            ({m} / {i})
            floor({m})
            ceil({m})
            round({m})
            CAST({i} AS DECIMAL(12, 3))
            CAST({m} AS DECIMAL(10, 1))
            CAST({m} AS DECIMAL(20, 5))
            CAST({f} AS DECIMAL(20, 2))
            """,
            m=inner["decimal"] | _of("w"), n=inner["decimal"], i=inner["int"], f=inner["double"],
        ),
    ]  # fmt: skip


def _texts(inner: dict[str, Strategy]) -> list[Strategy]:
    return _forms(
        """
        upper({s})
        lower({s})
        {trim}({s})
        {two}({s}, {x})
        {two}({x}, {s})
        trim({side} {x} FROM {s})
        concat({s}, {u})
        concat({s}, {i}, {d})
        ({s} || {u})
        ({s} || {m} || {b})
        substring({s}, {k}, {k})
        substr({s}, {k})
        substring({s} FROM {k} FOR {k})
        left({s}, {k})
        right({s}, {k})
        replace({s}, {x}, {u})
        replace({s}, {x})
        lpad({s}, {k}, {x})
        rpad({s}, {k}, {x})
        lpad({s}, 5)
        reverse({s})
        CAST({i} AS STRING)
        CAST({m} AS STRING)
        CAST({b} AS STRING)
        CAST({d} AS STRING)
        CAST({t} AS STRING)
        CAST({z} AS STRING)
        """,
        s=inner["text"], u=inner["text"], x=_LITERAL_TEXTS, i=inner["int"], m=inner["decimal"], b=inner["boolean"],
        d=inner["date"], t=inner["time"], z=inner["naive"], k=_SMALL_NUMBER | _of("i % 4"),
        trim=_of("trim", "ltrim", "rtrim", "btrim"), two=_of("ltrim", "rtrim", "btrim", "trim"),
        side=_of("BOTH", "LEADING", "TRAILING"),
    )  # fmt: skip


def _booleans(inner: dict[str, Strategy]) -> list[Strategy]:
    pairs = [(name, name) for name in inner]
    pairs += [("int", "long"), ("int", "double"), ("long", "decimal"), ("decimal", "double"), ("date", "time")]
    pairs += [("time", "naive"), ("date", "naive")]
    comparisons = [_form("({a} {o} {b})", a=inner[a], b=inner[b], o=_COMPARISON) for a, b in pairs]
    return [
        st.one_of(*comparisons),
        st.one_of(*comparisons),
        *_forms(
            """
            ({p} AND {q})
            ({p} OR {q})
            (NOT {p})
            ({p} IS TRUE)
            ({p} IS NOT FALSE)
            ({s} LIKE '{pattern}')
            ({s} NOT LIKE '{pattern}')
            ({s} ILIKE '{pattern}')
            ({s} LIKE '!%{pattern}' ESCAPE '!')
            startswith({s}, {u})
            endswith({s}, {u})
            contains({s}, {u})
            contains({s}, {x})
            ({i} IN (1, 2, NULL))
            ({i} NOT IN (1, {j}, 5))
            ({s} IN ({x}, {x}))
            ({d} IN (DATE '2020-02-29', '1970-01-01'))
            ({i} BETWEEN {j} AND 5)
            ({m} NOT BETWEEN -1 AND {m})
            ({s} IS NULL)
            isnull({d})
            isnotnull({t})
            ({d} > '2020-01-01')
            ({t} <= '2020-02-29 12:34:56.789')
            ({t} >= '2020-02-29')
            ({g} = {i})
            ({g} < {m})
            (g IN (0.1, 1.5))
            CAST({i} AS BOOLEAN)
            ({i} IS DISTINCT FROM {j})
            """,
            p=inner["boolean"], q=inner["boolean"], s=inner["text"], u=inner["text"], x=_LITERAL_TEXTS,
            pattern=_PATTERNS,
            i=inner["int"], j=inner["int"], d=inner["date"], m=inner["decimal"], t=inner["time"], g=_of("g"),
        ),
    ]  # fmt: skip


def _dates(inner: dict[str, Strategy]) -> list[Strategy]:
    return _forms(
        """
        date_add({d}, {i})
        date_sub({d}, {i})
        ({d} + 3)
        ({d} - {i})
        ({d} + {interval})
        ({d} - {interval})
        add_months({d}, {k})
        last_day({d})
        trunc({d}, '{unit}')
        to_date({t})
        CAST({t} AS DATE)
        CAST({z} AS DATE)
        date({t})
        """,
        d=inner["date"], i=_SMALL_NUMBER | _of("y"), k=_SMALL_NUMBER | _of("y"), t=inner["time"], z=inner["naive"],
        interval=_DAY_INTERVALS, unit=_of("YEAR", "month", "MM", "quarter", "WEEK", "nonsense"),
    )  # fmt: skip


def _times(inner: dict[str, Strategy]) -> list[Strategy]:
    units = ("YEAR", "quarter", "MONTH", "week", "DAY", "hour", "minute", "second", "millisecond", "nonsense")
    return _forms(
        """
        ({t} + {interval})
        ({t} - {interval})
        ({interval} + {t})
        ({d} + INTERVAL 5 HOURS)
        date_trunc('{unit}', {t})
        date_trunc('{unit}', {d})
        CAST({d} AS TIMESTAMP)
        CAST({z} AS TIMESTAMP)
        to_timestamp({d})
        CAST({i} AS TIMESTAMP)
        """,
        t=inner["time"], d=inner["date"], z=inner["naive"], i=inner["int"], interval=_INTERVALS, unit=_of(*units),
    )  # fmt: skip


def _naives(inner: dict[str, Strategy]) -> list[Strategy]:
    return _forms(
        "({z} + {interval})\n({z} - {interval})\nCAST({t} AS TIMESTAMP_NTZ)\nCAST({d} AS TIMESTAMP_NTZ)",
        z=inner["naive"], t=inner["time"], d=inner["date"], interval=_INTERVALS,
    )  # fmt: skip


_BY_TYPE: dict[str, Callable[[dict[str, Strategy]], Sequence[Strategy]]] = {
    "int": _ints,
    "long": _longs,
    "double": _doubles,
    "decimal": _decimals,
    "text": _texts,
    "boolean": _booleans,
    "date": _dates,
    "time": _times,
    "naive": _naives,
}
EXPRESSIONS = Expressions(2).by_type
