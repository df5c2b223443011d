package interop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Verdict is what became of a case.
type Verdict string

// The verdicts.
const (
	Pass        Verdict = "pass"
	Fail        Verdict = "fail"
	Unsupported Verdict = "unsupported" // one of the ends has not the operation
	Known       Verdict = "known"       // it failed, as it was known to
	Stale       Verdict = "stale"       // it passed, and was known to fail
)

// Exception is a failure that is known, and whose reason is.
type Exception struct {
	Pattern       string // of cases, as in Matching
	ErrorContains string // what the failure has to say, or else it is another
	Reason        string
	// Sometimes says that the case passes, too.
	Intermittent bool
}

// Result is a case and what became of it.
type Result struct {
	Case    Case
	Verdict Verdict
	Why     string // if it did not pass
	Took    time.Duration
}

// Suite is two devices that can reach each other. Ours and Theirs are needed.
type Suite struct {
	Ours, Theirs *End
	// Lossy says that packets are lost on the way, so that what is not acknowledged may
	// not arrive.
	Lossy bool
	// Patience is how long anything may take; 30 s.
	Timeout time.Duration
	// AckTimeout is how soon queue pairs that are connected by hand send again, as verbs
	// count it; 16, which is 0.27 s, for one end may be an emulated machine on a busy one.
	AckTimeout uint8
	// Settle is how long ends may take to let go of the last of many connections; 30 s.
	// InfiniBand's connection manager keeps a number for a while, so that late packets do
	// not find another.
	CloseTimeout time.Duration
	// Exceptions are the failures that are known.
	Exceptions []Exception
	// Report is told of each case when it has ended; nil if nobody cares.
	OnResult func(Result)

	sides map[Family]map[Side]*side
}

// prepare looks at both devices.
func (s *Suite) prepare() error {
	if s.sides != nil {
		return nil
	}
	s.AckTimeout = cmp.Or(s.AckTimeout, 16)
	s.Timeout, s.CloseTimeout = cmp.Or(s.Timeout, 30*time.Second), cmp.Or(s.CloseTimeout, 30*time.Second)
	if s.OnResult == nil {
		s.OnResult = func(Result) {}
	}
	sides := make(map[Family]map[Side]*side)
	for _, family := range []Family{IPv4, IPv6} {
		if s.Ours.Devices[family] == nil || s.Theirs.Devices[family] == nil {
			continue
		}
		ours, err := newSide(s.Ours, Ours, family, s.Timeout)
		if err != nil {
			return err
		}
		theirs, err := newSide(s.Theirs, Theirs, family, s.Timeout)
		if err != nil {
			return err
		}
		if ours.streams() != theirs.streams() {
			return errors.New("the two devices do not speak the same protocol")
		}
		sides[family] = map[Side]*side{Ours: ours, Theirs: theirs}
	}
	if len(sides) == 0 {
		return errors.New("the two devices have no address family in common")
	}
	s.sides = sides
	return nil
}

// PacketPayload is how much data a packet between the two carries over InfiniBand.
func (s *Suite) PacketPayload() (int, error) {
	if err := s.prepare(); err != nil {
		return 0, err
	}
	least := verbs.MTU4096
	for _, both := range s.sides {
		for _, side := range both {
			least = min(least, side.port.ActiveMTU)
		}
	}
	return least.Bytes(), nil
}

// Run runs cases in order, those of a row on one connection. The error is of what kept
// it from going on: a case that fails is none.
func (s *Suite) Run(ctx context.Context, cases []Case) (failed int, err error) {
	if err := s.prepare(); err != nil {
		return 0, err
	}
	for len(cases) > 0 {
		n := 1
		for n < len(cases) && cases[n].Row() == cases[0].Row() {
			n++
		}
		bad, err := s.row(ctx, cases[:n])
		failed += bad
		if err != nil {
			return failed, err
		}
		cases = cases[n:]
	}
	return failed, nil
}

// row runs the cases of a row. Each has a new connection that follows one which failed
// or had to break its own.
func (s *Suite) row(ctx context.Context, cases []Case) (failed int, err error) {
	op, err := find(cases[0].Op)
	if err != nil {
		return 0, err
	}
	if why := s.lacks(op, &cases[0]); why != "" {
		for _, c := range cases {
			s.OnResult(Result{Case: c, Verdict: Unsupported, Why: why})
		}
		return 0, nil
	}
	r := recipe{service: op.service, way: cases[0].Method, family: cases[0].Family, inline: op.inline}
	if op.shared {
		r.shared = cases[0].By.other()
	}
	var l *link
	for i, c := range cases {
		if ctx.Err() != nil {
			err := context.Cause(ctx)
			if l != nil {
				err = errors.Join(err, l.end())
			}
			return failed, err
		}
		began := time.Now()
		var err error
		if l == nil {
			l, err = s.connect(r)
		}
		if err == nil {
			err = l.exchange(c, op, seedOf(c))
		}
		if l != nil && (err != nil || l.gone || i == len(cases)-1) {
			l.gone = l.gone || err != nil
			err = errors.Join(err, l.end())
			l = nil
		}
		res := s.judge(c, err, time.Since(began))
		if res.Verdict == Fail || res.Verdict == Stale {
			failed++
		}
		s.OnResult(res)
		if why := s.dead(); why != nil {
			return failed, why
		}
	}
	return failed, nil
}

// dead says that a device does not answer any more, so that there is no going on.
func (s *Suite) dead() error {
	for _, both := range s.sides {
		for _, side := range both {
			if err := side.look(); err != nil {
				return fmt.Errorf("there is no going on: %w", err)
			}
		}
	}
	return nil
}

func (s *Suite) judge(c Case, err error, took time.Duration) Result {
	res := Result{Case: c, Verdict: Pass, Took: took}
	var known *Exception
	for i := range s.Exceptions {
		if m, err := Matching([]Case{c}, s.Exceptions[i].Pattern); err == nil && len(m) == 1 {
			known = &s.Exceptions[i]
		}
	}
	switch {
	case err != nil && known != nil && strings.Contains(err.Error(), known.ErrorContains):
		res.Verdict, res.Why = Known, known.Reason
	case err != nil:
		res.Verdict, res.Why = Fail, err.Error()
	case known != nil && !known.Intermittent:
		res.Verdict, res.Why = Stale, "it passes now, and was known to fail: "+known.Reason
	}
	return res
}

// lacks says which of the ends cannot do an operation.
func (s *Suite) lacks(op *operation, c *Case) string {
	both := s.sides[c.Family]
	if both == nil {
		return "one of the ends has no address of " + string(c.Family)
	}
	for _, end := range []struct {
		who   Side
		needs verbs.Caps
	}{{c.By, op.needs}, {c.By.other(), op.needs | op.serves}} {
		e := both[end.who]
		if why := e.Lacks[op.name]; why != "" {
			return fmt.Sprintf("%s: %s", e.Name, why)
		}
		if !e.attr.Caps.Has(end.needs) {
			return fmt.Sprintf("%s does not claim it", e.Name)
		}
		if end.who == c.By && op.inline > e.attr.MaxInline && e.attr.MaxInline > 0 {
			return fmt.Sprintf("%s takes %d octets inline", e.Name, e.attr.MaxInline)
		}
	}
	return ""
}

// seedOf is that of a case's data: it is the same whatever else is run.
func seedOf(c Case) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(c.Name())) // it never fails
	return h.Sum64()
}
