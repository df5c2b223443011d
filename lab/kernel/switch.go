package kernel

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/emu/impair"
)

// Impairment is what packets meet on a guest's link by chance. The zero value is
// nothing.
type Impairment struct {
	Out []impair.Spec `json:"out,omitempty"` // from the guest
	In  []impair.Spec `json:"in,omitempty"`  // to it
}

// None reports that everything passes.
func (m Impairment) None() bool { return len(m.Out) == 0 && len(m.In) == 0 }

// check says what makes no sense.
func (m Impairment) check() error {
	var errs []error
	for _, way := range []struct {
		name  string
		specs []impair.Spec
	}{{"out", m.Out}, {"in", m.In}} {
		for i := range way.specs {
			if err := way.specs[i].Validate(); err != nil {
				errs = append(errs, fmt.Errorf("impairment %s[%d]: %w", way.name, i, err))
			}
		}
	}
	return errors.Join(errs...)
}

// Link is how a guest's link is.
type Link struct {
	Down bool `json:"down,omitempty"`
	// Switched says that the link passes through user space, as it does from its first
	// impairment on.
	Switched bool `json:"switched,omitempty"`
	// Broken is why nothing passes any more, if the switch itself has failed.
	Broken string `json:"broken,omitempty"`
	Impairment
	// Sent and Received count what came to a switched link, from the guest and for it.
	Sent     LinkCounters `json:"sent,omitzero"`
	Received LinkCounters `json:"received,omitzero"`
}

// LinkCounters count one way of a link, while it is impaired.
type LinkCounters struct {
	Packets    uint64 `json:"packets,omitempty"` // that met the impairment
	Lost       uint64 `json:"lost,omitempty"`
	Duplicated uint64 `json:"duplicated,omitempty"`
	Reordered  uint64 `json:"reordered,omitempty"`
	Corrupted  uint64 `json:"corrupted,omitempty"`
	Marked     uint64 `json:"marked,omitempty"`
	// Dropped is what the switch itself has lost, impaired or not.
	Dropped uint64 `json:"dropped,omitempty"`
}

func countersOf(c impair.Counters, dropped uint64) LinkCounters {
	return LinkCounters{
		Packets: c.Offered, Lost: c.Lost + c.LostInBurst + c.Overflowed, Duplicated: c.Duplicated, Reordered: c.Reordered,
		Corrupted: c.Corrupted + c.Truncated, Marked: c.Marked, Dropped: dropped,
	}
}
