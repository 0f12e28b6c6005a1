package tidelog;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;

import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalogCapability;
import org.apache.spark.sql.connector.catalog.TableInfo;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.types.StructType;

/**
 * What Spark asks of a catalog from 4.1 on: constraints, and from 4.2 on CREATE TABLE ... LIKE. Before, this class is
 * empty.
 */
public abstract class NewerCatalog extends Namespaces {
  abstract Table load(Identifier table, Map more);

  /** Constraints are for ALTER TABLE: a new table gets them by a second statement. */
  public Set capabilities() {
    HashSet can = new HashSet();
    can.add(TableCatalogCapability.SUPPORT_COLUMN_DEFAULT_VALUE);
    can.add(TableCatalogCapability.SUPPORT_TABLE_CONSTRAINT);
    return can;
  }

  private static void requireNone(TableInfo info) {
    if (info.constraints() != null && info.constraints().length > 0) {
      DefaultSource.refuse("NewConstraint");
    }
  }

  public abstract Table createTable(Identifier table, StructType schema, Transform[] partitions, Map properties);

  public abstract StagedTable stageCreate(
      Identifier table, StructType schema, Transform[] partitions, Map properties);

  public abstract StagedTable stageReplace(
      Identifier table, StructType schema, Transform[] partitions, Map properties);

  public abstract StagedTable stageCreateOrReplace(
      Identifier table, StructType schema, Transform[] partitions, Map properties);

  public Table createTable(Identifier table, TableInfo info) {
    requireNone(info);
    return createTable(table, info.schema(), info.partitions(), info.properties());
  }

  public StagedTable stageCreate(Identifier table, TableInfo info) {
    requireNone(info);
    return stageCreate(table, info.schema(), info.partitions(), info.properties());
  }

  public StagedTable stageReplace(Identifier table, TableInfo info) {
    requireNone(info);
    return stageReplace(table, info.schema(), info.partitions(), info.properties());
  }

  public StagedTable stageCreateOrReplace(Identifier table, TableInfo info) {
    requireNone(info);
    return stageCreateOrReplace(table, info.schema(), info.partitions(), info.properties());
  }

  public Table createTableLike(Identifier table, TableInfo given, Table source) {
    HashMap more = new HashMap();
    more.put("properties", new HashMap(given.properties()));
    more.put("source", new HashMap(source.properties()));
    more.put("schema", source.schema().json());
    ArrayList partitions = new ArrayList();
    for (int i = 0; i < source.partitioning().length; i++) {
      partitions.add(source.partitioning()[i].describe());
    }
    more.put("partitions", partitions);
    ask("createLike", table.namespace(), table.name(), more);
    return load(table, new HashMap());
  }
}
