package rocewire

import (
	"encoding/binary"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// setBits sets the bits of mask in the byte of the BTH at an offset to bits, and notes whether that changes the packet.
func (p *packet) setBits(offset int, mask, bits byte) {
	if b := p.Payload[offset]&^mask | bits; b != p.Payload[offset] {
		p.Payload[offset] = b
		p.changed = true
	}
}

// clearMigReq (MigReqZero) clears MigReq.
func clearMigReq(_ *Filter, p *packet) bool {
	p.setBits(flagsByte, migReqBit, 0)
	return true
}

// hideMigReq (MigrationIgnored) clears MigReq in packets for a QP whose path migration is armed.
func hideMigReq(f *Filter, p *packet) bool {
	if q, ok := f.findQP(p.destQP()); ok && q.Armed {
		p.setBits(flagsByte, migReqBit, 0)
	}
	return true
}

// requestMADAck (GSIAckReq) sets AckReq in management datagrams.
func requestMADAck(_ *Filter, p *packet) bool {
	const gsiQPN = 1
	if p.destQP() == gsiQPN {
		p.setBits(ackReqByte, ackReqBit, ackReqBit)
	}
	return true
}

// dropReservedBits (ReservedBitsChecked) drops packets that have reserved bits of the BTH set.
func dropReservedBits(_ *Filter, p *packet) bool {
	return p.Payload[4]&reserved6 == 0 && p.Payload[ackReqByte]&reserved7 == 0
}

// dropReservedOpcode (ReservedOpSilent) drops a packet with a reserved opcode and the expected PSN of a connected QP,
// which the engine would answer with a NAK.
func dropReservedOpcode(f *Filter, p *packet) bool {
	if _, known := p.opcode().Info(); known {
		return true
	}
	q, ok := f.findQP(p.destQP())
	return !ok || !q.Peer.IsValid() || p.psn() != q.NextPSN
}

// fixHopLimit (FixedHopLimit) sets the hop limit to 64, whatever that of the path is.
func fixHopLimit(_ *Filter, p *packet) bool {
	p.HopLimit = 64
	return true
}

// ignoreCongestion (NoCongestion) drops received CNPs and removes congestion marks.
func ignoreCongestion(_ *Filter, p *packet) bool {
	p.TClass &^= link.ECN
	return p.opcode() != wire.CNP
}

// clearECN (NoCongestion) marks packets as not ECN-capable.
func clearECN(_ *Filter, p *packet) bool {
	p.TClass &^= link.ECN
	return true
}

// copyECN (ECNFromTClass) sets the ECN bits of a packet to those of the connection's traffic class.
func copyECN(f *Filter, p *packet) bool {
	for _, q := range f.nic.QPs() {
		if q.PeerQPN == p.destQP() && q.Peer == p.Dst.Addr() && q.Service == p.opcode().Transport() {
			p.TClass = p.TClass&^link.ECN | q.TClass&link.ECN
		}
	}
	return true
}

// removeCredits (NoCreditReporting, NoCreditHeeding) makes the credits of an acknowledgement unlimited.
func removeCredits(_ *Filter, p *packet) bool {
	if h := p.header(wire.HasAETH); h != nil && wire.Syndrome(h[0]).Kind() == wire.SyndromeAck {
		p.setSyndrome(wire.Ack(wire.CreditUnlimited))
	}
	return true
}

// incrementAckPSN (AckPSNOff) adds one to the PSN of ACKs and NAKs.
func incrementAckPSN(_ *Filter, p *packet) bool {
	if p.isReliable(wire.OpAcknowledge) {
		p.setPSN(p.psn().Next())
	}
	return true
}

// hideSequenceNAK (NAKWaitsForTimer) replaces a sequence NAK by the ACK that it implies.
func hideSequenceNAK(_ *Filter, p *packet) bool {
	if s, ok := p.syndrome(); ok && s == wire.Nak(wire.NakPSNSequence) {
		p.setSyndrome(wire.Ack(wire.CreditUnlimited))
		p.setPSN(p.psn().Add(-1))
	}
	return true
}

// nakDelay is the delay of NAKLate.
const nakDelay = 10 * time.Millisecond

// delayNAK (NAKLate) keeps a sequence NAK, which Output sends after nakDelay.
func delayNAK(f *Filter, p *packet) bool {
	if s, ok := p.syndrome(); !ok || s != wire.Nak(wire.NakPSNSequence) {
		return true
	}
	f.delayed = append(f.delayed, *p)
	return false
}

// recordHugeLength (HugeLengthIsAccess) records the PSN of a request that is longer than allowed.
func recordHugeLength(f *Filter, p *packet) bool {
	const maxMessage = 1 << 31
	var reth wire.RETH
	h := p.header(wire.HasRETH)
	if h == nil {
		return true
	}
	if _, err := reth.Parse(h); err == nil && reth.DMALen > maxMessage {
		if q, ok := f.findQP(p.destQP()); ok && q.Peer.IsValid() {
			f.hugeAt[remoteQP{q.Peer, q.PeerQPN}] = p.psn()
		}
	}
	return true
}

// changeHugeNAK (HugeLengthIsAccess) sends the NAK for an access error in answer to a request that recordHugeLength has
// recorded.
func changeHugeNAK(f *Filter, p *packet) bool {
	s, _ := p.syndrome()
	psn, ok := f.hugeAt[remoteQP{p.Dst.Addr(), p.destQP()}]
	if ok && psn == p.psn() && s == wire.Nak(wire.NakInvalidRequest) {
		p.setSyndrome(wire.Nak(wire.NakRemoteAccess))
	}
	return true
}

// fillCompare (FetchAddLeaks) fills the compare field of a FETCH_ADD, which has no meaning there. rxe sends old memory
// in it.
func fillCompare(_ *Filter, p *packet) bool {
	const compareOffset, oldMemory = 20, 0x00000005b87807f7 // as seen from rxe
	if h := p.header(wire.HasAtomicETH); h != nil && p.isReliable(wire.OpFetchAdd) {
		binary.BigEndian.PutUint64(h[compareOffset:], oldMemory)
		p.changed = true
	}
	return true
}
