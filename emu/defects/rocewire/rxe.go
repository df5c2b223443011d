package rocewire

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// clearMigReq (MigReqZero) clears MigReq.
func clearMigReq(_ *Edge, p *packet) bool {
	if p.Payload[1]&migReq != 0 {
		p.Payload[1] &^= migReq
		p.changed = true
	}
	return true
}

// requestMADAck (GSIAckReq) sets AckReq in management datagrams.
func requestMADAck(_ *Edge, p *packet) bool {
	if p.destQP() == gsiQPN {
		p.Payload[8] |= ackReq
		p.changed = true
	}
	return true
}

// fixHopLimit (FixedHopLimit) ignores the hop limit of the path.
func fixHopLimit(_ *Edge, p *packet) bool {
	p.HopLimit = 64
	return true
}

// removeCredits (NoCreditReporting, NoCreditHeeding) makes the credits of an
// acknowledgement unlimited.
func removeCredits(_ *Edge, p *packet) bool {
	if h := p.header(wire.HasAETH); h != nil && wire.Syndrome(h[0]).Kind() == wire.SyndromeAck {
		p.setSyndrome(wire.Ack(wire.CreditUnlimited))
	}
	return true
}

// ignoreCongestion (NoCongestion) drops CNPs and removes congestion marks.
func ignoreCongestion(_ *Edge, p *packet) bool {
	p.TClass &^= link.ECN
	return p.opcode() != wire.CNP
}

// clearECT (NoCongestion) marks packets as not ECN-capable.
func clearECT(_ *Edge, p *packet) bool {
	p.TClass &^= link.ECN
	return true
}

// copyECN (ECNFromTClass) sends the ECN bits of the connection's traffic class.
func copyECN(e *Edge, p *packet) bool {
	for _, q := range e.nic.QPs() {
		if q.PeerQPN == p.destQP() && q.Peer == p.Dst.Addr() && q.Service == p.opcode().Transport() {
			p.TClass = p.TClass&^link.ECN | q.TClass&link.ECN
		}
	}
	return true
}

// leakCompare (FetchAddLeaks) fills the compare field of a FETCH_ADD, which has no meaning
// there. rxe sends old memory in it.
func leakCompare(_ *Edge, p *packet) bool {
	const compareOffset, oldMemory = 20, 0x00000005b87807f7 // as seen from rxe
	if h := p.header(wire.HasAtomicETH); h != nil && p.is(wire.OpFetchAdd) {
		binary.BigEndian.PutUint64(h[compareOffset:], oldMemory)
		p.changed = true
	}
	return true
}

// dropReserved (ReservedOpSilent) drops an expected request with a reserved opcode.
func dropReserved(e *Edge, p *packet) bool {
	if _, known := p.opcode().Info(); known {
		return true
	}
	_, q, ok := e.talkIn(p)
	return !ok || p.psn() != q.Expected
}

// padRagged (RaggedAccepted) pads a payload whose length is no multiple of four.
func padRagged(_ *Edge, p *packet) bool {
	if data := p.data(); len(p.Payload)&3 != 0 && data != nil {
		p.setData(p.Payload[:p.info().HeaderLen], data)
	}
	return true
}

// checkDoubledICRC (FlushICRCDoubled) replaces the doubled ICRC of a FLUSH by the right
// one, and the right one by a wrong one.
func checkDoubledICRC(e *Edge, p *packet) bool {
	if !e.icrc || len(p.Payload) < wire.BTHLen+wire.ICRCLen || !p.is(wire.OpFlush) {
		return true
	}
	body, got := p.split()
	right := icrcOf(&p.Datagram, body, false, 0)
	if got != doubledICRC(right, body) {
		right = ^got
	}
	binary.LittleEndian.PutUint32(p.Payload[len(body):], right)
	return true
}

// doubleICRC (FlushICRCDoubled) sends a FLUSH with the ICRC that rxe computes.
func (e *Edge) doubleICRC(p *packet) {
	if e.icrc && p.is(wire.OpFlush) {
		body, right := p.split()
		binary.LittleEndian.PutUint32(p.Payload[len(body):], doubledICRC(right, body))
	}
}

// doubledICRC returns an ICRC that covers the transport packet twice, the second time
// with its variant byte.
func doubledICRC(icrc uint32, body []byte) uint32 {
	return crc32.Update(icrc, crc32.IEEETable, body)
}
