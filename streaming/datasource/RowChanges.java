package tidelog;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;

import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.analysis.ResolvedTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogUtils;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke;
import org.apache.spark.sql.catalyst.plans.logical.AddColumns;
import org.apache.spark.sql.catalyst.plans.logical.DeleteFromTable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.catalyst.plans.logical.OverwritePartitionsDynamic;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.QualifiedColType;
import org.apache.spark.sql.catalyst.plans.logical.ShowCreateTable;
import org.apache.spark.sql.catalyst.plans.logical.ShowTableProperties;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.plans.logical.UpdateTable;
import org.apache.spark.sql.catalyst.plans.logical.View;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogPlugin;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.V1Table;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.columnar.InMemoryRelation;
import org.apache.spark.sql.execution.command.AlterTableAddColumnsCommand;
import org.apache.spark.sql.execution.command.AlterTableChangeColumnCommand;
import org.apache.spark.sql.execution.command.AlterTableSetPropertiesCommand;
import org.apache.spark.sql.execution.command.AlterTableUnsetPropertiesCommand;
import org.apache.spark.sql.execution.command.CreateDataSourceTableAsSelectCommand;
import org.apache.spark.sql.execution.command.CreateDataSourceTableCommand;
import org.apache.spark.sql.execution.command.CreateTableLikeCommand;
import org.apache.spark.sql.execution.command.TruncateTableCommand;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.ShowCreateTableExec;
import org.apache.spark.sql.execution.datasources.v2.ShowTablePropertiesExec;
import org.apache.spark.sql.execution.datasources.v2.V2CommandExec;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.unsafe.Platform;
import scala.Option;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * UPDATE, DELETE and MERGE on tables of tidelog, and CREATE, TRUNCATE and ALTER of names in the catalog of the session: a
 * strategy of Spark's planner, which comes before Spark's own. The planner in Python reads Spark's plan of the statement, since it
 * is not Spark that changes the rows.
 */
