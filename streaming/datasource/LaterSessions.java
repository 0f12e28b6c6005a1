package tidelog;

import java.util.Collections;
import java.util.Set;
import java.util.WeakHashMap;

import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.classic.SparkSession;
import scala.runtime.AbstractFunction1;

/** Gives RowChanges to the sessions that are made from now on, as those of Spark Connect. */
public class LaterSessions extends AbstractFunction1 {
  private static final Set KNOWN = Collections.newSetFromMap(new WeakHashMap());

  public static synchronized void install(SparkSession session) {
    SparkSessionExtensions shared = session.extensions();
    if (KNOWN.add(shared)) {
      shared.injectPlannerStrategy(new LaterSessions());
    }
  }

  public Object apply(Object session) {
    return new RowChanges();
  }
}
