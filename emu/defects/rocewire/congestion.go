package rocewire

import (
	"bytes"
	"encoding/binary"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// noteMark (CNPMisaddressed) notes which QP a marked packet was for; misaddress
// then has the CNP name it, in the default partition.
func noteMark(e *Edge, p *packet) bool {
	if p.ECNBits() == link.CE {
		e.marks[p.Src.Addr()] = p.destQP()
	}
	return true
}

func misaddress(e *Edge, p *packet) bool {
	if p.opcode() == wire.CNP {
		p.setDestQP(e.marks[p.Dst.Addr()])
		binary.BigEndian.PutUint16(p.Payload[2:], wire.DefaultPKey)
	}
	return true
}

// fillCNP (CNPReservedUsed) fills what has no meaning in a CNP; emptyCNP loses
// one in which it is not zero.
func fillCNP(_ *Edge, p *packet) bool {
	if p.opcode() == wire.CNP {
		p.Payload[1] |= solicited | migReq
		p.setPSN(0x123456)
		copy(p.data(), bytes.Repeat([]byte{0xff}, wire.CNPPayloadLen))
	}
	return true
}

func emptyCNP(_ *Edge, p *packet) bool {
	return p.opcode() != wire.CNP ||
		p.Payload[1]&(solicited|migReq) == 0 && p.psn() == 0 && len(bytes.Trim(p.data(), "\x00")) == 0
}

// judgeCNP (CNPTakesPSN) has the engine judge a CNP as a request of PSN 0, too: a
// WRITE of nothing, which is answered by its PSN alone.
func judgeCNP(e *Edge, p *packet) bool {
	_, q, ok := e.talkIn(p)
	if p.opcode() != wire.CNP || !ok || q.Service != wire.TransportRC {
		return true
	}
	request := e.made(p, q.Peer, q.Own, &wire.Packet{BTH: wire.BTH{
		Opcode: wire.MakeOpcode(wire.TransportRC, wire.OpWriteOnly), DestQP: q.Num, AckReq: true,
		PKey: binary.BigEndian.Uint16(p.Payload[2:]) | fullMember,
	}})
	e.hand(&request)
	return true
}

// noMigration (MigrationIgnored) hides MigReq from a QP that would follow it.
func noMigration(e *Edge, p *packet) bool {
	if _, q, ok := e.talkIn(p); ok && q.Armed && p.Payload[1]&migReq != 0 {
		p.Payload[1] &^= migReq
		p.changed = true
	}
	return true
}
