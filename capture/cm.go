package capture

import (
	"fmt"

	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// CM is a message of the InfiniBand connection manager.
type CM struct {
	Header wire.MADHeader
	// Body has the fields of the message.
	Body Header
	// RejectReason is set if the message rejects something.
	RejectReason string

	summary string // main fields, in one line
}

// Name returns the message name, as in "REQ".
func (c *CM) Name() string { return c.Header.Attr.String() }

// parseCM decodes a MAD; it returns nil unless the MAD is a CM message of a known type. The summary
// says so if the body is cut off.
func parseCM(b []byte) *CM {
	c := new(CM)
	rest, err := c.Header.Parse(b)
	if err != nil || c.Header.Class != wire.ClassCM || c.Header.BaseVersion != wire.MADBaseVersion {
		return nil
	}
	if _, ok := c.Header.Attr.Index(); !ok {
		return nil
	}
	if err := c.parseBody(rest); err != nil {
		c.summary = "body is cut off"
	}
	return c
}

// cmBody is a CM message of package wire.
type cmBody[M any] interface {
	*M
	Parse(b []byte) (rest []byte, err error)
}

// decodeBody decodes the body b of a CM message of type M, and calls add with it.
func decodeBody[M any, P cmBody[M]](b []byte, add func(m P)) error {
	m := P(new(M))
	_, err := m.Parse(b)
	if err == nil {
		add(m)
	}
	return err
}

// parseBody decodes the body of the CM message and sets c.Body, the summary and the reject reason.
func (c *CM) parseBody(b []byte) error {
	switch c.Header.Attr {
	case wire.AttrREQ:
		return decodeBody(b, c.describeREQ)
	case wire.AttrREP:
		return decodeBody(b, c.describeREP)
	case wire.AttrRTU:
		return decodeBody(b, func(m *wire.RTU) { c.addCommIDs(m.LocalCommID, m.RemoteCommID) })
	case wire.AttrREJ:
		return decodeBody(b, func(m *wire.REJ) {
			c.addCommIDs(m.LocalCommID, m.RemoteCommID)
			c.Body.add("about", m.About.String())
			c.Body.add("reason", uint16(m.Reason), numberAndName(m.Reason))
			c.RejectReason = fmt.Sprintf("%v rejected: %v", m.About, m.Reason)
			c.summary += " " + c.RejectReason
		})
	case wire.AttrMRA:
		return decodeBody(b, func(m *wire.MRA) {
			c.addCommIDs(m.LocalCommID, m.RemoteCommID)
			c.Body.add("about", m.About.String())
			c.Body.add("service timeout", m.ServiceTimeout, wire.CMTimeout(m.ServiceTimeout).String())
			c.summary += fmt.Sprintf(" %v will take up to %v", m.About, wire.CMTimeout(m.ServiceTimeout))
		})
	case wire.AttrDREQ:
		return decodeBody(b, func(m *wire.DREQ) {
			c.addCommIDs(m.LocalCommID, m.RemoteCommID)
			c.Body.add("remote QPN", m.RemoteQPN, hexText(m.RemoteQPN))
			c.summary += fmt.Sprintf(" QP %#x", m.RemoteQPN)
		})
	case wire.AttrDREP:
		return decodeBody(b, func(m *wire.DREP) { c.addCommIDs(m.LocalCommID, m.RemoteCommID) })
	case wire.AttrSIDRREQ:
		return decodeBody(b, func(m *wire.SIDRREQ) {
			c.Body.add("request ID", m.RequestID, hexText(m.RequestID))
			c.Body.add("service", uint64(m.ServiceID), serviceText(m.ServiceID))
			c.summary = fmt.Sprintf("id %#x %v", m.RequestID, m.ServiceID)
		})
	case wire.AttrSIDRREP:
		return decodeBody(b, c.describeSIDRREP)
	case wire.AttrLAP:
		return decodeBody(b, func(m *wire.LAP) {
			c.addCommIDs(m.LocalCommID, m.RemoteCommID)
			c.Body.add("alternate remote GID", m.Alternate.RemoteGID.String())
			c.summary += " alternate path to " + m.Alternate.RemoteGID.String()
		})
	case wire.AttrAPR:
		return decodeBody(b, func(m *wire.APR) {
			c.addCommIDs(m.LocalCommID, m.RemoteCommID)
			c.Body.add("status", uint8(m.Status), numberAndName(m.Status))
			if m.Status != wire.APLoaded {
				c.RejectReason = "alternate path refused: " + m.Status.String()
			}
			c.summary += " " + m.Status.String()
		})
	}
	return nil
}

// describeREP adds the fields of a REP to the body and the summary.
func (c *CM) describeREP(m *wire.REP) {
	c.addCommIDs(m.LocalCommID, m.RemoteCommID)
	c.Body.add("local QPN", m.LocalQPN, hexText(m.LocalQPN))
	c.Body.add("starting PSN", m.StartPSN)
	c.Body.add("responder resources", m.RespRes)
	c.Body.add("initiator depth", m.InitDepth)
	c.Body.add("RNR retry", m.RNRRetry)
	c.Body.add("target ACK delay", m.TargetAckDelay)
	c.Body.add("SRQ", m.SRQ)
	c.summary = fmt.Sprintf("%s QP %#x PSN %d depth %d/%d", c.summary, m.LocalQPN, m.StartPSN, m.RespRes, m.InitDepth)
}

// describeSIDRREP adds the fields of a SIDR_REP to the body and the summary.
func (c *CM) describeSIDRREP(m *wire.SIDRREP) {
	c.Body.add("request ID", m.RequestID, hexText(m.RequestID))
	c.Body.add("status", uint8(m.Status), numberAndName(m.Status))
	c.Body.add("QPN", m.QPN, hexText(m.QPN))
	c.Body.add("Q_Key", m.QKey, hexText(m.QKey))
	c.summary = fmt.Sprintf("id %#x QP %#x Q_Key %#x", m.RequestID, m.QPN, m.QKey)
	if m.Status != wire.SIDRValid {
		c.RejectReason = "SIDR refused: " + m.Status.String()
		c.summary = fmt.Sprintf("id %#x %s", m.RequestID, c.RejectReason)
	}
}

// numberAndName formats a code as its number and its name: "8 (invalid service ID)".
func numberAndName[T ~uint8 | ~uint16](v T) string { return fmt.Sprintf("%d (%v)", uint16(v), v) }

// describeREQ adds the fields of a REQ, and the addresses that rdma_cm puts in its private data.
func (c *CM) describeREQ(m *wire.REQ) {
	transport := map[wire.CMTransport]string{wire.CMTransportRC: "RC", wire.CMTransportUC: "UC", wire.CMTransportRD: "RD"}[m.Transport]
	if m.Transport == wire.CMTransportExt && m.ExtTransport == wire.ExtXRC {
		transport = "XRC"
	}
	mtu := 128 << (m.MTU & 7)      // from an enum ibv_mtu
	c.addCommIDs(m.LocalCommID, 0) // the peer's ID is not known yet
	c.Body.add("service", uint64(m.ServiceID), serviceText(m.ServiceID))
	c.Body.add("transport", transport)
	c.Body.add("local QPN", m.LocalQPN, hexText(m.LocalQPN))
	c.Body.add("starting PSN", m.StartPSN)
	c.Body.add("path MTU", mtu)
	c.Body.add("responder resources", m.RespRes)
	c.Body.add("initiator depth", m.InitDepth)
	c.Body.add("retry count", m.RetryCount)
	c.Body.add("RNR retry", m.RNRRetry)
	c.Body.add("ACK timeout", m.Primary.AckTimeout, wire.CMTimeout(m.Primary.AckTimeout).String())
	c.Body.add("max CM retries", m.MaxCMRetries)
	c.Body.add("SRQ", m.SRQ)
	c.Body.add("primary local GID", m.Primary.LocalGID.String())
	c.Body.add("primary remote GID", m.Primary.RemoteGID.String())
	from := ""
	if m.ServiceID.IsIP() {
		var h wire.CMAHeader
		if _, err := h.Parse(m.PrivateData[:]); err == nil && h.SrcAddr().IsValid() {
			from = fmt.Sprintf(" from %v port %d", h.SrcAddr(), h.SrcPort)
			c.Body.add("rdma_cm source", fmt.Sprintf("%v port %d", h.SrcAddr(), h.SrcPort))
			c.Body.add("rdma_cm destination", h.DstAddr().String())
		}
	}
	c.summary += fmt.Sprintf(" %s %v QP %#x PSN %d MTU %d depth %d/%d%s",
		transport, m.ServiceID, m.LocalQPN, m.StartPSN, mtu, m.RespRes, m.InitDepth, from)
}

// addCommIDs adds the communication IDs, which identify the connection, to the body, and starts the
// summary with them.
func (c *CM) addCommIDs(local, remote uint32) {
	c.Body.add("local comm ID", local, hexText(local))
	c.summary = fmt.Sprintf("id %#x", local)
	if remote != 0 {
		c.Body.add("remote comm ID", remote, hexText(remote))
		c.summary += fmt.Sprintf("/%#x", remote)
	}
}

// hexField returns a field whose text is the number in hexadecimal.
func hexField[T uint32 | uint64](name string, v T) Field { return Field{name, v, hexText(v)} }

// hexText formats a number as 0x1f.
func hexText[T ~uint8 | ~uint16 | ~uint32 | ~uint64](v T) string {
	return fmt.Sprintf("%#x", uint64(v))
}

// serviceText formats a service ID, as a port if it is an IP service.
func serviceText(id wire.ServiceID) string {
	if id.IsIP() {
		return fmt.Sprintf("%v port %d", id.PortSpace(), id.Port())
	}
	return fmt.Sprintf("%#x", uint64(id))
}
