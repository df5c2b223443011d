package cm

import (
	"encoding/binary"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/mad"
)

// incoming is a received MAD's envelope.
type incoming struct {
	now      mono.Time
	from, to netip.Addr
	pkey     uint16
	tid      uint64
	attr     mad.Attr
}

// HandleMAD takes a MAD that arrived on QP 1 from one address at another, in a
// packet with the given P_Key. It keeps no reference to b. What makes no sense
// is ignored and counted; nothing a peer sends is an error of ours.
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
		a.refuseVersion(&in, body)
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

// dispatch hands a body of full length to its handler: Parse cannot fail.
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
		a.counters.WrongState++ // we send no LAP
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

// reply is the way back to where in came from.
func (a *Agent) reply(in *incoming) route {
	return route{local: in.to, remote: in.from, pkey: in.pkey, hopLimit: a.cfg.HopLimit}
}

// pair finds the connection that both sides' IDs name. Without one it returns
// nil, and whether the sender may be told so: not if there is one, but with
// somebody else.
func (a *Agent) pair(in *incoming, local, remote uint32) (c *conn, tell bool) {
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

// refuseVersion answers a request of another class version, as far as every
// version has the same first field.
func (a *Agent) refuseVersion(in *incoming, body []byte) {
	id := binary.BigEndian.Uint32(body)
	switch in.attr {
	case mad.AttrREQ:
		a.refuse(in, id, mad.ReasonClassVersion, nil)
	case mad.AttrSIDRREQ:
		a.counters.Refused++
		a.sendOnce(a.reply(in), mad.AttrSIDRREP, in.tid, &mad.SIDRREP{RequestID: id, Status: mad.SIDRUnsupportedVersion})
	}
}
