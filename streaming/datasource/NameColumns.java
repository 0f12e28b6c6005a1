package tidelog;

import java.lang.reflect.Constructor;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;

import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.analysis.UnresolvedIdentifier;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.CreateTable;
import org.apache.spark.sql.catalyst.plans.logical.CreateTableAsSelect;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.command.CreateDataSourceTableAsSelectCommand;
import org.apache.spark.sql.execution.command.CreateDataSourceTableCommand;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The columns of names in Spark's own catalog, in the order that their user wrote. Spark puts partition columns last, and
 * the table has them where they were written, so rows by position would get into the wrong columns.
 *
 * A name whose partition columns are not last has none in Spark's catalog. The table has them.
 */
class NameColumns {
  private NameColumns() {}

  /** The statement of a text; null if Spark's parser does not take it, or if there is none. */
  static LogicalPlan parsed(String text) {
    if (text == null) {
      return null;
    }
    try {
      return SparkSession.active().sessionState().sqlParser().parsePlan(text);
    } catch (Exception error) {
      return null;
    }
  }

  /** The text of a statement; null if it has none. */
  static String textOf(LogicalPlan plan) {
    Option text = plan.origin().sqlText();
    Option start = plan.origin().startIndex();
    Option stop = plan.origin().stopIndex();
    if (!text.isDefined() || !start.isDefined() || !stop.isDefined()) {
      return text.isDefined() ? (String) text.get() : null;
    }
    // Of a script, the statement only.
    return ((String) text.get()).substring(((Integer) start.get()).intValue(), ((Integer) stop.get()).intValue() + 1);
  }

  /** CREATE TABLE with the columns as they were written. */
  static CreateDataSourceTableCommand inOrder(CreateDataSourceTableCommand plan) {
    CatalogTable table = plan.table();
    if (table.partitionColumnNames().isEmpty()) {
      return plan;
    }
    List names = null;
    HashSet own = new HashSet(Arrays.asList(table.schema().fieldNames()));
    List texts = statements();
    for (int i = 0; i < texts.size(); i++) {
      LogicalPlan written = parsed((String) texts.get(i));
      if (written instanceof CreateTable && isOf(((CreateTable) written).name(), table)) {
        List found = Arrays.asList(((CreateTable) written).tableSchema().fieldNames());
        if (found.size() == own.size() && own.containsAll(found)) {
          names = only(names, found);
        }
      }
    }
    if (names == null) {
      DefaultSource.refuse("PartitionOrder");
    }
    if (names.equals(Arrays.asList(table.schema().fieldNames()))) {
      return plan;
    }
    StructType ordered = new StructType();
    for (int i = 0; i < names.size(); i++) {
      ordered = ordered.add((StructField) table.schema().apply((String) names.get(i)));
    }
    return new CreateDataSourceTableCommand(changed(table, ordered), plan.ignoreIfExists());
  }

  /** CREATE TABLE ... AS SELECT with the columns of its query. saveAsTable keeps Spark's order. */
  static CreateDataSourceTableAsSelectCommand inOrder(CreateDataSourceTableAsSelectCommand plan) {
    if (plan.table().partitionColumnNames().isEmpty() || !(plan.query() instanceof Project)) {
      return plan;
    }
    List last = CollectionConverters.asJava(plan.outputColumnNames());
    List names = writtenNames(plan);
    if (names.equals(last)) {
      return plan;
    }
    ArrayList columns = new ArrayList();
    List output = CollectionConverters.asJava(plan.query().output());
    for (int i = 0; i < names.size(); i++) {
      columns.add(output.get(last.indexOf(names.get(i))));
    }
    return new CreateDataSourceTableAsSelectCommand(
        changed(plan.table(), plan.table().schema()),
        plan.mode(),
        new Project(CollectionConverters.asScala(columns).toSeq(), plan.query()),
        CollectionConverters.asScala(new ArrayList(names)).toSeq());
  }

