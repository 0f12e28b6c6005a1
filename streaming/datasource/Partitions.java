package tidelog;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.SupportsAtomicPartitionManagement;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/** SHOW PARTITIONS, and TRUNCATE TABLE ... PARTITION. A partition is there as long as it has a row. */
public abstract class Partitions implements SupportsAtomicPartitionManagement {
  /** The options of the table, and the names of its partition columns. */
  abstract Map options();

  abstract List partitionNames();

  public StructType partitionSchema() {
    StructType found = new StructType();
    List names = partitionNames();
    for (int i = 0; i < names.size(); i++) {
      found = found.add(schema().apply((String) names.get(i)));
    }
    return found;
  }

  public InternalRow[] listPartitionIdentifiers(String[] names, InternalRow wanted) {
    Map request = DefaultSource.request("partitions", options());
    Dataset found = (Dataset) DefaultSource.ask(request, SparkSession.active());
    InternalRow[] all = found.queryExecution().executedPlan().executeCollect();
    StructType schema = partitionSchema();
    ArrayList rows = new ArrayList();
    for (int i = 0; i < all.length; i++) {
      boolean isOne = true;
      for (int j = 0; isOne && j < names.length; j++) {
        int place = schema.fieldIndex(names[j]);
        DataType type = schema.fields()[place].dataType();
        isOne = isSame(valueOf(all[i], place, type), valueOf(wanted, j, type));
      }
      if (isOne) {
        rows.add(all[i]);
      }
    }
    return (InternalRow[]) rows.toArray(new InternalRow[0]);
  }

  private static Object valueOf(InternalRow row, int place, DataType type) {
    return row.isNullAt(place) ? null : row.get(place, type);
  }

  private static boolean isSame(Object one, Object other) {
    if (one instanceof byte[] && other instanceof byte[]) {
      return Arrays.equals((byte[]) one, (byte[]) other);
    }
    return one == null ? other == null : one.equals(other);
  }

  public boolean truncatePartition(InternalRow one) {
    return truncatePartitions(new InternalRow[] {one});
  }

  public boolean truncatePartitions(InternalRow[] all) {
    StructType schema = partitionSchema();
    Object[][] values = new Object[all.length][];
    for (int i = 0; i < all.length; i++) {
      values[i] = new Object[schema.fields().length];
      for (int j = 0; j < values[i].length; j++) {
        values[i][j] = plain(valueOf(all[i], j, schema.fields()[j].dataType()));
      }
    }
    DefaultSource.ask(DefaultSource.request("truncatePartitions", options()), values);
    return true;
  }

  /** The value as Python knows it. Dates and times stay the numbers that they are. */
  private static Object plain(Object value) {
    if (value instanceof UTF8String) {
      return value.toString();
    }
    return value instanceof Decimal ? ((Decimal) value).toJavaBigDecimal() : value;
  }

  public void createPartitions(InternalRow[] all, Map[] properties) {
    DefaultSource.refuse("AddPartition");
  }

  public boolean dropPartitions(InternalRow[] all) {
    DefaultSource.refuse("DropPartition");
    return false;
  }

  public void replacePartitionMetadata(InternalRow one, Map properties) {
    DefaultSource.refuse("AddPartition");
  }

  public Map loadPartitionMetadata(InternalRow one) {
    return new HashMap();
  }
}
