package engine

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// path is a resolved address vector: the addresses and IP header fields of its packets.
type path struct {
	src, dst  netip.AddrPort
	tclass    uint8
	hopLimit  uint8
	flowLabel uint32
	icrc      wire.ICRC

	migErrReported bool // alternate path: PATH_MIG_ERR was reported
}

// matches reports whether a received datagram has the addresses of pa, reversed.
func (pa *path) matches(d *link.Datagram) bool {
	return d.Src.Addr() == pa.dst.Addr() && d.Dst.Addr() == pa.src.Addr()
}

const defaultHopLimit = 64

// sourcePort selects the UDP source port as Linux does (rdma_flow_label_to_udp_sport).
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

// datagramPort hashes the number of a UD QP to its source port if it has no flow label, as in rxe.
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

// resolve returns the path for an address vector, with ECT(0) in the traffic class. The UDP source
// port is Link.SrcPort if that is set; else it follows from the flow label or, without one, from
// the QPNs.
func (c *Config) resolve(av *verbs.AHAttr, localQPN, remoteQPN uint32) (path, error) {
	src, ok := c.gid(av.GRH.SGIDIndex)
	if !ok {
		return path{}, fmt.Errorf("%w: GID index %d names no RoCEv2 address", verbs.ErrInvalid, av.GRH.SGIDIndex)
	}
	dst := av.GRH.DGID.Addr()
	if dst.Is4() != src.Is4() {
		return path{}, fmt.Errorf("%w: no route from %v to %v: different IP versions", verbs.ErrInvalid, src, dst)
	}
	port := cmp.Or(c.Link.SrcPort, sourcePort(av.GRH.FlowLabel, localQPN, remoteQPN))
	p := path{
		src: netip.AddrPortFrom(src, port), dst: netip.AddrPortFrom(dst, wire.Port),
		tclass: av.GRH.TrafficClass&^link.ECN | link.ECT0, hopLimit: cmp.Or(av.GRH.HopLimit, defaultHopLimit), flowLabel: av.GRH.FlowLabel,
	}
	p.icrc = wire.NewICRC(p.src, p.dst)
	return p, nil
}

// defaultPath returns a path for MADs, and for CNPs to senders of datagrams, with default header
// fields. Its source port is that of QP1, from which MADs are sent.
func (c *Config) defaultPath(src, dst netip.Addr) path {
	pa := path{
		src: netip.AddrPortFrom(src, cmp.Or(c.Link.SrcPort, datagramPort(gsiQPN))), dst: netip.AddrPortFrom(dst, wire.Port),
		hopLimit: defaultHopLimit,
	}
	pa.icrc = wire.NewICRC(pa.src, pa.dst)
	return pa
}
