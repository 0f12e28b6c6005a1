package tidelog.jvm_reading;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayInputStream;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.URI;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.function.IntFunction;

import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.IntVector;
import org.apache.arrow.vector.VarCharVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation$;
import org.apache.spark.sql.execution.datasources.NoopCache$;
import org.apache.spark.sql.execution.datasources.PartitionPath;
import org.apache.spark.sql.execution.datasources.PartitionSpec;
import org.apache.spark.sql.execution.datasources.PartitioningAwareFileIndex;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils$;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A fixed list of files for Spark's file scan. Files with the same constants are a partition, so the constants are the
 * values of partition columns: Spark adds them without work for each row, and leaves out files that a filter on them rules
 * out.
 *
 * It lives on the driver only. Janino, which Spark uses for generated code, compiles it: no generics, no lambdas.
 */
public class ListedFiles extends PartitioningAwareFileIndex {
  private static final ObjectMapper JSON = new ObjectMapper();

  private final Path root;
  private final StructType constants;
  private final PartitionSpec spec;
  private final FileStatus[][] files;
  private final scala.collection.immutable.Map byPartition;
  private final long bytes;

  private ListedFiles(SparkSession session, String root, StructType constants, Object[] rows, FileStatus[][] files) {
    super(
        session,
        (scala.collection.immutable.Map) scala.collection.immutable.Map$.MODULE$.empty(),
        scala.Option.apply(null),
        NoopCache$.MODULE$);
    this.root = new Path(root);
    this.constants = constants;
    this.files = files;
    ArrayList partitions = new ArrayList();
    HashMap statuses = new HashMap();
    long sum = 0;
    for (int i = 0; i < files.length; i++) {
      Path key = new Path(this.root, Integer.toString(i));
      statuses.put(key, files[i]);
      partitions.add(new PartitionPath((org.apache.spark.sql.catalyst.InternalRow) rows[i], key));
      for (int j = 0; j < files[i].length; j++) {
        sum += files[i][j].getLen();
      }
    }
    this.bytes = sum;
    this.byPartition =
        (scala.collection.immutable.Map)
            scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala((java.util.Map) statuses));
    this.spec = new PartitionSpec(constants, CollectionConverters.asScala((java.util.List) partitions).toSeq());
  }

  public PartitionSpec partitionSpec() {
    return spec;
  }

  /** All files. Without constants, Spark scans these. */
  public scala.collection.immutable.Seq allFiles() {
    ArrayList all = new ArrayList();
    for (int i = 0; i < files.length; i++) {
      all.addAll(Arrays.asList(files[i]));
    }
    return CollectionConverters.asScala((java.util.List) all).toSeq();
  }

  /** Nothing asks for it but what is replaced here. */
  public scala.collection.mutable.LinkedHashMap leafFiles() {
    throw new UnsupportedOperationException();
  }

  public scala.collection.immutable.Map leafDirToChildrenFiles() {
    return byPartition;
  }

  /**
   * The root, twice. Into a view of a relation with one root, Spark's INSERT would write files that the log does not name,
   * and INSERT OVERWRITE would delete the table.
   */
  public scala.collection.immutable.Seq rootPaths() {
    return CollectionConverters.asScala((java.util.List) Collections.nCopies(2, root)).toSeq();
  }

  public long sizeInBytes() {
    return bytes;
  }

  /** The list is fixed. */
  public void refresh() {}

  /**
   * The rows of files, as a frame with the columns of the data and then the constants, or with the columns that the
   * request selects from them.
   *
   * Both streams are Arrow's. `constants` has a row for each partition; `listed` is the bytes or the path of a stream with
   * the columns path (below the root), size (bytes) and partition.
   */
  static Dataset scan(SparkSession session, String text, byte[] constants, Object listed) throws IOException {
    Map request = (Map) JSON.readValue(text, Map.class);
    String root = (String) request.get("root");
    StructType columns = (StructType) DataType.fromJson((String) request.get("constants"));
    StructType data = (StructType) DataType.fromJson((String) request.get("data"));
    SparkSession reading = session.cloneSession();
    Iterator settings = ((Map) request.get("settings")).entrySet().iterator();
    while (settings.hasNext()) {
      Map.Entry setting = (Map.Entry) settings.next();
      reading.conf().set((String) setting.getKey(), (String) setting.getValue());
    }
    // Without constants there is one partition.
    Object[] none = {org.apache.spark.sql.catalyst.InternalRow$.MODULE$.empty()};
    Object[] rows = columns.isEmpty() ? none : rows(constants, ((Integer) request.get("partitions")).intValue());
    FileStatus[][] files = files(root + "/", listed, rows.length);
    scala.collection.immutable.Map options =
        (scala.collection.immutable.Map)
            scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala((Map) request.get("options")));
    HadoopFsRelation relation =
        new HadoopFsRelation(
            new ListedFiles(reading, root, columns, rows, files),
            columns,
            data,
            scala.Option.apply(null),
            new ParquetFileFormat(),
            options,
            reading);
    boolean ofStream = ((Boolean) request.get("stream")).booleanValue();
    Dataset frame =
        org.apache.spark.sql.classic.Dataset$.MODULE$.ofRows(session, LogicalRelation$.MODULE$.apply(relation, ofStream));
    Iterator steps = ((List) request.get("steps")).iterator();
    while (steps.hasNext()) {
      Object step = steps.next();
      if (step instanceof String) {
        frame = frame.where((String) step);
      } else {
        List names = (List) step;
        frame = frame.selectExpr((String[]) names.toArray(new String[names.size()]));
      }
    }
    return frame;
  }

  /** What Python calls: py4j finds no class of Janino's loader by its name, but calls any object. */
  public static class Scans {
    public Scans() {}

    /** See ListedFiles.scan. */
    public Dataset scan(SparkSession session, String text, byte[] constants, Object listed) throws IOException {
      return ListedFiles.scan(session, text, constants, listed);
    }
  }

  /** The rows of an Arrow stream, as Spark's. */
  private static Object[] rows(byte[] content, int count) throws IOException {
    Object[] rows = new Object[count];
    BufferAllocator memory = ArrowUtils$.MODULE$.rootAllocator().newChildAllocator("tidelog", 0, Long.MAX_VALUE);
    ArrowStreamReader reader = new ArrowStreamReader(new ByteArrayInputStream(content), memory);
    try {
      VectorSchemaRoot root = reader.getVectorSchemaRoot();
      int done = 0;
      while (reader.loadNextBatch()) {
        List vectors = root.getFieldVectors();
        ColumnVector[] columns = new ColumnVector[vectors.size()];
        for (int i = 0; i < columns.length; i++) {
          columns[i] = new ArrowColumnVector((FieldVector) vectors.get(i));
        }
        ColumnarBatch batch = new ColumnarBatch(columns, root.getRowCount());
        for (int i = 0; i < root.getRowCount(); i++) {
          rows[done++] = batch.getRow(i).copy();
        }
      }
      return rows;
    } finally {
      reader.close();
      memory.close();
    }
  }

  /** The files of each partition, in their order. */
  private static FileStatus[][] files(String prefix, Object listed, int partitions) throws IOException {
    ArrayList[] found = new ArrayList[partitions];
    for (int i = 0; i < partitions; i++) {
      found[i] = new ArrayList();
    }
    InputStream content =
        listed instanceof String
            ? (InputStream) new FileInputStream((String) listed)
            : (InputStream) new ByteArrayInputStream((byte[]) listed);
    BufferAllocator memory = ArrowUtils$.MODULE$.rootAllocator().newChildAllocator("tidelog", 0, Long.MAX_VALUE);
    ArrowStreamReader reader = new ArrowStreamReader(content, memory);
    try {
      VectorSchemaRoot root = reader.getVectorSchemaRoot();
      while (reader.loadNextBatch()) {
        VarCharVector paths = (VarCharVector) root.getVector("path");
        BigIntVector sizes = (BigIntVector) root.getVector("size");
        IntVector places = (IntVector) root.getVector("partition");
        FileStatus[] batch = new FileStatus[root.getRowCount()];
        // Making the paths is most of the work.
        Arrays.parallelSetAll(batch, new Statuses(prefix, paths, sizes));
        for (int i = 0; i < batch.length; i++) {
          found[places.get(i)].add(batch[i]);
        }
      }
    } finally {
      reader.close();
      memory.close();
    }
    FileStatus[][] files = new FileStatus[partitions][];
    for (int i = 0; i < partitions; i++) {
      files[i] = (FileStatus[]) found[i].toArray(new FileStatus[found[i].size()]);
    }
    return files;
  }

  /** Makes one file of the list. */
  static class Statuses implements IntFunction {
    private final String prefix;
    private final VarCharVector paths;
    private final BigIntVector sizes;

    Statuses(String prefix, VarCharVector paths, BigIntVector sizes) {
      this.prefix = prefix;
      this.paths = paths;
      this.sizes = sizes;
    }

    public Object apply(int place) {
      String path = prefix + new String(paths.get(place), java.nio.charset.StandardCharsets.UTF_8);
      return new FileStatus(sizes.get(place), false, 1, 0, 0, isPlain(path) ? plain(path) : new Path(path));
    }

    /** Whether the text is its own URI, which saves half of the work of a path. */
    private static boolean isPlain(String path) {
      for (int i = 0; i < path.length(); i++) {
        char c = path.charAt(i);
        boolean isWord = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!isWord && "/-_.=:".indexOf(c) < 0) {
          return false;
        }
      }
      int scheme = path.indexOf(':') + 1;
      return scheme > 0 && path.indexOf("//", path.startsWith("//", scheme) ? scheme + 2 : scheme) < 0;
    }

    private static Path plain(String path) {
      return new Path(URI.create(path));
    }
  }
}
