package tidelog;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.InterruptedIOException;
import java.io.UncheckedIOException;
import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.BiFunction;

import org.apache.spark.SparkThrowable;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.catalyst.util.CaseInsensitiveMap;
import org.apache.spark.sql.connector.read.streaming.ReadAllAvailable;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.execution.datasources.LogicalRelation$;
import org.apache.spark.sql.execution.streaming.Offset;
import org.apache.spark.sql.execution.streaming.Sink;
import org.apache.spark.sql.execution.streaming.Source;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.sources.CreatableRelationProvider;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.sources.InsertableRelation;
import org.apache.spark.sql.sources.PrunedFilteredScan;
import org.apache.spark.sql.sources.RelationProvider;
import org.apache.spark.sql.sources.SchemaRelationProvider;
import org.apache.spark.sql.sources.StreamSinkProvider;
import org.apache.spark.sql.sources.StreamSourceProvider;
import org.apache.spark.sql.sources.TableScan;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.jdk.javaapi.CollectionConverters;

/**
 * What format("tidelog") is to Spark. It decides nothing: each call asks the planner in the Python process of the driver,
 * which answers with a text, a frame or the rows of one.
 *
 * Spark finds it by its name. Janino, which Spark uses for generated code, compiles it: no generics, no lambdas. It lives
 * on the driver only.
 */
