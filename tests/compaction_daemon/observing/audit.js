// What is wrong with a page for people who see little, or use a keyboard or a screen reader: a list of texts.
() => {
  const faults = [];
  const visible = (node) => node.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true });
  const say = (what, node) => faults.push(`${what}: ${node.outerHTML.slice(0, 160)}`);

  // --- names and roles
  const nameOf = (node) => (node.getAttribute("aria-label") || (node.labels && [...node.labels].map((each) => each.textContent).join(""))
    || [...(node.getAttribute("aria-labelledby") || "").split(" ")].map((id) => id && document.getElementById(id)?.textContent).join("")
    || node.textContent || node.title || "").trim();
  const named = "a, button, input, select, summary, fieldset, [role=slider], [role=img], [role=region], section, table, [tabindex='0']";
  for (const node of document.querySelectorAll(named)) if (visible(node) && !nameOf(node)) say("has no name", node);
  for (const node of document.querySelectorAll("canvas, img, svg")) {
    if (!node.closest("[aria-hidden=true]") && !nameOf(node)) say("a picture without a text", node);
  }
  const ids = [...document.querySelectorAll("[id]")].map((node) => node.id);
  for (const id of new Set(ids)) if (ids.filter((each) => each === id).length > 1) faults.push(`the id ${id} is used twice`);
  if (document.querySelectorAll("h1").length !== 1) faults.push(`there are ${document.querySelectorAll("h1").length} h1`);
  let level = 0;
  for (const node of document.querySelectorAll("h1, h2, h3, h4")) {
    if (Number(node.tagName[1]) > level + 1) say("a heading skips a level", node);
    level = Number(node.tagName[1]);
  }
  for (const node of document.querySelectorAll("th")) if (!node.hasAttribute("scope")) say("a heading of a table without scope", node);
  if (!document.documentElement.lang) faults.push("the page has no language");
  for (const node of document.querySelectorAll("*")) if (node.tabIndex > 0) say("a tab order by hand", node);
  for (const node of document.querySelectorAll("[role=slider]")) {
    for (const name of ["aria-valuenow", "aria-valuemin", "aria-valuemax", "aria-valuetext"]) {
      if (visible(node) && !node.hasAttribute(name)) say(`a slider without ${name}`, node);
    }
  }
  for (const node of document.querySelectorAll(".scroll")) if (visible(node) && node.tabIndex !== 0) say("scrolls without a keyboard", node);

  // --- contrast (WCAG 2, 1.4.3): 4.5, or 3 for large text; the borders of controls 3 (1.4.11)
  const parsed = (text) => { const [r, g, b, a = 1] = text.match(/[\d.]+/g).map(Number); return [r, g, b, a]; };
  const luminance = ([r, g, b]) => [r, g, b].map((value) => value / 255)
    .map((value) => (value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4))
    .reduce((sum, value, index) => sum + value * [0.2126, 0.7152, 0.0722][index], 0);
  const ratio = (one, other) => { const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b); return (high + 0.05) / (low + 0.05); };
  const groundOf = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const ground = parsed(getComputedStyle(at).backgroundColor);
      if (ground[3] === 1) return ground;
    }
    return [255, 255, 255, 1];
  };
  let checked = 0;
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!own || !visible(node) || node.closest("script, style, noscript, .hidden, option") || node.matches(".skip")) continue;
    const style = getComputedStyle(node), size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const found = ratio(parsed(style.color), groundOf(node));
    checked += 1;
    if (found < (large ? 3 : 4.5)) say(`contrast of ${found.toFixed(2)}`, node);
  }
  for (const node of document.querySelectorAll("select, input[type=search], button, .choice")) {
    if (!visible(node)) continue;
    const found = ratio(parsed(getComputedStyle(node).borderTopColor), groundOf(node.parentElement));
    if (found < 3) say(`a border with a contrast of ${found.toFixed(2)}`, node);
  }
  // What a chart draws: lines and marks against the panel.
  const value = (name) => { const probe = document.createElement("i"); probe.style.color = `var(${name})`; document.body.append(probe);
    const found = parsed(getComputedStyle(probe).color); probe.remove(); return found; };
  for (const name of ["--insert", "--change", "--overwrite", "--minor", "--major", "--none", "--bad", "--warn", "--strong-line"]) {
    const found = ratio(value(name), value("--panel"));
    if (found < 3) faults.push(`${name} has a contrast of ${found.toFixed(2)}`);
  }
  if (checked < 20) faults.push(`only ${checked} texts were checked`);
  return faults;
}
