package tidelog;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicReference;

import org.apache.spark.sql.catalyst.expressions.ArrayTransform;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Cast$;
import org.apache.spark.sql.catalyst.expressions.CreateNamedStruct;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.If;
import org.apache.spark.sql.catalyst.expressions.IsNull;
import org.apache.spark.sql.catalyst.expressions.LambdaFunction;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.expressions.NamedLambdaVariable;
import org.apache.spark.sql.catalyst.expressions.TransformKeys;
import org.apache.spark.sql.catalyst.expressions.TransformValues;
import org.apache.spark.sql.catalyst.plans.logical.Assignment;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeAction;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.internal.SQLConf$;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Option;
import scala.Product;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Values that UPDATE and MERGE assign, with the fields of structs found by their names, also in arrays and maps. The cast
 * that Spark adds for a table without its own changes of rows goes by their places.
 */
public class ByName {
  static class Unfit extends RuntimeException {
    Unfit(String message) {
      super(message);
    }
  }

  /** What is wrong with a value; null if it has a form by names. */
  public static String problem(Expression value) {
    try {
      value(value);
      return null;
    } catch (Unfit error) {
      return error.getMessage();
    }
  }

  /**
   * The plan of an UPDATE or MERGE, in which constants that have lost the names of their fields are again what the
   * statement says. `analyzed` is the plan before Spark has computed constants.
   */
  public static LogicalPlan restored(LogicalPlan plan, LogicalPlan analyzed) {
    Object[] parts = parts(plan, analyzed, plan);
    return parts == null ? plan : (LogicalPlan) plan.makeCopy(parts);
  }

  /** The parts of a node with what the other node of its class has for them; null if none changes. */
  private static Object[] parts(Product node, Product other, LogicalPlan plan) {
    if (node.getClass() != other.getClass()) {
      return null;
    }
    Object[] found = new Object[node.productArity()];
    boolean isSame = true;
    for (int i = 0; i < found.length; i++) {
      found[i] = node.productElement(i);
      if (found[i] instanceof Seq && other.productElement(i) instanceof Seq) {
        found[i] = each((Seq) found[i], (Seq) other.productElement(i), plan);
        isSame &= found[i] == node.productElement(i);
      }
    }
    return isSame ? null : found;
  }

  private static Seq each(Seq nodes, Seq others, LogicalPlan plan) {
    if (nodes.size() != others.size()) {
      return nodes;
    }
    ArrayList found = new ArrayList();
    boolean isSame = true;
    for (int i = 0; i < nodes.size(); i++) {
      Object node = nodes.apply(i);
      Object other = others.apply(i);
      if (node instanceof Assignment && other instanceof Assignment) {
        Expression before = ((Assignment) other).value();
        if (problem(((Assignment) node).value()) != null && before.references().subsetOf(plan.inputSet())) {
          node = new Assignment(((Assignment) node).key(), before);
        }
      } else if (node instanceof MergeAction && other instanceof MergeAction) {
        Object[] parts = parts((Product) node, (Product) other, plan);
        node = parts == null ? node : ((Expression) node).makeCopy(parts);
      }
      isSame &= node == nodes.apply(i);
      found.add(node);
    }
    return isSame ? nodes : sequence(found);
  }

  /** The value by names. */
  public static Expression value(Expression node) {
    if (node instanceof Literal) {
      if (hasFields(node.dataType()) && !isEmpty(((Literal) node).value())) {
        throw new Unfit("it is a constant, of whose fields Spark has forgotten the names");
      }
      return node;
    }
    if (node instanceof Cast && node.getTagValue(Cast$.MODULE$.BY_TABLE_INSERTION()).isDefined()) {
      Expression given = ((Cast) node).child();
      // Constants have lost their names if the cast has moved into the branches of an expression.
      Expression ordered = ordered(value(given), given.dataType(), node.dataType(), "");
      return ordered == given ? node : changed(node, list(ordered));
    }
    List children = CollectionConverters.asJava(node.children());
    ArrayList found = new ArrayList();
    boolean isSame = true;
    for (int i = 0; i < children.size(); i++) {
      Expression child = value((Expression) children.get(i));
      isSame &= child == children.get(i);
      found.add(child);
    }
    return isSame ? node : changed(node, found);
  }

  private static Expression changed(Expression node, ArrayList children) {
    return (Expression) node.withNewChildren(sequence(children));
  }

  /** The value with fields in the order of the type `to`, in their own types. */
  private static Expression ordered(Expression value, DataType from, DataType to, String where) {
    if (isInPlace(from, to)) {
      return value;
    }
    if (from instanceof StructType && to instanceof StructType) {
      return struct(value, (StructType) from, (StructType) to, where);
    }
    if (from instanceof ArrayType && to instanceof ArrayType) {
      ArrayType array = (ArrayType) from;
      NamedLambdaVariable element = variable("x", array.elementType(), array.containsNull());
      Expression body = ordered(element, array.elementType(), ((ArrayType) to).elementType(), where + ".element");
      return new ArrayTransform(value, function(body, list(element)));
    }
    if (from instanceof MapType && to instanceof MapType) {
      return map(value, (MapType) from, (MapType) to, where);
    }
    return value; // Spark has checked that it can be cast
  }

