// What is shown, and where it comes from.

const STATUS_EVERY_MS = 5000,
  TABLE_EVERY_MS = 5000,
  TIMEOUT_MS = 60000;
const embedded = byId("report") ? JSON.parse(byId("report").textContent) : null;
let view = null,
  status = null,
  lostSince = null,
  tableTimer = 0,
  request = 0;

function show(next) {
  if (view) view.close();
  view = next;
  byId("main").replaceChildren(view.root);
}
function route() {
  const match = location.hash.match(/^#\/table\/(.+)$/);
  request += 1;
  clearTimeout(tableTimer);
  let path = null;
  try {
    path = match ? decodeURIComponent(match[1]) : null;
  } catch {
    path = match[1];
  }
  document.title = path === null ? "tidelog" : `${path} · tidelog`;
  show(path === null ? new TablesView() : new TableView(path));
  scrollTo(0, 0);
  if (path === null) {
    if (status) view.update(status);
  } else {
    view.update(null, liveOf(path));
    loadTable(path, request);
  }
}
function liveOf(path) {
  const found = status && status.tables.find((table) => table.path === path);
  return found ? { ...found, at: status.at, started: status.started } : null;
}
async function ask(url) {
  const stop = new AbortController(),
    timer = setTimeout(() => stop.abort(), TIMEOUT_MS);
  try {
    const answer = await fetch(url, { cache: "no-store", signal: stop.signal });
    const body = await answer.json();
    if (!answer.ok)
      throw new Error([body.error || `status ${answer.status}`, body.advice].filter(Boolean).join("; "), {
        cause: "answer",
      });
    return body;
  } finally {
    clearTimeout(timer);
  }
}
async function loadStatus() {
  try {
    status = await ask("api/status");
    lostSince = null;
    if (view instanceof TablesView) view.update(status);
    else if (view) view.update(view.report || null, liveOf(view.path));
  } catch (error) {
    lostSince = lostSince || new Date();
  }
  showLink();
  setTimeout(() => whenVisible(loadStatus), STATUS_EVERY_MS);
}
async function loadTable(path, mine) {
  try {
    const report = await ask(`api/table?path=${encodeURIComponent(path)}`);
    if (mine === request) {
      view.problem = null;
      view.update(report, liveOf(path));
    }
  } catch (error) {
    if (mine === request) {
      const text =
        error.cause === "answer" ? `The table cannot be read: ${error.message}` : "The daemon does not answer.";
      view.problem = text;
      view.update(view.report || null, liveOf(path));
    }
  }
  if (mine === request) tableTimer = setTimeout(() => whenVisible(() => loadTable(path, mine)), TABLE_EVERY_MS);
}
// A page in the background asks for nothing.
function whenVisible(work) {
  if (!document.hidden) {
    work();
    return;
  }
  document.addEventListener("visibilitychange", () => whenVisible(work), { once: true });
}
function showLink() {
  const banner = byId("banner"),
    sick = status && status.health && !status.health.healthy;
  const text = lostSince
    ? `The daemon does not answer since ${clock(lostSince, true)}. ${status ? "The page shows what it knew then, and tries" : "The page tries"} again every few seconds.`
    : sick
      ? `The daemon is not healthy: ${status.health.reason}.`
      : status
        ? status.search_errors.map((each) => `The search for tables in ${each.source} failed: ${each.error}.`).join(" ")
        : "";
  setText(banner, text);
  banner.hidden = !text;
  setText(
    byId("link"),
    lostSince ? "not connected" : status ? `live · version ${status.tidelog_version}` : "connecting…",
  );
}

function keepTheme() {
  const select = byId("theme"),
    root = document.documentElement;
  let kept = "auto";
  try {
    kept = localStorage.getItem("tidelog-theme") || "auto";
  } catch {
    /* a file may have no storage */
  }
  const apply = (theme) => {
    root.dataset.theme = ["light", "dark"].includes(theme) ? theme : "auto";
    select.value = root.dataset.theme;
    styleCharts();
    if (view) view.redraw();
  };
  select.addEventListener("change", () => {
    try {
      localStorage.setItem("tidelog-theme", select.value);
    } catch {
      /* as above */
    }
    apply(select.value);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => apply(select.value));
  apply(kept);
}
function start() {
  keepTheme();
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const note = `Times are those of your browser (${zone}).`;
  if (embedded) {
    document.title = `${embedded.path} · tidelog`;
    setText(byId("link"), `report · version ${embedded.tidelog_version}`);
    byId("foot").append(
      h("p", {}, "Made at ", moment(embedded.made_at), `. ${note} This file asks no server for anything.`),
    );
    byId("home").removeAttribute("href");
    show(new TableView(embedded.path));
    view.update(embedded, null);
    return;
  }
  byId("foot").append(h("p", {}, `${note} The page asks only the daemon that serves it.`));
  addEventListener("hashchange", () => {
    route();
    byId("main").focus({ preventScroll: true });
  });
  route();
  showLink();
  loadStatus();
}
start();