public class RowChanges extends SparkStrategy {
  /** Spark 4.0 knows the words, and its plan does not have them. */
  private static final Pattern EVOLVES = Pattern.compile("(?i)\\bMERGE\\s+WITH\\s+SCHEMA\\s+EVOLUTION\\b");

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
    boolean evolves = false;
    LogicalPlan rewritten = Rewritten.target(plan);
    if (rewritten != null) {
      Map request = DefaultSource.request("change", optionsOf(rewritten));
      request.put("evolve", ((Catalog.PathTable) ((DataSourceV2Relation) rewritten).table()).found.get("evolve"));
      Object text = valueOf(plan.origin().sqlText());
      if (RowOperation.evolution() == null && text != null && EVOLVES.matcher((String) text).find()) {
        DefaultSource.refuse("SchemaEvolution");
      }
      found.add(new Change(request, plan, rewritten, nameOf(rewritten)));
      return sequence(found);
    }
    if (plan instanceof UpdateTable) {
      changed = ((UpdateTable) plan).table();
    } else if (plan instanceof DeleteFromTable) {
      changed = ((DeleteFromTable) plan).table();
    } else if (plan instanceof MergeIntoTable) {
      changed = ((MergeIntoTable) plan).targetTable();
      evolves = ((MergeIntoTable) plan).withSchemaEvolution();
    } else if (plan instanceof OverwritePartitionsDynamic) {
      changed = (LogicalPlan) plan.productElement(0);
    } else if (plan instanceof ShowCreateTable || plan instanceof ShowTableProperties) {
      Object table = plan.children().head();
      if (table instanceof ResolvedTable) {
        return shown(plan, (ResolvedTable) table);
      }
    } else {
      Change other = ofName(plan);
      if (other != null) {
        found.add(other);
      }
    }
    LogicalPlan relation = changed == null ? null : relationOf(changed);
    Map options = relation == null ? null : optionsOf(relation);
    if (relation != null && options == null && readsOwn(relation)) {
      DefaultSource.refuse("View");
    }
    if (options != null && evolves) {
      DefaultSource.refuse("EvolutionOfName");
    }
    if (options != null) {
      Map request = DefaultSource.request("change", options);
      if (plan instanceof OverwritePartitionsDynamic) {
        // Of a table without partitions it is the whole table.
        boolean isWhole = ((Catalog.PathTable) ((DataSourceV2Relation) relation).table()).partitionNames().isEmpty();
        options.put("partitionOverwriteMode", isWhole ? "static" : "dynamic");
        ((Catalog.PathTable) ((DataSourceV2Relation) relation).table()).evolving(options);
        request = DefaultSource.request("write", options);
        request.put("mode", "Overwrite");
      }
      found.add(new Change(request, plan, relation, nameOf(relation)));
    }
    return sequence(found);
  }

  /** SHOW CREATE TABLE with the columns that cannot be null, and SHOW TBLPROPERTIES of the table behind a name. */
  private static Seq shown(LogicalPlan plan, ResolvedTable found) {
    ArrayList made = new ArrayList();
    if (plan instanceof ShowCreateTable && found.table() instanceof Catalog.PathTable) {
      Catalog.PathTable table = ((Catalog.PathTable) found.table()).strict();
      ResolvedTable strict =
          new ResolvedTable(found.catalog(), found.identifier(), table, found.outputAttributes());
      made.add(new ShowCreateTableExec(plan.output(), strict));
    } else if (plan instanceof ShowTableProperties && found.table() instanceof V1Table) {
      CatalogTable known = tableOf(((V1Table) found.table()).catalogTable().identifier());
      if (known != null) {
        Object table = DefaultSource.ask(DefaultSource.request("shown", optionsOf(known)), null);
        made.add(
            new ShowTablePropertiesExec(
                plan.output(),
                new Catalog.PathTable((String) table),
                known.identifier().quotedString(),
                ((ShowTableProperties) plan).propertyKey()));
      }
    }
    return sequence(made);
  }

  /** Whether a view reads a table of tidelog's. */
  private static boolean readsOwn(LogicalPlan view) {
    List leaves = CollectionConverters.asJava(view.collectLeaves());
    for (int i = 0; i < leaves.size(); i++) {
      if (optionsOf(relationOf((LogicalPlan) leaves.get(i))) != null) {
        return true;
      }
    }
    return false;
  }

  /** Whether ADD COLUMNS says where the columns go: Spark's plan of a name does not, so its text is parsed again. */
  private static boolean hasPositions(LogicalPlan plan) {
    String text = NameColumns.textOf(plan);
    if (text == null) {
      return false;
    }
    LogicalPlan parsed = NameColumns.parsed(text);
    if (!(parsed instanceof AddColumns)) {
      return text.matches("(?is).*\\b(FIRST|AFTER)\\b.*");
    }
    List columns = CollectionConverters.asJava(((AddColumns) parsed).columnsToAdd());
    for (int i = 0; i < columns.size(); i++) {
      if (((QualifiedColType) columns.get(i)).position().isDefined()) {
        return true;
      }
    }
    return false;
  }

  /** What Spark would do to a name only, or not at all; null if it is nothing of the kind. */
  private static String refusalOf(LogicalPlan plan) {
    if (plan instanceof CreateTableLikeCommand) {
      CreateTableLikeCommand like = (CreateTableLikeCommand) plan;
      Object provider = valueOf(like.provider());
      boolean isOwn = provider == null ? tableOf(like.sourceTable()) != null : "tidelog".equalsIgnoreCase((String) provider);
      return isOwn ? "CreateTableLike" : null;
    }
    if (plan instanceof AlterTableChangeColumnCommand) {
      AlterTableChangeColumnCommand change = (AlterTableChangeColumnCommand) plan;
      boolean isDefault = change.newColumn().metadata().contains("CURRENT_DEFAULT");
      return isDefault && tableOf(change.tableName()) != null ? "UpdateColumnDefaultValue" : null;
    }
    if (plan instanceof AlterTableAddColumnsCommand) {
      boolean isOwn = tableOf(((AlterTableAddColumnsCommand) plan).table()) != null;
      return isOwn && hasPositions(plan) ? "AddColumn" : null;
    }
    CatalogTable made = null;
    if (plan instanceof CreateDataSourceTableCommand) {
      made = ((CreateDataSourceTableCommand) plan).table();
    } else if (plan instanceof CreateDataSourceTableAsSelectCommand) {
      made = ((CreateDataSourceTableAsSelectCommand) plan).table();
    }
    if (made != null && isOwn(made) && made.bucketSpec().isDefined()) {
      return "Buckets";
    }
    return null;
  }

  /** A statement that Spark runs by itself for a name in the catalog of the session; null if it is another one. */
  private static Change ofName(LogicalPlan plan) {
    String refused = refusalOf(plan);
    if (refused != null) {
      DefaultSource.refuse(refused);
    }
    TableIdentifier name = null;
    List columns = new ArrayList();
    Map properties = new HashMap();
    if (plan instanceof TruncateTableCommand) {
      name = ((TruncateTableCommand) plan).tableName();
    } else if (plan instanceof AlterTableAddColumnsCommand) {
      name = ((AlterTableAddColumnsCommand) plan).table();
      columns = CollectionConverters.asJava(((AlterTableAddColumnsCommand) plan).colsToAdd());
    } else if (plan instanceof AlterTableSetPropertiesCommand) {
      name = ((AlterTableSetPropertiesCommand) plan).tableName();
      properties.putAll(DefaultSource.original(((AlterTableSetPropertiesCommand) plan).properties()));
    } else if (plan instanceof AlterTableUnsetPropertiesCommand) {
      name = ((AlterTableUnsetPropertiesCommand) plan).tableName();
      List keys = CollectionConverters.asJava(((AlterTableUnsetPropertiesCommand) plan).propKeys());
      for (int i = 0; i < keys.size(); i++) {
        properties.put(keys.get(i), null);
      }
    }
    if (plan instanceof CreateDataSourceTableCommand) {
      return created((CreateDataSourceTableCommand) plan);
    }
    if (plan instanceof CreateDataSourceTableAsSelectCommand) {
      CreateDataSourceTableAsSelectCommand made = (CreateDataSourceTableAsSelectCommand) plan;
      return isOwn(made.table()) ? new Change(partsOf(made.table()), NameColumns.inOrder(made), null, null) : null;
    }
    CatalogTable table = name == null ? null : tableOf(name);
    if (table == null) {
      return null;
    }
    Map options = optionsOf(table);
    if (plan instanceof TruncateTableCommand) {
      Map request = DefaultSource.request("truncate", options);
      Object spec = valueOf(((TruncateTableCommand) plan).partitionSpec());
      request.put("partition", spec == null ? null : DefaultSource.original((scala.collection.immutable.Map) spec));
      return new Change(request, plan, null, name.quotedString());
    }
    Map request = DefaultSource.request("alter", options);
    ArrayList described = new ArrayList();
    for (int i = 0; i < columns.size(); i++) {
      described.add(described((StructField) columns.get(i)));
    }
    request.put("columns", described);
    request.put("properties", properties);
    return new Change(request, plan, null, name.quotedString(), name, columns);
  }

  /** CREATE TABLE of a name with columns; null if Spark does all of it. */
  private static Change created(CreateDataSourceTableCommand plan) {
    CatalogTable table = plan.table();
    org.apache.spark.sql.catalyst.catalog.SessionCatalog names = SparkSession.active().sessionState().catalog();
    if (!isOwn(table)
        || table.schema().fields().length == 0
        || names.tableExists(table.identifier())) {
      return null;
    }
    boolean isManaged = !table.storage().locationUri().isDefined();
    Map options = DefaultSource.original(table.storage().properties());
    options.put(
        "path",
        CatalogUtils.URIToString(isManaged ? names.defaultTablePath(table.identifier()) : table.location()));
    // There is no text of toTable(...), whose columns go by their names.
    CreateDataSourceTableCommand ordered = Streams.isToTable() ? plan : NameColumns.inOrder(plan);
    Map request = DefaultSource.request("createNamed", options);
    request.put("schema", ordered.table().schema().json());
    request.put("partitions", CollectionConverters.asJava(table.partitionColumnNames()));
    request.put("properties", DefaultSource.original(table.properties()));
    request.put("managed", Boolean.valueOf(isManaged));
    request.put("stream", Boolean.valueOf(Streams.isToTable()));
    if (Streams.isToTable()) {
      Streams.made(table.identifier(), (String) options.get("path"));
    }
    return new Change(request, ordered, null, table.identifier().quotedString());
  }

  private static Map described(StructField field) {
    HashMap column = new HashMap();
    column.put("names", Arrays.asList(new String[] {field.name()}));
    column.put("type", field.dataType().json());
    column.put("nullable", Boolean.valueOf(field.nullable()));
    column.put("comment", valueOf(field.getComment()));
    column.put("plain", Boolean.valueOf(!field.metadata().contains("CURRENT_DEFAULT")));
    return column;
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

  /**
   * Whether each column is one of the table's, under its name. Spark adds columns for expressions that it needs twice, and
   * fills up texts of the type CHAR.
   */
  private static boolean keepsColumns(Project plan) {
    List columns = CollectionConverters.asJava(plan.projectList());
    for (int i = 0; i < columns.size(); i++) {
      Expression column = (Expression) columns.get(i);
      String name = ((NamedExpression) column).name();
      if (name.startsWith("_common_expr_")) {
        continue;
      }
      while (column instanceof Alias || isPadding(column) || (column instanceof Cast && isOfOneType((Cast) column))) {
        column = (Expression) column.children().head();
      }
      if (!(column instanceof AttributeReference) || !((AttributeReference) column).name().equals(name)) {
        return false;
      }
    }
    return true;
  }

  private static boolean isPadding(Expression node) {
    return node instanceof StaticInvoke && ((StaticInvoke) node).functionName().equals("readSidePadding");
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

  private static boolean isOwn(CatalogTable table) {
    return "tidelog".equalsIgnoreCase((String) valueOf(table.provider()));
  }

  private static Map optionsOf(CatalogTable table) {
    Map options = DefaultSource.original(table.storage().properties());
    options.put("path", CatalogUtils.URIToString(table.location()));
    return options;
  }

  /** A table of tidelog's in the catalog of the session; null if it is another one. */
  private static CatalogTable tableOf(TableIdentifier name) {
    CatalogTable table;
    try {
      table = SparkSession.active().sessionState().catalog().getTableMetadata(name);
    } catch (Exception error) {
      return null; // Spark says that there is none
    }
    if (!isOwn(table) || !table.storage().locationUri().isDefined()) {
      return null;
    }
    return table;
  }

  /** Whether the source of a MERGE reads the table that it changes. */
  public static boolean reads(LogicalPlan plan) {
    return readsPath(((MergeIntoTable) plan).sourceTable(), pathOf(relationOf(((MergeIntoTable) plan).targetTable())));
  }

  /** Whether a query reads the table at a path. */
  public static boolean readsPath(LogicalPlan plan, String path) {
    path = plain(path);
    List leaves = CollectionConverters.asJava(plan.collectLeaves());
    for (int i = 0; i < leaves.size(); i++) {
      LogicalPlan leaf = (LogicalPlan) leaves.get(i);
      if (leaf instanceof InMemoryRelation) {
        continue; // its rows are what they are
      }
      if (path.equals(pathOf(relationOf(leaf)))) {
        return true;
      }
    }
    return false;
  }

  private static String pathOf(LogicalPlan relation) {
    Map options = optionsOf(relation);
    return options == null ? null : plain((String) options.get("path"));
  }

  private static String plain(String path) {
    return path != null && path.startsWith("file:/") ? "/" + path.substring(5).replaceFirst("^/+", "") : path;
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

  private static Map partsOf(CatalogTable table) {
    HashMap parts = new HashMap();
    parts.put("partitions", CollectionConverters.asJava(table.partitionColumnNames()));
    parts.put("properties", DefaultSource.original(table.properties()));
    return parts;
  }

  private static void addColumns(SparkSession session, TableIdentifier name, List columns) {
    try {
      NameColumns.add(session, name, columns);
    } catch (Exception error) {
      throw new DefaultSource.TidelogException(
          "the table has the new columns, but its name in Spark's catalog has not: " + error.getMessage());
    }
  }

  /** The table is made: now its name is. */
  private static void named(SparkSession session, CreateDataSourceTableCommand plan) {
    CatalogTable table = plan.table();
    if (table.storage().locationUri().isDefined()) {
      plan.run(session); // it compares the columns
      return;
    }
    try {
      session.sessionState().catalog().createTable(table, plan.ignoreIfExists(), false);
    } catch (Exception error) {
      throw new DefaultSource.TidelogException(
          "the table is made, but its name in Spark's catalog is not: " + error.getMessage());
    }
  }

  /** Spark fills the table, and does not pass on its partition columns and properties. */
  private static Seq filled(SparkSession session, CreateDataSourceTableAsSelectCommand plan, Map parts) {
    DefaultSource.NEW_NAME.set(parts);
    try {
      return plan.run(session);
    } finally {
      DefaultSource.NEW_NAME.remove();
    }
  }

  /** A statement, which runs when Spark wants its result. */
  public static class Change extends V2CommandExec {
    private final Map request;
    private final LogicalPlan plan;
    private final LogicalPlan relation;
    private final String name;
    private final TableIdentifier identifier;
    private final List columns;

    /** What it changes is a relation, or the name of a table. */
    Change(Map request, LogicalPlan plan, LogicalPlan relation, String name) {
      this(request, plan, relation, name, null, null);
    }

    /** Then `columns` are new ones of the name in the catalog of the session. */
    Change(
        Map request, LogicalPlan plan, LogicalPlan relation, String name, TableIdentifier identifier, List columns) {
      this.request = request;
      this.plan = plan;
      this.relation = relation;
      this.name = name;
      this.identifier = identifier;
      this.columns = columns;
    }

    public Seq run() {
      SparkSession session = (SparkSession) session();
      if (plan instanceof CreateDataSourceTableAsSelectCommand) {
        return filled(session, (CreateDataSourceTableAsSelectCommand) plan, request);
      }
      if (plan instanceof OverwritePartitionsDynamic) {
        DefaultSource.ask(request, Dataset.ofRows(session, (LogicalPlan) plan.children().head()));
      } else {
        Object failed = DefaultSource.ask(request, new Object[] {session, relation == null ? plan : statement(session)});
        if (failed instanceof Throwable) {
          Platform.throwException((Throwable) failed); // as Spark's own tables fail
        }
      }
      if (plan instanceof CreateDataSourceTableCommand) {
        named(session, (CreateDataSourceTableCommand) plan);
        return sequence(new ArrayList());
      }
      if (identifier != null) {
        addColumns(session, identifier, columns);
      }
      // What Spark has cached of the table is old now.
      if (name != null) {
        session.catalog().refreshTable(name);
      } else {
        session.sharedState().cacheManager().recacheByPlan(session, relation);
      }
      return sequence(new ArrayList());
    }

    /** The statement as it was before Spark's optimizer, which knows the scans of one attempt only. */
    private LogicalPlan statement(SparkSession session) {
      String execution = session.sparkContext().getLocalProperty(SQLExecution.EXECUTION_ID_KEY());
      QueryExecution running = execution == null ? null : SQLExecution.getQueryExecution(Long.parseLong(execution));
      LogicalPlan found = running == null || running.analyzed().getClass() != plan.getClass() ? plan : running.analyzed();
      if (!(relation instanceof LogicalRelation)) {
        return found;
      }
      Object table = DefaultSource.ask(DefaultSource.request("named", optionsOf(relation)), null);
      return Rewritten.ofName(session, found, new Catalog.PathTable((String) table));
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

    public String nodeName() {
      boolean isRewritten = relation != null && Rewritten.target(plan) != null;
      return "tidelog " + (isRewritten ? Rewritten.command(plan) : plan.nodeName());
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
