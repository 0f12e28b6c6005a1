package tidelog;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogUtils;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.plans.logical.DeleteFromTable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.plans.logical.UpdateTable;
import org.apache.spark.sql.catalyst.plans.logical.View;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogPlugin;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.columnar.InMemoryRelation;
import org.apache.spark.sql.execution.command.TruncateTableCommand;
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
 * Spark's planner, which comes before Spark's own. The planner in Python reads Spark's plan of the statement, since it
 * is not Spark that changes the rows.
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
    if (plan instanceof UpdateTable) {
      changed = ((UpdateTable) plan).table();
    } else if (plan instanceof DeleteFromTable) {
      changed = ((DeleteFromTable) plan).table();
    } else if (plan instanceof MergeIntoTable) {
      changed = ((MergeIntoTable) plan).targetTable();
    } else if (plan instanceof TruncateTableCommand) {
      Map options = optionsOf(((TruncateTableCommand) plan).tableName());
      if (options != null) {
        Map request = DefaultSource.request("truncate", options);
        request.put("partition", Boolean.valueOf(((TruncateTableCommand) plan).partitionSpec().isDefined()));
        found.add(new Change(request, plan, null, ((TruncateTableCommand) plan).tableName().quotedString()));
      }
    }
    LogicalPlan relation = changed == null ? null : relationOf(changed);
    Map options = relation == null ? null : optionsOf(relation);
    if (options != null) {
      found.add(new Change(DefaultSource.request("change", options), plan, relation, nameOf(relation)));
    }
    return sequence(found);
  }

  /** The table below names and Spark's cache. */
  private static LogicalPlan relationOf(LogicalPlan plan) {
    while (true) {
      if (plan instanceof SubqueryAlias) {
        plan = ((SubqueryAlias) plan).child();
      } else if (plan instanceof InMemoryRelation) {
        plan = ((InMemoryRelation) plan).cacheBuilder().logicalPlan();
      } else if (plan instanceof View) {
        plan = ((View) plan).child();
      } else if (plan instanceof Project && keepsColumns((Project) plan)) {
        plan = ((Project) plan).child();
      } else if (plan instanceof DataSourceV2ScanRelation) {
        plan = ((DataSourceV2ScanRelation) plan).relation();
      } else {
        return plan;
      }
    }
  }

  /** Whether each column is one of the table's, under its name. */
  private static boolean keepsColumns(Project plan) {
    List columns = CollectionConverters.asJava(plan.projectList());
    for (int i = 0; i < columns.size(); i++) {
      Expression column = (Expression) columns.get(i);
      String name = ((NamedExpression) column).name();
      while (column instanceof Alias || (column instanceof Cast && isOfOneType((Cast) column))) {
        column = (Expression) column.children().head();
      }
      if (!(column instanceof AttributeReference) || !((AttributeReference) column).name().equals(name)) {
        return false;
      }
    }
    return true;
  }

  private static boolean isOfOneType(Cast cast) {
    return cast.dataType().equals(cast.child().dataType());
  }

  /** The name of a table in its catalog, with quotes; null if it has none. */
  private static String nameOf(LogicalPlan table) {
    if (table instanceof LogicalRelation) {
      Option found = ((LogicalRelation) table).catalogTable();
      return found.isDefined() ? ((CatalogTable) found.get()).identifier().quotedString() : null;
    }
    DataSourceV2Relation found = (DataSourceV2Relation) table;
    if (!found.catalog().isDefined() || !found.identifier().isDefined()) {
      return null;
    }
    StringBuilder name = new StringBuilder(((CatalogPlugin) found.catalog().get()).name());
    Identifier identifier = (Identifier) found.identifier().get();
    String[] above = identifier.namespace();
    for (int i = 0; i <= above.length; i++) {
      String part = i < above.length ? above[i] : identifier.name();
      name.append(".`").append(part.replace("`", "``")).append('`');
    }
    return name.toString();
  }

  /** The options of a table of tidelog's; null if it is another one. */
  private static Map optionsOf(LogicalPlan table) {
    if (table instanceof DataSourceV2Relation
        && ((DataSourceV2Relation) table).table() instanceof Catalog.PathTable) {
      DataSourceV2Relation found = (DataSourceV2Relation) table;
      HashMap all = new HashMap(((Catalog.PathTable) found.table()).options());
      all.putAll(found.options().asCaseSensitiveMap());
      return all;
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

  /** The rows of a plan, with the values of more expressions over them. */
  public static Dataset rows(SparkSession session, LogicalPlan plan, List expressions) {
    ArrayList columns = new ArrayList(CollectionConverters.asJava(plan.output()));
    Seq none = sequence(new ArrayList());
    for (int i = 0; i < expressions.size(); i++) {
      Expression each = (Expression) expressions.get(i);
      columns.add(new Alias(each, "value" + i, NamedExpression$.MODULE$.newExprId(), none, Option.empty(), none));
    }
    return Dataset.ofRows(session, new Project(sequence(columns), plan));
  }

  /** A statement, which runs when Spark wants its result. */
  public static class Change extends V2CommandExec {
    private final Map request;
    private final LogicalPlan plan;
    private final LogicalPlan relation;
    private final String name;

    /** What it changes is a relation, or the name of a table. */
    Change(Map request, LogicalPlan plan, LogicalPlan relation, String name) {
      this.request = request;
      this.plan = plan;
      this.relation = relation;
      this.name = name;
    }

    public Seq run() {
      SparkSession session = (SparkSession) session();
      DefaultSource.ask(request, new Object[] {session, plan});
      // What Spark has cached of the table is old now.
      if (name != null) {
        session.catalog().refreshTable(name);
      } else {
        session.sharedState().cacheManager().recacheByPlan(session, relation);
      }
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
