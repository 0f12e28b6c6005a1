package org.apache.spark.sql.connector

import java.io.{FileWriter, PrintWriter, StringWriter}
import java.nio.file.{Files, Path, Paths}

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import org.scalactic.source.Position
import org.scalatest.Reporter
import org.scalatest.events.{Event, TestCanceled, TestFailed, TestIgnored, TestPending, TestSucceeded}

import org.apache.spark.SparkContext
import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.catalyst.types.DataTypeUtils
import org.apache.spark.sql.classic
import org.apache.spark.sql.connector.catalog._
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.connector.write._
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.test.TestSparkSession
import org.apache.spark.sql.types._

/** Where the suites run: PySpark has started the JVM, and tidelog's planner is in its process. */
object Place {
  val folder: Path = Paths.get(System.getProperty("tidelog.suites"))

  /** The loader of tidelog's classes, which Spark's own loader does not know. */
  def loader: ClassLoader = System.getProperties.get("tidelog.loader").asInstanceOf[ClassLoader]

  private var number = 0

  def next(): Path = synchronized {
    number += 1
    folder.resolve("warehouse" + number)
  }
}

/** The commits that a table of tidelog's has in its log. */
class Log(table: Path) {
  private val json = new ObjectMapper

  private val texts: Seq[Path] = {
    val files = Files.list(table.resolve("_delta_log"))
    try files.toArray.toSeq.map(_.asInstanceOf[Path]).filter(_.getFileName.toString.matches("\\d{20}\\.json")).sorted
    finally files.close()
  }

  private def all(kind: String): Seq[JsonNode] =
    texts.flatMap(text => Files.readAllLines(text).toArray.toSeq.map(line => json.readTree(line.toString)))
      .filter(_.has(kind)).map(_.get(kind))

  lazy val commits: Seq[JsonNode] = all("commitInfo")

  /** The columns, with those that cannot be null. */
  def schema: StructType = plain(DataType.fromJson(all("metaData").last.get("schemaString").asText))
    .asInstanceOf[StructType]

  private def plain(kind: DataType): DataType = kind match {
    case struct: StructType => StructType(struct.map(f => StructField(f.name, plain(f.dataType), f.nullable)))
    case array: ArrayType => ArrayType(plain(array.elementType), array.containsNull)
    case map: MapType => MapType(plain(map.keyType), plain(map.valueType), map.valueContainsNull)
    case other => other
  }

  /** What the last commit says of its rows, in Spark's form, if it is one of a statement that changes rows. */
  def summary: Option[WriteSummary] = {
    val last = commits.last
    def of(name: String, other: Long): Long =
      Option(last.get("operationMetrics")).flatMap(all => Option(all.get(name))).map(_.asText.toLong).getOrElse(other)
    last.get("operation").asText match {
      case "DELETE" => Some(DeleteSummaryImpl(of("numDeletedRows", -1), 0))
      case "UPDATE" => Some(UpdateSummaryImpl(of("numUpdatedRows", -1), 0))
      case "MERGE" =>
        // Without a clause for rows that are not matched by the source, all that are changed are matched.
        val (updated, deleted) = (of("numTargetRowsUpdated", -1), of("numTargetRowsDeleted", -1))
        Some(MergeSummaryImpl(0, deleted, updated, of("numTargetRowsInserted", -1),
          of("numTargetRowsMatchedUpdated", updated), of("numTargetRowsMatchedDeleted", deleted),
          of("numTargetRowsNotMatchedBySourceUpdated", 0), of("numTargetRowsNotMatchedBySourceDeleted", 0)))
      case _ => None
    }
  }
}

/** A suite of Spark's for statements that change rows, with tidelog's catalog. What looks into its table cancels. */
trait ThroughTidelog extends RowLevelOperationSuiteBase {

  override protected def createSparkSession: TestSparkSession = {
    Thread.currentThread.setContextClassLoader(Place.loader)
    val session = new TestSparkSession(SparkContext.getActive.get)
    classic.SparkSession.setActiveSession(session)
    classic.SparkSession.setDefaultSession(session)
    val changes = Place.loader.loadClass("tidelog.RowChanges")
    changes.getMethod("install", classOf[classic.SparkSession]).invoke(null, session)
    session
  }

  private var warehouse: Path = null
  /** The commits of the table up to the last one that was looked at. */
  private var known = 0

  /** What is said of a statement that has changed nothing, and so has left no commit. */
  protected def nothing: WriteSummary

  /** The suite's own preparation, whose catalog gives way to tidelog's. */
  override protected def before(own: => Any)(implicit at: Position): Unit = super.before {
    own
    Thread.currentThread.setContextClassLoader(Place.loader)
    warehouse = Place.next()
    spark.conf.set("spark.sql.catalog.cat", "tidelog.Catalog")
    spark.conf.set("spark.sql.catalog.cat.warehouse", warehouse.toString)
    Facade.lastTransaction = new Told
    known = 0
  }

  private def own: TableCatalog = spark.sessionState.catalogManager.catalog("cat").asInstanceOf[TableCatalog]

  protected def log(table: Identifier): Log =
    new Log(warehouse.resolve(table.namespace.mkString("/")).resolve(table.name))

  /** What the suites call of their catalog. */
  private object Facade extends InMemoryRowLevelOperationTableCatalog {
    initialize("cat", org.apache.spark.sql.util.CaseInsensitiveStringMap.empty)
    override def loadTable(table: Identifier): Table = new Shown(own.loadTable(table), log(table))
    override def createTable(table: Identifier, info: TableInfo): Table = own.createTable(table, info)
    override def alterTable(table: Identifier, changes: TableChange*): Table = own.alterTable(table, changes: _*)
    override def dropTable(table: Identifier): Boolean = own.dropTable(table)
  }

