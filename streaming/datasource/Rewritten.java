package tidelog;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import org.apache.spark.QueryContext;
import org.apache.spark.SparkRuntimeException;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Cast$;
import org.apache.spark.sql.catalyst.expressions.CheckOverflowInTableInsert;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.plans.LeftAnti$;
import org.apache.spark.sql.catalyst.plans.logical.AppendData;
import org.apache.spark.sql.catalyst.plans.logical.Assignment;
import org.apache.spark.sql.catalyst.plans.logical.DeleteAction;
import org.apache.spark.sql.catalyst.plans.logical.DeleteFromTable;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.InsertAction;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeAction;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.catalyst.plans.logical.MergeRows;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.UpdateAction;
import org.apache.spark.sql.catalyst.plans.logical.UpdateTable;
import org.apache.spark.sql.catalyst.plans.logical.WriteDelta;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.catalyst.util.CharVarcharUtils;
import org.apache.spark.sql.catalyst.util.RowDeltaUtils;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.write.RowLevelOperationTable;
import org.apache.spark.sql.execution.CommandExecutionMode;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.types.CharType;
import org.apache.spark.sql.types.NullType;
import scala.Option;
import scala.collection.immutable.Map$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction1;

/**
 * UPDATE, DELETE and MERGE as Spark's analyzer rewrites them for tables that know row-level operations: a query whose rows
 * say what to do. Its first column is the operation, then come the values of a new row and the address of an old one.
 */
public class Rewritten {
  /** A MERGE that only inserts has no rows with addresses, and a node of its own from Spark 4.1 on. */
  private static final String INSERTS = "InsertOnlyMerge";
  /** What is added to the operation of a row that WHEN NOT MATCHED BY SOURCE changes. */
  private static final int BY_SOURCE = 10;

  /** The table that a plan changes, if Spark has rewritten it; null if it is another plan. */
  static DataSourceV2Relation target(LogicalPlan plan) {
    if (plan instanceof WriteDelta) {
      Object table = relation(plan.productElement(0)).table();
      boolean isOwn =
          table instanceof RowLevelOperationTable
              && ((RowLevelOperationTable) table).operation() instanceof Catalog.Changing;
      return isOwn ? (DataSourceV2Relation) plan.productElement(3) : null;
    }
    boolean isMerge = plan.nodeName().equals(INSERTS) || (plan instanceof AppendData && readsTarget(plan));
    if (!isMerge || !(plan.productElement(0) instanceof DataSourceV2Relation)) {
      return null;
    }
    DataSourceV2Relation target = relation(plan.productElement(0));
    return target.table() instanceof Catalog.PathTable ? target : null;
  }

  private static DataSourceV2Relation relation(Object node) {
    return (DataSourceV2Relation) node;
  }

  private static LogicalPlan query(LogicalPlan plan) {
    return (LogicalPlan) plan.children().head();
  }

  /** Whether a query reads the very relation that gets its rows, as only a rewritten MERGE does. */
  private static boolean readsTarget(LogicalPlan plan) {
    AttributeSet own = ((LogicalPlan) plan.productElement(0)).outputSet();
    List leaves = CollectionConverters.asJava(query(plan).collectLeaves());
    for (int i = 0; i < leaves.size(); i++) {
      AttributeSet read = ((LogicalPlan) leaves.get(i)).outputSet();
      if (!read.isEmpty() && read.subsetOf(own)) {
        return true;
      }
    }
    return false;
  }

  /** The join with the table in a MERGE that only inserts, before Spark's optimizer moves it; null if there is none. */
  private static Join antiJoin(LogicalPlan plan) {
    LogicalPlan node = query(plan);
    while (node instanceof Project || node instanceof Filter || node instanceof MergeRows) {
      node = (LogicalPlan) node.children().head();
    }
    return node instanceof Join && ((Join) node).joinType() == LeftAnti$.MODULE$ ? (Join) node : null;
  }

  /** UPDATE, DELETE or MERGE. */
  public static String command(LogicalPlan plan) {
    return plan instanceof WriteDelta ? operation(plan).command().toString() : "MERGE";
  }

  private static Catalog.Changing operation(LogicalPlan plan) {
    return (Catalog.Changing) ((RowLevelOperationTable) relation(plan.productElement(0)).table()).operation();
  }

  /** By what a statement chooses rows, as text. */
  public static String condition(LogicalPlan plan) {
    Join join = plan instanceof WriteDelta ? null : antiJoin(plan);
    Option found = join == null ? Option.apply(plan.productElement(1)) : join.condition();
    return found.isDefined() && found.get() instanceof Expression ? ((Expression) found.get()).sql() : "true";
  }

