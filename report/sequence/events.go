package sequence

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/internal/cli"
)

// kind is the kind of an event. Of events at the same time, the lower kind is first: a packet arrives
// before the call that waits for it ends, and is sent after the call that sends it has begun.
type kind int

const (
	choiceMade kind = iota
	packetArrived
	callBegan
	callEnded
	rankEnded
	packetSent
	omitted // events that are not shown
	failed
)

// event is something that happens in the run. It is a step of the page unless it is packetSent.
type event struct {
	kind
	at    time.Duration
	lane  int // -1: all
	index int // of the call, of the packet, of the choice or of the rank
	other int // lane of the sender of a packet
	count int // of packets that are drawn as one, or of repeated calls, or of omitted events
	text  string
}

// Limits of what is shown.
const (
	maxEvents   = 4000 // of a diagram
	keptFirst   = 400  // of those that are too many
	keptLast    = 1600
	keptAround  = 60 // a choice
	maxQuiet    = 24 // packets between two events of other kinds
	keptOfQuiet = 4  // at each end, if there are more
)

// timeline is the list of events of a diagram.
type timeline struct {
	d              *Diagram
	lanes          []lane
	ofRank, ofHost []int
	events         []event
	// first and last are the events of the begin and the end of each call, by index; -1 if they are not shown.
	first, last []int
}

// newTimeline returns the events of a diagram, in their order.
func newTimeline(d *Diagram, withPackets bool) *timeline {
	t := &timeline{d: d}
	t.lanes, t.ofRank, t.ofHost = d.lanes()
	t.addCalls()
	for i, c := range d.Choices {
		t.events = append(t.events, event{kind: choiceMade, at: c.At, lane: -1, index: i, text: c.Text})
	}
	if withPackets {
		t.addPackets()
	}
	// A call begins and ends in one order on its rank, also if no time passes.
	slices.SortStableFunc(t.events, func(a, b event) int {
		order := func(k kind) kind {
			if k == callEnded || k == rankEnded {
				return callBegan
			}
			return k
		}
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(order(a.kind), order(b.kind)))
	})
	t.foldPackets()
	t.limit()
	if d.Failure != "" {
		end := time.Duration(0)
		if n := len(t.events); n > 0 {
			end = t.events[n-1].at
		}
		t.events = append(t.events, event{kind: failed, at: end, lane: -1, text: d.summary()})
	}
	t.findCalls()
	return t
}

// addCalls adds the calls and the ends of the ranks. Equal calls in a row, as of a poll, are one.
func (t *timeline) addCalls() {
	byRank := make([][]int, len(t.d.Ranks))
	received := map[int]bool{}
	for _, m := range t.d.Messages {
		received[m.To] = true
	}
	for i := range t.d.Calls {
		r := t.d.Calls[i].Rank
		byRank[r] = append(byRank[r], i)
	}
	for rank, calls := range byRank {
		lane := t.ofRank[rank]
		for i := 0; i < len(calls); {
			c := &t.d.Calls[calls[i]]
			end, n := c.End, 1
			for i+n < len(calls) && !received[calls[i+n-1]] && sameCall(c, &t.d.Calls[calls[i+n]]) {
				end = t.d.Calls[calls[i+n]].End
				n++
			}
			t.events = append(t.events, event{kind: callBegan, at: c.Begin, lane: lane, index: calls[i], count: n, text: c.text()})
			if end >= 0 {
				t.events = append(t.events, event{kind: callEnded, at: end, lane: lane, index: calls[i+n-1], count: n, text: c.Call + " returns"})
			}
			i += n
		}
		if r := &t.d.Ranks[rank]; r.End >= 0 {
			text := "ends"
			if r.Err != "" {
				text = "fails: " + cli.PrintableLine(r.Err)
			}
			t.events = append(t.events, event{kind: rankEnded, at: r.End, lane: lane, index: rank, text: text})
		}
	}
}

// sameCall reports whether two calls of a rank differ in their times only, and send nothing.
func sameCall(a, b *Call) bool {
	return a.Place == b.Place && a.Args == "" && b.Args == "" && a.Err == b.Err && a.End >= 0 && b.End >= 0
}

// addPackets adds the packets.
func (t *timeline) addPackets() {
	for i, p := range t.d.Packets {
		from, to := t.ofHost[p.From], t.ofHost[p.To]
		t.events = append(t.events, event{kind: packetSent, at: p.Sent, lane: from, index: i, other: to, count: 1})
		if !p.Lost {
			t.events = append(t.events, event{kind: packetArrived, at: p.Arrived, lane: to, other: from, index: i, count: 1, text: p.Text})
		}
	}
}

// foldPackets draws equal packets that arrive in their order as one, and leaves out most packets of long
// stretches without other events.
func (t *timeline) foldPackets() {
	gone := map[int]bool{} // packets that are part of another
	for from := 0; from < len(t.events); {
		until := from
		for until < len(t.events) && (t.events[until].kind == packetArrived || t.events[until].kind == packetSent) {
			until++
		}
		t.mergePackets(t.events[from:until], gone)
		from = until + 1
	}
	t.events = slices.DeleteFunc(t.events, func(e event) bool {
		return (e.kind == packetArrived || e.kind == packetSent) && gone[e.index]
	})
	t.omitQuiet()
}

