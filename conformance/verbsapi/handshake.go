package verbsapi

import (
	"math"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// handshake is a connection that the connection manager is making between the two devices.
type handshake struct {
	*rig.Pair
	active, passive *endpoint
	listener        verbs.Listener
	// conn is the active side's connection when task has ended.
	conn verbs.Conn
	task conformance.Task
}

// newHandshake makes an unconnected queue pair on each device, and a listener on the passive side.
// The device under test is the active side if dutActive, else the passive one.
func newHandshake(r *rig.Rig, dutActive bool) *handshake {
	h := &handshake{Pair: rig.NewPair(r)}
	dut, partner := newEndpoint(h.DUT, &setup{qpType: verbs.QPTypeRC}), newEndpoint(h.Partner, &setup{qpType: verbs.QPTypeRC})
	h.active, h.passive = partner, dut
	addr := r.Local[0]
	if dutActive {
		h.active, h.passive = dut, partner
		addr = h.Partner.GIDEntry().GID.Addr()
	}
	h.listener = listenAt(h.passive.Rig, addr)
	return h
}

// startConnect starts a task that connects the active side.
func (h *handshake) startConnect(param verbs.ConnParam, timeout time.Duration) {
	h.task = h.DUT.Go("connect", func() (err error) {
		cm, err := h.active.Device.CM()
		if err == nil {
			h.conn, err = cm.Connect(h.active.qp, h.listener.Addr(), param, timeout)
		}
		return err
	})
}

// nextRequest waits for the next connection request (REQ) at the listener of the passive side.
func (h *handshake) nextRequest() verbs.ConnRequest {
	return rig.Result(h.listener.GetRequest(h.DUT.ResponseTimeout()))(h.DUT, "a request for a connection")
}

// accept accepts a request and waits until the active side is connected.
func (h *handshake) accept(req verbs.ConnRequest, param verbs.ConnParam) {
	h.passive.accept(req, param, h.active)
	h.DUT.Must("a connection", h.task.Wait(h.DUT.ResponseTimeout()))
	h.active.conn = h.conn
}

// connect connects the active side to the passive side, with default parameters.
func (h *handshake) connect() {
	h.startConnect(connParam, h.DUT.ResponseTimeout())
	h.accept(h.nextRequest(), connParam)
}

// pair returns the connected queue pairs.
func (h *handshake) pair() *qpPair {
	if h.dutIsActive() {
		return &qpPair{dut: h.active, partner: h.passive}
	}
	return &qpPair{dut: h.passive, partner: h.active}
}

// dutIsActive reports whether the device under test is the active side.
func (h *handshake) dutIsActive() bool { return h.active.Rig == h.DUT }

// establish posts two receives on each side, and makes the connection.
func (h *handshake) establish() *qpPair {
	for _, e := range []*endpoint{h.active, h.passive} {
		e.postRecv(1, recvOffset, 64)
		e.postRecv(2, recvOffset, 64)
	}
	h.connect()
	return h.pair()
}

// expectDisconnect fails the case unless a disconnect of one endpoint is reported to the other, and
// both queue pairs go to ERR and flush the receives of establish.
func (l *qpPair) expectDisconnect(from, to *endpoint) {
	from.Must("a connection that can be ended", from.conn.Disconnect())
	l.dut.Must("the end of the connection at the other side", to.conn.WaitDisconnect(l.dut.ResponseTimeout()))
	for _, e := range []*endpoint{l.dut, l.partner} {
		e.AwaitState(e.qp, errState)
		checkOrder(e.Rig, pollCompletions(e.Rig, e.CQ, 2, 4), 1, verbs.WCWRFlushErr)
	}
}

// onActive returns the body of a case that uses a handshake with the device as the active side.
func onActive(body func(*handshake)) func(*conformance.Bench) error {
	return rig.Body(func(r *rig.Rig) { body(newHandshake(r, true)) })
}

// onPassive returns the body of a case that uses a handshake with the device as the passive side.
func onPassive(body func(*handshake)) func(*conformance.Bench) error {
	return rig.Body(func(r *rig.Rig) { body(newHandshake(r, false)) })
}

// onHandshake makes the body of a case that calls body with the device as the passive side, and
// again as the active side.
func onHandshake(body func(*handshake)) func(*conformance.Bench) error {
	return rig.Body(func(r *rig.Rig) {
		for _, dutActive := range []bool{false, true} {
			r.Note("the device is the active side: %v", dutActive)
			body(newHandshake(r, dutActive))
		}
	})
}

// privateDataLimits are the longest private data of a connection request and of its reply, and a
// length that is too long.
type privateDataLimits struct{ request, reply, tooLong int }

// privateLimits returns the limits of private data, in bytes, on the transport of a device.
func privateLimits(r *rig.Rig) privateDataLimits {
	if r.Device.Info().Transport == verbs.TransportIB {
		// A REQ has 92 bytes, of which the CM takes 36 for the addresses. A REP has 196.
		return privateDataLimits{request: 56, reply: 196, tooLong: 197}
	}
	// MPA carries up to 512 bytes, but a program sends at most 255: the length in rdma_conn_param
	// has 8 bits.
	return privateDataLimits{request: math.MaxUint8, reply: math.MaxUint8, tooLong: 513}
}