  /** The rows that a plan writes, planned anew. Those of WHEN NOT MATCHED BY SOURCE have operations of their own. */
  public static Dataset rows(SparkSession session, LogicalPlan plan) {
    LogicalPlan query = (LogicalPlan) query(plan).clone();
    if (isBySource(plan)) {
      query = marked((MergeRows) query);
    }
    query.setAnalyzed();
    return Dataset.ofRows(session, query);
  }

  /** Whether a plan has WHEN NOT MATCHED BY SOURCE. */
  public static boolean isBySource(LogicalPlan plan) {
    return plan instanceof WriteDelta
        && query(plan) instanceof MergeRows
        && !((MergeRows) query(plan)).notMatchedBySourceInstructions().isEmpty();
  }

  private static LogicalPlan marked(MergeRows rows) {
    Seq instructions = rows.notMatchedBySourceInstructions();
    Object[] all = array(instructions);
    ArrayList made = new ArrayList();
    for (int i = 0; i < all.length; i++) {
      Seq values = (Seq) ((MergeRows.Instruction) all[i]).outputs().head();
      ArrayList own = new ArrayList(CollectionConverters.asJava(values));
      Integer operation = Integer.valueOf(operation(own.get(0)).intValue() + BY_SOURCE);
      own.set(0, Literal$.MODULE$.apply(operation));
      made.add(replaced((TreeNode) all[i], values, sequence(own)));
    }
    return (LogicalPlan) replaced(rows, instructions, sequence(made));
  }

  /** A node with another part in place of one of its own. */
  private static TreeNode replaced(TreeNode node, Object own, Object other) {
    Object[] parts = new Object[node.productArity()];
    for (int i = 0; i < parts.length; i++) {
      Object part = node.productElement(i);
      parts[i] = part == own ? other : part;
    }
    return node.makeCopy(parts);
  }

  /**
   * What a plan can do: under the numbers of the operations, the columns that it sets then. A MERGE that only inserts has
   * no operation in its rows.
   */
  public static Map operations(LogicalPlan plan) {
    HashMap found = new HashMap();
    if (!(plan instanceof WriteDelta)) {
      return found;
    }
    List outputs = outputs(query(plan));
    Object[] columns = array(target(plan).output());
    for (int i = 0; i < outputs.size(); i++) {
      Object[] values = array((Seq) outputs.get(i));
      Integer operation = operation(values[0]);
      if (!found.containsKey(operation)) {
        found.put(operation, new ArrayList());
      }
      if (operation.intValue() != RowDeltaUtils.UPDATE_OPERATION()) {
        continue;
      }
      List names = (List) found.get(operation);
      for (int j = 0; j < columns.length; j++) {
        String name = ((AttributeReference) columns[j]).name();
        if (isNew((AttributeReference) columns[j], values[j + 1]) && !names.contains(name)) {
          names.add(name);
        }
      }
    }
    return found;
  }

  /** Spark's error for a null in a column, or in a field of a struct, that cannot have one; its cause says more. */
  public static Object nullError(String path, String text) {
    scala.collection.immutable.Map parameters =
        (scala.collection.immutable.Map)
            Map$.MODULE$.empty().updated("walkedTypePath", "\n" + path + "\n");
    Throwable cause = new DefaultSource.TidelogException(text);
    return new SparkRuntimeException("NOT_NULL_ASSERT_VIOLATION", parameters, cause, new QueryContext[0], "");
  }

  /** The lists of values that a query can have for a row. */
  private static List outputs(LogicalPlan query) {
    ArrayList found = new ArrayList();
    if (query instanceof MergeRows) {
      MergeRows rows = (MergeRows) query;
      Seq[] all = {rows.matchedInstructions(), rows.notMatchedInstructions(), rows.notMatchedBySourceInstructions()};
      for (int i = 0; i < all.length; i++) {
        Object[] instructions = array(all[i]);
        for (int j = 0; j < instructions.length; j++) {
          found.addAll(CollectionConverters.asJava(((MergeRows.Instruction) instructions[j]).outputs()));
        }
      }
    } else {
      found.add(((Project) query).projectList());
    }
    return found;
  }

  private static Integer operation(Object value) {
    return (Integer) ((Literal) bare(value)).value();
  }

  private static Expression bare(Object value) {
    return value instanceof Alias ? ((Alias) value).child() : (Expression) value;
  }

