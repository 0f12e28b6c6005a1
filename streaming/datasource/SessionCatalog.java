package tidelog;

import java.util.HashMap;
import java.util.Map;

import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogUtils;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.V1Table;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Spark's own catalog, with the past of the tables whose provider is tidelog, and from Spark 4.2 on their changes. All else
 * is Spark's.
 *
 * A session has it if its user sets spark.sql.catalog.spark_catalog: Spark then finds fewer tables of other providers.
 */
public class SessionCatalog extends SessionChanges {
  public Table loadTable(Identifier table, String version) throws NoSuchTableException {
    CatalogTable found = own(table);
    return found == null ? super.loadTable(table, version) : past(found, "version", version);
  }

  /** The time is in microseconds. */
  public Table loadTable(Identifier table, long timestamp) throws NoSuchTableException {
    CatalogTable found = own(table);
    return found == null ? super.loadTable(table, timestamp) : past(found, "timestamp", Long.valueOf(timestamp));
  }

  /** What Spark knows of a table, if the table is tidelog's. */
  private CatalogTable own(Identifier table) throws NoSuchTableException {
    Table found = loadTable(table);
    if (!(found instanceof V1Table)) {
      return null;
    }
    CatalogTable known = ((V1Table) found).catalogTable();
    boolean isOwn = known.provider().isDefined() && "tidelog".equalsIgnoreCase((String) known.provider().get());
    return isOwn ? known : null;
  }

  Map optionsOf(Identifier table) throws NoSuchTableException {
    CatalogTable known = own(table);
    return known == null ? null : optionsOf(known);
  }

  private static Map optionsOf(CatalogTable known) {
    Map options = new HashMap(CollectionConverters.asJava(known.storage().properties()));
    if (known.storage().locationUri().isDefined()) {
      options.put("path", CatalogUtils.URIToString((java.net.URI) known.storage().locationUri().get()));
    }
    return options;
  }

  private static Table past(CatalogTable known, String kind, Object moment) {
    Map request = DefaultSource.request("named", optionsOf(known));
    request.put(kind, moment);
    return new Catalog.PathTable((String) DefaultSource.ask(request, null));
  }
}
