package rocewire

import (
	"encoding/binary"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// setBits sets the bits of mask in the BTH byte at offset to those of bits. It sets p.changed if
// that changes the byte.
func (p *packet) setBits(offset int, mask, bits byte) {
	if b := p.Payload[offset]&^mask | bits; b != p.Payload[offset] {
		p.Payload[offset] = b
		p.changed = true
	}
}

// clearMigReq is a step of the defect MigReqZero: it clears MigReq in sent packets.
func clearMigReq(_ *Filter, p *packet) (pass bool) {
	p.setBits(flagsByte, migReqBit, 0)
	return true
}

// hideMigReq is a step of the defect MigrationIgnored: it clears MigReq in received packets for a
// QP whose path migration is armed.
func hideMigReq(f *Filter, p *packet) (pass bool) {
	if q, ok := f.findQP(p.destQP()); ok && q.Armed {
		p.setBits(flagsByte, migReqBit, 0)
	}
	return true
}

// requestMADAck is a step of the defect GSIAckReq: it sets AckReq in sent management datagrams.
func requestMADAck(_ *Filter, p *packet) (pass bool) {
	const gsiQPN = 1
	if p.destQP() == gsiQPN {
		p.setBits(ackReqByte, ackReqBit, ackReqBit)
	}
	return true
}

// dropReservedBits is a step of the defect ReservedBitsChecked: it drops received packets that have
// reserved bits of the BTH set.
func dropReservedBits(_ *Filter, p *packet) (pass bool) {
	return p.Payload[4]&reserved6 == 0 && p.Payload[ackReqByte]&reserved7 == 0
}

// dropReservedOpcode is a step of the defect ReservedOpSilent: it drops a received packet with a
// reserved opcode and the expected PSN of a connected QP, which the NIC would answer with a NAK.
func dropReservedOpcode(f *Filter, p *packet) (pass bool) {
	if _, known := p.opcode().Info(); known {
		return true
	}
	q, ok := f.findQP(p.destQP())
	drop := ok && q.Peer.IsValid() && p.psn() == q.NextPSN
	return !drop
}

// fixHopLimit is a step of the defect FixedHopLimit: it sets the hop limit of sent packets to 64,
// and so ignores the hop limit of the QP's path.
func fixHopLimit(_ *Filter, p *packet) (pass bool) {
	p.HopLimit = 64
	return true
}

// ignoreCongestion is a step of the defect NoCongestion: it drops received CNPs and clears ECN.
func ignoreCongestion(_ *Filter, p *packet) (pass bool) {
	p.TClass &^= link.ECN
	return p.opcode() != wire.CNP
}

// clearECN is a step of the defect NoCongestion: it marks sent packets as not ECN-capable.
func clearECN(_ *Filter, p *packet) (pass bool) {
	p.TClass &^= link.ECN
	return true
}

// copyECN is a step of the defect ECNFromTClass: it sets the ECN bits of a sent packet to those of
// the connection's traffic class.
func copyECN(f *Filter, p *packet) (pass bool) {
	for _, q := range f.nic.QPs() {
		if q.PeerQPN == p.destQP() && q.Peer == p.Dst.Addr() && q.Service == p.opcode().Transport() {
			p.TClass = p.TClass&^link.ECN | q.TClass&link.ECN
		}
	}
	return true
}

// removeCredits makes the credits of an acknowledgement unlimited. The defect NoCreditReporting
// applies it to sent packets, and NoCreditHeeding to received ones.
func removeCredits(_ *Filter, p *packet) (pass bool) {
	if h := p.header(wire.HasAETH); h != nil && wire.Syndrome(h[0]).Kind() == wire.SyndromeAck {
		p.setSyndrome(wire.Ack(wire.CreditUnlimited))
	}
	return true
}

// incrementAckPSN is a step of the defect AckPSNOff: it adds one to the PSN of sent ACKs and NAKs.
func incrementAckPSN(_ *Filter, p *packet) (pass bool) {
	if p.isReliable(wire.OpAcknowledge) {
		p.setPSN(p.psn().Next())
	}
	return true
}

// hideSequenceNAK is a step of the defect NAKWaitsForTimer: it replaces a received sequence NAK by
// an ACK of the packet before the missing one, which the NAK implies.
func hideSequenceNAK(_ *Filter, p *packet) (pass bool) {
	if s, ok := p.syndrome(); ok && s == wire.Nak(wire.NakPSNSequence) {
		p.setSyndrome(wire.Ack(wire.CreditUnlimited))
		p.setPSN(p.psn().Add(-1))
	}
	return true
}

// nakDelay is the delay of NAKLate.
const nakDelay = 10 * time.Millisecond

// delayNAK is a step of the defect NAKLate: it removes a sequence NAK from the packets to send and
// keeps it in f.delayed, from which Output sends it nakDelay later.
func delayNAK(f *Filter, p *packet) (pass bool) {
	if s, ok := p.syndrome(); ok && s == wire.Nak(wire.NakPSNSequence) {
		f.delayed = append(f.delayed, *p)
		return false
	}
	return true
}

// recordHugeLength is a step of the defect HugeLengthIsAccess: it records the PSN of a received
// request for more than 2^31 bytes. With the defect, the NAK of such a request reports an access
// error instead of an invalid request (changeHugeNAK).
func recordHugeLength(f *Filter, p *packet) (pass bool) {
	const maxMessage, lengthOffset = 1 << 31, 12
	if h := p.header(wire.HasRETH); h != nil && binary.BigEndian.Uint32(h[lengthOffset:]) > maxMessage {
		if q, ok := f.findQP(p.destQP()); ok && q.Peer.IsValid() {
			f.hugeAt[remoteQP{q.Peer, q.PeerQPN}] = p.psn()
		}
	}
	return true
}

// changeHugeNAK is a step of the defect HugeLengthIsAccess: it changes the NAK of a request that
// recordHugeLength has recorded to one for an access error.
func changeHugeNAK(f *Filter, p *packet) (pass bool) {
	s, _ := p.syndrome()
	psn, ok := f.hugeAt[remoteQP{p.Dst.Addr(), p.destQP()}]
	if ok && psn == p.psn() && s == wire.Nak(wire.NakInvalidRequest) {
		p.setSyndrome(wire.Nak(wire.NakRemoteAccess))
	}
	return true
}

// fillCompare is a step of the defect FetchAddLeaks: it fills the compare field of a sent
// FETCH_ADD, which receivers ignore, with the contents of old memory, as the Linux driver rxe does.
func fillCompare(_ *Filter, p *packet) (pass bool) {
	const compareOffset, oldMemory = 20, 0x00000005b87807f7 // a value that rxe has sent
	if h := p.header(wire.HasAtomicETH); h != nil && p.isReliable(wire.OpFetchAdd) {
		binary.BigEndian.PutUint64(h[compareOffset:], oldMemory)
		p.changed = true
	}
	return true
}
