package tidelog.jvm_reading;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;

import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.datasources.NoopCache$;
import org.apache.spark.sql.execution.datasources.PartitionPath;
import org.apache.spark.sql.execution.datasources.PartitionSpec;
import org.apache.spark.sql.execution.datasources.PartitioningAwareFileIndex;
import org.apache.spark.sql.types.StructType;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A fixed list of files for Spark's file scan. Each file is a partition of its own, so its constants are the values of
 * partition columns: Spark adds them without work for each row, and leaves out files that a filter on them rules out.
 *
 * It lives on the driver only. Janino, which Spark uses for generated code, compiles it: no generics, no lambdas.
 */
public class ListedFiles extends PartitioningAwareFileIndex {
  private final Path root;
  private final PartitionSpec spec;
  private final scala.collection.mutable.LinkedHashMap files = new scala.collection.mutable.LinkedHashMap();
  private final scala.collection.immutable.Map byPartition;
  private final long bytes;

  /** `rows` are structs of a file's path (as Hadoop's Path takes it), its size in bytes, and its constants. */
  public ListedFiles(SparkSession session, String root, StructType constants, scala.collection.Iterator rows) {
    super(
        session,
        (scala.collection.immutable.Map) scala.collection.immutable.Map$.MODULE$.empty(),
        scala.Option.apply(null),
        NoopCache$.MODULE$);
    this.root = new Path(root);
    ArrayList partitions = new ArrayList();
    HashMap statuses = new HashMap();
    long sum = 0;
    while (rows.hasNext()) {
      InternalRow row = ((InternalRow) rows.next()).copy();
      FileStatus status = new FileStatus(row.getLong(1), false, 1, 0, 0, new Path(row.getUTF8String(0).toString()));
      // One file can be listed several times, so a partition's key is not its path.
      Path key = new Path(this.root, Integer.toString(partitions.size()));
      statuses.put(key, new FileStatus[] {status});
      files.put(key, status);
      partitions.add(new PartitionPath(row.getStruct(2, constants.size()), key));
      sum += status.getLen();
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

  public scala.collection.mutable.LinkedHashMap leafFiles() {
    return files;
  }

  public scala.collection.immutable.Map leafDirToChildrenFiles() {
    return byPartition;
  }

  public scala.collection.immutable.Seq rootPaths() {
    return CollectionConverters.asScala(Collections.singletonList(root)).toSeq();
  }

  public long sizeInBytes() {
    return bytes;
  }

  /** The list is fixed. */
  public void refresh() {}
}