// mergePackets counts packets of a stretch with the one before of the same hosts and text, unless they overtake.
func (t *timeline) mergePackets(events []event, gone map[int]bool) {
	type pair struct{ from, to int }
	last := map[pair]*event{}
	latest := map[pair]time.Duration{}
	for i := range events {
		e := &events[i]
		if e.kind != packetArrived {
			continue
		}
		k := pair{e.other, e.lane}
		p := &t.d.Packets[e.index]
		before := last[k]
		inOrder := p.Sent >= latest[k]
		latest[k] = max(latest[k], p.Sent)
		if before != nil && before.text == e.text && inOrder {
			before.count++
			gone[e.index] = true
			continue
		}
		last[k] = e
	}
}

// omitQuiet replaces the middle of long stretches of packets by an event of kind omitted.
func (t *timeline) omitQuiet() {
	kept := make([]event, 0, len(t.events))
	for from := 0; from < len(t.events); {
		if k := t.events[from].kind; k != packetArrived && k != packetSent {
			kept = append(kept, t.events[from])
			from++
			continue
		}
		until, arrived := from, 0
		for ; until < len(t.events) && (t.events[until].kind == packetArrived || t.events[until].kind == packetSent); until++ {
			if t.events[until].kind == packetArrived {
				arrived++
			}
		}
		stretch := t.events[from:until]
		if arrived > maxQuiet {
			stretch = omitMiddle(stretch, arrived)
		}
		kept = append(kept, stretch...)
		from = until
	}
	t.events = kept
}

// omitMiddle returns a stretch of packets with only the first and the last of those that arrived.
func omitMiddle(stretch []event, arrived int) (kept []event) {
	seen, packets := 0, 0
	var at time.Duration
	for _, e := range stretch {
		if e.kind == packetArrived {
			seen++
			if seen > keptOfQuiet && seen <= arrived-keptOfQuiet {
				packets += e.count
				at = e.at
				continue
			}
		}
		if seen > keptOfQuiet && packets > 0 && (len(kept) == 0 || kept[len(kept)-1].kind != omitted) && seen == arrived-keptOfQuiet+1 {
			kept = append(kept, event{kind: omitted, at: at, lane: -1, count: packets, text: cli.Plural(packets, "packet")})
		}
		kept = append(kept, e)
	}
	return kept
}

// limit leaves out events that are far from choices, from the first and from the last events, if there
// are too many.
func (t *timeline) limit() {
	n := len(t.events)
	if n <= maxEvents {
		return
	}
	keep := make([]bool, n)
	mark := func(from, to int) {
		for i := max(from, 0); i < min(to, n); i++ {
			keep[i] = true
		}
	}
	mark(0, keptFirst)
	mark(n-keptLast, n)
	for i, e := range t.events {
		if e.kind == choiceMade {
			mark(i-keptAround, i+keptAround)
		}
	}
	var kept []event
	for i, e := range t.events {
		switch {
		case keep[i]:
			kept = append(kept, e)
		case len(kept) > 0 && kept[len(kept)-1].kind == omitted:
			o := &kept[len(kept)-1]
			o.count++
			o.at, o.text = e.at, cli.Plural(o.count, "event")
		default:
			kept = append(kept, event{kind: omitted, at: e.at, lane: -1, count: 1, text: cli.Plural(1, "event")})
		}
	}
	t.events = kept
}

// findCalls sets first and last.
func (t *timeline) findCalls() {
	t.first, t.last = slices.Repeat([]int{-1}, len(t.d.Calls)), slices.Repeat([]int{-1}, len(t.d.Calls))
	for i, e := range t.events {
		switch e.kind {
		case callBegan:
			t.first[e.index] = i
		case callEnded:
			t.last[e.index] = i
		}
	}
}

// who names the lane of an event.
func (t *timeline) who(e *event) string {
	if e.lane < 0 {
		return ""
	}
	return t.lanes[e.lane].name
}

// describe returns the event as a line of text.
func (t *timeline) describe(e *event) string {
	switch e.kind {
	case packetArrived:
		text := fmt.Sprintf("%s → %s: %s", t.lanes[e.other].name, t.who(e), e.text)
		if e.count > 1 {
			text = fmt.Sprintf("%s → %s: %d × %s", t.lanes[e.other].name, t.who(e), e.count, e.text)
		}
		return text
	case packetSent: // only of a packet that was lost
		return fmt.Sprintf("%s → %s: %s does not arrive", t.who(e), t.lanes[e.other].name, t.d.Packets[e.index].Text)
	case callBegan, callEnded:
		text := t.who(e) + ": " + e.text
		if e.count > 1 {
			text += fmt.Sprintf(" (%d times)", e.count)
		}
		c := &t.d.Calls[e.index]
		if e.kind == callEnded && c.Err != "" {
			text += ": " + cli.PrintableLine(c.Err)
		}
		return text
	case rankEnded:
		return t.who(e) + " " + e.text
	case omitted:
		return "… " + e.text
	case choiceMade:
		return e.text
	case failed:
		return "FAILED: " + e.text
	}
	return ""
}

// isStep reports whether the event is a step of its own: a packet is one when it arrives or is lost.
func (t *timeline) isStep(e *event) bool {
	return e.kind != packetSent || t.d.Packets[e.index].Lost
}
