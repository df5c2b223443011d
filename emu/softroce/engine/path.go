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

const defaultHopLimit = 64

// resolve resolves an address vector. If it has no flow label, localQPN and
// remoteQPN select the UDP source port.
func (n *NIC) resolve(av *verbs.AHAttr, localQPN, remoteQPN uint32) (path, error) {
	src, ok := n.gid(av.GRH.SGIDIndex)
	if !ok {
		return path{}, nic.OpError("resolve", "", "%w: GID index %d names no RoCEv2 address", verbs.ErrInvalid, av.GRH.SGIDIndex)
	}
	dst := av.GRH.DGID.Addr()
	if dst.Is4() != src.Is4() {
		return path{}, nic.OpError("resolve", "", "%w: no route from %v to %v: different IP versions", verbs.ErrInvalid, src, dst)
	}
	port := n.cfg.Link.SrcPort
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

// CreateAH makes an address handle.
func (n *NIC) CreateAH(pd nic.PD, attr verbs.AHAttr) (*AH, error) {
	if n.ahs >= n.cfg.Limits.AHs {
		return nil, nic.OpError("create_ah", "", "%w: %d handles", verbs.ErrNoMemory, n.ahs)
	}
	if attr.Port != 1 {
		return nil, nic.OpError("create_ah", "", "%w: port %d, there is only port 1", verbs.ErrInvalid, attr.Port)
	}
	if err := n.CheckPD("create_ah", pd); err != nil {
		return nil, err
	}
	p, err := n.resolve(&attr, 0, 0)
	if err != nil {
		return nil, err
	}
	n.ahs++
	n.UsePD(pd, 1)
	return &AH{Attr: attr, pd: pd, path: p}, nil
}

// DestroyAH removes an address handle.
func (n *NIC) DestroyAH(a *AH) {
	if a.gone {
		return
	}
	n.ahs--
	a.gone = true
	n.UsePD(a.pd, -1)
}
