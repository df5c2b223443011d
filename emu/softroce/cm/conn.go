package cm

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/mad"
)

// conn is one connection or service lookup.
type conn struct {
	id     ConnID
	state  State
	active bool // we sent the REQ
	closed bool // the consumer wants to hear no more

	remoteID    uint32 // the peer's communication or request ID; 0 until known
	remoteGUID  uint64
	remoteQPN   uint32
	localQPN    uint32
	serviceID   mad.ServiceID
	transport   Transport
	failover    mad.Failover
	inRemote    bool // registered in Agent.byRemote
	inQP        bool // registered in Agent.byQP
	established bool // has ever been
	listener    *listener
	madRoute    route
	tid         uint64        // transaction of the message exchange under way
	timeout     time.Duration // how long the peer may take to answer
	packetsLive time.Duration // how long packets of this connection may be under way
	maxRetries  uint8
	retries     uint8 // left
	timer       timer
	msg         [mad.Len]byte // what to repeat, by timer or for a duplicate
	msgAttr     mad.Attr      // which message msg is; 0 for none
}

// route is how MADs travel to the peer of a connection.
type route struct {
	local, remote netip.Addr
	pkey          uint16
	flowLabel     uint32
	trafficClass  uint8
	hopLimit      uint8
}

// newConn makes a connection with a communication ID of its own.
func (a *Agent) newConn(op string, state State) (*conn, error) {
	if len(a.conns) >= a.cfg.MaxConns {
		return nil, fmt.Errorf("%s: %w: %d connections", op, ErrLimit, len(a.conns))
	}
	for {
		id := ConnID(a.nextCommID)
		a.nextCommID++
		if id == 0 || a.conns[id] != nil {
			continue // 0 means none on the wire
		}
		c := &conn{id: id, state: state, tid: uint64(id)}
		a.conns[id] = c
		return c, nil
	}
}

// remember registers what the peer calls the connection and its queue pair.
func (a *Agent) remember(c *conn) {
	ids, qp := remoteKey{c.remoteGUID, c.remoteID}, remoteKey{c.remoteGUID, c.remoteQPN}
	if a.byRemote[ids] == nil {
		a.byRemote[ids], c.inRemote = c, true
	}
	if a.byQP[qp] == nil {
		a.byQP[qp], c.inQP = c, true
	}
}

// forgetQP lets the peer use its queue pair for another connection.
func (a *Agent) forgetQP(c *conn) {
	if c.inQP {
		delete(a.byQP, remoteKey{c.remoteGUID, c.remoteQPN})
		c.inQP = false
	}
}

// answered takes c out of its listener's backlog.
func (c *conn) answered() {
	if c.listener != nil {
		c.listener.pending--
		c.listener = nil
	}
}

// release ends c's existence.
func (a *Agent) release(c *conn) {
	a.timers.stop(c)
	a.forgetQP(c)
	if c.inRemote {
		delete(a.byRemote, remoteKey{c.remoteGUID, c.remoteID})
	}
	if c.state == StateSIDRREQRcvd {
		delete(a.lookups, sidrKey{c.madRoute.remote, c.remoteID})
	}
	c.answered()
	delete(a.conns, c.id)
	c.state = StateIdle
}

// enterTimeWait ends a connection whose packets may still be under way. Its
// communication IDs stay taken until they cannot be, so that an old message is
// never mistaken for one of a new connection.
func (a *Agent) enterTimeWait(now mono.Time, c *conn) {
	a.forgetQP(c)
	c.answered()
	c.state = StateTimeWait
	a.timers.arm(c, now.Add(c.packetsLive))
}

// await sends the message kept in c and waits for its answer.
func (a *Agent) await(now mono.Time, c *conn, state State) {
	c.state = state
	c.retries = c.maxRetries
	a.transmit(c)
	a.timers.arm(c, now.Add(c.timeout))
}

// notify queues an event of c.
func (a *Agent) notify(c *conn, e Event) {
	if c.closed {
		return
	}
	e.Conn = c.id
	a.events.push(e)
}
