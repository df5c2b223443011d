// Package evidence converts the record of a conformance case for readers: to a ladder
// diagram, and to a capture for Wireshark. It knows no protocol; the suite formats events.
//
// The record must be complete.
package evidence

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/report/conform"
)

// A ladder is limited in length. Steps in the middle are omitted, since the setup is at the
// beginning and the failure at the end.
const (
	firstSteps = 60
	lastSteps  = 140
)

var kinds = map[conformance.EventKind]string{
	conformance.EventNote: conform.Note, conformance.EventSent: conform.Sent, conformance.EventReceived: conform.Came,
	conformance.EventSentFIN: conform.FinSent, conformance.EventReceivedFIN: conform.FinCame, conformance.EventReset: conform.Reset,
}

// inOrder returns the events of a record by time. The record has packets in the order in
// which the case received them from its queue.
func inOrder(r *conformance.Record) (events []conformance.Event, beyond int) {
	kept, beyond := r.Events()
	events = slices.DeleteFunc(slices.Clone(kept), func(e conformance.Event) bool {
		return e.Stream > 0 && r.Stream(e.Stream).InPackets // its packets are recorded as well
	})
	slices.SortStableFunc(events, func(a, b conformance.Event) int { return cmp.Compare(a.At, b.At) })
	return events, beyond
}

// Ladder returns the ladder diagram of a case; line formats an event. A long record is
// shortened, with the number of omitted events.
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
