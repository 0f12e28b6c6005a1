package tidelog;

/**
 * Which of Spark's classes this thread is within. Spark does not say what it asks for, and some of its callers need another
 * answer than the rest.
 */
class Callers {
  /** Whether a class has this text in its name. */
  static boolean include(String type) {
    StackTraceElement[] callers = new Throwable().getStackTrace();
    for (int i = 0; i < callers.length; i++) {
      if (callers[i].getClassName().contains(type)) {
        return true;
      }
    }
    return false;
  }

  /** Whether it is a method of a class whose name ends so. */
  static boolean include(String type, String method) {
    StackTraceElement[] callers = new Throwable().getStackTrace();
    for (int i = 0; i < callers.length; i++) {
      if (callers[i].getMethodName().equals(method) && callers[i].getClassName().endsWith(type)) {
        return true;
      }
    }
    return false;
  }
}
