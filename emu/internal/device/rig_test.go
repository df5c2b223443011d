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

// script is a driver that writes down what is asked of it, and fails the test if
// that is asked with or without the lock where it should be the other way round.
// What happens meanwhile is up to the test.
type script struct {
	t      testing.TB
	log    []string
	locked bool
	now    mono.Time
	closed int

	onProgress func()
	onWait     func(timeout time.Duration) // in place of time passing
}

func (s *script) note(what string, locked bool) {
	s.t.Helper()
	if s.locked != locked {
		s.t.Fatalf("%s with the lock held: %v, want %v; after %q", what, s.locked, locked, s.log)
	}
	s.log = append(s.log, what)
}

func (s *script) Lock(c drive.CallKind) {
	s.t.Helper()
	s.note([]string{"lock control", "lock post", "lock poll", "lock wait"}[c], false)
	s.locked = true
}

func (s *script) Unlock() {
	s.t.Helper()
	s.note("unlock", true)
	s.locked = false
}

func (s *script) Pump()      { s.t.Helper(); s.note("pump", true) }
func (s *script) PollFound() { s.t.Helper(); s.note("poll found", true) }
func (s *script) PollEmpty() { s.t.Helper(); s.note("poll empty", true) }
func (s *script) Yield()     { s.t.Helper(); s.note("yield", false) }

func (s *script) Progress() {
	s.t.Helper()
	s.note("progress", true)
	if s.onProgress != nil {
		s.onProgress()
	}
}

func (s *script) Close() {
	s.t.Helper()
	s.note("close", false)
	s.closed++
}

func (s *script) Now() mono.Time {
	s.t.Helper()
	if !s.locked {
		s.t.Fatal("asked for the time without the lock")
	}
	return s.now
}

func (s *script) NewCond(what fmt.Stringer) drive.Cond { return &gate{s: s, what: what} }

// gate is where a call waits. Nothing passes but what the script says.
type gate struct {
	s        *script
	what     fmt.Stringer
	notified int
}

func (g *gate) Notify() { g.notified++ }

func (g *gate) Wait(timeout time.Duration) bool {
	g.s.t.Helper()
	g.s.note("wait for "+g.what.String(), true)
	if g.s.onWait == nil {
		g.s.t.Fatal("nothing is going to happen")
	}
	before := g.notified
	g.s.onWait(timeout)
	return g.notified > before
}

// rig is a device on a script, and the objects that most tests want.
type rig struct {
	*script
	Device
	base nic.Base
	pd   *PD
	ch   *CompChannel
	cq   *CQ
}

func newRig(t testing.TB, hooks Hooks) *rig {
	t.Helper()
	r := &rig{script: &script{t: t}}
	r.base.Init(nic.Limits{}.OrDefault(), nic.Defects{}, nic.MemoryDefects{})
	r.Init("nic0", &r.base, hooks)
	r.Start(r.script)
	r.pd = made[*PD](t)(r.AllocPD())
	r.ch = made[*CompChannel](t)(r.CreateCompChannel())
	r.cq = made[*CQ](t)(r.CreateCQ(verbs.CQInit{Depth: 4, Channel: r.ch}))
	r.log = nil
	return r
}

// made is what a verb made, which must have worked.
func made[T any](t testing.TB) func(any, error) T {
	return func(x any, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return x.(T)
	}
}

// did compares what was asked of the driver since the last time.
func (r *rig) did(want ...string) {
	r.t.Helper()
	if !slices.Equal(r.log, want) {
		r.t.Errorf("did %q, want %q", r.log, want)
	}
	if r.locked {
		r.t.Fatal("the lock was not given back")
	}
	r.log = nil
}

// completed puts a completion into an armed queue, as the NIC does under the lock.
func (r *rig) completed(c *CQ) {
	c.Q.Push(&verbs.WC{}, false)
	r.DeliverCompletionEvents()
}
