package cm

import (
	"github.com/fabrictest/fabrictest/emu/softroce/mad"
)

// fault is the reason for rejecting a REQ; reason 0 means none.
type fault struct {
	reason mad.Reason
	info   []byte
}

// checkREQ returns the listener for a REQ, or the reason for rejecting it. LIDs are
// ignored because RoCEv2 has none; reasons 13 and 19 must not be used.
func (a *Agent) checkREQ(in *incoming, m *mad.REQ) (*listener, fault) {
	if m.LocalCommID == 0 {
		return nil, fault{reason: mad.ReasonInvalidCommID}
	}
	l := a.listenerFor(m.ServiceID, in.to)
	switch {
	case l == nil:
		return nil, fault{reason: mad.ReasonInvalidServiceID}
	case !knownTransport(m):
		return nil, fault{reason: mad.ReasonInvalidTransport}
	case m.MTU < 1 || m.MTU > a.cfg.MaxMTU:
		return nil, fault{reason: mad.ReasonInvalidMTU}
	case m.Primary.RemoteGID.Addr() != in.to, !unicast(in.to, m.Primary.LocalGID.Addr()):
		own := mad.GIDOf(in.to)
		return nil, fault{reason: mad.ReasonPrimaryGID, info: own[:]}
	case !a.cfg.memberOf(m.PKey):
		// There is no reason code for a wrong P_Key.
		return nil, fault{reason: mad.ReasonUnsupported}
	}
	if _, _, ok := a.userData(in, m.ServiceID, m.PrivateData[:]); !ok {
		return nil, fault{reason: mad.ReasonConsumer} // rdma_cm is the CM's consumer
	}
	return l, fault{}
}

func knownTransport(m *mad.REQ) bool {
	switch m.Transport {
	case mad.TransportRC, mad.TransportUC:
		return true
	case mad.TransportExt:
		return m.ExtTransport == mad.ExtXRC
	}
	return false
}

// transportOf requires that knownTransport is true.
func transportOf(m *mad.REQ) Transport {
	switch m.Transport {
	case mad.TransportUC:
		return UC
	case mad.TransportExt:
		return XRC
	}
	return RC
}

// userData splits private data into the rdma_cm header, if the service is an IP
// port, and the consumer's part. ok reports whether the header is valid for the
// address the message was sent to.
func (a *Agent) userData(in *incoming, service mad.ServiceID, field []byte) (ip mad.IPHeader, user []byte, ok bool) {
	if !service.IsIP() {
		return ip, field, true
	}
	user, err := ip.Parse(field)
	if err != nil {
		return ip, nil, false
	}
	ok = ip.Version == mad.IPHeaderVersion && ip.DstAddr() == in.to
	return ip, user, ok
}