  /** A table with the commits that tidelog's log has. */
  private class Shown(found: Table, log: Log)
      extends InMemoryTable(found.name, new StructType, Array.empty[Transform], found.properties) {
    override def columns: Array[Column] = found.columns
    override val commits = {
      val isNew = log.commits.size > known
      known = log.commits.size
      scala.collection.mutable.ListBuffer(Commit(known, log.summary.filter(_ => isNew).orElse(Some(nothing))))
    }
  }

  /** The last statement's transaction: it has left a commit or none, and nothing of it is open. */
  private class Told extends Txn(null) {
    override def currentState: TransactionState = if (log(ident).summary.isDefined) Committed else Aborted
    override def isClosed: Boolean = true
  }

  override protected def catalog: InMemoryRowLevelOperationTableCatalog = Facade
  override protected def table: InMemoryRowLevelOperationTable = cancel("looks at Spark's in-memory table")
  override protected def executeAndKeepPlan(func: => Unit): SparkPlan = {
    func
    cancel("looks at the plan of Spark's own writer")
  }
  override protected def executeTransaction(func: => Unit): (Txn, Map[String, TxnTable]) = {
    func
    cancel("looks at the scans of Spark's in-memory transaction")
  }
  override protected def executeAndKeepConditions(func: => Unit) = {
    func
    cancel("looks at the plan of Spark's own writer")
  }
  // The statement counts, and its rows are checked by what follows.
  override protected def executeAndCheckScan(query: String, expectedScanSchema: String): Unit = sql(query)
  override protected def executeAndCheckScans(query: String, primary: String, groupFilter: Option[String]): Unit =
    sql(query)
  override protected def checkReplacedPartitions(expectedPartitions: Seq[Any]): Unit = ()
  override protected def checkLastWriteInfo(
      rows: StructType, ids: Option[StructType], metadata: Option[StructType]): Unit = ()
  override protected def checkLastWriteLog(expectedEntries: WriteLogEntry*): Unit = ()
}

class Delete extends DeleteFromTableSuiteBase with ThroughTidelog {
  override protected def deltaDelete: Boolean = true
  override protected def enforceCheckConstraintOnDelete: Boolean = false
  override protected def nothing: WriteSummary = DeleteSummaryImpl(0, 0)
}

class Update extends UpdateTableSuiteBase with ThroughTidelog {
  override protected def deltaUpdate: Boolean = true
  override protected def nothing: WriteSummary = UpdateSummaryImpl(0, 0)
}

trait Merging extends ThroughTidelog {
  override protected def nothing: WriteSummary = MergeSummaryImpl(0, 0, 0, 0, 0, 0, 0, 0)
}

class Merge extends MergeIntoTableSuiteBase with Merging {
  override protected def deltaMerge: Boolean = true
}

class MergeInto extends MergeIntoDataFrameSuite with Merging

/** The in-memory table gives a column any wider type. */
trait Evolving extends Merging {
  override protected def extraTableProps: java.util.Map[String, String] =
    java.util.Map.of("delta.enableTypeWidening", "true")

  /** Scans say that each column can be null: Spark's optimizer would believe otherwise of any file. The log knows. */
  override protected lazy val sql: String => DataFrame = text => {
    val found = spark.sql(text)
    if (text == s"SELECT * FROM $tableNameAsString") {
      val known = log(ident).schema
      assert(DataTypeUtils.sameType(found.schema, known), s"${found.schema} is not $known")
      spark.createDataFrame(found.collectAsList(), known)
    } else {
      found
    }
  }
}

class Evolution
  extends MergeIntoSchemaEvolutionSQLSuiteBase
  with MergeIntoSchemaEvolutionTests
  with MergeIntoSchemaEvolutionExtraSQLTests
  with Evolving

class EvolutionOfFrames
  extends MergeIntoSchemaEvolutionScalaSuiteBase
  with MergeIntoSchemaEvolutionTests
  with MergeIntoSchemaEvolutionExtraScalaTests
  with Evolving

/** One line for each test: what became of it, its suite, its name and why, with tabs between. */
class Lines extends Reporter {
  private val lines = new PrintWriter(new FileWriter(Place.folder.resolve("lines.txt").toFile, true), true)

  override def apply(event: Event): Unit = event match {
    case e: TestSucceeded => line("passed", e.suiteName, e.testName, "")
    case e: TestFailed => line("failed", e.suiteName, e.testName, e.message, e.throwable)
    case e: TestCanceled => line("cancelled", e.suiteName, e.testName, e.message)
    case e: TestIgnored => line("ignored", e.suiteName, e.testName, "")
    case e: TestPending => line("ignored", e.suiteName, e.testName, "")
    case _ =>
  }

  private def line(kind: String, suite: String, test: String, why: String, error: Option[Throwable] = None): Unit = {
    val text = why + error.map(e => "\n" + trace(e)).getOrElse("")
    lines.println(Seq(kind, suite, test, text).map(_.replaceAll("\t", " ").replaceAll("\n", "\\\\n")).mkString("\t"))
  }

  private def trace(error: Throwable): String = {
    val text = new StringWriter
    error.printStackTrace(new PrintWriter(text))
    text.toString.take(20000)
  }
}
