package tidelog;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.MetadataColumn;
import org.apache.spark.sql.connector.catalog.ProcedureCatalog;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.StagingTableCatalog;
import org.apache.spark.sql.connector.catalog.SupportsMetadataColumns;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsRowLevelOperations;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.TruncatableTable;
import org.apache.spark.sql.connector.catalog.V2TableWithV1Fallback;
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure;
import org.apache.spark.sql.connector.expressions.ClusterByTransform;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownFilters;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.V1Scan;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.RowLevelOperation;
import org.apache.spark.sql.connector.write.RowLevelOperationBuilder;
import org.apache.spark.sql.connector.write.RowLevelOperationInfo;
import org.apache.spark.sql.connector.write.SupportsDynamicOverwrite;
import org.apache.spark.sql.connector.write.SupportsOverwrite;
import org.apache.spark.sql.connector.write.V1Write;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.internal.connector.PredicateUtils$;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.sources.EqualNullSafe;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.sources.InsertableRelation;
import org.apache.spark.sql.sources.TableScan;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The SQL catalog of tables by their path, or by their name below a folder. Like DefaultSource, it asks the planner for
 * everything.
 */
public class Catalog extends NewerCatalog implements StagingTableCatalog, ProcedureCatalog {
  private String name;
  private Map options;

  public void initialize(String name, CaseInsensitiveStringMap options) {
    this.name = name;
    this.options = new HashMap(options.asCaseSensitiveMap());
  }

  public String name() {
    return name;
  }

  /** Asks about a table, or about the folder of a namespace. */
  Object ask(String kind, String[] namespace, String name, Map more) {
    return DefaultSource.ask(request(kind, namespace, name, more), null);
  }

  private Map request(String kind, String[] namespace, String name, Map more) {
    Map request = DefaultSource.request(kind, options);
    ArrayList names = new ArrayList(Arrays.asList(namespace));
    if (name != null) {
      names.add(name);
    }
    request.put("names", names);
    request.putAll(more);
    return request;
  }

  Object ask(String kind, Identifier table, Map more) {
    return ask(kind, table.namespace(), table.name(), more);
  }

  Table load(Identifier table, Map more) {
    return new PathTable((String) ask("table", table, more));
  }

  /** Spark asks before it creates or drops a table. That one is missing otherwise is an error of tidelog's own. */
  public boolean tableExists(Identifier table) {
    return Streams.isToTable() || ((Boolean) ask("exists", table, new HashMap())).booleanValue();
  }

  public Identifier[] listTables(String[] namespace) {
    String[] names = ((String) ask("tables", namespace, null, new HashMap())).split("\n");
    ArrayList found = new ArrayList();
    for (int i = 0; i < names.length; i++) {
      if (!names[i].isEmpty()) {
        found.add(new Named(namespace, names[i]));
      }
    }
    return (Identifier[]) found.toArray(new Identifier[found.size()]);
  }

  public Table loadTable(Identifier table) throws NoSuchTableException {
    if (Streams.isToTable()) {
      return new PathTable((String) ask("target", table, new HashMap()));
    }
    if (isForLookUp() && !tableExists(table)) {
      throw new NoSuchTableException(table);
    }
    return load(table, RowOperation.evolved());
  }

  /** Whether saveAsTable, spark.catalog.tableExists or a pipeline asks: they know a missing table by Spark's error. */
  private static boolean isForLookUp() {
    return Callers.include("DataFrameWriter", "saveAsTable")
        || Callers.include(".Catalog", "tableExists")
        || Streams.isOfPipeline();
  }

  public Table loadTable(Identifier table, String version) {
    HashMap more = new HashMap();
    more.put("version", version);
    return load(table, more);
  }

  /** The time is in microseconds. */
  public Table loadTable(Identifier table, long timestamp) {
    HashMap more = new HashMap();
    more.put("timestamp", Long.valueOf(timestamp));
    return load(table, more);
  }

  public Table createTable(Identifier table, StructType schema, Transform[] partitions, Map properties) {
    return new PathTable((String) ask("create", table, described(schema, partitions, properties)));
  }

  private static Map described(StructType schema, Transform[] partitions, Map properties) {
    ArrayList columns = new ArrayList();
    for (int i = 0; i < partitions.length; i++) {
      columns.add(partitions[i].describe());
    }
    HashMap more = new HashMap();
    more.put("schema", schema.json());
    more.put("partitions", columns);
    more.put("properties", new HashMap(properties));
    return more;
  }

