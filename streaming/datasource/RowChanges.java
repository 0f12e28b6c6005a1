package tidelog;

import java.util.ArrayList;
import java.util.Map;

import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogUtils;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.DeleteFromTable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.plans.logical.UpdateTable;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.command.TruncateTableCommand;
import org.apache.spark.sql.execution.datasources.DataSourceStrategy$;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.V2CommandExec;
import scala.Option;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * UPDATE, DELETE and MERGE on tables of tidelog, and TRUNCATE of those in the catalog of the session: a strategy of
 * Spark's planner, which comes before Spark's own. The planner in Python reads the statement's text, since it is not
 * Spark that changes the rows.
 */
public class RowChanges extends SparkStrategy {
  /** Let the session plan with it. */
  public static void install(SparkSession session) {
    ArrayList all = new ArrayList(CollectionConverters.asJava(session.experimental().extraStrategies()));
    for (int i = 0; i < all.size(); i++) {
      if (all.get(i) instanceof RowChanges) {
        return;
      }
    }
    all.add(new RowChanges());
    session.experimental().extraStrategies_$eq(sequence(all));
  }

  private static Seq sequence(ArrayList values) {
    return CollectionConverters.asScala(values).toSeq();
  }

  private static Object valueOf(Option option) {
    return option.isDefined() ? option.get() : null;
  }

  public Seq apply(LogicalPlan plan) {
    ArrayList found = new ArrayList();
    LogicalPlan changed = null;
    String statement = null;
    Expression condition = null;
    if (plan instanceof UpdateTable) {
      statement = "UPDATE";
      changed = ((UpdateTable) plan).table();
      condition = (Expression) valueOf(((UpdateTable) plan).condition());
    } else if (plan instanceof DeleteFromTable) {
      statement = "DELETE";
      changed = ((DeleteFromTable) plan).table();
      condition = ((DeleteFromTable) plan).condition();
    } else if (plan instanceof MergeIntoTable) {
      statement = "MERGE";
      changed = ((MergeIntoTable) plan).targetTable();
    } else if (plan instanceof TruncateTableCommand) {
      Map options = optionsOf(((TruncateTableCommand) plan).tableName());
      if (options != null) {
        Map request = DefaultSource.request("truncate", options);
        request.put("partition", Boolean.valueOf(((TruncateTableCommand) plan).partitionSpec().isDefined()));
        found.add(new Change(request, null));
      }
    }
    Map options = changed == null ? null : optionsOf(changed);
    if (options != null) {
      Map request = DefaultSource.request("change", options);
      request.put("statement", statement);
      request.put("text", valueOf(plan.origin().sqlText()));
      Object filter = null;
      if (condition != null) {
        filter = valueOf(DataSourceStrategy$.MODULE$.translateFilter(condition, true));
      }
      found.add(new Change(request, filter));
    }
    return sequence(found);
  }

  /** The options of a table of tidelog's; null if it is another one. */
  private static Map optionsOf(LogicalPlan table) {
    while (table instanceof SubqueryAlias) {
      table = ((SubqueryAlias) table).child();
    }
    if (table instanceof DataSourceV2ScanRelation) {
      table = ((DataSourceV2ScanRelation) table).relation();
    }
    if (table instanceof DataSourceV2Relation
        && ((DataSourceV2Relation) table).table() instanceof Catalog.PathTable) {
      return ((Catalog.PathTable) ((DataSourceV2Relation) table).table()).options();
    }
    if (table instanceof LogicalRelation && ((LogicalRelation) table).relation() instanceof DefaultSource.Rows) {
      return ((DefaultSource.Rows) ((LogicalRelation) table).relation()).options();
    }
    return null;
  }

  /** The options of a table of tidelog's in the catalog of the session; null if it is another one. */
  private static Map optionsOf(TableIdentifier name) {
    CatalogTable table;
    try {
      table = SparkSession.active().sessionState().catalog().getTableMetadata(name);
    } catch (Exception error) {
      return null; // Spark says that there is none
    }
    if (!"tidelog".equals(valueOf(table.provider())) || !table.storage().locationUri().isDefined()) {
      return null;
    }
    Map options = DefaultSource.original(table.storage().properties());
    options.put("path", CatalogUtils.URIToString(table.location()));
    return options;
  }

  /** A statement, which runs when Spark wants its result. */
  public static class Change extends V2CommandExec {
    private final Map request;
    private final Object filter;

    Change(Map request, Object filter) {
      this.request = request;
      this.filter = filter;
    }

    public Seq run() {
      Object[] given = new Object[] {session(), filter};
      DefaultSource.ask(request, given);
      return sequence(new ArrayList());
    }

    /** Nothing, as of Spark's own statements. */
    public Seq output() {
      return sequence(new ArrayList());
    }

    public Seq children() {
      return sequence(new ArrayList());
    }

    public org.apache.spark.sql.execution.SparkPlan withNewChildrenInternal(IndexedSeq children) {
      return this;
    }

    public int productArity() {
      return 0;
    }

    public Object productElement(int number) {
      throw new IndexOutOfBoundsException();
    }

    public boolean canEqual(Object other) {
      return other instanceof Change;
    }

    public boolean equals(Object other) {
      return this == other;
    }

    public int hashCode() {
      return System.identityHashCode(this);
    }
  }
}
