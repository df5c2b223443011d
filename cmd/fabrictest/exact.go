package main

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/scenarios/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// The exact network loses three packets that are named beforehand, and no
// other: the first transmission of the last packet from A, and the first and
// the second of the last from B. Every message is one packet, and nothing
// follows the last, so that just those three packets must be sent again.

// exactPSNs are where the numbers of the two sides begin: far enough apart that
// a number also tells whose request a packet belongs to.
var exactPSNs = [2]uint32{0x100000, 0x800000}

const (
	exactBytes  = 1024
	exactLosses = 3
)

// exactEvents are what happens to the packets that a side sends.
func exactEvents(side, messages int) (events []impair.Event) {
	last := exactPSNs[side] + uint32(messages) - 1
	for time := 1; time <= 1+side; time++ {
		events = append(events, impair.Event{Match: impair.Match{Seq: &last}, Time: time, Action: impair.Action{Kind: impair.Drop}})
	}
	return events
}

// exactly gives a lane messages of one packet each.
func exactly(l *traffic.Lane) {
	l.FirstPSN = exactPSNs
	l.MinBytes, l.MaxBytes = exactBytes, exactBytes
	l.Mix = []verbs.WROpcode{verbs.OpSend, verbs.OpSendImm}
}

// unfired reports events that did not happen, or could not do what they say: a
// scenario that ends with any has not shown what it claims.
func (f *fabric) unfired() error {
	var errs []error
	for _, p := range f.net.Ports() {
		up, _ := p.Impairments()
		if up == nil {
			continue
		}
		if err := up.Err(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p.Name(), err))
		}
		for _, e := range up.Unfired() {
			errs = append(errs, fmt.Errorf("%s: %s", p.Name(), describe(&e)))
		}
	}
	return errors.Join(errs...)
}

func describe(e *impair.Event) string {
	text := fmt.Sprintf("event %s never happened", e.Action.Kind)
	if e.Match.Seq != nil {
		text += fmt.Sprintf(": no packet with PSN %#x was sent", *e.Match.Seq)
	}
	if e.Time > 1 {
		text += fmt.Sprintf(" %d times", e.Time)
	}
	return text
}
