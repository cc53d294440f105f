// The network, the table of groups and what is selected in both, for every program of the page.
// Data: <script type="application/json" id="data-N">, see network.py. Layout: dagre (vendor/).
"use strict"
;(() => {
  const SVG = "http://www.w3.org/2000/svg"
  const PART = 60 // operators that are laid out together, at least: layout is slower than linear
  const MARGIN = 16

  const element = (name, attributes = {}, parent = null, text = null) => {
    const made = document.createElementNS(SVG, name)
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value)
    if (text !== null) made.textContent = text
    parent?.append(made)
    return made
  }

  // Ranges of operators [first, last]. A range begins with the last operator of the one before: no
  // other operator before it is read after it, so that the ranges can be laid out one by one.
  const parts = (nodes, edges) => {
    const reach = nodes.map((_, i) => i)
    for (const [from, to] of edges) reach[from] = Math.max(reach[from], to)
    const found = []
    let first = 0
    let farthest = 0 // reader of any operator before i
    nodes.forEach((_, i) => {
      if (i - first >= PART && farthest <= i) {
        found.push([first, i])
        first = i
      }
      farthest = Math.max(farthest, reach[i])
    })
    return [...found, [first, nodes.length - 1]]
  }

  const placed = (data) => {
    const at = []
    const lines = []
    for (const [first, last] of parts(data.nodes, data.edges)) {
      const graph = new dagre.graphlib.Graph({ multigraph: true })
      graph.setGraph({ rankdir: "TB", nodesep: 24, edgesep: 14, ranksep: 30 })
      for (let i = first; i <= last; i++) graph.setNode(String(i), { ...data.nodes[i].size })
      data.edges.forEach(([from, to, label], n) => {
        if (from < first || to > last || (to === first && first > 0)) return
        const size = { width: 6 * label.length, height: 12, labelpos: "r", labeloffset: 6 }
        graph.setEdge(String(from), String(to), size, String(n))
      })
      dagre.layout(graph)
      const shared = at[first] // the range before has placed it
      const own = graph.node(String(first))
      const [dx, dy] = shared ? [shared.x - own.x, shared.y - own.y] : [0, 0]
      for (let i = first; i <= last; i++) {
        const node = graph.node(String(i))
        at[i] = { ...data.nodes[i].size, x: node.x + dx, y: node.y + dy }
      }
      for (const edge of graph.edges()) {
        const line = graph.edge(edge)
        lines[Number(edge.name)] = {
          points: line.points.map((p) => [p.x + dx, p.y + dy]),
          label: [line.x + dx, line.y + dy],
        }
      }
    }
    return { at, lines }
  }

  // In the order of the program, for graphs in which the layout recurses too deeply.
  const stacked = (data) => {
    const at = data.nodes.map(({ size }, i) => ({ ...size, x: 0, y: i * 90 }))
    const lines = data.edges.map(([from, to]) => {
      const [a, b] = [at[from], at[to]]
      const out = to - from === 1 ? 0 : a.width / 2 + 12 * Math.log2(to - from)
      const middle = [out, (a.y + b.y) / 2]
      return { points: [[0, a.y + a.height / 2], middle, [0, b.y - b.height / 2]], label: middle }
    })
    return { at, lines }
  }

  const path = (points) => {
    let text = `M${points[0]}`
    for (let i = 1; i < points.length - 1; i++) {
      const end = i === points.length - 2 ? points[i + 1] : middle(points[i], points[i + 1])
      text += `Q${points[i]} ${end}`
    }
    return points.length > 2 ? text : `${text}L${points[1]}`
  }
  const middle = (a, b) => [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2]

  const draw = (box, data, select) => {
    let layout
    try {
      layout = placed(data)
    } catch (error) {
      if (!(error instanceof RangeError)) throw error
      layout = stacked(data)
    }
    const { at, lines } = layout
    const xs = [...at.flatMap((n) => [n.x - n.width / 2, n.x + n.width / 2])]
    xs.push(...lines.flatMap((line) => line.points.map((p) => p[0])))
    xs.push(...lines.map((line, n) => line.label[0] + 4 * data.edges[n][2].length))
    const left = Math.min(...xs) - MARGIN
    const width = Math.max(...xs) + MARGIN - left
    const top = Math.min(...at.map((n) => n.y - n.height / 2)) - MARGIN
    const height = Math.max(...at.map((n) => n.y + n.height / 2)) + MARGIN - top
    const svg = element("svg", { viewBox: `${left} ${top} ${width} ${height}`, role: "group" })
    svg.setAttribute("aria-label", "Operators; arrow keys move, Enter selects")
    const arrow = element("marker", {
      id: `${box.id}-arrow`, viewBox: "0 0 8 8", refX: 8, refY: 4,
      markerWidth: 7, markerHeight: 7, orient: "auto",
    }, element("defs", {}, svg))
    element("path", { d: "M0 0L8 4L0 8z", class: "head" }, arrow)
    lines.forEach((line, n) => {
      const [, , label, skips] = data.edges[n]
      const end = `url(#${box.id}-arrow)`
      element("path", { d: path(line.points), class: skips ? "edge skip" : "edge", "marker-end": end }, svg)
      const [x, y] = line.label
      if (label) element("text", { x: x - 3 * label.length, y, class: "shape" }, svg, label)
    })
    const boxes = data.nodes.map((node, i) => {
      const { x, y, width, height } = at[i]
      if (node.join) {
        const dot = element("circle", { cx: x, cy: y, r: width / 2, class: "join" }, svg)
        element("title", {}, dot, "maps that are read as one (a concatenation)")
        return null
      }
      const group = element("g", {
        class: node.group < 0 ? "operator host" : "operator", role: "button",
        tabindex: i ? -1 : 0, "aria-pressed": "false",
        transform: `translate(${x - width / 2} ${y - height / 2})`,
      }, svg)
      element("title", {}, group, node.title)
      element("rect", { width, height, rx: 5, fill: node.fill }, group)
      const centre = { x: width / 2, fill: node.ink }
      element("text", { ...centre, y: 17, class: "name" }, group, node.label)
      element("text", { ...centre, y: 32 }, group, node.location)
      group.addEventListener("click", () => select(i))
      return group
    })
    svg.addEventListener("keydown", (event) => {
      const operators = boxes.filter((box) => box)
      const here = operators.indexOf(document.activeElement)
      const next = { ArrowDown: here + 1, ArrowRight: here + 1, ArrowUp: here - 1, ArrowLeft: here - 1 }
      next.Home = 0
      next.End = operators.length - 1
      if (event.key === "Enter" || event.key === " ") select(boxes.indexOf(operators[here]))
      else if (operators[next[event.key]]) focus(operators, next[event.key])
      else return
      event.preventDefault()
    })
    box.append(svg)
    zoom(box, svg, width, height)
    return boxes
  }

  const focus = (boxes, index) => {
    for (const box of boxes) box.setAttribute("tabindex", -1)
    boxes[index].setAttribute("tabindex", 0)
    boxes[index].focus()
  }

  // Buttons, and the wheel with Ctrl; the box itself scrolls.
  const zoom = (box, svg, width, height) => {
    let scale = 1
    const set = (wanted) => {
      const [cx, cy] = [box.clientWidth / 2, box.clientHeight / 2]
      const [x, y] = [(box.scrollLeft + cx) / scale, (box.scrollTop + cy) / scale]
      scale = Math.min(Math.max(wanted, 0.02), 4)
      svg.setAttribute("width", width * scale)
      svg.setAttribute("height", height * scale)
      box.scrollTo(x * scale - cx, y * scale - cy)
    }
    const whole = () => Math.min(box.clientWidth / width, box.clientHeight / height)
    const steps = {
      in: () => set(scale * 1.25),
      out: () => set(scale / 1.25),
      whole: () => set(whole()),
      full: () => set(1),
    }
    for (const button of box.parentElement.querySelectorAll("[data-zoom]"))
      button.addEventListener("click", steps[button.dataset.zoom])
    box.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return
      event.preventDefault()
      set(scale * (event.deltaY < 0 ? 1.1 : 1 / 1.1))
    }, { passive: false })
    set(1)
    box.scrollTo((width - box.clientWidth) / 2, 0)
  }

  const sortable = (table) => {
    const body = table.tBodies[0]
    table.querySelectorAll("thead th").forEach((head, column) => {
      head.querySelector("button")?.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending"
        for (const other of table.querySelectorAll("thead th")) other.removeAttribute("aria-sort")
        head.setAttribute("aria-sort", down ? "descending" : "ascending")
        const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent
        const rows = [...body.rows].sort((a, b) => {
          const [x, y] = [key(a), key(b)]
          const order = x !== "" && y !== "" && !isNaN(x) && !isNaN(y) ? x - y : x.localeCompare(y)
          return down ? -order : order
        })
        body.append(...rows)
      })
    })
  }

  const filter = (field, table) =>
    field.addEventListener("input", () => {
      const words = field.value.toLowerCase().split(/\s+/).filter((word) => word)
      for (const row of table.tBodies[0].rows) {
        const text = `${row.textContent} ${row.dataset.words ?? ""}`.toLowerCase()
        row.hidden = !words.every((word) => text.includes(word))
      }
    })

  const report = (script) => {
    const number = script.id.replace("data-", "")
    const data = JSON.parse(script.textContent)
    const table = document.querySelector(`#table-${number} table`)
    const detail = document.getElementById(`detail-${number}`)
    const points = () => Bokeh.documents[0].get_model_by_name(`groups-${number}`)
    let boxes = []
    let shown = -1 // group

    // operator: its number, or null where a whole group is chosen. group: its index, -1: none.
    const show = (operator, group) => {
      shown = group
      boxes.forEach((box, i) => {
        const inside = i === operator || (group >= 0 && data.nodes[i].group === group)
        box?.classList.toggle("chosen", inside)
        box?.setAttribute("aria-pressed", String(i === operator))
      })
      for (const row of table.tBodies[0].rows) {
        const chosen = Number(row.dataset.group) === group
        row.classList.toggle("chosen", chosen)
        row.querySelector("button").setAttribute("aria-pressed", String(chosen))
      }
      const first = operator ?? data.nodes.findIndex((node) => node.group === group)
      if (first >= 0) detail.innerHTML = data.nodes[first].detail
      const place = group < 0 ? -1 : Array.from(points().data.index).indexOf(group)
      const wanted = place < 0 ? [] : [place]
      if (String(points().selected.indices) !== String(wanted)) points().selected.indices = wanted
    }
    if (data.nodes.length)
      boxes = draw(document.getElementById(`network-${number}`), data, (i) => show(i, data.nodes[i].group))
    for (const row of table.tBodies[0].rows)
      row.addEventListener("click", () => show(null, Number(row.dataset.group)))
    sortable(table)
    filter(document.getElementById(`filter-${number}`), table)
    window.opuFuse.choose[number] = (place) => {
      const group = points().data.index[place]
      if (group !== undefined && group !== shown) show(null, group)
    }
  }

  // Points over two figures: the axes, the lines and the rows of the table follow the choice.
  const chart = (script) => {
    const { values, titles, fronts } = JSON.parse(script.textContent)
    const [x, y] = ["axis-x", "axis-y"].map((id) => document.getElementById(id))
    const all = document.getElementById("all-points")
    const table = document.querySelector("table.points")
    const rows = [...table.tBodies[0].rows]
    const model = (name) => Bokeh.documents[0].get_model_by_name(name)
    const front = () => fronts[`${x.value} ${y.value}`] ?? { indices: [], xs: [], ys: [], colour: [] }
    const show = () => {
      const { indices } = front()
      rows.forEach((row, i) => { row.hidden = !all.checked && !indices.includes(i) })
    }
    const change = () => {
      const { xs, ys, colour } = front()
      const points = model("points")
      points.data = { ...points.data, x: values[x.value], y: values[y.value] }
      model("lines").data = { xs, ys, colour }
      const plot = model("scatter")
      plot.below[0].axis_label = titles[x.value]
      plot.left[0].axis_label = titles[y.value]
      show()
    }
    for (const select of [x, y]) select.addEventListener("change", change)
    all.addEventListener("change", show)
    sortable(table)
    show()
  }

  // Bokeh paints on a canvas, which style sheets do not reach.
  const paint = () => {
    const style = getComputedStyle(document.documentElement)
    const [ink, paper, rule] = ["--ink", "--paper", "--rule"].map((name) => style.getPropertyValue(name))
    const all = { background_fill_color: paper, border_fill_color: paper, outline_line_color: rule }
    const axis = { axis_label_text_color: ink, major_label_text_color: ink, axis_line_color: ink,
      major_tick_line_color: ink, minor_tick_line_color: null }
    const legend = { background_fill_color: paper, label_text_color: ink, border_line_color: null }
    for (const model of Bokeh.documents[0]._all_models.values()) {
      if (model.type === "Figure") model.setv(all)
      else if (/Axis$/.test(model.type)) model.setv(axis)
      else if (model.type === "Grid") model.setv({ grid_line_color: rule })
      else if (model.type === "Legend") model.setv(legend)
      else if (model.tags?.includes("ink")) model.setv({ line_color: ink })
    }
  }

  window.opuFuse = { choose: {} }
  document.addEventListener("DOMContentLoaded", () => {
    for (const script of document.querySelectorAll('script[id^="data-"]')) report(script)
    const points = document.getElementById("points")
    if (points) chart(points)
    const charts = document.querySelectorAll(".chart").length
    const wait = setInterval(() => {
      if (!(window.Bokeh?.documents[0]?.is_idle ?? charts === 0)) return
      clearInterval(wait)
      if (charts) paint()
      matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint)
      document.documentElement.dataset.ready = "true"
    }, 20)
  })
})()