  /** The columns of the query as it was written. */
  private static List writtenNames(CreateDataSourceTableAsSelectCommand plan) {
    List last = CollectionConverters.asJava(plan.outputColumnNames());
    Project query = (Project) plan.query();
    List below = new ArrayList();
    List columns = CollectionConverters.asJava(query.projectList());
    List output = CollectionConverters.asJava(query.child().output());
    for (int i = 0; i < output.size(); i++) {
      below.add(((Attribute) output.get(i)).name());
    }
    boolean isPlain = below.size() == last.size() && below.containsAll(last);
    for (int i = 0; isPlain && i < columns.size(); i++) {
      isPlain = columns.get(i) instanceof AttributeReference;
    }
    if (!isPlain || below.equals(last)) {
      return last; // Spark has put nothing above the query
    }
    List names = null;
    List texts = statements();
    for (int i = 0; i < texts.size(); i++) {
      LogicalPlan written = parsed((String) texts.get(i));
      if (written instanceof CreateTableAsSelect && isOf(((CreateTableAsSelect) written).name(), plan.table())) {
        try {
          LogicalPlan own = ((CreateTableAsSelect) written).query();
          names = only(names, Arrays.asList(Dataset.ofRows(SparkSession.active(), own).schema().fieldNames()));
        } catch (Exception error) {
          DefaultSource.refuse("PartitionOrder"); // it has parameters
        }
      }
    }
    if (names == null && texts.contains("")) {
      // A frame's, which goes by names: the same call must find the partition columns that it asked for before.
      return last;
    }
    if (names == null || names.size() != last.size() || !names.containsAll(last)) {
      DefaultSource.refuse("PartitionOrder");
    }
    return names;
  }

  /** The texts of the statements that now run. An empty one stands for a frame that is written. */
  private static List statements() {
    String texts = (String) DefaultSource.ask(DefaultSource.request("statements"), null);
    return texts == null ? new ArrayList() : Arrays.asList(texts.split("\0", -1));
  }

  /** What two statements say, if it is the same. */
  private static List only(List names, List others) {
    if (names != null && !names.equals(others)) {
      DefaultSource.refuse("PartitionOrder");
    }
    return others;
  }

  /** Whether a statement could be about a table, by the last part of its name. */
  private static boolean isOf(LogicalPlan name, CatalogTable table) {
    if (!(name instanceof UnresolvedIdentifier)) {
      return false;
    }
    Object last = ((UnresolvedIdentifier) name).nameParts().last();
    return table.identifier().table().equalsIgnoreCase((String) last);
  }

  /** The same table with other columns, and without partition columns. */
  private static CatalogTable changed(CatalogTable table, StructType schema) {
    Object[] parts = new Object[table.productArity()];
    String[] names = new String[parts.length];
    for (int i = 0; i < parts.length; i++) {
      parts[i] = table.productElement(i);
      names[i] = table.productElementName(i);
      if (names[i].equals("schema")) {
        parts[i] = schema;
      } else if (names[i].equals("partitionColumnNames")) {
        parts[i] = CollectionConverters.asScala(new ArrayList()).toSeq();
      }
    }
    Constructor[] all = CatalogTable.class.getConstructors();
    for (int i = 0; i < all.length; i++) {
      if (all[i].getParameterCount() == parts.length) {
        try {
          return (CatalogTable) all[i].newInstance(parts);
        } catch (ReflectiveOperationException error) {
          throw new DefaultSource.TidelogException(error.toString());
        }
      }
    }
    throw new DefaultSource.TidelogException("this Spark makes no tables for its catalog");
  }

  /** Let a name have more columns: last, as in the table. */
  static void add(SparkSession session, TableIdentifier name, List added) throws Exception {
    SessionCatalog names = session.sessionState().catalog();
    CatalogTable table = names.getTableMetadata(name);
    StructType data = table.dataSchema();
    StructType whole = table.schema();
    for (int i = 0; i < added.size(); i++) {
      data = data.add((StructField) added.get(i));
      whole = whole.add((StructField) added.get(i));
    }
    if (!table.partitionColumnNames().isEmpty()) {
      names.alterTable(changed(table, whole));
    }
    if (!names.getTableMetadata(name).schema().equals(whole)) {
      // Hive's catalog takes columns in this way only, and keeps partition columns last.
      names.alterTableDataSchema(name, data);
    }
  }
}
