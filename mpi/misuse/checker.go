package misuse

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/explore"
)

// Options configure a Checker.
type Options struct {
	// Synchronous is for finding programs that depend on buffering: standard sends wait for their
	// receives, and blocking collectives for all ranks. A deadlock is then of the kind Unsafe, so that the
	// program must first run without.
	Synchronous bool
	// MessageRaces reports receives from any source that could have matched another message. Only an
	// exploration can say whether that matters.
	MessageRaces bool
	// OnlyWaits reports nothing: the checker only explains the waits of a run that hangs (WaitGraph).
	OnlyWaits bool
	// Without are kinds of findings that are not reported.
	Without []string
}

// patience is how long a rank must have waited before it can be part of a deadlock: as long as sends
// may still complete by themselves, in spite of lost packets.
const patience = 5 * time.Second

// maxPolls is how many polls in a row, with no other call of any rank, make a livelock.
const maxPolls = 5_000

// Checker checks the calls of the ranks of one run. It is not safe for concurrent use: in simulation,
// one rank runs at a time.
type Checker struct {
	o        Options
	findings []explore.Finding
	ranks    []*Rank
	comms    map[CommID]*comm
	windows  map[CommID]*sharedWindow
	// sends have no known receive, and receives no known message, by the receiving rank.
	sends, receives [][]*Op
	calls           int // of all ranks, without repeated polls
	nextCheck       time.Duration
	ended           int
	failed          bool // a rank returned an error
	stop            *explore.Finding
}

// New returns a checker for one run.
func New(o Options) *Checker {
	return &Checker{o: o, comms: map[CommID]*comm{}, windows: map[CommID]*sharedWindow{}}
}

// Findings returns the errors that were found so far. The same error of several ranks is one finding.
func (c *Checker) Findings() []explore.Finding { return slices.Clone(c.findings) }

// Options returns the options of the checker.
func (c *Checker) Options() Options { return c.o }

// Stop returns the finding after which the run cannot continue; nil if there is none.
func (c *Checker) Stop() *explore.Finding { return c.stop }

// String returns the findings as text; empty if there are none.
func (c *Checker) String() string {
	var b strings.Builder
	for i := range c.findings {
		b.WriteString(Text(&c.findings[i]))
	}
	return b.String()
}

// Text returns a finding as lines of text.
func Text(f *explore.Finding) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", f.Kind, f.Text)
	for _, p := range f.Places {
		fmt.Fprintf(&b, "    rank %d: %s\n", p.Rank, at(p))
	}
	if cure := cures[f.Kind]; cure != "" {
		fmt.Fprintf(&b, "    cure: %s\n", cure)
	}
	return b.String()
}

// at names a call with its place in the source.
func at(p explore.Place) string {
	if p.Line == 0 {
		return p.Call
	}
	return fmt.Sprintf("%s at %s:%d", p.Call, shortPath(p.File), p.Line)
}

// shortPath returns the last two elements of a path.
func shortPath(file string) string {
	parts := strings.Split(file, "/")
	return strings.Join(parts[max(0, len(parts)-2):], "/")
}

// report adds a finding, unless its kind is switched off. The same calls of other ranks are added to the
// finding that they have.
func (c *Checker) report(kind, text string, places ...explore.Place) *explore.Finding {
	if c.o.OnlyWaits || slices.Contains(c.o.Without, kind) {
		return nil
	}
	for i := range c.findings {
		f := &c.findings[i]
		if f.Kind != kind || !sameCalls(f.Places, places) {
			continue
		}
		for _, p := range places {
			if !slices.Contains(f.Places, p) {
				f.Places = append(f.Places, p)
			}
		}
		return f
	}
	c.findings = append(c.findings, explore.Finding{Kind: kind, Text: text, Places: places})
	return &c.findings[len(c.findings)-1]
}

// sameCalls reports whether calls are at the same places of the source as the first of a finding.
func sameCalls(has, calls []explore.Place) bool {
	if len(has) < len(calls) || len(calls) == 0 {
		return false
	}
	for i, p := range calls {
		p.Rank = has[i].Rank
		if p != has[i] {
			return false
		}
	}
	return true
}

// reportFatal adds a finding after which the run cannot continue.
func (c *Checker) reportFatal(kind, text string, places ...explore.Place) {
	if f := c.report(kind, text, places...); f != nil && c.stop == nil {
		stop := *f
		c.stop = &stop
	}
}

// Rank is one rank, as the checker sees it.
type Rank struct {
	c        *Checker
	rank     int
	ended    bool
	requests []*Request
	matched  []*Op // messages of Mprobe that are not received yet
	took     []*Op // completed receives from any source, with what they matched
	comms    []*Comm
	windows  []*Window
	clock    []uint32 // vector clock, by rank; nil unless Options.MessageRaces is set

	wait      *Wait
	since     time.Duration // of the wait
	polled    *Wait         // of the last unsuccessful test
	polls     int           // in a row
	pollCalls int           // Checker.calls at the first of them
}

// Rank adds a rank of a program with a number of ranks.
func (c *Checker) Rank(rank, size int) *Rank {
	if c.ranks == nil {
		c.ranks = make([]*Rank, size)
		c.sends, c.receives = make([][]*Op, size), make([][]*Op, size)
	}
	r := &Rank{c: c, rank: rank}
	if c.o.MessageRaces {
		r.clock = make([]uint32, size)
	}
	c.ranks[rank] = r
	return r
}

// tick counts a call of the rank, and advances its clock.
func (r *Rank) tick() {
	r.c.calls++
	r.polls = 0
	if r.clock != nil {
		r.clock[r.rank]++
	}
}

// Error reports a call that the runtime refused.
func (r *Rank) Error(kind string, err error, place explore.Place) {
	r.c.report(kind, strings.TrimPrefix(err.Error(), kind+": "), place)
}

// End records that the program of the rank has returned. With the last rank, it looks for what is left.
func (r *Rank) End(failed bool) {
	r.tick()
	r.ended, r.wait = true, nil
	c := r.c
	c.failed = c.failed || failed
	c.ended++
	if c.failed {
		return
	}
	for _, m := range r.comms {
		m.memberEnded()
	}
	if c.ended == len(c.ranks) && c.stop == nil {
		c.reportLeft()
	}
}
