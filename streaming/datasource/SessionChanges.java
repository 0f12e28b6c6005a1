package tidelog;

import java.util.Map;

import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.Changelog;
import org.apache.spark.sql.connector.catalog.ChangelogContext;
import org.apache.spark.sql.connector.catalog.DelegatingCatalogExtension;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** What SessionCatalog has on Spark 4.2 and later: the changes of a table whose provider is tidelog. */
abstract class SessionChanges extends DelegatingCatalogExtension {
  /** The options of a table of tidelog's; null if it is another one. */
  abstract Map optionsOf(Identifier table) throws NoSuchTableException;

  public Changelog loadChangelog(Identifier table, ChangelogContext context, CaseInsensitiveStringMap given)
      throws NoSuchTableException {
    Map options = optionsOf(table);
    if (options == null) {
      throw new UnsupportedOperationException(); // for which Spark has an error
    }
    Map request = DefaultSource.request("changelog", options);
    request.putAll(ChangesCatalog.described(context, given));
    return new ChangesCatalog.Changes((String) DefaultSource.ask(request, null));
  }
}
