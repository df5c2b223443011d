package cm

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// conn is a connection or a SIDR request.
type conn struct {
	id     ConnID
	state  State
	active bool // we sent the REQ
	closed bool // Close was called: no more events

	peer        peer
	localQPN    uint32
	serviceID   wire.ServiceID // of a SIDR_REQ that was received
	transport   Transport
	failover    wire.Failover
	established bool // has been in StateEstablished
	listener    *listener
	madRoute    Route
	tid         uint64 // transaction ID of the current exchange
	retransmission
}

// peer identifies the other end of a connection, or the sender of a SIDR request.
type peer struct {
	id         uint32 // communication or request ID; 0 until known
	guid       uint64
	qpn        uint32
	inByRemote bool // registered in Agent.byRemote
	inByQP     bool // registered in Agent.byQP
}

// retransmission is the last message of a connection, and when it is retransmitted.
type retransmission struct {
	timeout        time.Duration // response timeout
	packetLifetime time.Duration // upper bound, from the local ACK timeout; the duration of time wait
	maxRetries     uint8
	retries        uint8 // retries left
	timer          nic.Timer[conn]
	msg            [wire.MADLen]byte // message to retransmit by timer or for a duplicate
	msgAttr        wire.Attr         // type of msg; 0 for none
}

// newConn creates a connection with a new communication ID; op names the operation in its error.
func (a *Agent) newConn(op string, state State) (*conn, error) {
	if len(a.conns) >= a.cfg.MaxConns {
		return nil, fmt.Errorf("%s: %w: %d connections", op, ErrLimit, len(a.conns))
	}
	for {
		id := ConnID(a.nextCommID)
		a.nextCommID++
		if id == 0 || a.conns[id] != nil {
			continue // 0 is not a valid communication ID
		}
		c := &conn{id: id, state: state, tid: uint64(id)}
		c.timer.Owner = c
		a.conns[id] = c
		return c, nil
	}
}

// register adds c to byRemote and byQP, unless another connection has the entry.
func (a *Agent) register(c *conn) {
	ids, qp := remoteKey{c.peer.guid, c.peer.id}, remoteKey{c.peer.guid, c.peer.qpn}
	if a.byRemote[ids] == nil {
		a.byRemote[ids], c.peer.inByRemote = c, true
	}
	if a.byQP[qp] == nil {
		a.byQP[qp], c.peer.inByQP = c, true
	}
}

// forgetQP removes the entry of c in Agent.byQP, so that the peer may reuse its QP.
func (a *Agent) forgetQP(c *conn) {
	if c.peer.inByQP {
		delete(a.byQP, remoteKey{c.peer.guid, c.peer.qpn})
		c.peer.inByQP = false
	}
}

// awaitsREP reports whether c has sent a REQ and received neither a REP nor a REJ.
func (c *conn) awaitsREP() bool { return c.state == StateREQSent || c.state == StateMRAREQRcvd }

// leaveBacklog removes c from the backlog of its listener.
func (c *conn) leaveBacklog() {
	if c.listener != nil {
		c.listener.pending--
		c.listener = nil
	}
}

// release stops the timer of c and removes c from all maps.
func (a *Agent) release(c *conn) {
	a.timers.Stop(&c.timer)
	a.forgetQP(c)
	if c.peer.inByRemote {
		delete(a.byRemote, remoteKey{c.peer.guid, c.peer.id})
	}
	if c.state == StateSIDRREQRcvd {
		delete(a.sidrRequests, sidrKey{c.madRoute.Remote, c.peer.id})
	}
	c.leaveBacklog()
	delete(a.conns, c.id)
	c.state = StateIdle
}

// enterTimeWait ends a connection. Its communication IDs stay in use until packets of the
// connection have expired, so that an old message does not match a new connection.
func (a *Agent) enterTimeWait(now mono.Time, c *conn) {
	a.forgetQP(c)
	c.leaveBacklog()
	c.state = StateTimeWait
	a.armTimer(c, now.Add(c.packetLifetime))
}

// sendAndAwait sends the message stored in c, starts the response timer, and puts c into a state
// in which it awaits the response.
func (a *Agent) sendAndAwait(now mono.Time, c *conn, state State) {
	c.state = state
	c.retries = c.maxRetries
	a.transmit(c)
	a.armTimer(c, now.Add(c.timeout))
}

// notify queues an event of c unless c is closed.
func (a *Agent) notify(c *conn, e Event) {
	if c.closed {
		return
	}
	e.Conn = c.id
	a.events.Push(e)
}
