package tidelog;

import java.util.HashMap;
import java.util.Map;

import org.apache.spark.sql.catalyst.analysis.NamespaceAlreadyExistsException;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NonEmptyNamespaceException;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;

/** The schemas of the catalog: folders below its warehouse. */
public abstract class Namespaces implements SupportsNamespaces {
  /** Asks the planner about a table, or about the folder of a namespace. */
  abstract Object ask(String kind, String[] namespace, String name, Map more);

  public String[][] listNamespaces() {
    return inner(new String[0]);
  }

  public String[][] listNamespaces(String[] above) throws NoSuchNamespaceException {
    require(above);
    return inner(above);
  }

  private String[][] inner(String[] above) {
    String text = (String) ask("namespaces", above, null, new HashMap());
    String[] names = text.isEmpty() ? new String[0] : text.split("\n");
    String[][] found = new String[names.length][];
    for (int i = 0; i < names.length; i++) {
      found[i] = new String[above.length + 1];
      System.arraycopy(above, 0, found[i], 0, above.length);
      found[i][above.length] = names[i];
    }
    return found;
  }

  public boolean namespaceExists(String[] namespace) {
    return ((Boolean) ask("namespaceExists", namespace, null, new HashMap())).booleanValue();
  }

  private void require(String[] namespace) throws NoSuchNamespaceException {
    if (!namespaceExists(namespace)) {
      throw new NoSuchNamespaceException(namespace);
    }
  }

  public Map loadNamespaceMetadata(String[] namespace) throws NoSuchNamespaceException {
    require(namespace);
    return DefaultSource.parsed((String) ask("namespace", namespace, null, new HashMap()));
  }

  public void createNamespace(String[] namespace, Map properties) throws NamespaceAlreadyExistsException {
    HashMap more = new HashMap();
    more.put("properties", new HashMap(properties));
    boolean isMade = ((Boolean) ask("createNamespace", namespace, null, more)).booleanValue();
    if (!isMade) {
      throw new NamespaceAlreadyExistsException(namespace);
    }
  }

  public void alterNamespace(String[] namespace, NamespaceChange[] changes) throws NoSuchNamespaceException {
    require(namespace);
    HashMap properties = new HashMap();
    for (int i = 0; i < changes.length; i++) {
      if (changes[i] instanceof NamespaceChange.SetProperty) {
        NamespaceChange.SetProperty set = (NamespaceChange.SetProperty) changes[i];
        properties.put(set.property(), set.value());
      } else {
        properties.put(((NamespaceChange.RemoveProperty) changes[i]).property(), null);
      }
    }
    HashMap more = new HashMap();
    more.put("properties", properties);
    ask("alterNamespace", namespace, null, more);
  }

  public boolean dropNamespace(String[] namespace, boolean cascade)
      throws NoSuchNamespaceException, NonEmptyNamespaceException {
    require(namespace);
    HashMap more = new HashMap();
    more.put("cascade", Boolean.valueOf(cascade));
    boolean isGone = ((Boolean) ask("dropNamespace", namespace, null, more)).booleanValue();
    if (!isGone) {
      throw new NonEmptyNamespaceException(namespace);
    }
    return true;
  }
}
