package litmus

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/verbs"
)

// schedule is all that chance decides.
type schedule struct {
	// active is the host whose queue pairs work on the other's memory.
	active int
	fences bool
	path   conformance.Path
	// together has a thread's requests posted in one call. Else there are pauses
	// before them.
	together []bool
	pauses   [][]time.Duration
}

// String tells what matters.
func (s *schedule) String() string {
	who := "the device asks"
	if s.active == 1 {
		who = "the device is asked"
	}
	if !s.fences {
		who += ", without fences"
	}
	if s.path != (conformance.Path{}) {
		who += fmt.Sprintf(", %d ppm lost, %d ppm twice, %v jitter", s.path.LossPPM, s.path.DuplicatePPM, s.path.Jitter)
	}
	return who
}

// Paths that schedules take by turns, if the bench has them. They lose so few packets
// that no request is given up: eight losses in a row come once in a hundred million.
//
// A fabric of InfiniBand, and what is to carry RoCE, neither reorders the packets of a
// connection nor repeats them: a requester may take a copy of an earlier answer to a
// READ for a later one, and nothing is promised then. Reliable datagrams are made for
// networks that do both.
var (
	orderly = []conformance.Path{
		{},
		{LossPPM: 50_000},
		{LossPPM: 50_000, Jitter: 20 * time.Microsecond, KeepOrder: true},
		{LossPPM: 20_000, Jitter: 100 * time.Microsecond, KeepOrder: true},
	}
	wild = []conformance.Path{
		{},
		{LossPPM: 50_000},
		{Jitter: 10 * time.Microsecond},
		{LossPPM: 30_000, DuplicatePPM: 200_000, Jitter: 20 * time.Microsecond},
	}
)

// paths are those for a device.
func paths(caps verbs.Caps) []conformance.Path {
	if caps.Has(verbs.CapRD) {
		return wild
	}
	return orderly
}

// longest is the longest pause before a request.
const longest = 20 * time.Microsecond

// draw draws the schedule number i.
func (l *litmus) draw(i int) *schedule {
	rand := l.p.Near.Rand
	s := &schedule{active: i % 2, fences: !l.hasFences() || i/2%2 == 0}
	all := paths(l.p.Near.Caps)
	if s.path = all[i/4%len(all)]; !l.p.Shake(s.path) {
		s.path = conformance.Path{}
	}
	for _, th := range l.Threads {
		s.together = append(s.together, rand.IntN(2) == 0)
		pauses := make([]time.Duration, len(th))
		for k := range pauses {
			pauses[k] = time.Duration(rand.Int64N(int64(longest)))
		}
		s.pauses = append(s.pauses, pauses)
	}
	return s
}
