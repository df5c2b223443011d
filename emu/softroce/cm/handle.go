package cm

import (
	"encoding/binary"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// incoming has the addresses and header fields of a received MAD.
type incoming struct {
	now      mono.Time
	from, to netip.Addr
	pkey     uint16
	tid      uint64
	attr     wire.Attr
}

// HandleMAD handles a MAD received on QP 1. It keeps no reference to b. It counts and drops invalid
// MADs, and any MAD while MaxEvents events are queued. It rejects requests of other class versions.
func (a *Agent) HandleMAD(now mono.Time, from, to netip.Addr, pkey uint16, b []byte) {
	in := incoming{now: now, from: plain(from), to: plain(to), pkey: pkey}
	if len(b) != wire.MADLen {
		a.counters.BadLength++
		return
	}
	if !unicast(in.from, in.to) {
		a.counters.BadAddress++
		return
	}
	var h wire.MADHeader
	body, err := h.Parse(b)
	switch {
	case err != nil:
		a.counters.BadLength++
		return
	case h.BaseVersion != wire.MADBaseVersion || h.Class != wire.ClassCM:
		a.counters.NotCM++
		return
	case h.Method != wire.MethodSend:
		a.counters.BadMethod++
		return
	}
	in.tid, in.attr = h.TID, h.Attr
	if h.ClassVersion != wire.ClassVersionCM {
		a.counters.BadVersion++
		a.rejectVersion(&in, body)
		return
	}
	if _, ok := h.Attr.Index(); !ok {
		a.counters.BadAttr++
		return
	}
	a.counters.Received.count(h.Attr)
	if a.events.Len() >= a.cfg.MaxEvents {
		a.counters.EventsFull++
		return
	}
	a.dispatch(&in, body)
}

// dispatch parses the message and calls its handler. body has full length, so Parse cannot fail.
func (a *Agent) dispatch(in *incoming, body []byte) {
	switch in.attr {
	case wire.AttrREQ:
		a.handleREQ(in, parse[wire.REQ](body))
	case wire.AttrMRA:
		a.handleMRA(in, parse[wire.MRA](body))
	case wire.AttrREJ:
		a.handleREJ(in, parse[wire.REJ](body))
	case wire.AttrREP:
		a.handleREP(in, parse[wire.REP](body))
	case wire.AttrRTU:
		a.handleRTU(in, parse[wire.RTU](body))
	case wire.AttrDREQ:
		a.handleDREQ(in, parse[wire.DREQ](body))
	case wire.AttrDREP:
		a.handleDREP(in, parse[wire.DREP](body))
	case wire.AttrSIDRREQ:
		a.handleSIDRREQ(in, parse[wire.SIDRREQ](body))
	case wire.AttrSIDRREP:
		a.handleSIDRREP(in, parse[wire.SIDRREP](body))
	case wire.AttrLAP:
		a.handleLAP(in, parse[wire.LAP](body))
	case wire.AttrAPR:
		a.counters.WrongState++ // this agent sends no LAP
	}
}

// parse parses the body of a MAD as a message of type M.
func parse[M any, P interface {
	*M
	Parse([]byte) ([]byte, error)
}](body []byte) *M {
	m := new(M)
	if _, err := P(m).Parse(body); err != nil {
		panic("cm: body of full length did not parse: " + err.Error())
	}
	return m
}

// replyRoute returns the route to the sender of in.
func (a *Agent) replyRoute(in *incoming) Route {
	return Route{Local: in.to, Remote: in.from, PKey: in.pkey, HopLimit: a.cfg.HopLimit}
}

// findConn returns the connection with the given local and remote IDs. If it returns nil, it counts
// the message as dropped, and mayAnswer reports whether the agent may answer that there is no such
// connection. It may not if the connection exists, but the sender is not its peer.
func (a *Agent) findConn(in *incoming, local, remote uint32) (c *conn, mayAnswer bool) {
	c = a.conns[ConnID(local)]
	if c == nil || c.peer.id != remote || c.isSIDR() {
		a.counters.UnknownConn++
		return nil, true
	}
	if c.madRoute.Remote != in.from {
		a.counters.BadSource++
		return nil, false
	}
	return c, false
}

// isSIDR reports whether c is a SIDR request, not a connection.
func (c *conn) isSIDR() bool { return c.state == StateSIDRREQSent || c.state == StateSIDRREQRcvd }

// rejectVersion rejects a request with another class version. The first field of its body is the
// communication or request ID in all versions.
func (a *Agent) rejectVersion(in *incoming, body []byte) {
	id := binary.BigEndian.Uint32(body)
	switch in.attr {
	case wire.AttrREQ:
		a.rejectREQ(in, id, wire.ReasonClassVersion, nil)
	case wire.AttrSIDRREQ:
		a.counters.Refused++
		a.sendOnce(a.replyRoute(in), wire.AttrSIDRREP, in.tid, &wire.SIDRREP{RequestID: id, Status: wire.SIDRUnsupportedVersion})
	}
}