public class DefaultSource
    implements RelationProvider,
        SchemaRelationProvider,
        CreatableRelationProvider,
        StreamSourceProvider,
        StreamSinkProvider,
        DataSourceRegister {
  /** Takes a request as JSON, and a place for the answer: an object, and the text of an error. */
  public static final AtomicReference PLANNER = new AtomicReference();

  /** What a new name in the session's catalog has beside its rows: partition columns and properties. */
  static final ThreadLocal NEW_NAME = new ThreadLocal();

  public String shortName() {
    return "tidelog";
  }

  private static final String SCHEMA = "schema";
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final ArrayList LOADED = new ArrayList();

  /** An error of tidelog's: its own text is all that is shown. Spark would wrap another one that ALTER TABLE raises. */
  public static class TidelogException extends IllegalArgumentException implements SparkThrowable {
    public TidelogException(String message) {
      super(message);
    }

    /** One of Spark's own, whose message is a text: Spark raises an error of its own for a condition that it misses. */
    public String getCondition() {
      return "_LEGACY_ERROR_USER_RAISED_EXCEPTION";
    }

    public Map getMessageParameters() {
      HashMap parameters = new HashMap();
      parameters.put("errorMessage", getMessage());
      return parameters;
    }

    /** What handlers in SQL scripts can ask for: that the error comes from what lies outside of the database. */
    public String getSqlState() {
      return "HV000";
    }

    public String toString() {
      return getMessage();
    }
  }

  /**
   * What a load found, and the columns that its user asked for: Spark starts a query with the same object of options, and
   * with nothing else of the load.
   */
  static class Loaded {
    final WeakReference options;
    final String found;
    final scala.Option schema;

    Loaded(Object options, String found, scala.Option schema) {
      this.options = new WeakReference(options);
      this.found = found;
      this.schema = schema;
    }
  }

  static Map request(String kind) {
    HashMap request = new HashMap();
    request.put("kind", kind);
    return request;
  }

  static Map request(String kind, Map options) {
    Map request = request(kind);
    request.put("options", options);
    return request;
  }

  /** The planner's answer. `given` is what it needs beside the request. */
  static Object ask(Map request, Object given) {
    BiFunction planner = (BiFunction) PLANNER.get();
    if (planner == null) {
      throw new TidelogException("tidelog is not registered: call tidelog.streaming.register(spark)");
    }
    // Not as a returned value: Python forgets an object that it returned, which can be before it is used here.
    Object[] place = new Object[] {given, "the process that runs tidelog gave no answer"};
    try {
      planner.apply(JSON.writeValueAsString(request), place);
    } catch (JsonProcessingException error) {
      throw new TidelogException(error.toString());
    }
    String error = (String) place[1];
    if (error != null && error.indexOf("java.lang.InterruptedException") >= 0) {
      // The stop of a query interrupts its thread. Spark knows an interruption by its type.
      throw new UncheckedIOException(new InterruptedIOException(error));
    }
    if (error != null) {
      throw new TidelogException(error);
    }
    return place[0];
  }

  /** The options as they were given: Spark's map has their names in lower case. */
  static Map original(scala.collection.immutable.Map options) {
    if (options instanceof CaseInsensitiveMap) {
      options = ((CaseInsensitiveMap) options).originalMap();
    }
    return new HashMap(CollectionConverters.asJava((scala.collection.Map) options));
  }

  static Map parsed(String json) {
    try {
      return (Map) JSON.readValue(json, Map.class);
    } catch (JsonProcessingException error) {
      throw new TidelogException(error.toString());
    }
  }

  static StructType schemaOf(String json) {
    return (StructType) DataType.fromJson(json);
  }

  /** The columns that a load found: the first line. */
  static StructType columnsOf(String found) {
    return schemaOf(found.substring(0, found.indexOf('\n')));
  }

  private static void remember(Object options, String found, scala.Option schema) {
    synchronized (LOADED) {
      Iterator all = LOADED.iterator();
      while (all.hasNext()) {
        Object one = ((Loaded) all.next()).options.get();
        if (one == null || one == options) {
          all.remove();
        }
      }
      LOADED.add(new Loaded(options, found, schema));
    }
  }

  private static Loaded remembered(Object options) {
    synchronized (LOADED) {
      Iterator all = LOADED.iterator();
      while (all.hasNext()) {
        Loaded one = (Loaded) all.next();
        if (one.options.get() == options) {
          return one;
        }
      }
      return null;
    }
  }

  public scala.Tuple2 sourceSchema(
      SQLContext context, scala.Option schema, String name, scala.collection.immutable.Map parameters) {
    if (isOfName()) {
      schema = scala.Option.empty();
    }
    Map request = request("load", original(parameters));
    if (schema.isDefined()) {
      request.put(SCHEMA, ((StructType) schema.get()).json());
    }
    String found = (String) ask(request, context.sparkSession());
    remember(parameters, found, schema);
    return new scala.Tuple2("tidelog", schema.isDefined() ? schema.get() : columnsOf(found));
  }

  /** Whether Spark reads a stream by a name, and gives the columns that its catalog has: they lack those of changes. */
  private static boolean isOfName() {
    return Callers.include(".FindDataSourceTable");
  }

  public Source createSource(
      SQLContext context,
      String metadataPath,
      scala.Option schema,
      String name,
      scala.collection.immutable.Map parameters) {
    Loaded loaded = remembered(parameters);
    if (loaded == null) {
      sourceSchema(context, schema, name, parameters);
      loaded = remembered(parameters);
    }
    String found = loaded.found;
    schema = loaded.schema;
    Map request = request("start", original(parameters));
    request.put("loaded", found);
    request.put("place", metadataPath);
    if (schema.isDefined()) {
      request.put(SCHEMA, ((StructType) schema.get()).json());
    }
    StructType columns = schema.isDefined() ? (StructType) schema.get() : columnsOf(found);
    return new Feed(context, columns, (String) ask(request, context.sparkSession()));
  }

  public Sink createSink(
      SQLContext context,
      scala.collection.immutable.Map parameters,
      scala.collection.immutable.Seq partitions,
      OutputMode mode) {
    Map request = request("sink", original(parameters));
    request.put("outputMode", mode.toString());
    request.put("partitions", new ArrayList(CollectionConverters.asJava(partitions)));
    return (Sink) ask(request, context.sparkSession());
  }

  /** Refuses what a user wrote: `change` is its name in sql_catalog. */
  static void refuse(String change) {
    Map request = request("refused");
    request.put("change", change);
    ask(request, null);
  }

  public BaseRelation createRelation(SQLContext context, scala.collection.immutable.Map parameters) {
    Map options = original(parameters);
    String found = (String) ask(request("columns", options), context.sparkSession());
    return new Rows(context, schemaOf(found), options, null);
  }

  public BaseRelation createRelation(
      SQLContext context, scala.collection.immutable.Map parameters, StructType schema) {
    Map options = original(parameters);
    Map request = request("columns", options);
    request.put(SCHEMA, schema.json());
    ask(request, context.sparkSession());
    return new Rows(context, schema, options, schema.json());
  }

  public BaseRelation createRelation(
      SQLContext context, SaveMode mode, scala.collection.immutable.Map parameters, Dataset data) {
    Map request = request("write", original(parameters));
    boolean isNew = mode == SaveMode.Overwrite && isForNewName();
    request.put("mode", isNew ? "NewName" : mode.toString());
    if (isNew && NEW_NAME.get() != null) {
      request.putAll((Map) NEW_NAME.get());
    }
    ask(request, data);
    return new Written(context, data.schema());
  }

  /**
   * Whether Spark writes the rows of CREATE TABLE ... AS SELECT or of saveAsTable for a name that its catalog does not have.
   * It says Overwrite then, whatever its user said, and does not look whether there is a table already. For a name that it
   * has, it says Append.
   */
  private static boolean isForNewName() {
    return Callers.include("CreateDataSourceTableAsSelectCommand");
  }

  /** The planner knows which types a table takes. */
  public boolean supportsDataType(DataType type) {
    return true;
  }

  /** What a write returns to Spark, which does not read it. */
  static class Written extends BaseRelation {
    private final SQLContext context;
    private final StructType schema;

    Written(SQLContext context, StructType schema) {
      this.context = context;
      this.schema = schema;
    }

    public SQLContext sqlContext() {
      return context;
    }

    public StructType schema() {
      return schema;
    }
  }

  /** The rows of a batch read. The version is chosen by each query that reads them. */
  public static class Rows extends BaseRelation implements PrunedFilteredScan, InsertableRelation {
    private final SQLContext context;
    private final StructType schema;
    private final Map options;
    private final String given;

    Rows(SQLContext context, StructType schema, Map options, String given) {
      this.context = context;
      this.schema = schema;
      this.options = options;
      this.given = given;
    }

    public SQLContext sqlContext() {
      return context;
    }

    public StructType schema() {
      return schema;
    }

    public boolean needConversion() {
      return false;
    }

    Map options() {
      return options;
    }

    public RDD buildScan(String[] columns, Filter[] filters) {
      Map request = request("scan", options);
      request.put("columns", Arrays.asList(columns));
      request.put("expected", schema.json());
      request.put(SCHEMA, given);
      return (RDD) ask(request, new Object[] {context.sparkSession(), filters});
    }

    public void insert(Dataset data, boolean overwrite) {
      Map request = request("write", options);
      request.put("mode", overwrite ? "Overwrite" : "Append");
      request.put("inserts", Boolean.TRUE);
      ask(request, data);
    }

    public String toString() {
      return "tidelog " + options.get("path");
    }
  }

  /** The batch of a stream that could not be planned. Spark plans one again that is finished, and does not read it. */
  static class Failed extends BaseRelation implements TableScan {
    private final SQLContext context;
    private final StructType schema;
    private final String error;

    Failed(SQLContext context, StructType schema, String error) {
      this.context = context;
      this.schema = schema;
      this.error = error;
    }

    public SQLContext sqlContext() {
      return context;
    }

    public StructType schema() {
      return schema;
    }

    public RDD buildScan() {
      throw new TidelogException(error);
    }
  }

  /** A position in the change feed, as the planner wrote it. */
  public static class FeedOffset extends Offset {
    private final String text;

    FeedOffset(String text) {
      this.text = text;
    }

    public String json() {
      return text;
    }
  }

  /** The change feed of one query. */
  public static class Feed implements Source, SupportsTriggerAvailableNow {
    private final SQLContext context;
    private final StructType schema;
    private final String key;

    Feed(SQLContext context, StructType schema, String key) {
      this.context = context;
      this.schema = schema;
      this.key = key;
    }

    private Object ask(Map request) {
      request.put("feed", key);
      return DefaultSource.ask(request, context.sparkSession());
    }

    /** By which the planner knows the feed in a plan of Spark's. */
    public String key() {
      return key;
    }

    public StructType schema() {
      return schema;
    }

    public scala.Option getOffset() {
      throw new UnsupportedOperationException("latestOffset has taken its place");
    }

    public org.apache.spark.sql.connector.read.streaming.Offset latestOffset(
        org.apache.spark.sql.connector.read.streaming.Offset start, ReadLimit limit) {
      Map request = request("latest");
      request.put("start", start == null ? null : start.json());
      request.put("all", Boolean.valueOf(limit instanceof ReadAllAvailable));
      return new FeedOffset((String) ask(request));
    }

    public Dataset getBatch(scala.Option start, Offset end) {
      Map request = request("batch");
      request.put("start", start.isEmpty() ? null : ((Offset) start.get()).json());
      request.put("end", end.json());
      try {
        return (Dataset) ask(request);
      } catch (TidelogException error) {
        return org.apache.spark.sql.classic.Dataset$.MODULE$.ofRows(
            (org.apache.spark.sql.classic.SparkSession) context.sparkSession(),
            LogicalRelation$.MODULE$.apply(new Failed(context, schema, error.getMessage()), true));
      }
    }

    public void prepareForTriggerAvailableNow() {
      ask(request("now"));
    }

    public ReadLimit getDefaultReadLimit() {
      return (ReadLimit) ask(request("limit"));
    }

    public org.apache.spark.sql.connector.read.streaming.Offset reportLatestOffset() {
      return new FeedOffset((String) ask(request("newest")));
    }

    public org.apache.spark.sql.connector.read.streaming.Offset initialOffset() {
      throw new UnsupportedOperationException("latestOffset without a start says where a stream begins");
    }

    public org.apache.spark.sql.connector.read.streaming.Offset deserializeOffset(String json) {
      return new FeedOffset(json);
    }

    public void commit(org.apache.spark.sql.connector.read.streaming.Offset end) {}

    public void commit(Offset end) {}

    public void stop() {
      ask(request("stop"));
    }

    public String toString() {
      return "tidelog";
    }
  }
}
