package interop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// Verdict is the result of a case.
type Verdict string

// The verdicts.
const (
	Pass        Verdict = "pass"
	Fail        Verdict = "fail"
	Unsupported Verdict = "unsupported" // a device does not support the operation
	Known       Verdict = "known"       // failed as an exception says
	Stale       Verdict = "stale"       // passed, although an exception says that it fails
)

// Exception is a known failure and its reason.
type Exception struct {
	Pattern       string // of case names, as in Matching
	ErrorContains string // text in the error of the known failure
	Reason        string
	// Intermittent means that the case may also pass.
	Intermittent bool
}

// Result is the verdict of a case.
type Result struct {
	Case    Case
	Verdict Verdict
	Why     string // reason, if it did not pass
	Took    time.Duration
}

// Suite runs cases between two devices that can reach each other. Ours and Theirs are required.
type Suite struct {
	Ours, Theirs *End
	// Lossy says that the network drops packets: unacknowledged messages may not arrive.
	Lossy bool
	// Timeout is how long a step may take; 30 s if 0.
	Timeout time.Duration
	// AckTimeout is the code of the local ACK timeout for ByModify; 16 (0.27 s) if 0,
	// because one device may be in a slow virtual machine.
	AckTimeout uint8
	// CloseTimeout is how long the devices may take to release the last of many
	// connections; 30 s if 0. InfiniBand's connection manager keeps QPNs in time wait.
	CloseTimeout time.Duration
	// Exceptions are the known failures.
	Exceptions []Exception
	// OnResult is called after each case; it may be nil.
	OnResult func(Result)

	endpoints map[Family]map[Side]*endpoint
}

// prepare sets defaults and queries both devices.
func (s *Suite) prepare() error {
	if s.endpoints != nil {
		return nil
	}
	s.AckTimeout = cmp.Or(s.AckTimeout, 16) // a code: 268 ms
	s.Timeout, s.CloseTimeout = cmp.Or(s.Timeout, 30*time.Second), cmp.Or(s.CloseTimeout, 30*time.Second)
	if s.OnResult == nil {
		s.OnResult = func(Result) {}
	}
	return rig.Catch(func() {
		endpoints := make(map[Family]map[Side]*endpoint)
		for _, family := range []Family{IPv4, IPv6} {
			if s.Ours.Devices[family] == nil || s.Theirs.Devices[family] == nil {
				continue
			}
			ours, theirs := newEndpoint(s.Ours, Ours, family, s.Timeout), newEndpoint(s.Theirs, Theirs, family, s.Timeout)
			if ours.isIWARP() != theirs.isIWARP() {
				rig.Abort(errors.New("the two devices have different transports"))
			}
			endpoints[family] = map[Side]*endpoint{Ours: ours, Theirs: theirs}
		}
		if len(endpoints) == 0 {
			rig.Abort(errors.New("the two devices have no address family in common"))
		}
		s.endpoints = endpoints
	})
}

// PacketPayload returns the payload of a packet over InfiniBand: the smallest active MTU of the
// devices.
func (s *Suite) PacketPayload() (int, error) {
	if err := s.prepare(); err != nil {
		return 0, err
	}
	least := verbs.MTU4096
	for _, both := range s.endpoints {
		for _, endpoint := range both {
			least = min(least, endpoint.port.ActiveMTU)
		}
	}
	return least.Bytes(), nil
}

// Run runs cases in order. Successive cases with the same Row, differing in size only, share a
// connection. It returns the number of failed cases, and an error if it could not run all.
func (s *Suite) Run(ctx context.Context, cases []Case) (failed int, err error) {
	if err := s.prepare(); err != nil {
		return 0, err
	}
	for len(cases) > 0 {
		n := 1
		for n < len(cases) && cases[n].Row() == cases[0].Row() {
			n++
		}
		failedInRow, err := s.runRow(ctx, cases[:n])
		failed += failedInRow
		if err != nil {
			return failed, err
		}
		cases = cases[n:]
	}
	return failed, nil
}

// runRow runs cases that differ in size only on one connection, and opens a new one after a case
// that broke it. It returns how many failed.
func (s *Suite) runRow(ctx context.Context, cases []Case) (failed int, err error) {
	op, err := findOperation(cases[0].Op)
	if err != nil {
		return 0, err
	}
	if why := s.whyUnsupported(op, &cases[0]); why != "" {
		for _, c := range cases {
			s.OnResult(Result{Case: c, Verdict: Unsupported, Why: why})
		}
		return 0, nil
	}
	setup := pairSetup{service: op.service, method: cases[0].Method, family: cases[0].Family, inline: op.inline}
	if op.usesSRQ {
		setup.srqSide = cases[0].By.other()
	}
	var pair *qpPair
	for i, c := range cases {
		if ctx.Err() != nil {
			err := context.Cause(ctx)
			if pair != nil {
				err = errors.Join(err, pair.close())
			}
			return failed, err
		}
		began := time.Now()
		var err error
		if pair == nil {
			pair, err = s.connect(setup)
		}
		if err == nil {
			err = pair.exchange(c, op, seedOf(c))
		}
		if pair != nil && (err != nil || pair.broken || i == len(cases)-1) {
			pair.broken = pair.broken || err != nil
			err = errors.Join(err, pair.close())
			pair = nil
		}
		res := s.judge(c, err, time.Since(began))
		if res.Verdict == Fail || res.Verdict == Stale {
			failed++
		}
		s.OnResult(res)
		if err := s.checkAlive(); err != nil {
			return failed, err
		}
	}
	return failed, nil
}

// checkAlive returns an error if a device does not respond any more.
func (s *Suite) checkAlive() error {
	for _, both := range s.endpoints {
		for _, endpoint := range both {
			if err := endpoint.syncMemory(); err != nil { // any verbs call will do
				return fmt.Errorf("cannot continue: %w", err)
			}
		}
	}
	return nil
}

// judge returns the result of a case that returned err. An error that an exception (a known
// failure) names is no failure. A case that passes although an exception says that it always fails
// is stale. The last exception that matches the name of the case counts.
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
		res.Verdict, res.Why = Stale, "passes, although it is a known failure: "+known.Reason
	}
	return res
}

// whyUnsupported returns why the requester (c.By) or the responder of a case does not support its
// operation, or "" if both do.
func (s *Suite) whyUnsupported(op *operation, c *Case) string {
	both := s.endpoints[c.Family]
	if both == nil {
		return "one of the devices has no address of " + string(c.Family)
	}
	for _, end := range []struct {
		side  Side
		needs verbs.Caps
	}{{c.By, op.needs}, {c.By.other(), op.needs | op.responderNeeds}} {
		e := both[end.side]
		if why := e.Lacks[op.name]; why != "" {
			return fmt.Sprintf("%s: %s", e.Name, why)
		}
		if !e.attr.Caps.Has(end.needs) {
			return fmt.Sprintf("%s does not report a capability that the operation needs", e.Name)
		}
		// A device that reports no limit (0) is tested.
		if end.side == c.By && op.inline > e.attr.MaxInline && e.attr.MaxInline > 0 {
			return fmt.Sprintf("%s accepts %d octets inline", e.Name, e.attr.MaxInline)
		}
	}
	return ""
}

// seedOf returns the seed of a case's data: a hash of its name.
func seedOf(c Case) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(c.Name())) // never fails
	return h.Sum64()
}
