package tidelog;

import java.lang.reflect.Constructor;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;

import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.CatalogStorageFormat;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTableType;
import org.apache.spark.sql.catalyst.catalog.CatalogUtils;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.read.streaming.ReportsSinkMetrics;
import org.apache.spark.sql.execution.datasources.DataSource;
import org.apache.spark.sql.execution.streaming.Sink;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Streams that read or write a table by its name in a catalog, and the sink of writeStream.format("tidelog"). Spark runs
 * both as it runs its older sources and sinks, whose batches are frames.
 */
public class Streams {
  /** The table that toTable(...) writes to, until the query has its sink. */
  private static final ThreadLocal TARGET = new ThreadLocal();

  /** The name that toTable(...) has made in the catalog of the session, as above. */
  private static final ThreadLocal MADE = new ThreadLocal();

  static class Place {
    final String path;
    final Object found;

    Place(String path, Object found) {
      this.path = plain(path);
      this.found = found;
    }

    boolean isAt(String other) {
      return path.equals(plain(other));
    }

    /** A path of the local disk as Spark gives it before and after it has put the scheme in front. */
    private static String plain(String path) {
      return path == null ? "" : path.replaceFirst("^file:/+", "/");
    }
  }

  /** Whether toTable(...) of a stream asks. The sink makes the table that it names, with the first batch. */
  public static boolean isToTable() {
    return Callers.include(".DataStreamWriter", "toTable");
  }

  /** Whether a flow of a pipeline asks. */
  public static boolean isOfPipeline() {
    return Callers.include("org.apache.spark.sql.pipelines.");
  }

  /** A table as Spark's older interface for streams sees it: the format, its options and the path. */
  static CatalogTable older(String name, Map options, StructType schema) {
    CatalogStorageFormat storage =
        DataSource.buildStorageFormatFromOptions(
            (scala.collection.immutable.Map)
                scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(options)));
    if (isToTable()) {
      // Spark gives the sink nothing but the path.
      TARGET.set(new Place(CatalogUtils.URIToString((java.net.URI) storage.locationUri().get()), options));
    }
    try {
      // Releases of Spark differ in what comes behind the first five, which all has a default.
      Constructor constructor = CatalogTable.class.getConstructors()[0];
      Object[] values = new Object[constructor.getParameterTypes().length];
      for (int i = 5; i < values.length; i++) {
        String given = "$lessinit$greater$default$" + (i + 1);
        values[i] = CatalogTable.class.getMethod(given, new Class[0]).invoke(null, new Object[0]);
      }
      values[0] = new TableIdentifier(name, Option.apply("tidelog")); // Spark asserts that there are two parts
      values[1] = CatalogTableType.EXTERNAL();
      values[2] = storage;
      values[3] = schema;
      values[4] = Option.apply("tidelog");
      return (CatalogTable) constructor.newInstance(values);
    } catch (ReflectiveOperationException error) {
      throw new DefaultSource.TidelogException("this Spark cannot have streams of names: " + error);
    }
  }

  /** Notes that toTable(...) makes a name in the catalog of the session. */
  static void made(TableIdentifier name, String path) {
    MADE.set(new Place(path, name));
  }

  /** The options of the table that toTable(...) writes to at a path, if a catalog of tidelog's names it. */
  public static Map target(String path) {
    Place place = (Place) TARGET.get();
    TARGET.remove();
    return place != null && place.isAt(path) ? (Map) place.found : null;
  }

  /** The name that toTable(...) has made for a table at a path; null if it has made none. */
  public static TableIdentifier made(String path) {
    Place place = (Place) MADE.get();
    MADE.remove();
    return place != null && place.isAt(path) ? (TableIdentifier) place.found : null;
  }

  /** Takes a name out of the catalog of the session, whose table is gone. */
  public static void forget(SparkSession session, TableIdentifier name) {
    session.sessionState().catalog().dropTable(name, true, false);
  }

  /** The sink of a query. The planner in Python knows it by what is kept here. */
  public static class Batches implements Sink, ReportsSinkMetrics {
    private final String kept;
    private final String text;
    private volatile Map metrics = new HashMap();

    public Batches(String kept, String text) {
      this.kept = kept;
      this.text = text;
    }

    public void addBatch(long batch, Dataset data) {
      Map request = DefaultSource.request("sinkBatch");
      request.put("sink", kept);
      request.put("batch", Long.valueOf(batch));
      metrics = DefaultSource.parsed((String) DefaultSource.ask(request, data));
    }

    /** What the newest batch has done, for the query's progress. */
    public Map metrics() {
      return metrics;
    }

    public String name() {
      return "tidelog";
    }

    public StructType schema() {
      return new StructType();
    }

    public Set capabilities() {
      return new HashSet();
    }

    public String toString() {
      return text;
    }
  }
}
