package mpi

import (
	"bytes"

	"github.com/fabrictest/fabrictest/mpi"
)

var fenceCases = []Case{{
	ID: "mpi/fence/puts", Cite: rule("mpi/11.5.1/1"), Setup: ranks(3),
	Title:   "Puts are in the target's memory behind the fence that ends their epoch, at any size",
	Sends:   "for sizes up to 1 MiB, a put to each rank at an odd offset, a fence",
	Expects: "every byte, and nothing beside it",
	Defects: []string{"PutsCut", "PutsCutLarge", "PutsOff", "FenceEarly"}, Run: func(t *T) {
		n, me := t.Size(), t.Rank()
		sizes := []int{1, 7, 8, 1000, 4096, 9001, 65_537, 1 << 20}
		const room = 1<<20 + 64
		w := t.window(n * room)
		w.fence(mpi.NoPrecede)
		for i, size := range sizes {
			for k := range n {
				w.put(data(100*i+10*me+k, size), k, me*room+9+i)
			}
			w.fence(0)
			for k := range n {
				at := k*room + 9 + i
				t.expectEqual("the data of Put", w.Memory()[at:at+size], data(100*i+10*k+me, size))
				t.check(w.Memory()[at+size] == 0 && w.Memory()[at-1] == 0, "nothing written beside it", "%#x and %#x", w.Memory()[at-1], w.Memory()[at+size])
			}
			clear(w.Memory())
			w.fence(0)
		}
		w.fence(mpi.NoSucceed)
	},
}, {
	ID: "mpi/fence/gets", Cite: rule("mpi/11.5.1/1", "mpi/11.3.2/1"), Setup: ranks(3),
	Title:   "Gets have brought the data behind the fence that ends their epoch, at any size",
	Sends:   "each rank fills its window; gets from all ranks of sizes up to 256 KiB",
	Expects: "every byte, and nothing beside it",
	Defects: []string{"GetsCut", "GetsNothing", "FenceEarly"}, Run: func(t *T) {
		const room = 1 << 18
		w := t.window(room)
		copy(w.Memory(), data(t.Rank(), room))
		w.fence(0)
		for i, size := range []int{1, 8, 1000, 4096, 9001, 65_537, room - 20} {
			w.expectGets(i, size, func() { w.fence(0) }, func(rank int) []byte { return data(rank, room)[i : i+size] })
		}
	},
}, {
	ID: "mpi/fence/closes-for-all", Cite: rule("mpi/11.5.1/2"), Setup: ranks(3),
	Title:   "No rank leaves a fence before all operations of the epoch are done, on any rank",
	Sends:   "ranks that put late, and a fence at which the others wait; a chain of puts and gets over several fences",
	Expects: "each step sees the one before",
	Defects: []string{"FenceAlone", "FenceEarly"}, Run: func(t *T) {
		n, me := t.Size(), t.Rank()
		w := t.window(8)
		w.fence(0)
		for i := range 12 {
			if i%n == me {
				t.idle()
				for k := range n {
					w.put(word(uint64(100+i)), k, 0)
				}
			}
			w.fence(0)
			t.expectEqual("the window behind the fence", w.Memory(), word(uint64(100+i)))
			w.fence(0)
		}
	},
}, {
	ID: "mpi/fence/local-stores", Cite: rule("mpi/11.5.1/3"), Setup: ranks(3),
	Title:   "What a rank stores in its own window before a fence, others get behind it",
	Sends:   "five rounds: stores, fence, gets from all, fence",
	Expects: "the stores of the round",
	Defects: []string{"FenceAlone", "GetsNothing"}, Run: func(t *T) {
		n, me := t.Size(), t.Rank()
		w := t.window(32)
		for i := range 5 {
			if me == i%n {
				t.idle()
			}
			copy(w.Memory(), data(10*i+me, 32))
			w.fence(mpi.NoPut)
			w.expectGets(0, 32, func() { w.fence(0) }, func(rank int) []byte { return data(10*i+rank, 32) })
		}
	},
}, {
	ID: "mpi/fence/to-oneself", Cite: rule("mpi/11.3/2"),
	Title:   "A rank can put to and get from its own window",
	Sends:   "a put to oneself, a fence, a get of it",
	Expects: "the data",
	Defects: []string{"SelfPutsLost", "GetsNothing"}, Run: func(t *T) {
		w := t.window(100)
		w.fence(0)
		w.put(data(t.Rank(), 60), t.Rank(), 20)
		w.fence(0)
		t.expectEqual("the window", w.Memory()[20:80], data(t.Rank(), 60))
		r := newGuardedBuf(60)
		w.get(r.buf, t.Rank(), 20)
		w.fence(0)
		t.expectBuffer("the data of Get", r, data(t.Rank(), 60))
	},
}, {
	ID: "mpi/fence/many-small", Cite: rule("mpi/11.5.1/1"), Setup: ranks(3),
	Title:   "Many operations in one epoch are all carried out",
	Sends:   "400 puts of 6 bytes by each rank to each, then as many gets",
	Expects: "all of them",
	Defects: []string{"FenceEarly", "PutsCut"}, Run: func(t *T) {
		n, me := t.Size(), t.Rank()
		const ops = 400
		w := t.window(n * ops * 6)
		w.fence(0)
		for i := range ops {
			for k := range n {
				w.put(data(i+ops*(me*n+k), 6), k, (me*ops+i)*6)
			}
		}
		w.fence(0)
		for k := range n {
			for i := range ops {
				at := (k*ops + i) * 6
				t.expectEqual("the data of Put", w.Memory()[at:at+6], data(i+ops*(k*n+me), 6))
			}
		}
		got := make([]byte, ops*6)
		for i := range ops {
			w.get(got[i*6:i*6+6], (me+1)%n, (me*ops+i)*6)
		}
		w.fence(0)
		for i := range ops {
			t.expectEqual("the data of Get", got[i*6:i*6+6], data(i+ops*(me*n+(me+1)%n), 6))
		}
	},
}, {
	ID: "mpi/fence/buffers-behind-it", Cite: rule("mpi/11.5.1/1"),
	Title:   "The buffers of puts are the program's again behind the fence",
	Sends:   "one buffer for the puts of 20 epochs, overwritten behind each fence",
	Expects: "the data of each epoch",
	Defects: []string{"FenceEarly"}, Run: func(t *T) {
		w := t.window(20 * 3000)
		b := make([]byte, 3000)
		w.fence(0)
		for i := range 20 {
			copy(b, data(2*i+t.Rank(), 3000))
			w.put(b, t.other(), i*3000)
			w.fence(0)
			copy(b, bytes.Repeat([]byte{0xcc}, 3000))
		}
		w.fence(0)
		for i := range 20 {
			t.expectEqual("the window", w.Memory()[i*3000:(i+1)*3000], data(2*i+t.other(), 3000))
		}
	},
}}
