package cm

import (
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/mono"
)

// ConnID names a connection or a service lookup of one Agent, from the call or
// event that introduces it to its final event. It is also its communication ID
// on the wire.
type ConnID uint32

// remoteKey names something of a peer's: a communication ID or a queue pair.
type remoteKey struct {
	guid uint64
	id   uint32
}

// sidrKey names a peer's service lookup.
type sidrKey struct {
	from netip.Addr
	id   uint32
}

// Agent is the connection manager of one device. Create it with New.
type Agent struct {
	cfg      Config
	counters Counters

	nextCommID uint32
	conns      map[ConnID]*conn
	byRemote   map[remoteKey]*conn // by the peer's communication ID
	byQP       map[remoteKey]*conn // by the peer's queue pair, until time wait
	lookups    map[sidrKey]*conn   // received, not yet answered

	sidrAnswers []sidrAnswer // given lately

	nextListen ListenID
	listeners  map[listenKey]*listener
	listenIDs  map[ListenID]*listener

	timers timers
	outbox queue[packet]
	sent   packet // the one that NextMAD gave out last
	events queue[Event]
}

// New returns an Agent with nothing to do.
func New(cfg Config) *Agent {
	cfg = cfg.withDefaults()
	return &Agent{
		cfg:        cfg,
		nextCommID: cfg.FirstCommID,
		conns:      make(map[ConnID]*conn),
		byRemote:   make(map[remoteKey]*conn),
		byQP:       make(map[remoteKey]*conn),
		lookups:    make(map[sidrKey]*conn),
		listeners:  make(map[listenKey]*listener),
		listenIDs:  make(map[ListenID]*listener),
	}
}

// NextTimer is when HandleTimer must next be called; mono.Never if not at all.
func (a *Agent) NextTimer() mono.Time { return a.timers.next() }

// HandleTimer does all that is due at now.
func (a *Agent) HandleTimer(now mono.Time) {
	for a.timers.next() <= now && len(a.timers.heap) > 0 {
		c := a.timers.heap[0]
		a.timers.stop(c)
		a.expire(now, c)
	}
}

// NextEvent returns the oldest event not yet seen, or false.
func (a *Agent) NextEvent() (Event, bool) { return a.events.pop() }

// Counters returns what has been counted so far.
func (a *Agent) Counters() Counters { return a.counters }

// Conns is how many connections and lookups exist, time wait included.
func (a *Agent) Conns() int { return len(a.conns) }

// State returns where a connection or lookup is, StateIdle if it does not exist.
func (a *Agent) State(id ConnID) State {
	if c := a.conns[id]; c != nil {
		return c.state
	}
	return StateIdle
}

// lookUp finds the connection that a consumer names, in one of the given
// states.
func (a *Agent) lookUp(op string, id ConnID, states ...State) (*conn, error) {
	c := a.conns[id]
	if c == nil || c.closed {
		return nil, fmt.Errorf("%s connection %#x: %w: it never existed or has had its final event", op, uint32(id), ErrUnknown)
	}
	for _, s := range states {
		if c.state == s {
			return c, nil
		}
	}
	return nil, fmt.Errorf("%s connection %#x: %w: it is in state %q", op, uint32(id), ErrState, c.state)
}
