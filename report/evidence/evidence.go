// Package evidence makes of the record of a conformance case what people look at: a
// ladder of what happened, step by step, and a capture for Wireshark. It judges
// nothing, and knows of a protocol only what its suite tells in words.
//
// A record may be looked at while nothing is added to it any more.
package evidence

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/report/conform"
)

// A ladder is as long as somebody reads: the steps in the middle of a longer one are
// left out, since it begins with what was set up and ends with what went wrong.
const (
	firstSteps = 60
	lastSteps  = 140
)

var kinds = map[conformance.EventKind]string{
	conformance.EventNote: conform.Note, conformance.EventSent: conform.Sent, conformance.EventCame: conform.Came,
	conformance.EventSentEnd: conform.FinSent, conformance.EventCameEnd: conform.FinCame, conformance.EventReset: conform.Reset,
}

// inOrder returns the events of a record by their times: a packet is in the record
// where the judge looked at it, which may be later than it came.
func inOrder(r *conformance.Record) (events []conformance.Event, beyond int) {
	kept, beyond := r.Events()
	events = slices.DeleteFunc(slices.Clone(kept), func(e conformance.Event) bool {
		return e.Stream > 0 && r.Ends(e.Stream).InPackets // its packets say more
	})
	slices.SortStableFunc(events, func(a, b conformance.Event) int { return cmp.Compare(a.At, b.At) })
	return events, beyond
}

// Ladder tells what happened in a case, in the words of its suite.
func Ladder(r *conformance.Record, line func(*conformance.Event) string) *conform.Ladder {
	events, beyond := inOrder(r)
	l := &conform.Ladder{Beyond: beyond, Steps: []conform.Step{}}
	if n := len(events) - firstSteps - lastSteps; n > 1 {
		l.Beyond += n
		events = slices.Delete(events, firstSteps, firstSteps+n)
	}
	for i := range events {
		if l.Beyond > 0 && i == firstSteps {
			l.Steps = append(l.Steps, conform.Step{At: events[i].At, Kind: conform.Gap, Text: fmt.Sprintf("%d more", l.Beyond)})
		}
		e := &events[i]
		l.Steps = append(l.Steps, conform.Step{At: e.At, Kind: kinds[e.Kind], Text: line(e), Stream: e.Stream})
	}
	return l
}
