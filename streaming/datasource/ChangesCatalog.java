package tidelog;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogV2Util;
import org.apache.spark.sql.connector.catalog.Changelog;
import org.apache.spark.sql.connector.catalog.ChangelogContext;
import org.apache.spark.sql.connector.catalog.ChangelogRange;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadAllAvailable;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.execution.FilterExec;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.datasources.v2.MicroBatchScanExec;
import org.apache.spark.sql.execution.datasources.v2.StreamingDataSourceV2ScanRelation;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The catalog for Spark 4.2 and later, which asks it for the changes of a table: SELECT ... CHANGES, spark.read.changes and
 * spark.readStream.changes. Earlier ones have no such interface, so this file is not compiled there.
 */
public class ChangesCatalog extends Catalog {
  /** Let the session plan the micro-batches of changes. */
  public static void install(SparkSession session) {
    ArrayList all = new ArrayList(CollectionConverters.asJava(session.experimental().extraStrategies()));
    for (int i = 0; i < all.size(); i++) {
      if (all.get(i) instanceof MicroBatches) {
        return;
      }
    }
    all.add(new MicroBatches());
    session.experimental().extraStrategies_$eq(sequence(all));
  }

  private static Seq sequence(ArrayList values) {
    return CollectionConverters.asScala(values).toSeq();
  }

  /** Spark keeps what was loaded for queries with the same range and the same of these options. */
  public Set changelogStateOptionKeys() {
    return new HashSet(Arrays.asList(new String[] {"columns"}));
  }

  public Changelog loadChangelog(Identifier table, ChangelogContext context, CaseInsensitiveStringMap given) {
    return new Changes((String) ask("changelog", table, described(context, given)));
  }

  static Map described(ChangelogContext context, CaseInsensitiveStringMap given) {
    HashMap more = new HashMap();
    more.put("deduplicationMode", context.deduplicationMode().value());
    more.put("computeUpdates", Boolean.valueOf(context.computeUpdates()));
    more.put("selected", given.get("columns"));
    ChangelogRange range = context.range();
    if (range instanceof ChangelogRange.VersionRange) {
      ChangelogRange.VersionRange versions = (ChangelogRange.VersionRange) range;
      more.put("range", "versions");
      more.put("start", versions.startingVersion());
      more.put("end", versions.endingVersion().orElse(null));
    } else if (range instanceof ChangelogRange.TimestampRange) {
      ChangelogRange.TimestampRange times = (ChangelogRange.TimestampRange) range;
      more.put("range", "times"); // in microseconds
      more.put("start", Long.valueOf(times.startingTimestamp()));
      more.put("end", times.endingTimestamp().orElse(null));
    }
    if (more.containsKey("range")) { // one without bounds does not say whether they are included
      more.put("hasStart", Boolean.valueOf(range.startingBoundInclusive()));
      more.put("hasEnd", Boolean.valueOf(range.endingBoundInclusive()));
    }
    return more;
  }

  /** The changes of a table, as the planner finds them: Spark has nothing left to remove, to pair or to sum up. */
  static class Changes implements Changelog {
    private final Map found;
    private final StructType schema;

    Changes(String text) {
      this.found = DefaultSource.parsed(text);
      this.schema = DefaultSource.schemaOf((String) found.get("schema"));
    }

    public String name() {
      return (String) found.get("name");
    }

    public Column[] columns() {
      return CatalogV2Util.structTypeToV2Columns(schema, true);
    }

    public boolean containsCarryoverRows() {
      return false;
    }

    public boolean containsIntermediateChanges() {
      return false;
    }

