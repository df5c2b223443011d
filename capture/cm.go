package capture

import (
	"fmt"

	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// CM is a message of the InfiniBand connection manager.
type CM struct {
	Header wire.MADHeader
	// Fields are the fields of the body.
	Fields []Field
	// RejectReason is set if the message rejects something.
	RejectReason string

	summary string
}

// Name returns the message name, as in "REQ".
func (c *CM) Name() string { return c.Header.Attr.String() }

// Summary returns the main fields in one line.
func (c *CM) Summary() string { return c.summary }

// parseCM decodes a MAD; it returns nil if its class is not CM.
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

// parseBody decodes the message and sets its fields and summary.
func (c *CM) parseBody(b []byte) (err error) {
	switch c.Header.Attr {
	case wire.AttrREQ:
		var m wire.REQ
		if _, err = m.Parse(b); err == nil {
			c.describeREQ(&m)
		}
	case wire.AttrREP:
		var m wire.REP
		if _, err = m.Parse(b); err == nil {
			c.addCommIDs(m.LocalCommID, m.RemoteCommID)
			c.add("local QPN", m.LocalQPN, hexText(m.LocalQPN))
			c.add("starting PSN", m.StartPSN, "")
			c.add("responder resources", m.RespRes, "")
			c.add("initiator depth", m.InitDepth, "")
			c.add("RNR retry", m.RNRRetry, "")
			c.add("target ACK delay", m.TargetAckDelay, "")
			c.add("SRQ", m.SRQ, "")
			c.summary = fmt.Sprintf("%s QP %#x PSN %d depth %d/%d", c.summary, m.LocalQPN, m.StartPSN, m.RespRes, m.InitDepth)
		}
	case wire.AttrRTU:
		var m wire.RTU
		if _, err = m.Parse(b); err == nil {
			c.addCommIDs(m.LocalCommID, m.RemoteCommID)
		}
	case wire.AttrREJ:
		var m wire.REJ
		if _, err = m.Parse(b); err == nil {
			c.addCommIDs(m.LocalCommID, m.RemoteCommID)
			c.add("about", m.About.String(), "")
			c.add("reason", uint16(m.Reason), fmt.Sprintf("%d (%v)", uint16(m.Reason), m.Reason))
			c.RejectReason = fmt.Sprintf("%v rejected: %v", m.About, m.Reason)
			c.summary += " " + c.RejectReason
		}
	case wire.AttrMRA:
		var m wire.MRA
		if _, err = m.Parse(b); err == nil {
			c.addCommIDs(m.LocalCommID, m.RemoteCommID)
			c.add("about", m.About.String(), "")
			c.add("service timeout", m.ServiceTimeout, wire.CMTimeout(m.ServiceTimeout).String())
			c.summary += fmt.Sprintf(" %v will take up to %v", m.About, wire.CMTimeout(m.ServiceTimeout))
		}
	case wire.AttrDREQ:
		var m wire.DREQ
		if _, err = m.Parse(b); err == nil {
			c.addCommIDs(m.LocalCommID, m.RemoteCommID)
			c.add("remote QPN", m.RemoteQPN, hexText(m.RemoteQPN))
			c.summary += fmt.Sprintf(" QP %#x", m.RemoteQPN)
		}
	case wire.AttrDREP:
		var m wire.DREP
		if _, err = m.Parse(b); err == nil {
			c.addCommIDs(m.LocalCommID, m.RemoteCommID)
		}
	case wire.AttrSIDRREQ, wire.AttrSIDRREP:
		err = c.parseSIDR(b)
	case wire.AttrLAP, wire.AttrAPR:
		err = c.parseAlternatePath(b)
	}
	return err
}

func (c *CM) describeREQ(m *wire.REQ) {
	transport := map[wire.CMTransport]string{wire.CMTransportRC: "RC", wire.CMTransportUC: "UC", wire.CMTransportRD: "RD"}[m.Transport]
	if m.Transport == wire.CMTransportExt && m.ExtTransport == wire.ExtXRC {
		transport = "XRC"
	}
	mtu := 128 << (m.MTU & 7)
	c.addCommIDs(m.LocalCommID, 0)
	c.add("service", uint64(m.ServiceID), serviceText(m.ServiceID))
	c.add("transport", transport, "")
	c.add("local QPN", m.LocalQPN, hexText(m.LocalQPN))
	c.add("starting PSN", m.StartPSN, "")
	c.add("path MTU", mtu, "")
	c.add("responder resources", m.RespRes, "")
	c.add("initiator depth", m.InitDepth, "")
	c.add("retry count", m.RetryCount, "")
	c.add("RNR retry", m.RNRRetry, "")
	c.add("ACK timeout", m.Primary.AckTimeout, wire.CMTimeout(m.Primary.AckTimeout).String())
	c.add("max CM retries", m.MaxCMRetries, "")
	c.add("SRQ", m.SRQ, "")
	c.add("primary local GID", m.Primary.LocalGID.String(), "")
	c.add("primary remote GID", m.Primary.RemoteGID.String(), "")
	from := ""
	if m.ServiceID.IsIP() {
		var h wire.CMAHeader
		if _, err := h.Parse(m.PrivateData[:]); err == nil && h.SrcAddr().IsValid() {
			from = fmt.Sprintf(" from %v port %d", h.SrcAddr(), h.SrcPort)
			c.add("rdma_cm source", fmt.Sprintf("%v port %d", h.SrcAddr(), h.SrcPort), "")
			c.add("rdma_cm destination", h.DstAddr().String(), "")
		}
	}
	c.summary += fmt.Sprintf(" %s %v QP %#x PSN %d MTU %d depth %d/%d%s",
		transport, m.ServiceID, m.LocalQPN, m.StartPSN, mtu, m.RespRes, m.InitDepth, from)
}

func (c *CM) parseSIDR(b []byte) error {
	if c.Header.Attr == wire.AttrSIDRREQ {
		var m wire.SIDRREQ
		if _, err := m.Parse(b); err != nil {
			return err
		}
		c.add("request ID", m.RequestID, hexText(m.RequestID))
		c.add("service", uint64(m.ServiceID), serviceText(m.ServiceID))
		c.summary = fmt.Sprintf("id %#x %v", m.RequestID, m.ServiceID)
		return nil
	}
	var m wire.SIDRREP
	if _, err := m.Parse(b); err != nil {
		return err
	}
	c.add("request ID", m.RequestID, hexText(m.RequestID))
	c.add("status", uint8(m.Status), fmt.Sprintf("%d (%v)", uint8(m.Status), m.Status))
	c.add("QPN", m.QPN, hexText(m.QPN))
	c.add("Q_Key", m.QKey, hexText(m.QKey))
	c.summary = fmt.Sprintf("id %#x QP %#x Q_Key %#x", m.RequestID, m.QPN, m.QKey)
	if m.Status != wire.SIDRValid {
		c.RejectReason = "SIDR refused: " + m.Status.String()
		c.summary = fmt.Sprintf("id %#x %s", m.RequestID, c.RejectReason)
	}
	return nil
}

func (c *CM) parseAlternatePath(b []byte) error {
	if c.Header.Attr == wire.AttrLAP {
		var m wire.LAP
		if _, err := m.Parse(b); err != nil {
			return err
		}
		c.addCommIDs(m.LocalCommID, m.RemoteCommID)
		c.add("alternate remote GID", m.Alternate.RemoteGID.String(), "")
		c.summary += " alternate path to " + m.Alternate.RemoteGID.String()
		return nil
	}
	var m wire.APR
	if _, err := m.Parse(b); err != nil {
		return err
	}
	c.addCommIDs(m.LocalCommID, m.RemoteCommID)
	c.add("status", uint8(m.Status), fmt.Sprintf("%d (%v)", uint8(m.Status), m.Status))
	if m.Status != wire.APLoaded {
		c.RejectReason = "alternate path refused: " + m.Status.String()
	}
	c.summary += " " + m.Status.String()
	return nil
}

// addCommIDs starts the summary with the communication IDs, which identify the
// connection.
func (c *CM) addCommIDs(local, remote uint32) {
	c.add("local comm ID", local, hexText(local))
	c.summary = fmt.Sprintf("id %#x", local)
	if remote != 0 {
		c.add("remote comm ID", remote, hexText(remote))
		c.summary += fmt.Sprintf("/%#x", remote)
	}
}

func (c *CM) add(name string, value any, text string) {
	c.Fields = append(c.Fields, Field{name, value, text})
}

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
