package device

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/verbs"
)

// fakeDriver is a driver that records its calls. It fails the test if a call needs the lock
// and is made without it, or the other way round.
type fakeDriver struct {
	t      testing.TB
	log    []string
	locked bool
	now    mono.Time
	closed int

	onProgress func()
	onWait     func(timeout time.Duration) // called instead of waiting
}

func (s *fakeDriver) record(what string, locked bool) {
	s.t.Helper()
	if s.locked != locked {
		s.t.Fatalf("%s with the lock held: %v, want %v; after %q", what, s.locked, locked, s.log)
	}
	s.log = append(s.log, what)
}

func (s *fakeDriver) Lock(c drive.CallKind) {
	s.t.Helper()
	s.record([]string{"lock control", "lock post", "lock poll", "lock wait"}[c], false)
	s.locked = true
}

func (s *fakeDriver) Unlock() {
	s.t.Helper()
	s.record("unlock", true)
	s.locked = false
}

func (s *fakeDriver) Pump()      { s.t.Helper(); s.record("pump", true) }
func (s *fakeDriver) PollFound() { s.t.Helper(); s.record("poll found", true) }
func (s *fakeDriver) PollEmpty() { s.t.Helper(); s.record("poll empty", true) }
func (s *fakeDriver) Yield()     { s.t.Helper(); s.record("yield", false) }

func (s *fakeDriver) Progress() {
	s.t.Helper()
	s.record("progress", true)
	if s.onProgress != nil {
		s.onProgress()
	}
}

func (s *fakeDriver) Close() {
	s.t.Helper()
	s.record("close", false)
	s.closed++
}

func (s *fakeDriver) Now() mono.Time {
	s.t.Helper()
	if !s.locked {
		s.t.Fatal("Now without the lock")
	}
	return s.now
}

func (s *fakeDriver) NewCond(what fmt.Stringer) drive.Cond { return &fakeCond{s: s, what: what} }

// fakeCond is a Cond whose Wait calls onWait.
type fakeCond struct {
	s        *fakeDriver
	what     fmt.Stringer
	notified int
}

func (g *fakeCond) Notify() { g.notified++ }

func (g *fakeCond) Wait(timeout time.Duration) bool {
	g.s.t.Helper()
	g.s.record("wait for "+g.what.String(), true)
	if g.s.onWait == nil {
		g.s.t.Fatal("Wait would block for ever")
	}
	before := g.notified
	g.s.onWait(timeout)
	return g.notified > before
}

// rig is a device on a fakeDriver, with the objects that most tests need.
type rig struct {
	*fakeDriver
	Device
	base nic.Base
	pd   *PD
	ch   *CompChannel
	cq   *CQ
}

func newRig(t testing.TB, hooks Hooks) *rig {
	t.Helper()
	r := &rig{fakeDriver: &fakeDriver{t: t}}
	r.base.Init(nic.Limits{}.OrDefault(), nic.Policy{})
	r.Init("nic0", &r.base, hooks)
	r.Start(r.fakeDriver)
	r.pd = object[*PD](t)(r.AllocPD())
	r.ch = object[*CompChannel](t)(r.CreateCompChannel())
	r.cq = object[*CQ](t)(r.CreateCQ(verbs.CQInit{Depth: 4, Channel: r.ch}))
	r.log = nil
	return r
}

// object returns the object that a verb created, or fails the test.
func object[T any](t testing.TB) func(any, error) T {
	return func(x any, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return x.(T)
	}
}

// expectCalls compares the driver's calls since the last check.
func (r *rig) expectCalls(want ...string) {
	r.t.Helper()
	if !slices.Equal(r.log, want) {
		r.t.Errorf("driver calls %q, want %q", r.log, want)
	}
	if r.locked {
		r.t.Fatal("the lock was not released")
	}
	r.log = nil
}

// complete adds a completion to an armed CQ, as the NIC does under the lock.
func (r *rig) complete(c *CQ) {
	c.Q.Push(&verbs.WC{}, false)
	r.DeliverCompletionEvents()
}
