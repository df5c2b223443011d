package rocewire

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

const gsiQPN = 1

// onlyIPv4 (IPv6Dead) loses packets over IPv6.
func onlyIPv4(_ *Edge, p *packet) bool { return p.Is4() }

// unpadded (FrameEndICRC) loses packets in padded frames, as Ethernet makes of those
// below its least length: the last four bytes of such a frame are no ICRC.
func unpadded(_ *Edge, p *packet) bool {
	const leastFrame = 46 // without Ethernet's own header and FCS
	return p.IPBytes() >= leastFrame && p.Variants&link.Padded == 0
}

// checksummed (UDPChecksumRequired) loses packets that leave the UDP checksum out.
func checksummed(_ *Edge, p *packet) bool { return p.Variants&link.NoChecksum == 0 }

// plainly (PlainSocket) has a packet look as from a socket that nobody has told
// about RoCE.
func plainly(_ *Edge, p *packet) bool {
	p.Variants, p.changed = link.MayFragment, true
	return true
}

// withDF (DFUnchecked) shows the engine a packet whose DF bit is clear, which
// only its ICRC tells, as if it were set.
func withDF(e *Edge, p *packet) bool {
	if !e.icrc || !p.Is4() || len(p.Payload) < wire.BTHLen+wire.ICRCLen || e.intact(p) {
		return true
	}
	// A CRC is linear: what the bit contributes does not depend on the rest, and
	// so not on an identification that nobody sees.
	p.Variants &^= link.MayFragment
	body, icrc := p.split()
	icrc ^= icrcOf(&p.Datagram, body, true, 0) ^ icrcOf(&p.Datagram, body, false, 0)
	binary.LittleEndian.PutUint32(p.Payload[len(body):], icrc)
	return true
}

// lenient (ICRCUnchecked) makes the ICRC right if it is wrong only in what the check
// should not leave out.
func lenient(e *Edge, p *packet) bool {
	if !e.icrc || len(p.Payload) < wire.BTHLen+wire.ICRCLen || e.intact(p) {
		return true
	}
	right := e.tried(p.reversed()) || e.blind(p) || e.anyAckReq(p) || e.zeroPad(p)
	if right {
		e.seal(p)
	}
	return true
}

// tried reports whether a changed copy of a packet is intact.
func (e *Edge) tried(c packet) bool { return e.intact(&c) }

func (e *Edge) blind(p *packet) bool {
	c := *p
	c.IPID = link.IPIDUnknown
	return p.Is4() && e.intact(&c)
}

func (e *Edge) anyAckReq(p *packet) bool {
	c := *p
	c.Payload = slices.Clone(p.Payload)
	for v := range 256 {
		if c.Payload[8] = byte(v); e.intact(&c) {
			return true
		}
	}
	return false
}

func (e *Edge) zeroPad(p *packet) bool {
	n := len(p.Payload) - wire.ICRCLen
	if n-p.pad() < wire.BTHLen {
		return false
	}
	c := *p
	c.Payload = slices.Clone(p.Payload)
	clear(c.Payload[n-p.pad() : n])
	return e.intact(&c)
}

// unchanged (ICRCCheckUnmasked) loses packets that are not as a sender made them
// which puts nothing of its own into the fields that routers may change.
func unchanged(_ *Edge, p *packet) bool {
	const sent = 64
	return p.Variants&link.NoChecksum != 0 && p.HopLimit == sent && p.TClass == 0 && p.FlowLabel == 0 && (len(p.Payload) < wire.BTHLen || p.Payload[4] == 0)
}

// addressed (IPUnchecked) shows the engine a packet to the port and the address
// that it should have gone to.
func addressed(e *Edge, p *packet) bool {
	to := p.Dst.Addr()
	if !to.IsMulticast() {
		gids := e.nic.GIDs()
		known := func(g verbs.GIDEntry) bool { return g.GID.Addr() == to }
		if !slices.ContainsFunc(gids, known) {
			return true
		}
		usable := func(g verbs.GIDEntry) bool {
			return g.Type == verbs.GIDTypeRoCEv2 && g.GID.Addr().Is4() == to.Is4()
		}
		if q, ok := e.qp(p.destQP()); ok && q.Own.IsValid() && q.Own.Is4() == to.Is4() {
			to = q.Own
		} else if i := slices.IndexFunc(gids, usable); i >= 0 && !slices.ContainsFunc(gids, func(g verbs.GIDEntry) bool { return usable(g) && known(g) }) {
			to = gids[i].GID.Addr()
		}
	}
	if dst := netip.AddrPortFrom(to, wire.Port); dst != p.Dst {
		p.Dst, p.changed = dst, true
	}
	return true
}

// toSomeQP (QPNLoose) finds a QP for a packet that is for none.
func toSomeQP(e *Edge, p *packet) bool {
	num := p.destQP()
	if num == 0 {
		p.setDestQP(gsiQPN)
		return true
	}
	multicast := num == uint32(verbs.MulticastQPN) && p.Dst.Addr().IsMulticast()
	if _, exists := e.qp(num); exists || multicast || num == gsiQPN {
		return true
	}
	for _, q := range e.nic.QPs() {
		fits := q.Service == p.opcode().Transport()
		if p.opcode() == wire.CNP {
			fits = q.Peer.IsValid()
		}
		if fits {
			p.setDestQP(q.Num)
			break
		}
	}
	return true
}

// noDSCP (AnswersNoDSCP) clears the traffic class of answers.
func noDSCP(_ *Edge, p *packet) bool {
	if p.class().Has(wire.Response) {
		p.TClass = 0
	}
	return true
}

// fromFirst (PrimaryAddressUsed) has everything leave from the first address of
// its family.
func fromFirst(e *Edge, p *packet) bool {
	for _, g := range e.nic.GIDs() {
		if a := g.GID.Addr(); g.Type == verbs.GIDTypeRoCEv2 && a.Is4() == p.Is4() {
			p.sentBy(a)
			break
		}
	}
	return true
}

// nextPort (SourcePortPerPacket) gives each packet a source port of its own.
func nextPort(e *Edge, p *packet) bool {
	const first, count = 0xc000, 0x4000
	p.Src = netip.AddrPortFrom(p.Src.Addr(), first+e.ports%count)
	e.ports++
	p.changed = true
	return true
}

// trail (TrailingBytes) lets four bytes follow the ICRC, which all lengths count.
func trail(_ *Edge, p *packet) bool {
	p.trailer, p.changed = 4, true
	return true
}

// qp returns the QP of a number.
func (e *Edge) qp(num uint32) (QP, bool) {
	for _, q := range e.nic.QPs() {
		if q.Num == num {
			return q, true
		}
	}
	return QP{}, false
}
