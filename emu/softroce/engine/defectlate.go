package engine

import (
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/verbs"
)

const (
	placementDelay = 10 * time.Microsecond // Defects.LatePlacement
	swapWait       = time.Millisecond      // Defects.ReceivesSwapped
)

// agenda is what a NIC does later than it should, in the order of time.
type agenda []appointment

type appointment struct {
	at mono.Time
	do func()
}

func (a *agenda) add(at mono.Time, do func()) {
	i, _ := slices.BinarySearchFunc(*a, at, func(x appointment, at mono.Time) int {
		if x.at <= at {
			return -1
		}
		return 1
	})
	*a = slices.Insert(*a, i, appointment{at, do})
}

func (a agenda) next() mono.Time {
	if len(a) == 0 {
		return mono.Never
	}
	return a[0].at
}

func (a *agenda) run(now mono.Time) {
	for len(*a) > 0 && a.next() <= now {
		next, _ := nic.PopFront((*[]appointment)(a))
		next.do()
	}
}

// keptWC is a receive completion that waits to be overtaken.
type keptWC struct {
	wc        verbs.WC
	cq        *nic.CQ
	solicited bool
}

// swapRecv keeps back every second receive completion until the next has gone by,
// or there is none for a while (Defects.ReceivesSwapped).
func (q *QP) swapRecv(cq *nic.CQ, wc *verbs.WC) bool {
	r := &q.resp
	kept := r.kept
	switch {
	case kept == nil && wc.Status != verbs.WCSuccess:
		return q.pushTo(cq, wc, r.solicited)
	case kept == nil:
		kept = &keptWC{*wc, cq, r.solicited}
		r.kept = kept
		q.nic.later.add(q.nic.now.Add(swapWait), func() {
			if r.kept == kept {
				r.kept = nil
				q.pushTo(kept.cq, &kept.wc, kept.solicited)
			}
		})
		return true
	}
	r.kept = nil
	if wc.Status != verbs.WCSuccess { // nothing overtakes when the QP fails
		return q.pushTo(kept.cq, &kept.wc, kept.solicited) && q.pushTo(cq, wc, r.solicited)
	}
	return q.pushTo(cq, wc, r.solicited) && q.pushTo(kept.cq, &kept.wc, kept.solicited)
}
