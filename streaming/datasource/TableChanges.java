package tidelog;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.expressions.NamedReference;

/** The changes of an ALTER TABLE, described for the planner. */
class TableChanges {
  private TableChanges() {}

  static List described(TableChange[] changes) {
    ArrayList all = new ArrayList();
    for (int i = 0; i < changes.length; i++) {
      HashMap one = new HashMap();
      one.put("kind", changes[i].getClass().getSimpleName());
      describe(changes[i], one);
      all.add(one);
    }
    return all;
  }

  private static void describe(TableChange change, Map one) {
    if (change instanceof TableChange.ColumnChange) {
      one.put("names", Arrays.asList(((TableChange.ColumnChange) change).fieldNames()));
    }
    if (change instanceof TableChange.AddColumn) {
      TableChange.AddColumn added = (TableChange.AddColumn) change;
      one.put("type", added.dataType().json());
      one.put("nullable", Boolean.valueOf(added.isNullable()));
      one.put("comment", added.comment());
      one.put("after", placeOf(added.position()));
      one.put("default", Boolean.valueOf(added.defaultValue() != null));
    } else if (change instanceof TableChange.UpdateColumnType) {
      one.put("type", ((TableChange.UpdateColumnType) change).newDataType().json());
    } else if (change instanceof TableChange.UpdateColumnNullability) {
      one.put("nullable", Boolean.valueOf(((TableChange.UpdateColumnNullability) change).nullable()));
    } else if (change instanceof TableChange.UpdateColumnComment) {
      one.put("comment", ((TableChange.UpdateColumnComment) change).newComment());
    } else if (change instanceof TableChange.UpdateColumnPosition) {
      one.put("after", placeOf(((TableChange.UpdateColumnPosition) change).position()));
    } else if (change instanceof TableChange.UpdateColumnDefaultValue) {
      one.put("expression", ((TableChange.UpdateColumnDefaultValue) change).newDefaultValue());
    } else if (change instanceof TableChange.RenameColumn) {
      one.put("name", ((TableChange.RenameColumn) change).newName());
    } else if (change instanceof TableChange.DeleteColumn) {
      one.put("exists", Boolean.valueOf(!Boolean.TRUE.equals(((TableChange.DeleteColumn) change).ifExists())));
    } else if (change instanceof TableChange.SetProperty) {
      one.put("property", ((TableChange.SetProperty) change).property());
      one.put("value", ((TableChange.SetProperty) change).value());
    } else if (change instanceof TableChange.RemoveProperty) {
      one.put("property", ((TableChange.RemoveProperty) change).property());
    } else if (change instanceof TableChange.ClusterBy) {
      NamedReference[] columns = ((TableChange.ClusterBy) change).clusteringColumns();
      ArrayList names = new ArrayList();
      for (int i = 0; i < columns.length; i++) {
        names.add(Arrays.asList(columns[i].fieldNames()));
      }
      one.put("columns", names);
    } else {
      describeConstraint(change, one);
    }
  }

  /** The name of the column before the place; empty for the first one. */
  private static String placeOf(TableChange.ColumnPosition position) {
    return position instanceof TableChange.After
        ? ((TableChange.After) position).column()
        : position == null ? null : "";
  }

  /** Spark has constraints from 4.1 on. */
  private static void describeConstraint(TableChange change, Map one) {
    String kind = change.getClass().getSimpleName();
    if (kind.equals("AddConstraint")) {
      Object constraint = valueOf(change, "constraint");
      one.put("constraint", constraint.getClass().getSimpleName());
      one.put("name", valueOf(constraint, "name"));
      one.put("expression", one.get("constraint").equals("Check") ? valueOf(constraint, "predicateSql") : null);
    } else if (kind.equals("DropConstraint")) {
      one.put("name", valueOf(change, "name"));
      one.put("exists", Boolean.valueOf(!Boolean.TRUE.equals(valueOf(change, "ifExists"))));
    }
  }

  private static Object valueOf(Object of, String method) {
    try {
      return of.getClass().getMethod(method, new Class[0]).invoke(of, new Object[0]);
    } catch (ReflectiveOperationException error) {
      throw new DefaultSource.TidelogException(error.toString());
    }
  }
}
