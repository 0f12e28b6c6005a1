"""Which columns rows can be clustered by, and the clustering of tables that another engine clusters.

Such a table names its columns in a domain, and a file whose rows were clustered says by whom (Delta protocol,
"Clustered Table"). Engines cluster again only what has no provider or their own. tidelog's curve and columns are those
of the provider `liquid`, so its files bear that name, with the tags by which delta-spark knows what it need not cluster
again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import pyarrow as pa
import pyarrow.types as pt

from tidelog.log.errors import ConfigurationError
from tidelog.log.format.actions import DomainMetadata
from tidelog.log.format.schema import physical_name
from tidelog.log.format.text import MALFORMED_JSON
from tidelog.log.presentable import did_you_mean

CLUSTERING_DOMAIN = "delta.clustering"
LIQUID = "liquid"
CUBE_ID_TAG = "ZCUBE_ID"
CUBE_COLUMNS_TAG = "ZCUBE_ZORDER_BY"


class _Clustering(msgspec.Struct, rename="camel"):
    # Each column is a path of physical names, or one name.
    clustering_columns: tuple[tuple[str, ...] | str, ...]


def clustering_columns(domains: Mapping[str, DomainMetadata], schema: pa.Schema) -> tuple[str, ...]:
    """The columns that the table's domain says its rows are clustered by, as the table names them.

    Empty if the table has no such domain, or if tidelog cannot sort by one of the columns, such as a field of a struct.
    """
    domain = domains.get(CLUSTERING_DOMAIN)
    if domain is None:
        return ()
    try:
        found = msgspec.json.decode(domain.configuration, type=_Clustering).clustering_columns
    except MALFORMED_JSON:
        return ()
    names: dict[tuple[str, ...], str] = {(physical_name(field),): field.name for field in schema}
    columns = [names.get((path,) if isinstance(path, str) else path) for path in found]
    known = tuple(name for name in columns if name is not None)
    try:
        require_clusterable(schema, (), known)
    except ConfigurationError:
        return ()
    return known if len(known) == len(columns) else ()


def clusters_by_nothing() -> DomainMetadata:
    """The domain of a table that is no longer clustered by any column."""
    text = msgspec.json.encode({"clusteringColumns": [], "domainName": CLUSTERING_DOMAIN}).decode()
    return DomainMetadata(domain=CLUSTERING_DOMAIN, configuration=text, removed=False)


def cube_columns(names: Sequence[str]) -> str:
    """The tag of a file that was clustered by these columns, as the table names them."""
    return msgspec.json.encode(list(names)).decode()


def require_clusterable(schema: pa.Schema, partition_by: Sequence[str], names: Sequence[str]) -> None:
    """Raise ConfigurationError unless these are distinct columns of the table that its rows can be clustered by."""
    for name in names:
        fault, hint = None, ""
        if name not in schema.names:
            fault, hint = f"there is no column {name!r}", did_you_mean(name, schema.names)
        elif names.count(name) > 1:
            fault = f"column {name!r} is named twice"
        elif name in partition_by:
            fault = f"{name!r} is a partition column, which has one value per file"
        elif pt.is_nested(schema.field(name).type) or pt.is_null(schema.field(name).type):
            fault = f"column {name!r} has the type {schema.field(name).type}, which cannot be sorted"
        if fault:
            advice = f"{hint}choose distinct columns that are not nested"
            raise ConfigurationError(f"cannot cluster: {fault}", advice=advice)
