package verbsapi

import (
	"encoding/binary"
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var atomicCases = overBoth([]conformance.Case{
	{
		ID:    "verbs/atomic/compare-and-swap",
		Title: "A compare-and-swap stores its operand where the word is as expected, and returns the word of before either way",
		Cite:  manual("9.4.5", "verbs/atomic/1"), Level: conformance.Must, Needs: verbs.CapAtomics,
		Sends:   "one that expects what is there, and one that does not",
		Expects: "the first swapped, the second not; the word of before as the result of both, in the byte order of the host",
		Defects: []string{"AtomicOperandsSwapped"},
		Run: onReliable(func(l *link) {
			at := l.far.word()
			l.far.setWord(100)
			l.near.does(verbs.OpAtomicCmpAndSwp, at, verbs.Atomic{CompareAdd: 100, Swap: 1<<40 + 7}, 100)
			l.near.does(verbs.OpAtomicCmpAndSwp, at, verbs.Atomic{CompareAdd: 100, Swap: 5}, 1<<40+7)
			l.near.does(verbs.OpAtomicFetchAdd, at, verbs.Atomic{}, 1<<40+7)
		}),
	},
	{
		ID:    "verbs/atomic/fetch-and-add",
		Title: "A fetch-and-add adds its operand, around the end of the numbers, and returns the word of before",
		Cite:  manual("9.4.5", "verbs/atomic/1"), Level: conformance.Must, Needs: verbs.CapAtomics,
		Sends:   "additions of 1, of 2^40 and of the number that makes 0",
		Expects: "the sums, and the word of before as each result",
		Defects: []string{"AtomicAddendCut"},
		Run: onReliable(func(l *link) {
			at := l.far.word()
			l.far.setWord(41)
			l.near.does(verbs.OpAtomicFetchAdd, at, verbs.Atomic{CompareAdd: 1}, 41)
			l.near.does(verbs.OpAtomicFetchAdd, at, verbs.Atomic{CompareAdd: 1 << 40}, 42)
			sum := uint64(42 + 1<<40)
			l.near.does(verbs.OpAtomicFetchAdd, at, verbs.Atomic{CompareAdd: -sum}, sum)
			l.near.does(verbs.OpAtomicFetchAdd, at, verbs.Atomic{}, 0)
		}),
	},
	{
		ID:    "verbs/atomic/result-is-eight-bytes",
		Title: "The local memory of an atomic is eight bytes, in as many pieces as one likes",
		Cite:  manual("ibv_post_send(3)", "verbs/atomic/2"), Level: conformance.Must, Needs: verbs.CapAtomics,
		Sends:   "fetch-and-adds with local memory of 4 and 16 bytes; and of 3 and 5 bytes",
		Expects: "that the former are refused or fail, the word as it was; the result in both pieces of the latter",
		Defects: []string{"AtomicSinkCut"},
		Run: rig.Body(func(r *rig.Rig) {
			d := r2(r)
			for _, size := range []int{4, 16} {
				l := d.link(setup{})
				l.far.setWord(7)
				wr := l.near.atomicWR(1, verbs.OpAtomicFetchAdd, l.far.word(), verbs.Atomic{CompareAdd: 1})
				wr.SGL = l.near.mem.SGL(toOff, size)
				l.near.fails(fmt.Sprintf("an atomic with local memory of %d bytes", size), wr)
				r.Check(l.far.theWord() == 7, "the word as it was, 7", "%d", l.far.theWord())
			}
			l := d.link(setup{})
			l.far.setWord(0x1122334455667788)
			wr := l.near.atomicWR(1, verbs.OpAtomicFetchAdd, l.far.word(), verbs.Atomic{CompareAdd: 1})
			wr.SGL = []verbs.SGE{l.near.mem.SGE(toOff, 3), l.near.mem.SGE(toOff+64, 5)}
			l.near.PostSend(l.near.qp, wr)
			l.near.ExpectCompletion(1, verbs.WCSuccess)
			want := binary.NativeEndian.AppendUint64(nil, 0x1122334455667788)
			l.near.ExpectBytes(l.near.mem, toOff, want[:3])
			l.near.ExpectBytes(l.near.mem, toOff+64, want[3:])
		}),
	},
	{
		ID:    "verbs/atomic/aligned-only",
		Title: "An atomic on a word that is not aligned to eight bytes fails, and changes nothing",
		Cite:  manual("9.4.5", "verbs/atomic/3"), Level: conformance.Must, Needs: verbs.CapAtomics,
		Sends:   "a fetch-and-add four bytes into a word",
		Expects: "that it is refused or fails; the word, and the next, as they were",
		Defects: []string{"AtomicAligned"},
		Run: onReliable(func(l *link) {
			l.far.setWord(7)
			at := l.far.word()
			at.Addr += 4
			l.near.fails("an atomic at an address that is not aligned", l.near.atomicWR(1, verbs.OpAtomicFetchAdd, at, verbs.Atomic{CompareAdd: 1}))
			l.near.Check(l.far.theWord() == 7, "the word as it was, 7", "%d", l.far.theWord())
		}),
	},
})

// wordOff is where in its memory an end has a word for atomics; the memory need not be
// aligned itself.
func (e *end) wordOff() int { return int(-e.mem.Addr() & 7) }

// word names it to the peer.
func (e *end) word() verbs.Remote { return e.mem.Remote(e.wordOff()) }

// setWord and theWord set and return it: a number of the host. A verb that changes
// nothing lies between what the program does with the word and what the device does,
// which both learn of each other only by the peer.
func (e *end) setWord(v uint64) {
	binary.NativeEndian.PutUint64(e.mem.Buf[e.wordOff():], v)
	portOf(e.Rig)
}

func (e *end) theWord() uint64 {
	portOf(e.Rig)
	return binary.NativeEndian.Uint64(e.mem.Buf[e.wordOff():])
}

// atomicWR is a request for an atomic whose result comes to toOff.
func (e *end) atomicWR(id uint64, op verbs.WROpcode, at verbs.Remote, operands verbs.Atomic) verbs.SendWR {
	return verbs.SendWR{WRID: id, Opcode: op, Flags: verbs.SendSignaled, SGL: e.mem.SGL(toOff, 8), Remote: at, Atomic: operands, UD: e.to}
}

// does ends the case unless an atomic returns this.
func (e *end) does(op verbs.WROpcode, at verbs.Remote, operands verbs.Atomic, want uint64) {
	e.PostSend(e.qp, e.atomicWR(79, op, at, operands))
	e.ExpectCompletion(79, verbs.WCSuccess)
	got := binary.NativeEndian.Uint64(e.mem.Buf[toOff:])
	e.Check(got == want, fmt.Sprintf("%#x as the result of %v", want, op), "%#x", got)
}