    public boolean representsUpdateAsDeleteAndInsert() {
      return false;
    }

    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap given) {
      Map request = DefaultSource.request("changelogScan", (Map) found.get("options"));
      request.put("given", given.asCaseSensitiveMap());
      Map options = DefaultSource.parsed((String) DefaultSource.ask(request, null));
      return new ChangesScan(name(), schema, options, (String) found.get("loaded"));
    }
  }

  /** A scan of changes: a batch, as of a table, or a stream. */
  static class ChangesScan extends Catalog.Reading {
    private final StructType schema;
    private final Map options;
    private final String loaded;

    ChangesScan(String name, StructType schema, Map options, String loaded) {
      super(name, schema, options);
      this.schema = schema;
      this.options = options;
      this.loaded = loaded;
    }

    public MicroBatchStream toMicroBatchStream(String checkpoint) {
      Map request = DefaultSource.request("start", options);
      request.put("loaded", loaded);
      request.put("place", checkpoint);
      SparkSession session = SparkSession.active();
      return new Feed(session, (String) DefaultSource.ask(request, session));
    }
  }

  /** The change feed of one query. A micro-batch is planned as a FeedScan. */
  public static class Feed implements MicroBatchStream, SupportsTriggerAvailableNow {
    private final SparkSession session;
    private final String key;

    Feed(SparkSession session, String key) {
      this.session = session;
      this.key = key;
    }

    private Object ask(Map request) {
      request.put("feed", key);
      return DefaultSource.ask(request, session);
    }

    /** By which the planner knows the feed in a plan of Spark's. */
    public String key() {
      return key;
    }

    public Offset initialOffset() {
      return new DefaultSource.FeedOffset((String) ask(DefaultSource.request("first")));
    }

    public Offset latestOffset() {
      throw new UnsupportedOperationException("latestOffset with a limit has taken its place");
    }

    public Offset latestOffset(Offset start, ReadLimit limit) {
      Map request = DefaultSource.request("latest");
      request.put("start", start.json());
      request.put("all", Boolean.valueOf(limit instanceof ReadAllAvailable));
      return new DefaultSource.FeedOffset((String) ask(request));
    }

    public ReadLimit getDefaultReadLimit() {
      return (ReadLimit) ask(DefaultSource.request("limit"));
    }

    public Offset reportLatestOffset() {
      return new DefaultSource.FeedOffset((String) ask(DefaultSource.request("newest")));
    }

    public void prepareForTriggerAvailableNow() {
      ask(DefaultSource.request("now"));
    }

    public Offset deserializeOffset(String json) {
      return new DefaultSource.FeedOffset(json);
    }

    /** The position of a consumer goes on with the start of the next micro-batch. */
    public void commit(Offset end) {}

    public void stop() {
      ask(DefaultSource.request("stop"));
    }

    /** Spark's own plan of a micro-batch asks for them. */
    public InputPartition[] planInputPartitions(Offset start, Offset end) {
      throw new DefaultSource.TidelogException(
          "this session cannot plan a stream of changes: call tidelog.register(spark) with it before the query starts");
    }

    public PartitionReaderFactory createReaderFactory() {
      throw new UnsupportedOperationException("a micro-batch is planned as a FeedScan");
    }

    /** The rows of a micro-batch. */
    RDD rows(Offset start, Offset end, String[] columns) {
      Map request = DefaultSource.request("feedRows");
      request.put("start", start.json());
      request.put("end", end.json());
      request.put("columns", Arrays.asList(columns));
      return ((Dataset) ask(request)).queryExecution().toRdd();
    }

    public String toString() {
      return "tidelog";
    }
  }

  /** Plans micro-batches of changes. It comes before Spark's own strategy. */
  public static class MicroBatches extends SparkStrategy {
    public Seq apply(LogicalPlan plan) {
      ArrayList found = new ArrayList();
      SparkPlan planned = planned(plan);
      if (planned != null) {
        found.add(planned);
      }
      return sequence(found);
    }

    /** The micro-batch with a filter and a choice of columns above it; null if the plan is another one. */
    private static SparkPlan planned(LogicalPlan plan) {
      LogicalPlan below = plan;
      Project project = null;
      Filter filter = null;
      if (below instanceof Project) {
        project = (Project) below;
        below = project.child();
      }
      if (below instanceof Filter) {
        filter = (Filter) below;
        below = filter.child();
      }
      if (!(below instanceof StreamingDataSourceV2ScanRelation)) {
        return null;
      }
      StreamingDataSourceV2ScanRelation batch = (StreamingDataSourceV2ScanRelation) below;
      if (!(batch.stream() instanceof Feed) || !batch.startOffset().isDefined()) {
        return null;
      }
      ArrayList columns = new ArrayList();
      List all = CollectionConverters.asJava(batch.output());
      for (int i = 0; i < all.size(); i++) {
        if (project == null || isNeeded((Attribute) all.get(i), project, filter)) {
          columns.add(all.get(i));
        }
      }
      Seq output = sequence(columns);
      SparkPlan made =
          new FeedScan(
              output,
              new Columns(columns),
              (Feed) batch.stream(),
              (Offset) batch.startOffset().get(),
              (Offset) batch.endOffset().get(),
              Option.empty(),
              Option.empty());
      // What is above a scan wants Spark's own form of rows.
      made = new ProjectExec(output, made);
      if (filter != null) {
        made = new FilterExec(filter.condition(), made);
      }
      return project == null ? made : new ProjectExec(project.projectList(), made);
    }

    private static boolean isNeeded(Attribute column, Project project, Filter filter) {
      return project.references().contains(column) || (filter != null && filter.references().contains(column));
    }
  }

  /** The columns that a micro-batch reads: a plan that Spark compares with others has no names of its own any more. */
  static class Columns implements Scan {
    private final StructType schema;

    Columns(List columns) {
      StructType made = new StructType();
      for (int i = 0; i < columns.size(); i++) {
        Attribute column = (Attribute) columns.get(i);
        made = made.add(column.name(), column.dataType(), column.nullable());
      }
      this.schema = made;
    }

    public StructType readSchema() {
      return schema;
    }

    public String description() {
      return "tidelog changes";
    }
  }

  /** A micro-batch, whose rows Spark counts as those of its own scans. */
  public static class FeedScan extends MicroBatchScanExec {
    private RDD rows;

    /** With the parameters of the base, by which Spark makes copies; the scan is of the class Columns. */
    public FeedScan(
        Seq output, Scan scan, MicroBatchStream stream, Offset start, Offset end, Option partitioning, Option ordering) {
      super(output, scan, stream, start, end, partitioning, ordering);
    }

    public RDD inputRDD() {
      if (rows == null) {
        rows = ((Feed) stream()).rows(start(), end(), scan().readSchema().fieldNames());
      }
      return rows;
    }

    /** Spark reads once what it takes for equal. To its own scans of a stream, which have all columns, the stream is all. */
    public boolean equals(Object other) {
      return super.equals(other)
          && other instanceof FeedScan
          && scan().readSchema().equals(((FeedScan) other).scan().readSchema());
    }

    public int hashCode() {
      return super.hashCode() * 31 + scan().readSchema().hashCode();
    }

    public boolean supportsColumnar() {
      return false;
    }
  }
}
