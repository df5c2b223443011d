package kernel

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/emu/impair"
)

// Impairment has the random impairments of a guest's link.
type Impairment struct {
	Out []impair.Spec `json:"out,omitempty"` // from the guest
	In  []impair.Spec `json:"in,omitempty"`  // to it
}

// Empty reports whether there are no impairments.
func (m Impairment) Empty() bool { return len(m.Out) == 0 && len(m.In) == 0 }

func (m Impairment) check() error {
	var errs []error
	for _, dir := range []struct {
		name  string
		specs []impair.Spec
	}{{"out", m.Out}, {"in", m.In}} {
		for i := range dir.specs {
			if err := dir.specs[i].Validate(); err != nil {
				errs = append(errs, fmt.Errorf("impairment %s[%d]: %w", dir.name, i, err))
			}
		}
	}
	return errors.Join(errs...)
}

// Link is the state of a guest's link.
type Link struct {
	Down bool `json:"down,omitempty"`
	// Switched is true if the link passes through the user-space switch, from its
	// first impairment on.
	Switched bool `json:"switched,omitempty"`
	// Broken is the error of the switch, if it has failed.
	Broken string `json:"broken,omitempty"`
	Impairment
	// Sent and Received are the counters of a switched link, from and to the guest.
	Sent     LinkCounters `json:"sent,omitzero"`
	Received LinkCounters `json:"received,omitzero"`
}

// LinkCounters are the counters of one direction, while it is impaired.
type LinkCounters struct {
	Packets    uint64 `json:"packets,omitempty"` // that were impaired
	Lost       uint64 `json:"lost,omitempty"`
	Duplicated uint64 `json:"duplicated,omitempty"`
	Reordered  uint64 `json:"reordered,omitempty"`
	Corrupted  uint64 `json:"corrupted,omitempty"`
	Marked     uint64 `json:"marked,omitempty"`
	// Dropped counts the packets that the switch itself dropped.
	Dropped uint64 `json:"dropped,omitempty"`
}

func countersOf(c impair.Counters, dropped uint64) LinkCounters {
	return LinkCounters{
		Packets: c.Offered, Lost: c.Lost + c.LostInBurst + c.Overflowed, Duplicated: c.Duplicated, Reordered: c.Reordered,
		Corrupted: c.Corrupted + c.Truncated, Marked: c.Marked, Dropped: dropped,
	}
}
