package tidelog;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogManager;
import org.apache.spark.sql.connector.catalog.CatalogPlugin;
import org.apache.spark.sql.connector.catalog.CatalogV2Implicits.MultipartIdentifierHelper;
import org.apache.spark.sql.connector.catalog.DefaultValue;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.procedures.BoundProcedure;
import org.apache.spark.sql.connector.catalog.procedures.ProcedureParameter;
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DayTimeIntervalType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.jdk.javaapi.CollectionConverters;

/** What CALL tidelog.system... is to Spark. The planner knows the procedures and runs them. */
public class Procedures {
  private static final String NAMESPACE = "system";

  private Procedures() {}

  /** The names of the procedures in a namespace. */
  static Identifier[] listed(String[] namespace) {
    if (namespace.length != 0 && !isOwn(namespace)) {
      return new Identifier[0];
    }
    String[] names = ((String) DefaultSource.ask(DefaultSource.request("procedures"), null)).split("\n");
    Identifier[] found = new Identifier[names.length];
    for (int i = 0; i < names.length; i++) {
      found[i] = named(Arrays.asList(new String[] {NAMESPACE, names[i]}));
    }
    return found;
  }

  static UnboundProcedure loaded(Identifier name) {
    Map request = DefaultSource.request("procedure");
    ArrayList names = new ArrayList(Arrays.asList(name.namespace()));
    names.add(name.name());
    request.put("names", names);
    return new Unbound(DefaultSource.parsed((String) DefaultSource.ask(request, null)));
  }

  private static boolean isOwn(String[] namespace) {
    return namespace.length == 1 && namespace[0].equalsIgnoreCase(NAMESPACE);
  }

  /** What a session's catalogs know of a table by its name; a path is none. */
  public static Map found(SparkSession session, String text) throws Exception {
    List names = CollectionConverters.asJava(session.sessionState().sqlParser().parseMultipartIdentifier(text));
    CatalogManager all = session.sessionState().catalogManager();
    CatalogPlugin catalog = all.currentCatalog();
    ArrayList parts = new ArrayList(names);
    if (names.size() == 1) {
      parts.addAll(0, Arrays.asList(all.currentNamespace()));
    } else if (all.isCatalogRegistered((String) names.get(0))) {
      catalog = all.catalog((String) parts.remove(0));
    }
    return ((TableCatalog) catalog).loadTable(named(parts)).properties();
  }

  private static Identifier named(List parts) {
    return new MultipartIdentifierHelper(CollectionConverters.asScala(parts).toSeq()).asIdentifier();
  }

  static class Unbound implements UnboundProcedure {
    private final Map about;

    Unbound(Map about) {
      this.about = about;
    }

    public String name() {
      return (String) about.get("name");
    }

    public String description() {
      return (String) about.get("description");
    }

    /** A parameter can have the type of its argument, so the planner sees the arguments' types. */
    public BoundProcedure bind(StructType given) {
      Map request = DefaultSource.request("parameters");
      request.put("name", name());
      request.put("given", given.json());
      Map found = DefaultSource.parsed((String) DefaultSource.ask(request, null));
      return new Bound(about, (List) found.get("parameters"));
    }
  }

  static class Bound implements BoundProcedure {
    private final Map about;
    private final ProcedureParameter[] parameters;

    Bound(Map about, List parameters) {
      this.about = about;
      this.parameters = new ProcedureParameter[parameters.size()];
      for (int i = 0; i < this.parameters.length; i++) {
        this.parameters[i] = new Parameter((Map) parameters.get(i));
      }
    }

    public String name() {
      return (String) about.get("name");
    }

    public String description() {
      return (String) about.get("description");
    }

    public ProcedureParameter[] parameters() {
      return parameters;
    }

    public boolean isDeterministic() {
      return false;
    }

    public Iterator call(InternalRow given) {
      HashMap values = new HashMap();
      for (int i = 0; i < parameters.length; i++) {
        DataType type = parameters[i].dataType();
        values.put(parameters[i].name(), given.isNullAt(i) ? null : plain(given.get(i, type), type));
      }
      Map request = DefaultSource.request("call");
      request.put("name", name());
      request.put("values", values);
      ArrayList results = new ArrayList();
      results.add(new Rows((Dataset) DefaultSource.ask(request, SparkSession.active())));
      return results.iterator();
    }

    /** The value for JSON. */
    private static Object plain(Object value, DataType type) {
      if (value instanceof UTF8String) {
        return value.toString();
      }
      if (value instanceof ArrayData) {
        DataType inner = ((ArrayType) type).elementType();
        ArrayList all = new ArrayList();
        for (int i = 0; i < ((ArrayData) value).numElements(); i++) {
          all.add(((ArrayData) value).isNullAt(i) ? null : plain(((ArrayData) value).get(i, inner), inner));
        }
        return all;
      }
      if (type instanceof TimestampType || type instanceof DayTimeIntervalType) {
        HashMap time = new HashMap();
        time.put("micros", value);
        time.put("interval", Boolean.valueOf(type instanceof DayTimeIntervalType));
        return time;
      }
      return value;
    }
  }

  /** Janino has no static methods of interfaces, such as those that make one. */
  static class Parameter implements ProcedureParameter {
    private final Map about;

    Parameter(Map about) {
      this.about = about;
    }

    public ProcedureParameter.Mode mode() {
      return ProcedureParameter.Mode.IN;
    }

    public String name() {
      return (String) about.get("name");
    }

    public DataType dataType() {
      return DataType.fromJson((String) about.get("type"));
    }

    public DefaultValue defaultValue() {
      return about.get("default") == null ? null : new DefaultValue((String) about.get("default"));
    }

    public String comment() {
      return (String) about.get("comment");
    }
  }

  /** The result of a call. */
  static class Rows implements LocalScan {
    private final StructType schema;
    private final InternalRow[] rows;

    Rows(Dataset result) {
      this.schema = result.schema();
      this.rows = result.queryExecution().executedPlan().executeCollect();
    }

    public StructType readSchema() {
      return schema;
    }

    public InternalRow[] rows() {
      return rows;
    }
  }
}
