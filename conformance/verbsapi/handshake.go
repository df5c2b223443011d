package verbsapi

import (
	"math"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// handshake is a connection between the two devices that the connection manager is
// making.
type handshake struct {
	*devices
	active, passive *endpoint
	listener        verbs.Listener
	// conn is the active side's connection when task has ended.
	conn verbs.Conn
	task conformance.Task
}

// newHandshake makes unconnected queue pairs on both devices, and a listener on the
// passive one.
func newHandshake(r *rig.Rig, dutActive bool) *handshake {
	d := &handshake{devices: openPartner(r)}
	dut, partner := newEndpoint(d.dut, &setup{qpType: verbs.QPTypeRC}), newEndpoint(d.partner, &setup{qpType: verbs.QPTypeRC})
	d.active, d.passive = partner, dut
	at := r.Local[0]
	if dutActive {
		d.active, d.passive = dut, partner
		at = d.partner.GIDEntry().GID.Addr()
	}
	var err error
	d.listener, err = d.passive.CM().Listen(netip.AddrPortFrom(at, 0), verbs.PortSpaceTCP, 4)
	r.Must("a listener", err)
	return d
}

// startConnect starts a task that connects the active side.
func (d *handshake) startConnect(param verbs.ConnParam, timeout time.Duration) {
	d.task = d.dut.Go("connect", func() (err error) {
		cm, err := d.active.Device.CM()
		if err == nil {
			d.conn, err = cm.Connect(d.active.qp, d.listener.Addr(), param, timeout)
		}
		return err
	})
}

// nextRequest returns the connection request that the passive side received.
func (d *handshake) nextRequest() verbs.ConnRequest {
	return result(d.listener.GetRequest(d.dut.ResponseTimeout()))(d.dut, "a request for a connection")
}

// awaitConnected fails the case unless the active side gets its connection.
func (d *handshake) awaitConnected() {
	d.dut.Must("a connection", d.task.Wait(d.dut.ResponseTimeout()))
}

// accept accepts a request and waits for the active side.
func (d *handshake) accept(req verbs.ConnRequest, param verbs.ConnParam) {
	d.passive.accept(req, param, d.active)
	d.awaitConnected()
	d.active.conn = d.conn
}

// connect makes the connection.
func (d *handshake) connect() {
	d.startConnect(connParam, d.dut.ResponseTimeout())
	d.accept(d.nextRequest(), connParam)
}

// pair returns the connected queue pairs.
func (d *handshake) pair() *qpPair {
	l := &qpPair{dut: d.active, partner: d.passive}
	if d.passive.Rig == d.dut {
		l.dut, l.partner = d.passive, d.active
	}
	return l
}

// dutIsActive reports whether the device under test is the active side.
func (d *handshake) dutIsActive() bool { return d.active.Rig == d.dut }

// establish makes the connection, with receives posted on both sides.
func (d *handshake) establish(receives int) *qpPair {
	for i := range receives {
		d.active.postRecv(uint64(i+1), recvOffset, 64)
		d.passive.postRecv(uint64(i+1), recvOffset, 64)
	}
	d.connect()
	return d.pair()
}

// expectFlushed fails the case unless both queue pairs go to ERR and flush this many
// receives.
func (l *qpPair) expectFlushed(receives int) {
	for _, e := range []*endpoint{l.dut, l.partner} {
		e.AwaitState(e.qp, errState)
		checkOrder(e.Rig, pollCompletions(e.Rig, e.CQ, receives, 4), 1, verbs.WCWRFlushErr)
	}
}

// onActive makes the body of a case from a function that uses a handshake with the device as the active
// side, and onPassive one with the device as the passive side.
func onActive(body func(*handshake)) func(*conformance.Bench) error {
	return rig.Body(func(r *rig.Rig) { body(newHandshake(r, true)) })
}

func onPassive(body func(*handshake)) func(*conformance.Bench) error {
	return rig.Body(func(r *rig.Rig) { body(newHandshake(r, false)) })
}

// onHandshake makes the body of a case from a function that runs with the device as the
// passive side, and again as the active side.
func onHandshake(body func(*handshake)) func(*conformance.Bench) error {
	return rig.Body(func(r *rig.Rig) {
		for _, dutActive := range []bool{false, true} {
			r.Note("the device is the active side: %v", dutActive)
			body(newHandshake(r, dutActive))
		}
	})
}

// privateDataLimits are the lengths of private data that fit into a request and a reply,
// and one that is too long. InfiniBand's messages have fixed sizes. MPA start-up frames
// carry 512 octets, four of which the enhanced start-up uses, but rdma_conn_param has an
// 8-bit length.
type privateDataLimits struct{ request, reply, tooLong int }

func privateLimits(r *rig.Rig) privateDataLimits {
	if r.Device.Info().Transport == verbs.TransportIB {
		return privateDataLimits{request: 56, reply: 196, tooLong: 197}
	}
	return privateDataLimits{request: math.MaxUint8, reply: math.MaxUint8, tooLong: 513}
}