  /** A table that is filled at once: it is empty until then, and dropped if that fails. */
  public StagedTable stageCreate(Identifier table, StructType schema, Transform[] partitions, Map properties) {
    Map more = described(schema, partitions, properties);
    more.put("fills", Boolean.TRUE);
    return new NewTable(this, table, new PathTable((String) ask("create", table, more)));
  }

  /** The same table with other rows: the planner refuses other properties. */
  public StagedTable stageReplace(Identifier table, StructType schema, Transform[] partitions, Map properties) {
    return new SameTable((String) ask("replace", table, described(schema, partitions, properties)));
  }

  public StagedTable stageCreateOrReplace(Identifier table, StructType schema, Transform[] partitions, Map properties) {
    return tableExists(table)
        ? stageReplace(table, schema, partitions, properties)
        : stageCreate(table, schema, partitions, properties);
  }

  public Table alterTable(Identifier table, TableChange[] changes) {
    if (RowOperation.isEvolution(changes)) {
      return load(table, new HashMap());
    }
    HashMap more = new HashMap();
    more.put("changes", TableChanges.described(changes));
    DefaultSource.ask(request("alterTable", table.namespace(), table.name(), more), SparkSession.active());
    return load(table, new HashMap());
  }

  public boolean dropTable(Identifier table) {
    return ((Boolean) ask("drop", table, new HashMap())).booleanValue();
  }

  /** Dropped files are deleted at once. */
  public boolean purgeTable(Identifier table) {
    return dropTable(table);
  }

  public void renameTable(Identifier from, Identifier to) {
    DefaultSource.refuse("RenameTable");
  }

  public UnboundProcedure loadProcedure(Identifier name) {
    return Procedures.loaded(name);
  }

  /** Spark asks from 4.1 on. */
  public Identifier[] listProcedures(String[] namespace) {
    return Procedures.listed(namespace);
  }

  static class Named implements Identifier {
    private final String[] namespace;
    private final String name;

    Named(String[] namespace, String name) {
      this.namespace = namespace;
      this.name = name;
    }

    public String[] namespace() {
      return namespace;
    }

    public String name() {
      return name;
    }
  }

