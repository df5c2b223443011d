package transport

import (
	"encoding/binary"

	"github.com/fabrictest/fabrictest/mpi/memory"
	"github.com/fabrictest/fabrictest/verbs"
)

// Packet is the contents of a packet.
type Packet struct {
	Buf       *memory.Buffer
	Len       int
	CopiedLen int            // length of the part in Buf
	Gathered  *memory.Region // the rest of the packet; nil if all is in Buf
	HasImm    bool
	Imm       uint32 // immediate data
}

// AppendSGL appends the packet's scatter/gather list with the LKeys of a rail: the part in Buf,
// then the Gathered part, if any.
func (p *Packet) AppendSGL(sges []verbs.SGE, rail int) []verbs.SGE {
	sges = append(sges, p.Buf.SGE(rail, 0, p.CopiedLen))
	if p.Gathered != nil {
		sges = append(sges, p.Gathered.SGE(rail, 0, p.Len-p.CopiedLen))
	}
	return sges
}

// AppendSGLWithTail is AppendSGL for a slot of a ring: the list ends with the tail that marks the
// packet as complete. The tail is stored in Buf after the CopiedLen bytes of the packet.
func (p *Packet) AppendSGLWithTail(sges []verbs.SGE, rail int, tail uint64) []verbs.SGE {
	binary.NativeEndian.PutUint64(p.Buf.B[p.CopiedLen:], tail)
	sges = p.AppendSGL(sges, rail)
	if p.Gathered == nil {
		sges[len(sges)-1].Length += TailLen
		return sges
	}
	return append(sges, p.Buf.SGE(rail, p.CopiedLen, TailLen))
}