  private static Expression struct(Expression value, StructType from, StructType to, String where) {
    if (!value.deterministic()) {
      throw new Unfit("its fields have another order, and it has another value whenever it is computed");
    }
    ArrayList parts = new ArrayList();
    for (int i = 0; i < to.fields().length; i++) {
      StructField field = to.fields()[i];
      int place = placeOf(from, field.name());
      if (place < 0 || from.fields().length != to.fields().length) {
        String of = where.isEmpty() ? "" : " in" + where;
        throw new Unfit("its fields" + of + " are " + names(from) + ", and those of the column are " + names(to));
      }
      StructField own = from.fields()[place];
      Expression part = new GetStructField(value, place, Option.apply(own.name()));
      parts.add(new Literal(UTF8String.fromString(field.name()), org.apache.spark.sql.types.DataTypes.StringType));
      parts.add(ordered(part, own.dataType(), field.dataType(), where + "." + field.name()));
    }
    Expression made = new CreateNamedStruct(sequence(parts));
    return value.nullable() ? new If(new IsNull(value), new Literal(null, made.dataType()), made) : made;
  }

  private static Expression map(Expression value, MapType from, MapType to, String where) {
    NamedLambdaVariable key = variable("k", from.keyType(), false);
    NamedLambdaVariable entry = variable("v", from.valueType(), from.valueContainsNull());
    Expression keys = ordered(key, from.keyType(), to.keyType(), where + ".key");
    Expression values = ordered(entry, from.valueType(), to.valueType(), where + ".value");
    Expression made = value;
    if (values != entry) {
      made = new TransformValues(made, function(values, list(key, entry)));
    }
    if (keys != key) {
      NamedLambdaVariable now = variable("v", values.dataType(), from.valueContainsNull());
      made = new TransformKeys(made, function(keys, list(key, now)));
    }
    return made;
  }

  private static LambdaFunction function(Expression body, ArrayList arguments) {
    return new LambdaFunction(body, sequence(arguments), false);
  }

  private static NamedLambdaVariable variable(String name, DataType type, boolean isNullable) {
    return new NamedLambdaVariable(
        name, type, isNullable, NamedExpression$.MODULE$.newExprId(), new AtomicReference());
  }

  /** Whether the fields of two types have the same names in the same places. */
  private static boolean isInPlace(DataType from, DataType to) {
    if (from instanceof StructType && to instanceof StructType) {
      StructField[] mine = ((StructType) from).fields();
      StructField[] theirs = ((StructType) to).fields();
      boolean isSame = mine.length == theirs.length;
      for (int i = 0; isSame && i < mine.length; i++) {
        isSame = isOneName(mine[i].name(), theirs[i].name()) && isInPlace(mine[i].dataType(), theirs[i].dataType());
      }
      return isSame;
    }
    if (from instanceof ArrayType && to instanceof ArrayType) {
      return isInPlace(((ArrayType) from).elementType(), ((ArrayType) to).elementType());
    }
    if (from instanceof MapType && to instanceof MapType) {
      return isInPlace(((MapType) from).keyType(), ((MapType) to).keyType())
          && isInPlace(((MapType) from).valueType(), ((MapType) to).valueType());
    }
    return true;
  }

  /** Whether a constant is null, or an array or a map without elements, which has no fields. */
  private static boolean isEmpty(Object value) {
    if (value instanceof ArrayData) {
      return ((ArrayData) value).numElements() == 0;
    }
    return value == null || (value instanceof MapData && ((MapData) value).numElements() == 0);
  }

  private static boolean hasFields(DataType type) {
    if (type instanceof ArrayType) {
      return hasFields(((ArrayType) type).elementType());
    }
    if (type instanceof MapType) {
      return hasFields(((MapType) type).keyType()) || hasFields(((MapType) type).valueType());
    }
    return type instanceof StructType;
  }

  /** The place of the one field with a name; -1 if there is none, or more than one. */
  private static int placeOf(StructType type, String name) {
    int found = -1;
    for (int i = 0; i < type.fields().length; i++) {
      if (isOneName(type.fields()[i].name(), name)) {
        if (found >= 0) {
          return -1;
        }
        found = i;
      }
    }
    return found;
  }

  private static boolean isOneName(String name, String other) {
    return SQLConf$.MODULE$.get().caseSensitiveAnalysis() ? name.equals(other) : name.equalsIgnoreCase(other);
  }

  private static String names(StructType type) {
    StringBuilder text = new StringBuilder();
    for (int i = 0; i < type.fields().length; i++) {
      text.append(i == 0 ? "" : ", ").append(type.fields()[i].name());
    }
    return text.toString();
  }

  private static ArrayList list(Object one) {
    ArrayList all = new ArrayList();
    all.add(one);
    return all;
  }

  private static ArrayList list(Object one, Object other) {
    ArrayList all = list(one);
    all.add(other);
    return all;
  }

  private static Seq sequence(ArrayList values) {
    return CollectionConverters.asScala(values).toSeq();
  }
}
