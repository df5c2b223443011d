package fuzz_test

import (
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// ledger is what was posted to one queue, and what has become of it.
type ledger struct {
	name string
	// ordered says that requests complete in the order in which they were posted; those
	// of a shared receive queue, and of several senders, need not.
	ordered bool
	posted  []entry
	first   uint64 // ID of posted[0]
}

type entry struct {
	signaled bool
	over     bool // complete, or known to be by a later one
	excused  bool // its queue was reset or closed: nobody may expect a completion
}

// add notes a request and returns its ID.
func (l *ledger) add(signaled bool) uint64 {
	l.posted = append(l.posted, entry{signaled: signaled})
	return l.first + uint64(len(l.posted)-1)
}

// nextID is the ID of the request that add would note.
func (l *ledger) nextID() uint64 { return l.first + uint64(len(l.posted)) }

// complete notes a completion, or says what is wrong with it.
func (l *ledger) complete(wc *verbs.WC) error {
	i := int(wc.WRID - l.first)
	if i >= len(l.posted) {
		return fmt.Errorf("%s: completion of request %d, and only %d were posted: %+v", l.name, i, len(l.posted), *wc)
	}
	e := &l.posted[i]
	switch {
	case e.over:
		return fmt.Errorf("%s: request %d completes when it was complete already: %+v", l.name, i, *wc)
	case !e.signaled && wc.Status == verbs.WCSuccess:
		return fmt.Errorf("%s: request %d was not signaled and has a completion: %+v", l.name, i, *wc)
	}
	e.over = true
	for k := range l.posted[:i] {
		if before := &l.posted[k]; l.ordered && !before.over {
			if before.signaled && !before.excused {
				return fmt.Errorf("%s: request %d completes before request %d: %+v", l.name, i, k, *wc)
			}
			before.over = true
		}
	}
	return nil
}

// left says which request never completed. Without a completion of its own may only
// be what nobody asked one of.
func (l *ledger) left() error {
	for i, e := range l.posted {
		if e.signaled && !e.over && !e.excused {
			return fmt.Errorf("%s: request %d of %d has no completion", l.name, i, len(l.posted))
		}
	}
	return nil
}

// books are the ledgers of a device. IDs say which one is meant.
type books struct{ all []*ledger }

const ledgerBits = 16

func (b *books) open(name string, ordered bool) *ledger {
	l := &ledger{name: name, ordered: ordered, first: uint64(len(b.all)) << ledgerBits}
	b.all = append(b.all, l)
	return l
}

func (b *books) complete(wc *verbs.WC) error {
	i := wc.WRID >> ledgerBits
	if i >= uint64(len(b.all)) {
		return fmt.Errorf("completion of a request that nobody posted: %+v", *wc)
	}
	return b.all[i].complete(wc)
}