  /** Whether a column gets another value than its own. */
  private static boolean isNew(AttributeReference column, Object value) {
    Expression given = bare(value);
    return !(given instanceof AttributeReference) || !((AttributeReference) given).exprId().equals(column.exprId());
  }

  private static Object[] array(Seq values) {
    return CollectionConverters.asJava(values).toArray();
  }

  private static Seq sequence(ArrayList values) {
    return CollectionConverters.asScala(values).toSeq();
  }

  // --- names of Spark's own catalog

  /**
   * A statement on a name of Spark's own catalog, or on a view of whole rows, as Spark's analyzer makes it of the table at
   * the path. The casts that Spark adds where it knows no row-level operations go by the places of fields, and are left out.
   */
  static LogicalPlan ofName(SparkSession session, LogicalPlan plan, Catalog.PathTable table) {
    ArrayList children = new ArrayList(CollectionConverters.asJava(plan.children()));
    DataSourceV2Relation relation = DataSourceV2Relation.create(table, Option.empty(), Option.empty());
    Object[] known = array(((LogicalPlan) children.get(0)).output());
    Object[] columns = array(relation.output());
    ArrayList output = new ArrayList();
    for (int i = 0; i < columns.length; i++) {
      AttributeReference column = (AttributeReference) columns[i];
      for (int j = 0; j < known.length; j++) {
        Attribute own = (Attribute) known[j];
        if (own.name().equals(column.name())) {
          if (!own.dataType().catalogString().equals(column.dataType().catalogString())) {
            DefaultSource.refuse("OtherTypes"); // the statement would choose other rows than a query
          }
          column = (AttributeReference) column.withExprId(own.exprId());
        }
      }
      output.add(column);
    }
    children.set(0, withOutput(relation, sequence(output)));
    LogicalPlan written = (LogicalPlan) plan.mapExpressions(new WithoutCasts()).withNewChildren(sequence(children));
    return session.sessionState().executePlan(written, CommandExecutionMode.SKIP()).analyzed();
  }

  /** The constructor has other parameters in other versions of Spark. */
  private static Object withOutput(DataSourceV2Relation relation, Seq output) {
    Object[] parts = new Object[relation.productArity()];
    for (int i = 0; i < parts.length; i++) {
      parts[i] = relation.productElement(i) == relation.output() ? output : relation.productElement(i);
    }
    return relation.makeCopy(parts);
  }

  /** Assignments as they were written. */
  static class WithoutCasts extends AbstractFunction1 {
    public Object apply(Object node) {
      if (node instanceof MergeAction) {
        return ((Expression) node).mapChildren(this);
      }
      if (!(node instanceof Assignment)) {
        return node;
      }
      Expression value = ((Assignment) node).value();
      while (value instanceof CheckOverflowInTableInsert
          || (value instanceof Cast && value.getTagValue(Cast$.MODULE$.BY_TABLE_INSERTION()).isDefined())) {
        value = (Expression) value.children().head();
      }
      return new Assignment(((Assignment) node).key(), value);
    }
  }

  // --- the statement itself

  /**
   * The UPDATE, DELETE or MERGE that Spark has rewritten, after Spark's optimizer; null if it cannot be told. Spark has
   * given a value to each column, with the fields of structs by their names.
   */
  public static LogicalPlan statement(SparkSession session, LogicalPlan plan) {
    LogicalPlan found = null;
    if (plan instanceof WriteDelta) {
      LogicalPlan query = query(plan);
      Expression condition = orFalse((Expression) plan.productElement(1));
      if (query instanceof MergeRows) {
        found = merge(target(plan), condition, (MergeRows) query);
      } else if (operation(array(((Project) query).projectList())[0]).intValue() == RowDeltaUtils.DELETE_OPERATION()) {
        found = new DeleteFromTable(target(plan), condition);
      } else {
        Object[] values = array(((Project) query).projectList());
        found = new UpdateTable(target(plan), assignments(target(plan), values, 1, false), Option.apply(condition));
      }
    } else if (target(plan) != null) {
      found = inserting(plan);
    }
    if (found == null || usesChar(found, target(plan))) {
      return null;
    }
    found.setAnalyzed();
    return session.sessionState().executePlan(found, CommandExecutionMode.SKIP()).optimizedPlan();
  }

  /** Whether a statement has a column of the type CHAR: only Spark's rows have got their spaces where its plan says so. */
  private static boolean usesChar(LogicalPlan statement, DataSourceV2Relation target) {
    AttributeSet used = statement.references();
    Object[] columns = array(target.output());
    for (int i = 0; i < columns.length; i++) {
      AttributeReference column = (AttributeReference) columns[i];
      Option type = CharVarcharUtils.getRawType(column.metadata());
      if (type.isDefined() && type.get() instanceof CharType && used.contains(column)) {
        return true;
      }
    }
    return false;
  }

