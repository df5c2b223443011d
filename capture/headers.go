package capture

import (
	"fmt"
	"net"
)

// Headers returns the decoded headers of p from the link layer up, with those of each
// PDU.
func (p *Packet) Headers() (all []Header) {
	if p.Link.HasMAC {
		h := Header{Name: "Ethernet"}
		h.add("source", net.HardwareAddr(p.Link.Src[:]).String(), "")
		h.add("destination", net.HardwareAddr(p.Link.Dst[:]).String(), "")
		for _, v := range p.Link.VLANs {
			h.add("VLAN", v, "")
		}
		h.add("type", p.Link.Type, fmt.Sprintf("0x%04x", p.Link.Type))
		all = append(all, h)
	}
	if p.IP.Version != 0 {
		all = append(all, p.IP.headers())
	}
	if p.UDP.Present {
		h := Header{Name: "UDP"}
		h.add("source port", p.UDP.SrcPort, "")
		h.add("destination port", p.UDP.DstPort, "")
		h.add("length", p.UDP.Length, fmt.Sprintf("%d + 8", p.UDP.Length))
		h.add("checksum", p.UDP.Checksum, hexText(p.UDP.Checksum))
		all = append(all, h)
	}
	if p.TCP.Present {
		h := Header{Name: "TCP"}
		h.add("source port", p.TCP.SrcPort, "")
		h.add("destination port", p.TCP.DstPort, "")
		h.add("sequence", p.TCP.Seq, "")
		h.add("acknowledgement", p.TCP.Ack, "")
		h.add("flags", p.TCP.Flags, p.TCP.FlagNames())
		h.add("window", p.TCP.Window, "")
		h.add("length", p.TCP.Length, "")
		all = append(all, h)
	}
	for i := range p.PDUs {
		all = append(all, p.PDUs[i].Headers()...)
	}
	return all
}

func (ip *IP) headers() Header {
	h := Header{Name: fmt.Sprintf("IPv%d", ip.Version)}
	h.add("source", ip.Src.String(), "")
	h.add("destination", ip.Dst.String(), "")
	h.add("DSCP", ip.TClass>>2, "")
	h.add("ECN", ip.TClass&ecnMask, [...]string{"not capable", "ECT(1)", "ECT(0)", "congestion experienced"}[ip.TClass&ecnMask])
	h.add("hop limit", ip.HopLimit, "")
	h.add("protocol", ip.Protocol, "")
	if ip.Version == 4 {
		h.add("identification", ip.ID, hexText(ip.ID))
		h.add("don't fragment", ip.DontFragment, "")
		h.add("checksum good", ip.ChecksumOK, "")
	} else {
		h.add("flow label", ip.FlowLabel, hexText(ip.FlowLabel))
	}
	return h
}

func (h *Header) add(name string, value any, text string) {
	h.Fields = append(h.Fields, Field{name, value, text})
}

// String returns Text, or the formatted value.
func (f Field) String() string {
	if f.Text != "" {
		return f.Text
	}
	return fmt.Sprint(f.Value)
}
