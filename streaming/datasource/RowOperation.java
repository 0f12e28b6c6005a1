package tidelog;

import org.apache.spark.sql.connector.catalog.MetadataColumn;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.write.DeltaWrite;
import org.apache.spark.sql.connector.write.DeltaWriteBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.RowLevelOperation;
import org.apache.spark.sql.connector.write.RowLevelOperationBuilder;
import org.apache.spark.sql.connector.write.SupportsDelta;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * UPDATE, DELETE or MERGE of rows that have addresses: Spark makes a query of the rows that change, and RowChanges runs it.
 * The planner names the columns of an address, and further ones that the statement needs of each row.
 */
public abstract class RowOperation implements RowLevelOperationBuilder, SupportsDelta {
  private final StructType columns;
  private final RowLevelOperation.Command command;

  RowOperation(StructType columns, RowLevelOperation.Command command) {
    this.columns = columns;
    this.command = command;
  }

  public RowLevelOperation build() {
    return this;
  }

  public String description() {
    return "tidelog";
  }

  public RowLevelOperation.Command command() {
    return command;
  }

  public DeltaWriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    return new Nothing();
  }

  public NamedReference[] rowId() {
    return named(false);
  }

  public NamedReference[] requiredMetadataAttributes() {
    return named(true);
  }

  /** The columns of an address, which are never null, or the others. */
  private NamedReference[] named(boolean isNullable) {
    java.util.ArrayList found = new java.util.ArrayList();
    StructField[] fields = columns.fields();
    for (int i = 0; i < fields.length; i++) {
      if (fields[i].nullable() == isNullable) {
        found.add(Expressions.column(fields[i].name()));
      }
    }
    return (NamedReference[]) found.toArray(new NamedReference[found.size()]);
  }

  public boolean representUpdateAsDeleteAndInsert() {
    return false;
  }

  static MetadataColumn[] metadataColumns(StructType columns) {
    MetadataColumn[] found = new MetadataColumn[columns.fields().length];
    for (int i = 0; i < found.length; i++) {
      found[i] = new Hidden(columns.fields()[i]);
    }
    return found;
  }

  /** A column that a query has only if it names it. */
  static class Hidden implements MetadataColumn {
    private final StructField field;

    Hidden(StructField field) {
      this.field = field;
    }

    public String name() {
      return field.name();
    }

    public DataType dataType() {
      return field.dataType();
    }

    public boolean isNullable() {
      return field.nullable();
    }
  }

  /** What Spark would write with: RowChanges comes first. */
  static class Nothing implements DeltaWriteBuilder, DeltaWrite {
    public DeltaWrite build() {
      return this;
    }

    public String description() {
      return "tidelog";
    }
  }
}
