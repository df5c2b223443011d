package fuzz_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/verbs"
)

// The model of verbs: objects, their references, the states of queue pairs, and posted requests.
// Before each call it says what the call must return, by the API and not by the device; where the
// API leaves a choice, both results are accepted.

// verdict is the result that the model requires of a call.
type verdict int

const (
	may verdict = iota // either succeed or fail
	mustSucceed
	mustFail
)

func (v verdict) String() string { return [...]string{"may do either", "must succeed", "must fail"}[v] }

// and returns mustFail if either is mustFail, mustSucceed if both are mustSucceed, and else may.
func (v verdict) and(w verdict) verdict {
	switch {
	case v == mustFail || w == mustFail:
		return mustFail
	case v == mustSucceed && w == mustSucceed:
		return mustSucceed
	default:
		return may
	}
}

// only returns mustSucceed if ok, else mustFail.
func only(ok bool) verdict {
	if ok {
		return mustSucceed
	}
	return mustFail
}

// object is the common part of all objects of the model.
type object struct {
	closed bool
	users  int
	uses   []*object
}

func (o *object) model() *object { return o }

// created and destroyed count an object as a user of the objects that it needs.
func (o *object) created(needs ...*object) {
	o.uses = needs
	for _, n := range needs {
		n.users++
	}
}

func (o *object) destroyed() {
	o.closed = true
	for _, n := range o.uses {
		n.users--
	}
}

// closing returns the verdict on a close: it fails if the object is closed or in use.
func (o *object) closing() verdict { return only(!o.closed && o.users == 0) }

type (
	modelPD struct {
		object
		verbs.PD
	}
	modelAH struct {
		object
		verbs.AH
		pd *modelPD
	}
	modelChannel struct {
		object
		verbs.CompChannel
	}
	modelCQ struct {
		object
		verbs.CQ
		channel *modelChannel
		armed   int
		lossy   bool // it may overrun
	}
	modelXRCD struct {
		object
		verbs.XRCD
	}
	modelMR struct {
		object
		verbs.MR
		pd     *modelPD
		buf    []byte
		access verbs.Access
		held   []byte // contents when the device lost write access
		bound  bool   // a window may be bound to it
	}
	modelMW struct {
		object
		verbs.MW
		pd *modelPD
	}
	modelSRQ struct {
		object
		verbs.SRQ
		pd     *modelPD
		recvs  *ledger
		maxWR  int
		maxSGE int
		xrc    bool
	}
)

// machine is a device and its model.
type machine struct {
	world   *sim.World
	dev     verbs.Context
	attr    verbs.DeviceAttr
	addr    netip.Addr
	iwarp   bool // only the connection manager connects
	rd      bool
	ledgers ledgers

	pds   []*modelPD
	ahs   []*modelAH
	chans []*modelChannel
	cqs   []*modelCQ
	xrcds []*modelXRCD
	mrs   []*modelMR
	mws   []*modelMW
	srqs  []*modelSRQ
	qps   []*modelQP
	// arena has all registered memory, with unregistered bytes between.
	arena, before []byte
	taken         int
	// plain makes every choice the first, which is valid.
	plain bool
}

// kinds are the devices to test.
var kinds = []struct {
	name  string
	setup nics.Setup
}{
	{"softroce", nics.Setup{}},
	{"softiwarp", nics.Setup{}},
	{"dgiwarp", nics.Setup{}},
	{"dgiwarp", nics.Setup{Options: nics.Options{"reliable": true}}},
}

func newMachine(kind int) (*machine, error) {
	k := kinds[kind]
	m := &machine{world: newWorld(), addr: netip.MustParseAddr("fd00::1"), arena: make([]byte, 1<<15)}
	net, err := sim.NewNet(m.world, sim.NetConfig{})
	if err != nil {
		return nil, err
	}
	port, err := net.Attach(sim.PortConfig{Addrs: []netip.Addr{m.addr}, Link: sim.LinkConfig{Latency: time.Microsecond, MTU: 4200}})
	if err != nil {
		return nil, err
	}
	p, err := nics.Find(k.name)
	if err != nil {
		return nil, err
	}
	setup := k.setup
	setup.Defects = enabledDefects
	opener, err := p.NewOpener(setup)
	if err != nil {
		return nil, err
	}
	if m.dev, err = opener.InWorld(m.world, port, nics.NICConfig{Name: "nic", Addr: m.addr}); err != nil {
		return nil, err
	}
	if m.attr, err = m.dev.QueryDevice(); err != nil {
		return nil, err
	}
	m.iwarp = k.name == "softiwarp"
	m.rd = m.attr.Caps.Has(verbs.CapRD)
	for i := range m.arena {
		m.arena[i] = byte(i * 11)
	}
	m.before = slices.Clone(m.arena)
	return m, nil
}