  /** A table of the catalog, at the newest version or at one of the past. */
  public static class PathTable extends Partitions
      implements Table,
          SupportsRead,
          SupportsWrite,
          TruncatableTable,
          SupportsMetadataColumns,
          SupportsRowLevelOperations,
          V2TableWithV1Fallback {
    final Map found;
    private final Map options;
    private final StructType schema;

    PathTable(String text) {
      this(DefaultSource.parsed(text));
    }

    PathTable(Map found) {
      this.found = found;
      this.options = (Map) found.get("options");
      this.schema = DefaultSource.schemaOf((String) found.get("schema"));
    }

    public String name() {
      return (String) found.get("name");
    }

    public StructType schema() {
      return schema;
    }

    public Transform[] partitioning() {
      List names = partitionNames();
      List clusters = (List) found.get("clusters");
      if (names.isEmpty() && !clusters.isEmpty()) {
        return new Transform[] {clusteredBy(clusters)};
      }
      Transform[] made = new Transform[names.size()];
      for (int i = 0; i < made.length; i++) {
        made[i] = Expressions.identity(quoted((String) names.get(i)));
      }
      return made;
    }

    private static Transform clusteredBy(List columns) {
      ArrayList references = new ArrayList();
      for (int i = 0; i < columns.size(); i++) {
        references.add(Expressions.column(quoted((String) columns.get(i))));
      }
      return new ClusterByTransform(CollectionConverters.asScala(references).toSeq());
    }

    /** As Spark parses a name. */
    private static String quoted(String name) {
      return "`" + name.replace("`", "``") + "`";
    }

    public Map properties() {
      return (Map) found.get("properties");
    }

    public Set capabilities() {
      HashSet can = new HashSet();
      can.add(TableCapability.BATCH_READ);
      can.add(TableCapability.V1_BATCH_WRITE);
      // Spark asks for it before an overwrite of partitions, which RowChanges runs.
      can.add(TableCapability.BATCH_WRITE);
      can.add(TableCapability.TRUNCATE);
      can.add(TableCapability.OVERWRITE_BY_FILTER);
      can.add(TableCapability.OVERWRITE_DYNAMIC);
      if (RowOperation.evolution() != null) {
        can.add(RowOperation.evolution());
      }
      return can;
    }

    /** For streams: without their capabilities, Spark takes this. */
    public CatalogTable v1Table() {
      return Streams.older(name(), options, schema);
    }

    /** With the columns that cannot be null, which the schema of a scan does not say. */
    PathTable strict() {
      HashMap all = new HashMap(found);
      all.put("schema", found.get("strict"));
      all.put("clusters", new ArrayList()); // a property says them
      return new PathTable(all);
    }

    public String toString() {
      return "tidelog " + name();
    }

    Map options() {
      return options;
    }

    List partitionNames() {
      return (List) found.get("partitions");
    }

    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap given) {
      if (given.containsKey("changes")
          || given.getBoolean("readChangeFeed", false)
          || given.getBoolean("readChangeData", false)) {
        DefaultSource.refuse("Changes"); // they have more columns
      }
      HashMap all = new HashMap(options);
      all.putAll(given.asCaseSensitiveMap());
      return new Reading(name(), schema, all);
    }

    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
      HashMap all = new HashMap(options);
      all.putAll(info.options().asCaseSensitiveMap());
      return new Writing(evolving(all));
    }

    /** The options of a write; INSERT WITH SCHEMA EVOLUTION adds the columns in its own commit. */
    Map evolving(Map options) {
      if (found.get("evolve") != null) {
        options.put("mergeSchema", "true");
      }
      return options;
    }

    public boolean truncateTable() {
      DefaultSource.ask(DefaultSource.request("truncate", options), null);
      return true;
    }

    public MetadataColumn[] metadataColumns() {
      return RowOperation.metadataColumns(rowColumns());
    }

    /** What a statement needs of each row that it changes. */
    StructType rowColumns() {
      return DefaultSource.schemaOf((String) found.get("rowColumns"));
    }

    public RowLevelOperationBuilder newRowLevelOperationBuilder(RowLevelOperationInfo info) {
      return new Changing(this, info.command());
    }
  }

  /** A statement that changes rows of a table. */
  static class Changing extends RowOperation {
    final PathTable table;

    Changing(PathTable table, RowLevelOperation.Command command) {
      super(table.rowColumns(), command);
      this.table = table;
    }

    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap given) {
      return table.newScanBuilder(given);
    }
  }

  /** The table of a CREATE TABLE ... AS SELECT. */
  static class NewTable extends PathTable implements StagedTable {
    private final Catalog catalog;
    private final Identifier identifier;

    NewTable(Catalog catalog, Identifier identifier, PathTable made) {
      super(made.found);
      this.catalog = catalog;
      this.identifier = identifier;
    }

    public void commitStagedChanges() {}

    // Two interfaces have these from Spark 4.1 on.
    public CustomMetric[] supportedCustomMetrics() {
      return new CustomMetric[0];
    }

    public CustomTaskMetric[] reportDriverMetrics() {
      return new CustomTaskMetric[0];
    }

    public void abortStagedChanges() {
      HashMap made = new HashMap();
      made.put("made", found.get("made"));
      catalog.ask("undo", identifier, made);
    }
  }

  /** The table of a REPLACE TABLE: its rows are replaced in one commit, and so are its columns if there are others. */
  static class SameTable extends PathTable implements StagedTable {
    private boolean isWritten = false;

    SameTable(String text) {
      super(text);
    }

    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
      isWritten = true;
      String mode = info.options().get("partitionOverwriteMode");
      if (info.options().containsKey("where") || "dynamic".equalsIgnoreCase(mode)) {
        DefaultSource.refuse("ReplacePart");
      }
      Writing writing = (Writing) super.newWriteBuilder(info);
      if (hasOthers()) {
        if (Callers.include("DataFrameWriter", "saveAsTable")
            && !"true".equalsIgnoreCase(info.options().get("overwriteSchema"))) {
          DefaultSource.refuse("OverwriteSchema");
        }
        writing.replaceColumns(partitionNames());
      }
      return writing.truncate();
    }

    /** Whether the table gets other columns or partitions. */
    private boolean hasOthers() {
      return Boolean.TRUE.equals(found.get("replaces"));
    }

    public void commitStagedChanges() {
      if (isWritten) {
        return;
      }
      if (!hasOthers()) {
        truncateTable();
        return;
      }
      Map request = DefaultSource.request("replaceColumns", options());
      request.put("schema", found.get("strict"));
      request.put("partitions", partitionNames());
      DefaultSource.ask(request, null);
    }

    // As above.
    public CustomMetric[] supportedCustomMetrics() {
      return new CustomMetric[0];
    }

    public CustomTaskMetric[] reportDriverMetrics() {
      return new CustomTaskMetric[0];
    }

    public void abortStagedChanges() {}
  }

  /** A scan: the columns that a query needs, and its filters. */
  static class Reading implements ScanBuilder, SupportsPushDownRequiredColumns, SupportsPushDownFilters, V1Scan {
    private final String name;
    private final Map options;
    private StructType columns;
    private Filter[] filters = new Filter[0];

    Reading(String name, StructType columns, Map options) {
      this.name = name;
      this.columns = columns;
      this.options = options;
    }

    /** Whole columns: Spark would leave out fields of structs, too. */
    public void pruneColumns(StructType needed) {
      StructType whole = new StructType();
      for (int i = 0; i < needed.fields().length; i++) {
        Option own = columns.getFieldIndex(needed.fields()[i].name());
        whole = whole.add(own.isDefined() ? columns.fields()[((Integer) own.get()).intValue()] : needed.fields()[i]);
      }
      columns = whole;
    }

    /** Spark applies all of them again. */
    public Filter[] pushFilters(Filter[] given) {
      filters = given;
      return given;
    }

    public Filter[] pushedFilters() {
      return filters;
    }

    public Scan build() {
      return this;
    }

    public StructType readSchema() {
      return columns;
    }

    public String description() {
      return "tidelog " + name;
    }

    public BaseRelation toV1TableScan(SQLContext context) {
      return new Scanned(context, columns, options, filters);
    }
  }

  /** The rows of a scan. */
  static class Scanned extends BaseRelation implements TableScan {
    private final SQLContext context;
    private final StructType columns;
    private final Map options;
    private final Filter[] filters;

    Scanned(SQLContext context, StructType columns, Map options, Filter[] filters) {
      this.context = context;
      this.columns = columns;
      this.options = options;
      this.filters = filters;
    }

    public SQLContext sqlContext() {
      return context;
    }

    public StructType schema() {
      return columns;
    }

    public boolean needConversion() {
      return false;
    }

    public RDD buildScan() {
      Map request = DefaultSource.request("scan", options);
      request.put("columns", Arrays.asList(columns.fieldNames()));
      request.put("expected", columns.json());
      return (RDD) DefaultSource.ask(request, new Object[] {context.sparkSession(), filters});
    }
  }

  /** An append, or an overwrite of the table or of what filters describe. RowChanges runs one of partitions. */
  static class Writing
      implements WriteBuilder, SupportsOverwrite, SupportsDynamicOverwrite, V1Write, InsertableRelation {
    private final Map options;
    private boolean truncates = false;
    private Object[] replaced = null;
    private List partitions = null;

    Writing(Map options) {
      this.options = options;
    }

    /** Let the table have the columns of the rows, partitioned by these. */
    void replaceColumns(List partitions) {
      this.partitions = partitions;
      options.put("overwriteSchema", "true");
    }

    public WriteBuilder truncate() {
      truncates = true;
      return this;
    }

    /** Whether the rows are described well enough is for the planner to say, with an error of tidelog's own. */
    public boolean canOverwrite(Predicate[] predicates) {
      return true;
    }

    /** What Spark's older filters have no form for stays as it is. */
    public WriteBuilder overwrite(Predicate[] predicates) {
      replaced = new Object[predicates.length];
      for (int i = 0; i < predicates.length; i++) {
        Option filter = PredicateUtils$.MODULE$.toV1(predicates[i]);
        replaced[i] = filter.isDefined() ? filter.get() : ofBoolean(predicates[i]);
      }
      return this;
    }

    /** The older filter for a partition of the type BOOLEAN; else the predicate itself. */
    private static Object ofBoolean(Predicate predicate) {
      if (!predicate.name().equals("<=>") || !(predicate.children()[0] instanceof NamedReference)) {
        return predicate;
      }
      String value = predicate.children()[1].toString().toLowerCase();
      return value.equals("true") || value.equals("false")
          ? (Object) new EqualNullSafe(predicate.children()[0].toString(), Boolean.valueOf(value))
          : predicate;
    }

    public WriteBuilder overwrite(Filter[] filters) {
      replaced = filters;
      return this;
    }

    public WriteBuilder overwriteDynamicPartitions() {
      return this;
    }

    public Write build() {
      return this;
    }

    public InsertableRelation toInsertableRelation() {
      return this;
    }

    public void insert(Dataset data, boolean overwrite) {
      if (replaced != null) {
        DefaultSource.ask(DefaultSource.request("overwrite", options), new Object[] {data, replaced});
        return;
      }
      Map request = DefaultSource.request("write", options);
      request.put("mode", truncates || overwrite ? "Overwrite" : "Append");
      if (partitions != null) {
        request.put("partitions", partitions);
      }
      DefaultSource.ask(request, data);
    }
  }
}
