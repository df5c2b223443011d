package verbsapi

import (
	"math"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// handshake is a connection of the two sides that is being made by the connection manager,
// in the direction that the case says.
type handshake struct {
	*devices
	active, passive *endpoint
	listener        verbs.Listener
	// conn is what the asking side has got when its task has ended.
	conn verbs.Conn
	task conformance.Task
}

// newHandshake returns queue pairs on both sides that are not connected, and a listener at
// the answering one: the partner's if the device asks.
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

// startConnect has the asking side connect, beside the case.
func (d *handshake) startConnect(param verbs.ConnParam, timeout time.Duration) {
	d.task = d.dut.Go("connect", func() (err error) {
		cm, err := d.active.Device.CM()
		if err == nil {
			d.conn, err = cm.Connect(d.active.qp, d.listener.Addr(), param, timeout)
		}
		return err
	})
}

// nextRequest returns the request that the answering side has got.
func (d *handshake) nextRequest() verbs.ConnRequest {
	req, err := d.listener.GetRequest(d.dut.ResponseTimeout())
	d.dut.Must("a request for a connection", err)
	return req
}

// awaitConnected ends the case unless the asking side has a connection.
func (d *handshake) awaitConnected() {
	d.dut.Must("a connection", d.task.Wait(d.dut.ResponseTimeout()))
}

// accept accepts a request.
func (d *handshake) accept(req verbs.ConnRequest, param verbs.ConnParam) {
	d.passive.accept(req, param, d.active)
	d.awaitConnected()
	d.active.conn = d.conn
}

// pair is the connection, once it is made.
func (d *handshake) pair() *qpPair {
	l := &qpPair{dut: d.active, partner: d.passive}
	if d.passive.Rig == d.dut {
		l.dut, l.partner = d.passive, d.active
	}
	return l
}

// dutIsActive reports whether it is the device that asks.
func (d *handshake) dutIsActive() bool { return d.active.Rig == d.dut }

// establish makes the connection, with receives posted on both sides.
func (d *handshake) establish(receives int) *qpPair {
	for i := range receives {
		d.active.postRecv(uint64(i+1), recvOffset, 64)
		d.passive.postRecv(uint64(i+1), recvOffset, 64)
	}
	d.startConnect(connParam, d.dut.ResponseTimeout())
	d.accept(d.nextRequest(), connParam)
	return d.pair()
}

// expectFlushed ends the case unless both queue pairs fail, and flush these receives.
func (l *qpPair) expectFlushed(receives int) {
	for _, e := range []*endpoint{l.dut, l.partner} {
		e.AwaitState(e.qp, errState)
		checkOrder(e.Rig, pollCompletions(e.Rig, e.CQ, receives, 4), 1, verbs.WCWRFlushErr)
	}
}

// onHandshake makes a case of a body that runs with the device asking, and again with the
// device answering.
func onHandshake(body func(*handshake)) func(*conformance.Bench) error {
	return rig.Body(func(r *rig.Rig) {
		for _, dutActive := range []bool{false, true} {
			r.Note("the device asks: %v", dutActive)
			body(newHandshake(r, dutActive))
		}
	})
}

// privateDataLimits are how much private data goes with a request and with an answer, at least,
// and from where on it cannot. InfiniBand's messages have fixed sizes. MPA's start-up
// frames have 512 octets, of which the enhanced start-up takes four; but rdma_conn_param
// counts in one octet, so that a device which is reached through librdmacm cannot be asked
// for more than 255. What the frames themselves carry, the cases of iWARP ask.
type privateDataLimits struct{ request, reply, tooLong int }

func privateLimits(r *rig.Rig) privateDataLimits {
	if r.Device.Info().Transport == verbs.TransportIB {
		return privateDataLimits{request: 56, reply: 196, tooLong: 197}
	}
	return privateDataLimits{request: math.MaxUint8, reply: math.MaxUint8, tooLong: 513}
}
