package engine

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// path is a resolved address vector: the addresses and IP header fields of its
// packets.
type path struct {
	src, dst  netip.AddrPort
	tclass    uint8
	hopLimit  uint8
	flowLabel uint32
	icrc      wire.ICRC
}

// matches reports whether a received datagram has the addresses of pa, reversed.
func (pa *path) matches(d *link.Datagram) bool {
	return d.Src.Addr() == pa.dst.Addr() && d.Dst.Addr() == pa.src.Addr()
}

const defaultHopLimit = 64

// tclass keeps the DSCP of a traffic class and sets the ECN bits to ECT(0).
func tclass(tc uint8) uint8 { return tc&^link.ECN | link.ECT0 }

// sourcePort selects the UDP source port as Linux does
// (rdma_flow_label_to_udp_sport).
func sourcePort(flowLabel, localQPN, remoteQPN uint32) uint16 {
	fl := flowLabel & 0xfffff
	if fl == 0 {
		v := uint64(localQPN) * uint64(remoteQPN)
		v ^= v >> 20
		v ^= v >> 40
		fl = uint32(v & 0xfffff)
	}
	return uint16(0xc000 | (fl&0x3fff ^ fl>>14))
}

// datagramPort selects the source port of a UD QP without a flow label: a
// multiplicative hash, as in rxe.
func datagramPort(qpn uint32) uint16 {
	return uint16(0xc000 + (qpn*0x61c88647)>>18)
}

// AH is an address handle.
type AH struct {
	Attr verbs.AHAttr
	pd   nic.PD
	path path
	gone bool
}

// resolve resolves an address vector. If it has no flow label, localQPN and
// remoteQPN select the UDP source port.
func (c *Config) resolve(av *verbs.AHAttr, localQPN, remoteQPN uint32) (path, error) {
	src, ok := c.gid(av.GRH.SGIDIndex)
	if !ok {
		return path{}, nic.OpError("resolve", "", "%w: GID index %d names no RoCEv2 address", verbs.ErrInvalid, av.GRH.SGIDIndex)
	}
	dst := av.GRH.DGID.Addr()
	if dst.Is4() != src.Is4() {
		return path{}, nic.OpError("resolve", "", "%w: no route from %v to %v: different IP versions", verbs.ErrInvalid, src, dst)
	}
	port := c.Link.SrcPort
	if port == 0 {
		port = sourcePort(av.GRH.FlowLabel, localQPN, remoteQPN)
	}
	p := path{
		src: netip.AddrPortFrom(src, port), dst: netip.AddrPortFrom(dst, wire.Port),
		tclass: tclass(av.GRH.TrafficClass), hopLimit: av.GRH.HopLimit, flowLabel: av.GRH.FlowLabel,
	}
	if p.hopLimit == 0 {
		p.hopLimit = defaultHopLimit
	}
	p.icrc = wire.NewICRC(p.src, p.dst)
	return p, nil
}

// defaultPath returns a path between two addresses with default header fields.
func (c *Config) defaultPath(src, dst netip.Addr) path {
	port := c.Link.SrcPort
	if port == 0 {
		port = datagramPort(gsiQPN)
	}
	pa := path{
		src: netip.AddrPortFrom(src, port), dst: netip.AddrPortFrom(dst, wire.Port),
		hopLimit: defaultHopLimit,
	}
	pa.icrc = wire.NewICRC(pa.src, pa.dst)
	return pa
}
