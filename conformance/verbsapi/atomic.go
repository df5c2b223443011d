package verbsapi

import (
	"encoding/binary"
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var atomicCases = alsoOverRD([]conformance.Case{{
	ID: "verbs/atomic/compare-and-swap", Cite: cite("9.4.5", "verbs/atomic/1"), Needs: verbs.CapAtomics,
	Title:   "A compare-and-swap stores its operand if the word is as expected, and returns the original word in any case",
	Sends:   "one with the current value, and one with another, by the device and by its partner",
	Expects: "the first is swapped, the second is not; both return the original word in host byte order",
	Defects: []string{"AtomicOperandsSwapped"}, Run: onPair(setup{}, func(l *qpPair) {
		for _, dir := range []struct{ from, to *endpoint }{{l.dut, l.partner}, {l.partner, l.dut}} {
			at := dir.to.wordRemote()
			dir.to.setWord(1<<60 + 100)
			dir.from.expectAtomic(verbs.OpAtomicCmpAndSwp, at, verbs.Atomic{CompareAdd: 1<<60 + 100, Swap: 1<<40 + 7}, 1<<60+100)
			dir.from.expectAtomic(verbs.OpAtomicCmpAndSwp, at, verbs.Atomic{CompareAdd: 7, Swap: 5}, 1<<40+7)
			dir.from.expectAtomic(verbs.OpAtomicFetchAdd, at, verbs.Atomic{}, 1<<40+7)
		}
	}),
}, {
	ID: "verbs/atomic/fetch-and-add", Cite: cite("9.4.5", "verbs/atomic/1"), Needs: verbs.CapAtomics,
	Title:   "A fetch-and-add adds its operand modulo 2^64, and returns the original word",
	Sends:   "additions of 1, of 2^40 and of the complement to 0, by the device and by its partner",
	Expects: "the sums, and the original word as each result",
	Defects: []string{"AtomicAddendCut"}, Run: onPair(setup{}, func(l *qpPair) {
		for _, dir := range []struct{ from, to *endpoint }{{l.dut, l.partner}, {l.partner, l.dut}} {
			at := dir.to.wordRemote()
			dir.to.setWord(41)
			dir.from.expectAtomic(verbs.OpAtomicFetchAdd, at, verbs.Atomic{CompareAdd: 1}, 41)
			dir.from.expectAtomic(verbs.OpAtomicFetchAdd, at, verbs.Atomic{CompareAdd: 1 << 40}, 42)
			sum := uint64(42 + 1<<40)
			dir.from.expectAtomic(verbs.OpAtomicFetchAdd, at, verbs.Atomic{CompareAdd: -sum}, sum)
			dir.from.expectAtomic(verbs.OpAtomicFetchAdd, at, verbs.Atomic{}, 0)
		}
	}),
}, {
	ID:   "verbs/atomic/result-is-eight-bytes",
	Cite: cite("ibv_post_send(3)", "verbs/atomic/2"), Needs: verbs.CapAtomics,
	Title:   "The local buffer of an atomic is eight bytes, in any number of entries",
	Sends:   "fetch-and-adds with local memory of 4 and 16 bytes; and of 3 and 5 bytes",
	Expects: "the former are refused or fail, and the word is unchanged; the result is in both entries of the latter",
	Defects: []string{"AtomicSinkCut"}, Run: rig.PairBody(func(d *rig.Pair) {
		for _, size := range []int{4, 16} {
			l := newPair(d, setup{})
			l.partner.setWord(7)
			wr := l.dut.atomicWR(1, verbs.OpAtomicFetchAdd, l.partner.wordRemote(), verbs.Atomic{CompareAdd: 1})
			wr.SGL = l.dut.mem.SGL(recvOffset, size)
			l.dut.expectFailure(fmt.Sprintf("an atomic with local memory of %d bytes", size), wr)
			d.DUT.Check(l.partner.readWord() == 7, "the word unchanged, 7", "%d", l.partner.readWord())
		}
		l := newPair(d, setup{})
		l.partner.setWord(0x1122334455667788)
		wr := l.dut.atomicWR(1, verbs.OpAtomicFetchAdd, l.partner.wordRemote(), verbs.Atomic{CompareAdd: 1})
		wr.SGL = []verbs.SGE{l.dut.mem.SGE(recvOffset, 3), l.dut.mem.SGE(recvOffset+64, 5)}
		l.dut.execute(wr)
		want := binary.NativeEndian.AppendUint64(nil, 0x1122334455667788)
		l.dut.ExpectBytes(l.dut.mem, recvOffset, want[:3])
		l.dut.ExpectBytes(l.dut.mem, recvOffset+64, want[3:])
	}),
}, {
	ID: "verbs/atomic/aligned-only", Cite: cite("9.4.5", "verbs/atomic/3"), Needs: verbs.CapAtomics,
	Title:   "An atomic on a word that is not aligned to eight bytes fails, and changes nothing",
	Sends:   "a fetch-and-add four bytes into a word, and a compare-and-swap one byte into it",
	Expects: "it is refused or fails; the word and the next are unchanged",
	Defects: []string{"AtomicAligned"}, Run: rig.PairBody(func(d *rig.Pair) {
		for i, op := range []verbs.WROpcode{verbs.OpAtomicFetchAdd, verbs.OpAtomicCmpAndSwp} {
			off := uint64(4 - 3*i)
			l := newPair(d, setup{})
			at := l.partner.wordRemote()
			at.Addr += off
			is := binary.NativeEndian.Uint64(l.partner.mem.Buf[l.partner.mem.WordOffset(0)+int(off):])
			l.dut.expectFailure("an atomic at an address that is not aligned", l.dut.atomicWR(1, op, at, verbs.Atomic{CompareAdd: is, Swap: 7}))
			l.partner.ExpectUntouched(l.partner.mem)
		}
	}),
}})

// wordRemote returns the remote address of the first aligned 8-byte word of the endpoint's memory.
func (e *endpoint) wordRemote() verbs.Remote { return e.mem.Remote(e.mem.WordOffset(0)) }

// setWord sets the first aligned 8-byte word, in host byte order. It calls a verb after that, which
// copies the buffer to a device on another host.
func (e *endpoint) setWord(v uint64) {
	binary.NativeEndian.PutUint64(e.mem.Buf[e.mem.WordOffset(0):], v)
	e.QueryPort()
}

// readWord returns the first aligned 8-byte word. It calls a verb first, which copies the memory of
// a device on another host to the buffer.
func (e *endpoint) readWord() uint64 {
	e.QueryPort()
	return binary.NativeEndian.Uint64(e.mem.Buf[e.mem.WordOffset(0):])
}

// atomicWR returns an atomic request on the word at a remote address, with the result at
// recvOffset.
func (e *endpoint) atomicWR(id uint64, op verbs.WROpcode, at verbs.Remote, operands verbs.Atomic) verbs.SendWR {
	return verbs.SendWR{WRID: id, Opcode: op, Flags: verbs.SendSignaled, SGL: e.mem.SGL(recvOffset, 8), Remote: at, Atomic: operands, UD: e.udDest}
}

// expectAtomic fails the case unless an atomic on the word at a remote address returns want.
func (e *endpoint) expectAtomic(op verbs.WROpcode, at verbs.Remote, operands verbs.Atomic, want uint64) {
	const id = 79
	e.execute(e.atomicWR(id, op, at, operands))
	got := binary.NativeEndian.Uint64(e.mem.Buf[recvOffset:])
	e.Check(got == want, fmt.Sprintf("%#x as the result of %v", want, op), "%#x", got)
}