  /** A condition, for which Spark's optimizer takes no NULL without a type. */
  private static Expression orFalse(Expression condition) {
    return condition.dataType() instanceof NullType ? Literal.FalseLiteral() : condition;
  }

  private static LogicalPlan merge(DataSourceV2Relation target, Expression condition, MergeRows rows) {
    LogicalPlan join = (LogicalPlan) rows.children().head();
    if (!(join instanceof Join) || !(((Join) join).right() instanceof Project)) {
      return null;
    }
    LogicalPlan source = ((Project) ((Join) join).right()).child();
    return merge(
        target,
        source,
        condition,
        actions(target, rows.matchedInstructions()),
        actions(target, rows.notMatchedInstructions()),
        actions(target, rows.notMatchedBySourceInstructions()));
  }

  /** A MERGE whose source is filtered by its one condition, or whose rows are merged as others are. */
  private static LogicalPlan inserting(LogicalPlan plan) {
    Join join = antiJoin(plan);
    LogicalPlan query = query(plan);
    if (join == null || !join.condition().isDefined() || query.children().head() != join) {
      return null;
    }
    DataSourceV2Relation target = target(plan);
    Seq none = sequence(new ArrayList());
    Seq actions;
    if (query instanceof MergeRows) {
      actions = actions(target, ((MergeRows) query).notMatchedInstructions());
    } else {
      ArrayList one = new ArrayList();
      Seq values = assignments(target, array(((Project) query).projectList()), 0, true);
      one.add(new InsertAction(Option.empty(), values));
      actions = sequence(one);
    }
    return merge(target, join.left(), orFalse((Expression) join.condition().get()), none, actions, none);
  }

  private static LogicalPlan merge(
      DataSourceV2Relation target, LogicalPlan source, Expression condition, Seq matched, Seq missing, Seq others) {
    return new MergeIntoTable(target, source, condition, matched, missing, others, false);
  }

  private static Seq actions(DataSourceV2Relation target, Seq instructions) {
    ArrayList found = new ArrayList();
    Object[] all = array(instructions);
    for (int i = 0; i < all.length; i++) {
      MergeRows.Instruction instruction = (MergeRows.Instruction) all[i];
      Expression condition = orFalse(instruction.condition());
      Option where = condition.equals(Literal.TrueLiteral()) ? Option.empty() : Option.apply(condition);
      Object[] values = array((Seq) instruction.outputs().head());
      // A MERGE that only inserts has rows without an operation.
      boolean isBare = values.length == target.output().size();
      int operation = isBare ? RowDeltaUtils.INSERT_OPERATION() : operation(values[0]).intValue();
      if (operation == RowDeltaUtils.DELETE_OPERATION()) {
        found.add(new DeleteAction(where));
      } else if (operation == RowDeltaUtils.INSERT_OPERATION()) {
        found.add(new InsertAction(where, assignments(target, values, isBare ? 0 : 1, true)));
      } else {
        found.add(updating(where, assignments(target, values, 1, false)));
      }
    }
    return sequence(found);
  }

  private static Object updating(Option where, Seq assignments) {
    java.lang.reflect.Constructor made = UpdateAction.class.getConstructors()[0];
    // From Spark 4.1 on, also whether it was written as a star.
    boolean isPlain = made.getParameterTypes().length == 2;
    try {
      return made.newInstance(
          isPlain ? new Object[] {where, assignments} : new Object[] {where, assignments, Boolean.FALSE});
    } catch (ReflectiveOperationException error) {
      throw new DefaultSource.TidelogException(error.toString());
    }
  }

  /** What the columns of a table get; those that keep their own value are left out. */
  private static Seq assignments(DataSourceV2Relation target, Object[] values, int first, boolean isInsert) {
    ArrayList found = new ArrayList();
    Object[] columns = array(target.output());
    for (int i = 0; i < columns.length; i++) {
      Expression value = bare(values[first + i]);
      AttributeReference column = (AttributeReference) columns[i];
      // Spark has no way to say that a column is left out: what it has no default for is null.
      boolean isNull = value instanceof Literal && ((Literal) value).value() == null;
      boolean isLeftOut = isNull && !column.metadata().contains("CURRENT_DEFAULT");
      if (isInsert ? !isLeftOut : isNew(column, value)) {
        found.add(new Assignment(column, value));
      }
    }
    return sequence(found);
  }
}
