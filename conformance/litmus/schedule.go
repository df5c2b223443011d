package litmus

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/verbs"
)

// schedule holds the random choices of one run of a test.
type schedule struct {
	// active is the host whose queue pairs access the other's memory.
	active int
	fences bool
	path   conformance.Path
	// batched: the requests of a thread are posted in one call. Otherwise there is a
	// pause before each.
	batched []bool
	pauses  [][]time.Duration
}

// String summarizes the schedule.
func (s *schedule) String() string {
	text := "the device is the requester"
	if s.active == 1 {
		text = "the device is the responder"
	}
	if !s.fences {
		text += ", without fences"
	}
	if s.path != (conformance.Path{}) {
		text += fmt.Sprintf(", %d ppm loss, %d ppm duplicates, %v jitter", s.path.LossPPM, s.path.DuplicatePPM, s.path.Jitter)
	}
	return text
}

// Impairments that schedules use in turn. The loss rates are low enough that no request
// exceeds its retries: eight losses in a row have a probability of 1e-8.
//
// InfiniBand fabrics, and networks for RoCE, neither reorder nor duplicate packets of a
// connection. A requester may take a duplicate of an earlier READ response for a later
// one, and the specification promises nothing then. Reliable datagrams have to work on
// networks that do both.
var (
	orderedPaths = []conformance.Path{
		{},
		{LossPPM: 50_000},
		{LossPPM: 50_000, Jitter: 20 * time.Microsecond, KeepOrder: true},
		{LossPPM: 20_000, Jitter: 100 * time.Microsecond, KeepOrder: true},
	}
	datagramPaths = []conformance.Path{
		{},
		{LossPPM: 50_000},
		{Jitter: 10 * time.Microsecond},
		{LossPPM: 30_000, DuplicatePPM: 200_000, Jitter: 20 * time.Microsecond},
	}
)

// paths returns the impairments that the device's transport must tolerate.
func paths(caps verbs.Caps) []conformance.Path {
	if caps.Has(verbs.CapRD) {
		return datagramPaths
	}
	return orderedPaths
}

// maxPause is the longest pause before a request.
const maxPause = 20 * time.Microsecond

// draw returns schedule number i.
func (l *litmus) draw(i int) *schedule {
	rand := l.pair.DUT.Rand
	s := &schedule{active: i % 2, fences: !l.hasFences() || i/2%2 == 0}
	all := paths(l.pair.DUT.Caps)
	if s.path = all[i/4%len(all)]; !l.pair.SetPath(s.path) {
		s.path = conformance.Path{}
	}
	for _, th := range l.Threads {
		s.batched = append(s.batched, rand.IntN(2) == 0)
		pauses := make([]time.Duration, len(th))
		for k := range pauses {
			pauses[k] = time.Duration(rand.Int64N(int64(maxPause)))
		}
		s.pauses = append(s.pauses, pauses)
	}
	return s
}
