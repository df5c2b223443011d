package sequence

// Heights of rows.
const (
	rowHeight     = 18.0
	sentHeight    = 7.0  // of a row in which packets are sent only
	choiceHeight  = 26.0 // of choices, failures and omitted events
	headerPadding = 10.0
)

// row is a row of the drawing: events of different lanes, in the order of time.
type row struct {
	events []int
	y      float64 // of its middle
	height float64
	whole  bool // a choice, a failure or omitted events, which go over all lanes
}

// layOut puts each event into the row of the one before unless its lane has an event there, and returns the
// rows, the row of each event, and the height of all.
func (t *timeline) layOut() (rows []row, of []int, height float64) {
	of = make([]int, len(t.events))
	used := map[int]int{} // event of each lane in the last row
	for i := range t.events {
		e := &t.events[i]
		whole := e.lane < 0
		before, isUsed := used[e.lane]
		if isUsed && e.kind == callEnded && t.events[before].kind == callBegan && t.events[before].at == e.at {
			isUsed = false // no time has passed
		}
		if last := len(rows) - 1; last < 0 || whole || rows[last].whole || isUsed {
			rows = append(rows, row{whole: whole, height: sentHeight})
			clear(used)
		}
		r := &rows[len(rows)-1]
		used[e.lane] = i
		r.events = append(r.events, i)
		of[i] = len(rows) - 1
		switch {
		case whole:
			r.height = choiceHeight
		case t.isStep(e):
			r.height = max(r.height, rowHeight)
		}
	}
	height = headerPadding
	for i := range rows {
		rows[i].y = height + rows[i].height/2
		height += rows[i].height
	}
	return rows, of, height + headerPadding
}
