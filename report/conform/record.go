package conform

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
)

// A ladder is limited in length. Steps in the middle are omitted, since the setup is at the
// beginning and the failure at the end.
const (
	firstSteps = 60
	lastSteps  = 140
)

var kinds = map[conformance.EventKind]string{
	conformance.EventNote: Note, conformance.EventSent: Sent, conformance.EventReceived: Came,
	conformance.EventSentFIN: FinSent, conformance.EventReceivedFIN: FinCame, conformance.EventReset: Reset,
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

// NewLadder returns the ladder diagram of a case; line formats an event. A long record is
// shortened, with the number of omitted events.
func NewLadder(r *conformance.Record, line func(*conformance.Event) string) *Ladder {
	events, beyond := inOrder(r)
	l := &Ladder{Beyond: beyond, Steps: []Step{}}
	if n := len(events) - firstSteps - lastSteps; n > 1 {
		l.Beyond += n
		events = slices.Delete(events, firstSteps, firstSteps+n)
	}
	for i := range events {
		if l.Beyond > 0 && i == firstSteps {
			l.Steps = append(l.Steps, Step{At: events[i].At, Kind: Gap, Text: fmt.Sprintf("%d more", l.Beyond)})
		}
		e := &events[i]
		l.Steps = append(l.Steps, Step{At: e.At, Kind: kinds[e.Kind], Text: line(e), Stream: e.Stream})
	}
	return l
}
