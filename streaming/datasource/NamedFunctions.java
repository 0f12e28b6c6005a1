package tidelog;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.analysis.TableFunctionRegistry;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedArgumentExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.plans.logical.View;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.IntegralType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Function1;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction1;

/**
 * Names of tables for the table functions, which run in Python and know paths only. Spark plans a call by a function that
 * makes the plan of its arguments: here it gets the path in the place of the name.
 */
public class NamedFunctions {
  /** Let a function of the session take names. */
  public static void install(SparkSession session, String function) {
    add(session, function, new ByName(builder(session, function)));
  }

  /** Give the session Delta's table_changes, by tidelog_changes, unless it has one already. */
  public static void addTableChanges(SparkSession session) {
    if (builder(session, "table_changes") == null) {
      add(session, "table_changes", new TableChanges(builder(session, "tidelog_changes")));
    }
  }

  private static void add(SparkSession session, String function, Function1 builder) {
    TableFunctionRegistry registry = session.sessionState().tableFunctionRegistry();
    FunctionIdentifier before = known(registry, function);
    if (before != null) {
      registry.dropFunction(before); // Spark warns of a function that another one replaces
    }
    registry.createOrReplaceTempFunction(function, builder, "python_udtf");
  }

  /** What makes the plan of a call; null if the session has no such function. */
  private static Function1 builder(SparkSession session, String function) {
    TableFunctionRegistry registry = session.sessionState().tableFunctionRegistry();
    FunctionIdentifier found = known(registry, function);
    return found == null ? null : (Function1) registry.lookupFunctionBuilder(found).get();
  }

  private static FunctionIdentifier known(TableFunctionRegistry registry, String function) {
    List all = CollectionConverters.asJava(registry.listFunction());
    for (int i = 0; i < all.size(); i++) {
      FunctionIdentifier each = (FunctionIdentifier) all.get(i);
      if (each.funcName().equalsIgnoreCase(function)) {
        return each;
      }
    }
    return null;
  }

  private static Seq sequence(ArrayList values) {
    return CollectionConverters.asScala(values).toSeq();
  }

  /** The value of a constant; null if it is none, or null. */
  private static Object valueOf(Expression argument) {
    return argument.resolved() && argument.foldable() ? argument.eval((InternalRow) null) : null;
  }

  /** A function whose argument `path`, the first one, can be a name. */
  static class ByName extends AbstractFunction1 {
    private final Function1 builder;

    ByName(Function1 builder) {
      this.builder = builder;
    }

    public Object apply(Object given) {
      ArrayList arguments = new ArrayList(CollectionConverters.asJava((Seq) given));
      boolean hasStorageOptions = false;
      int place = -1;
      for (int i = 0; i < arguments.size(); i++) {
        String key = keyOf((Expression) arguments.get(i));
        hasStorageOptions |= "storage_options".equalsIgnoreCase(key);
        place = (key == null && i == 0) || "path".equalsIgnoreCase(key) ? i : place;
      }
      if (place >= 0) {
        Expression argument = (Expression) arguments.get(place);
        boolean isNamed = argument instanceof NamedArgumentExpression;
        Expression written = isNamed ? ((NamedArgumentExpression) argument).value() : argument;
        String path = pathOf(written, hasStorageOptions);
        if (path != null) {
          Expression made = new Literal(UTF8String.fromString(path), DataTypes.StringType);
          arguments.set(place, isNamed ? new NamedArgumentExpression("path", made) : made);
        }
      }
      return builder.apply(sequence(arguments));
    }

    private static String keyOf(Expression argument) {
      return argument instanceof NamedArgumentExpression ? ((NamedArgumentExpression) argument).key() : null;
    }

    /** The path of the table that a name stands for; null if it is no name: a path as it is. */
    private static String pathOf(Expression written, boolean hasStorageOptions) {
      Object value = written.resolved() && written.dataType() instanceof StringType ? valueOf(written) : null;
      String name = value == null ? null : value.toString();
      if (name == null || (name.indexOf('/') >= 0 && name.indexOf('`') < 0)) {
        return null;
      }
      LogicalPlan plan = relationOf(name);
      if (plan == null) {
        return null;
      }
      Map request = DefaultSource.request("placeOfName", optionsOf(plan));
      request.put("name", name);
      request.put("hasStorageOptions", Boolean.valueOf(hasStorageOptions));
      return (String) DefaultSource.ask(request, null);
    }

    /** What Spark finds by a name; null if it finds nothing. */
    private static LogicalPlan relationOf(String name) {
      SparkSession session = SparkSession.active();
      LogicalPlan plan;
      try {
        Seq parts = session.sessionState().sqlParser().parseMultipartIdentifier(name);
        plan = new UnresolvedRelation(parts, CaseInsensitiveStringMap.empty(), false);
        plan = Dataset.ofRows(session, plan).queryExecution().analyzed();
      } catch (Exception error) {
        if (error instanceof DefaultSource.TidelogException) {
          throw (DefaultSource.TidelogException) error;
        }
        return null;
      }
      while (plan instanceof SubqueryAlias || plan instanceof View) {
        plan = (LogicalPlan) plan.children().head();
      }
      return plan;
    }

    /** The options of a table of tidelog's; null if it is another one. */
    private static Map optionsOf(LogicalPlan plan) {
      if (plan instanceof LogicalRelation && ((LogicalRelation) plan).relation() instanceof DefaultSource.Rows) {
        return ((DefaultSource.Rows) ((LogicalRelation) plan).relation()).options();
      }
      boolean isOwn =
          plan instanceof DataSourceV2Relation && ((DataSourceV2Relation) plan).table() instanceof Catalog.PathTable;
      return isOwn ? new HashMap(((Catalog.PathTable) ((DataSourceV2Relation) plan).table()).options()) : null;
    }
  }

  /** table_changes(name, first version, last version) of Delta, both included. */
  static class TableChanges extends AbstractFunction1 {
    private final Function1 builder;

    TableChanges(Function1 builder) {
      this.builder = builder;
    }

    public Object apply(Object given) {
      ArrayList arguments = new ArrayList(CollectionConverters.asJava((Seq) given));
      boolean isOfVersions = arguments.size() == 2 || arguments.size() == 3;
      for (int i = 1; isOfVersions && i < arguments.size(); i++) {
        Expression argument = (Expression) arguments.get(i);
        isOfVersions = argument.resolved() && argument.dataType() instanceof IntegralType;
      }
      if (!isOfVersions) {
        DefaultSource.refuse("TableChanges");
      }
      arguments.set(1, new NamedArgumentExpression("starting_version", (Expression) arguments.get(1)));
      if (arguments.size() == 3) {
        arguments.set(2, new NamedArgumentExpression("until", (Expression) arguments.get(2)));
      }
      return builder.apply(sequence(arguments));
    }
  }
}
