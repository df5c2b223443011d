package engine

import (
	"encoding/binary"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// atomicUnit executes atomics on memory. The operands are fields of the NIC because
// a closure for each atomic would be allocated.
type atomicUnit struct {
	op               wire.Operation
	swapAdd, compare uint64
	apply            func(uint64) uint64
	word             [8]byte
}

// update executes the current operation on the word at off and returns its previous
// value.
func (u *atomicUnit) update(mem nic.Memory, off uint64) (uint64, error) {
	if u.apply == nil {
		u.apply = u.result
	}
	return mem.Update(off, u.apply)
}

func (u *atomicUnit) result(v uint64) uint64 {
	switch {
	case u.op == wire.OpFetchAdd:
		return v + u.swapAdd
	case u.op == wire.OpCompareSwap && v != u.compare:
		return v
	default: // matching COMPARE_SWAP, or ATOMIC WRITE
		return u.swapAdd
	}
}

// hostOrder returns v in the byte order of the host. The slice is valid until the
// next call.
func (u *atomicUnit) hostOrder(v uint64) []byte {
	binary.LittleEndian.PutUint64(u.word[:], v)
	return u.word[:]
}

// runAtomic executes a COMPARE_SWAP or FETCH_ADD and keeps the original value for
// duplicates.
func (q *QP) runAtomic(p *wire.Packet, e *replay) verdict {
	a := &p.AtomicETH
	mem, at, err := q.remoteMemory(a.RKey, a.VA, 8, verbs.AccessRemoteAtomic)
	if err != nil {
		return refusedAccess
	}
	u := &q.nic.atomics
	u.op, u.swapAdd, u.compare = p.BTH.Opcode.Operation(), a.SwapAdd, a.Compare
	if e.original, err = u.update(mem, at); err != nil {
		return refusedOperational
	}
	return accepted
}

// runAtomicWrite stores the eight bytes of an ATOMIC WRITE atomically.
func (q *QP) runAtomicWrite(p *wire.Packet) verdict {
	mem, at, err := q.remoteMemory(p.RETH.RKey, p.RETH.VA, 8, verbs.AccessRemoteWrite)
	if err != nil {
		return refusedAccess
	}
	var word [8]byte
	copy(word[:], p.Payload)
	u := &q.nic.atomics
	u.op, u.swapAdd = wire.OpAtomicWrite, binary.LittleEndian.Uint64(word[:])
	if _, err := u.update(mem, at); err != nil {
		return refusedOperational
	}
	return accepted
}