// has returns only for a capability.
func (m *machine) has(c verbs.Caps) verdict { return only(m.attr.Caps.Has(c)) }

// check compares the result of a call with the verdict of the model. Errors must be verbs errors
// with a known cause.
func (m *machine) check(t *rapid.T, call string, want verdict, err error) {
	t.Helper()
	if want == mustSucceed && err != nil || want == mustFail && err == nil {
		t.Fatalf("%s %v: %v", call, want, err)
	}
	if err == nil {
		return
	}
	var op *verbs.OpError
	if !errors.As(err, &op) && !errors.Is(err, verbs.ErrOverrun) {
		t.Fatalf("%s: the error names no verb: %v", call, err)
	}
	for _, cause := range []error{
		verbs.ErrNotSupported, verbs.ErrInvalid, verbs.ErrNoMemory, verbs.ErrBusy, verbs.ErrPerm,
		verbs.ErrNotFound, verbs.ErrTimeout, verbs.ErrClosed, verbs.ErrOverrun,
	} {
		if errors.Is(err, cause) {
			return
		}
	}
	t.Fatalf("%s: an error without a cause: %v", call, err)
}

// checkClosed checks that a call on a closed handle returns ErrClosed.
func (m *machine) checkClosed(t *rapid.T, call string, isClosed bool, err error) {
	t.Helper()
	if isClosed && !errors.Is(err, verbs.ErrClosed) {
		t.Fatalf("%s on a closed handle: %v, want ErrClosed", call, err)
	}
}

// closes closes an object and checks the result.
func (m *machine) closes(t *rapid.T, call string, o *object, want verdict, end func() error) bool {
	t.Helper()
	err := end()
	m.check(t, call, want, err)
	m.checkClosed(t, call, o.closed, err)
	if !o.closed && o.users > 0 && want == mustFail && !errors.Is(err, verbs.ErrBusy) {
		t.Fatalf("%s, with %d users: %v, want ErrBusy", call, o.users, err)
	}
	if err != nil {
		return false
	}
	o.destroyed()
	return true
}

// memory checks that only regions changed that the device may write.
func (m *machine) memory() error {
	now := slices.Clone(m.arena)
	for _, r := range m.mrs {
		at := cap(m.arena) - cap(r.buf)
		if r.held != nil && !bytes.Equal(r.buf, r.held) {
			return fmt.Errorf("the %d bytes of a region at %#x, closed or not writable, changed", len(r.buf), at)
		}
		copy(now[at:at+len(r.buf)], m.before[at:])
	}
	for i := range now {
		if now[i] != m.before[i] {
			return fmt.Errorf("byte %#x of memory is of no region, but changed", i)
		}
	}
	return nil
}

// pick draws an element of a list; false if it is empty.
func pick[T any](t *rapid.T, what string, all []T) (x T, ok bool) {
	if len(all) == 0 {
		return x, false
	}
	return all[rapid.IntRange(0, len(all)-1).Draw(t, what)], true
}

// live is pick that prefers objects which are not closed.
func live[T any](t *rapid.T, what string, all []T, closed func(T) bool) (x T, ok bool) {
	if rapid.IntRange(0, 7).Draw(t, "any "+what) > 0 {
		all = slices.DeleteFunc(slices.Clone(all), closed)
	}
	return pick(t, what, all)
}

// choose draws one of some values. The first is valid.
func choose[T any](m *machine, t *rapid.T, what string, values ...T) T {
	if m.plain {
		return values[0]
	}
	return rapid.SampledFrom(values).Draw(t, what)
}

// oneIn is true once in n draws; never if m.plain.
func (m *machine) oneIn(t *rapid.T, n int, what string) bool {
	return !m.plain && rapid.IntRange(0, n-1).Draw(t, what) == n-1
}
