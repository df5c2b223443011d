package cm

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// ConnID identifies a connection or SIDR request of an Agent until its final event.
// It is also the communication ID on the wire.
type ConnID uint32

// remoteKey identifies an object of a peer: a communication ID or a QP number, with the CA GUID.
type remoteKey struct {
	guid uint64
	id   uint32
}

// sidrKey identifies a SIDR request of a peer.
type sidrKey struct {
	from netip.Addr
	id   uint32
}

// Agent is the connection manager of one device. Create it with New.
type Agent struct {
	cfg      Config
	counters Counters

	nextCommID   uint32
	conns        map[ConnID]*conn
	byRemote     map[remoteKey]*conn // by the peer's communication ID
	byQP         map[remoteKey]*conn // by the peer's queue pair, until time wait
	sidrRequests map[sidrKey]*conn   // SIDR requests received, not yet answered

	sidrAnswers []sidrAnswer // recently sent, for duplicates

	nextListen ListenID
	listeners  map[listenKey]*listener
	listenIDs  map[ListenID]*listener

	timers      nic.TimerHeap[conn]
	timersArmed uint32 // calls of armTimer
	outbox      nic.FIFO[packet]
	sent        packet // the last one that NextMAD returned
	events      nic.FIFO[Event]
}

// New returns an Agent without connections or listeners.
func New(cfg Config) *Agent {
	cfg = cfg.withDefaults()
	return &Agent{
		cfg:          cfg,
		nextCommID:   cfg.FirstCommID,
		conns:        make(map[ConnID]*conn),
		byRemote:     make(map[remoteKey]*conn),
		byQP:         make(map[remoteKey]*conn),
		sidrRequests: make(map[sidrKey]*conn),
		listeners:    make(map[listenKey]*listener),
		listenIDs:    make(map[ListenID]*listener),
	}
}

// NextTimer returns when HandleTimer must be called next, or mono.Never.
func (a *Agent) NextTimer() mono.Time { return a.timers.Next() }

// HandleTimer handles all timers that have expired at now.
func (a *Agent) HandleTimer(now mono.Time) {
	for c := a.timers.PopExpired(now); c != nil; c = a.timers.PopExpired(now) {
		a.expire(now, c)
	}
}

// armTimer makes the timer of c expire at this time, after those armed earlier for the same time.
func (a *Agent) armTimer(c *conn, at mono.Time) {
	a.timersArmed++
	c.timer.TieBreak = a.timersArmed
	a.timers.Set(&c.timer, at)
}

// NextEvent removes and returns the oldest event, or false.
func (a *Agent) NextEvent() (Event, bool) { return a.events.Pop() }

// Counters returns a copy of the counters.
func (a *Agent) Counters() Counters { return a.counters }

// lookUp returns the connection with the given ID, or an error if there is none or it is in none of
// the given states. op names the caller's operation in the error.
func (a *Agent) lookUp(op string, id ConnID, states ...State) (*conn, error) {
	c := a.conns[id]
	if c == nil || c.closed {
		return nil, fmt.Errorf("%s connection %#x: %w: it never existed or has had its final event", op, uint32(id), ErrUnknown)
	}
	if slices.Contains(states, c.state) {
		return c, nil
	}
	return nil, fmt.Errorf("%s connection %#x: %w: it is in state %q", op, uint32(id), ErrState, c.state)
}
