package cm

import "github.com/fabrictest/fabrictest/emu/softroce/wire"

// fault is the reason for rejecting a REQ; reason 0 means none.
type fault struct {
	reason wire.REJReason
	info   []byte
}

// checkREQ returns the listener for a REQ, or the reason for rejecting it. LIDs are
// ignored because RoCEv2 has none; reasons 13 and 19, about LIDs, must not be used.
func (a *Agent) checkREQ(in *incoming, m *wire.REQ) (*listener, fault) {
	if m.LocalCommID == 0 {
		return nil, fault{reason: wire.ReasonInvalidCommID}
	}
	l := a.listenerFor(m.ServiceID, in.to)
	switch {
	case l == nil:
		return nil, fault{reason: wire.ReasonInvalidServiceID}
	case !knownTransport(m):
		return nil, fault{reason: wire.ReasonInvalidTransport}
	case m.MTU < 1 || m.MTU > a.cfg.MaxMTU:
		return nil, fault{reason: wire.ReasonInvalidMTU}
	case m.Primary.RemoteGID.Addr() != in.to, !unicast(in.to, m.Primary.LocalGID.Addr()):
		// The additional information of the REJ is the GID that the REQ should have.
		wanted := wire.GIDOf(in.to)
		return nil, fault{reason: wire.ReasonPrimaryGID, info: wanted[:]}
	case !a.cfg.memberOf(m.PKey):
		// There is no reason code for a wrong P_Key.
		return nil, fault{reason: wire.ReasonUnsupported}
	}
	if _, _, ok := a.userData(in, m.ServiceID, m.PrivateData[:]); !ok {
		return nil, fault{reason: wire.ReasonConsumer} // rdma_cm is the CM's consumer
	}
	return l, fault{}
}

// knownTransport reports whether a REQ is for an RC, UC or XRC connection.
func knownTransport(m *wire.REQ) bool {
	switch m.Transport {
	case wire.CMTransportRC, wire.CMTransportUC:
		return true
	case wire.CMTransportExt:
		return m.ExtTransport == wire.ExtXRC
	}
	return false
}

// transportOf returns the transport of a REQ for which knownTransport is true.
func transportOf(m *wire.REQ) Transport {
	switch m.Transport {
	case wire.CMTransportUC:
		return UC
	case wire.CMTransportExt:
		return XRC
	}
	return RC
}

// userData splits private data into the rdma_cm header, if the service is an IP port, and the
// consumer's part. ok reports whether the header is valid for the address the message was sent to.
func (a *Agent) userData(in *incoming, service wire.ServiceID, field []byte) (ip wire.CMAHeader, user []byte, ok bool) {
	if !service.IsIP() {
		return ip, field, true
	}
	user, err := ip.Parse(field)
	if err != nil {
		return ip, nil, false
	}
	ok = ip.Version == wire.CMAHeaderVersion && ip.DstAddr() == in.to
	return ip, user, ok
}
