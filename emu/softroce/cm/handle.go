package cm

import (
	"encoding/binary"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/mad"
)

// incoming has the addresses and header fields of a received MAD.
type incoming struct {
	now      mono.Time
	from, to netip.Addr
	pkey     uint16
	tid      uint64
	attr     mad.Attr
}

// HandleMAD handles a MAD received on QP 1. It keeps no reference to b. Invalid
// MADs are counted and dropped.
func (a *Agent) HandleMAD(now mono.Time, from, to netip.Addr, pkey uint16, b []byte) {
	in := incoming{now: now, from: plain(from), to: plain(to), pkey: pkey}
	if len(b) != mad.Len {
		a.counters.BadLength++
		return
	}
	if !unicast(in.from, in.to) {
		a.counters.BadAddress++
		return
	}
	var h mad.Header
	body, err := h.Parse(b)
	switch {
	case err != nil:
		a.counters.BadLength++
		return
	case h.BaseVersion != mad.BaseVersion || h.Class != mad.ClassCM:
		a.counters.NotCM++
		return
	case h.Method != mad.MethodSend:
		a.counters.BadMethod++
		return
	}
	in.tid, in.attr = h.TID, h.Attr
	if h.ClassVersion != mad.ClassVersionCM {
		a.counters.BadVersion++
		a.rejectVersion(&in, body)
		return
	}
	if _, ok := h.Attr.Index(); !ok {
		a.counters.BadAttr++
		return
	}
	a.counters.Received.count(h.Attr)
	if a.events.len() >= a.cfg.MaxEvents {
		a.counters.EventsFull++
		return
	}
	a.dispatch(&in, body)
}

// dispatch parses the message and calls its handler. body has full length, so Parse
// cannot fail.
func (a *Agent) dispatch(in *incoming, body []byte) {
	switch in.attr {
	case mad.AttrREQ:
		a.handleREQ(in, parse[mad.REQ](body))
	case mad.AttrMRA:
		a.handleMRA(in, parse[mad.MRA](body))
	case mad.AttrREJ:
		a.handleREJ(in, parse[mad.REJ](body))
	case mad.AttrREP:
		a.handleREP(in, parse[mad.REP](body))
	case mad.AttrRTU:
		a.handleRTU(in, parse[mad.RTU](body))
	case mad.AttrDREQ:
		a.handleDREQ(in, parse[mad.DREQ](body))
	case mad.AttrDREP:
		a.handleDREP(in, parse[mad.DREP](body))
	case mad.AttrSIDRREQ:
		a.handleSIDRREQ(in, parse[mad.SIDRREQ](body))
	case mad.AttrSIDRREP:
		a.handleSIDRREP(in, parse[mad.SIDRREP](body))
	case mad.AttrLAP:
		a.handleLAP(in, parse[mad.LAP](body))
	case mad.AttrAPR:
		a.counters.WrongState++ // this agent sends no LAP
	}
}

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
func (a *Agent) replyRoute(in *incoming) route {
	return route{local: in.to, remote: in.from, pkey: in.pkey, hopLimit: a.cfg.HopLimit}
}

// findConn returns the connection with the given local and remote IDs. If there is
// none, it returns nil, and unknown tells whether the sender may be told; it may
// not if the connection belongs to another peer.
func (a *Agent) findConn(in *incoming, local, remote uint32) (c *conn, unknown bool) {
	c = a.conns[ConnID(local)]
	if c == nil || c.remoteID != remote || c.isLookup() {
		a.counters.UnknownConn++
		return nil, true
	}
	if c.madRoute.remote != in.from {
		a.counters.BadSource++
		return nil, false
	}
	return c, false
}

func (c *conn) isLookup() bool { return c.state == StateSIDRREQSent || c.state == StateSIDRREQRcvd }

// rejectVersion rejects a request with another class version. The first field is
// the same in all versions.
func (a *Agent) rejectVersion(in *incoming, body []byte) {
	id := binary.BigEndian.Uint32(body)
	switch in.attr {
	case mad.AttrREQ:
		a.rejectREQ(in, id, mad.ReasonClassVersion, nil)
	case mad.AttrSIDRREQ:
		a.counters.Refused++
		a.sendOnce(a.replyRoute(in), mad.AttrSIDRREP, in.tid, &mad.SIDRREP{RequestID: id, Status: mad.SIDRUnsupportedVersion})
	}
}
