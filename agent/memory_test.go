package agent

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// memoryPair is a program's memory and a device's copy, with frames in flight.
type memoryPair struct {
	near            *programMemories
	far             *hostMemories
	there, back     [][]byte // frames
	program, device []byte
}

func newMemoryPair(t *testing.T, n int) *memoryPair {
	t.Helper()
	e := &memoryPair{program: make([]byte, n)}
	e.near, e.far = newProgramMemories(func(f []byte) { e.there = append(e.there, f) }), newHostMemories()
	mem, off := e.near.use(&verbs.MRInit{Buf: e.program})
	e.near.sendChanges()
	e.deliver(t, len(e.there), 0)
	if e.device = e.far.all[mem.id].live; off != 0 || len(e.device) != n {
		t.Fatalf("offset %d, %d bytes", off, len(e.device))
	}
	return e
}

// deliver delivers up to the given numbers of frames to the device's end and to the program's end.
func (e *memoryPair) deliver(t *testing.T, there, back int) {
	t.Helper()
	for range min(there, len(e.there)) {
		must.Do(t, e.far.apply(e.there[0]))
		e.there = e.there[1:]
	}
	for range min(back, len(e.back)) {
		must.Do(t, e.near.apply(e.back[0]))
		e.back = e.back[1:]
	}
}

func (e *memoryPair) sendBack(t *testing.T) {
	t.Helper()
	must.Do(t, e.far.sendChanges(func(f []byte) { e.back = append(e.back, f) }))
}

// settle delivers all frames.
func (e *memoryPair) settle(t *testing.T) {
	t.Helper()
	for range 3 {
		got := e.near.sendChanges()
		e.deliver(t, len(e.there), 0)
		e.far.acknowledge(got)
		e.sendBack(t)
		e.deliver(t, 0, len(e.back))
	}
	if len(e.far.unackedOrder) > 0 { // the next call acknowledges the last reply
		e.far.acknowledge(e.near.sendChanges())
	}
}

// Both ends converge to the same memory in any order of frames. A byte that one end alone wrote has
// the last value written.
func TestMemoryConverges(t *testing.T) {
	const n = 300
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		e := newMemoryPair(t, n)
		// A byte is written by the program (0), the device (1) or both (2).
		owner := make([]int, n)
		for i := range owner {
			owner[i] = rng.IntN(3)
		}
		want := make([]byte, n)
		for range 200 {
			i, v := rng.IntN(n), byte(rng.IntN(4))
			switch k := rng.IntN(8); {
			case k < 2 && owner[i] != 1:
				e.program[i], want[i] = v, v
			case k < 4 && owner[i] != 0:
				e.device[i], want[i] = v, v
			case k == 4:
				e.near.sendChanges()
			case k == 5:
				e.sendBack(t)
			case k == 6:
				e.deliver(t, rng.IntN(3), 0)
			case k == 7:
				e.deliver(t, 0, rng.IntN(3))
			}
		}
		e.settle(t)
		if !bytes.Equal(e.program, e.device) {
			t.Fatalf("seed %d: the ends differ:\n% x\n% x", seed, e.program, e.device)
		}
		for i := range want {
			if owner[i] != 2 && e.program[i] != want[i] {
				t.Fatalf("seed %d: byte %d of owner %d is %d, not %d", seed, i, owner[i], e.program[i], want[i])
			}
		}
		if len(e.far.unacked)+len(e.far.unackedOrder) != 0 {
			t.Fatalf("seed %d: %d changes are never acknowledged", seed, len(e.far.unackedOrder))
		}
	}
}

// The device's change of a byte wins over the program's, in any order of frames.
func TestDeviceChangeWins(t *testing.T) {
	for name, order := range map[string]func(*testing.T, *memoryPair){
		"the program sends first": func(t *testing.T, e *memoryPair) {
			e.near.sendChanges()
			e.deliver(t, 1, 0)
			e.sendBack(t)
			e.deliver(t, 0, 1)
		},
		"they cross": func(t *testing.T, e *memoryPair) {
			e.near.sendChanges()
			e.sendBack(t)
			e.deliver(t, 1, 1)
		},
		"the device sends first": func(t *testing.T, e *memoryPair) {
			e.sendBack(t)
			e.deliver(t, 0, 1)
			e.near.sendChanges()
			e.deliver(t, 1, 0)
		},
		"the device changes it again": func(t *testing.T, e *memoryPair) {
			e.near.sendChanges()
			e.deliver(t, 1, 0)
			e.device[5] = 2
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newMemoryPair(t, 64)
			copy(e.program[4:7], "ppp")
			e.device[5] = 'd'
			order(t, e)
			want := "pdp"
			if e.device[5] == 2 {
				want = "p\x02p"
			}
			e.settle(t)
			if string(e.program[4:7]) != want || string(e.device[4:7]) != want {
				t.Errorf("%q and %q, not %q", e.program[4:7], e.device[4:7], want)
			}
			e.program[5] = 'q' // after it has the device's change
			e.settle(t)
			if e.device[5] != 'q' {
				t.Errorf("the program's later change is lost: %q", e.device[5])
			}
		})
	}
}

// A program that sees a write sees all earlier ones, also if both were made during a scan, the
// earlier one to memory already scanned.
func TestMemoryChangesArriveInOrder(t *testing.T) {
	const n = 2 * memoryFrameLen
	e := newMemoryPair(t, n)
	for i := 64; i < n-64; i++ {
		e.device[i] = 1 // enough that a frame is sent during the scan
	}
	must.Do(t, e.far.sendChanges(func(f []byte) {
		if len(e.back) == 0 {
			e.device[0] = 'D'   // the data
			e.device[n-1] = 'F' // then the flag that announces them
		}
		e.back = append(e.back, f)
	}))
	e.deliver(t, 0, len(e.back))
	if e.program[n-1] != 'F' || e.program[0] != 'D' {
		t.Errorf("the flag is %q, and the data are %q", e.program[n-1], e.program[0])
	}
}

// A device that changes memory all the time does not delay the reply.
func TestReplyDespiteContinuousChanges(t *testing.T) {
	e := newMemoryPair(t, memoryFrameLen*5/4)
	frames := 0
	increment(e.device)
	if err := e.far.sendChanges(func([]byte) { frames++; increment(e.device) }); err != nil || frames < maxScans {
		t.Errorf("%d frames, %v", frames, err)
	}
}

//go:norace
func increment(b []byte) {
	for i := range b {
		b[i]++
	}
}

func TestMemoryIsCopiedThroughAgent(t *testing.T) {
	s := newTestAgent(t)
	c, dev, fake := s.dev(t)
	pd := must.Get(dev.AllocPD())(t)
	all := make([]byte, 3<<20)
	for i := range all {
		all[i] = byte(i * 7 >> 3)
	}
	was := bytes.Clone(all)
	buf := all[1<<10+3:][: 2<<20 : 2<<20]
	mr := must.Get(pd.RegMR(verbs.MRInit{Buf: buf}))(t)
	far := fake.last.buf
	at := func(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) % pageLen }
	if !bytes.Equal(far, buf) || at(far) != at(buf) {
		t.Fatalf("the device has other memory, at %#x of its page rather than %#x", at(far), at(buf))
	}
	copy(far[1<<20:], "written by the device")
	copy(buf[1<<20+30:], "written by the program")
	must.Get(dev.QueryPort(1))(t)
	if !bytes.Equal(far, buf) || string(far[1<<20+30:][:10]) != "written by" || string(buf[1<<20:][:10]) != "written by" {
		t.Error("the changes did not get through")
	}
	if !bytes.Equal(all[:1<<10+3], was[:1<<10+3]) || !bytes.Equal(all[1<<10+3+2<<20:], was[1<<10+3+2<<20:]) {
		t.Error("memory around the region has changed")
	}

	// A region within another shares its copy.
	part := must.Get(pd.RegMR(verbs.MRInit{Buf: buf[100:200]}))(t)
	if fake.last.buf[0] = 'P'; far[100] != 'P' || len(c.memory.all) != 1 {
		t.Error("a part of registered memory has another copy")
	}
	// Other overlapping regions see each other's changes with the next call.
	over := must.Get(pd.RegMR(verbs.MRInit{Buf: all[1<<10 : 1<<10+50]}))(t)
	fake.last.buf[10] = 'O'
	must.Get(dev.QueryPort(1))(t)
	must.Get(dev.QueryPort(1))(t)
	if far[7] != 'O' || buf[7] != 'O' {
		t.Errorf("%q at the device, %q here", far[7], buf[7])
	}

	for _, m := range []verbs.MR{mr, over} {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	buf[101] = 'x'
	must.Get(dev.QueryPort(1))(t)
	if far[101] != 'x' || len(c.memory.all) != 1 {
		t.Error("the part lost its memory with the whole")
	}
	if err := part.Close(); err != nil || len(c.memory.all) != 0 {
		t.Errorf("%v, %d pieces of memory", err, len(c.memory.all))
	}
	if err := part.Close(); !errors.Is(err, verbs.ErrClosed) {
		t.Error(err)
	}
}

func TestUnusualRegions(t *testing.T) {
	s := newTestAgent(t)
	c, dev, fake := s.dev(t)
	pd := must.Get(dev.AllocPD())(t)
	for _, buf := range [][]byte{nil, {}} {
		fake.last.buf = []byte("x")
		if mr := must.Get(pd.RegMR(verbs.MRInit{Buf: buf}))(t); mr.Len() != 0 || len(fake.last.buf) != 0 || (fake.last.buf == nil) != (buf == nil) {
			t.Errorf("%d bytes, %#v", mr.Len(), fake.last.buf)
		}
	}
	fake.fail = verbs.ErrPerm
	if _, err := pd.RegMR(verbs.MRInit{Buf: make([]byte, 8)}); !errors.Is(err, verbs.ErrPerm) || len(c.memory.all) != 0 {
		t.Errorf("%v, %d pieces of memory", err, len(c.memory.all))
	}
	fake.fail = nil
	// Registration beyond the agent's memory limit fails.
	for i := range maxMemories {
		c.memory.sendRecord(&record{kind: recordNew, id: memoryID(1000 + i), length: 1})
	}
	if _, err := pd.RegMR(verbs.MRInit{Buf: make([]byte, 8)}); !errors.Is(err, verbs.ErrNoMemory) {
		t.Error(err)
	}
}

// Closing a device releases its memory at both ends.
func TestDeviceCloseReleasesMemory(t *testing.T) {
	c, s := loopback(new(fakeHost))
	dev := must.Get(c.Open("fake0"))(t)
	pd := must.Get(dev.AllocPD())(t)
	mr := must.Get(pd.RegMR(verbs.MRInit{Buf: make([]byte, 10)}))(t)
	if len(c.memory.all) != 1 || len(s.memory.all) != 1 {
		t.Errorf("%d and %d pieces of memory", len(c.memory.all), len(s.memory.all))
	}
	must.Do(t, dev.Close())
	if len(c.memory.all) != 0 || len(s.memory.all) != 0 || s.memory.bytes != 0 {
		t.Errorf("%d and %d pieces of memory, %d bytes", len(c.memory.all), len(s.memory.all), s.memory.bytes)
	}
	if err := mr.Close(); err == nil {
		t.Error("a region of a closed device can be closed")
	}
}

func BenchmarkScan(b *testing.B) {
	for _, n := range []int{4 << 10, 1 << 20, 16 << 20} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m := mirror{make([]byte, n), make([]byte, n)}
			b.SetBytes(int64(n))
			for b.Loop() {
				m.changes(func(*change) { b.Error("a change") })
			}
		})
	}
}

// The device's memory has the page offset of the address that the program chose: Linux registers it
// only there.
func TestMemoryKeepsPageOffset(t *testing.T) {
	s := newTestAgent(t)
	_, dev, fake := s.dev(t)
	pd := must.Get(dev.AllocPD())(t)
	for _, init := range []verbs.MRInit{
		{Buf: make([]byte, 64), Addr: 0x7000_0000_0123},
		{Buf: make([]byte, 64), Access: verbs.AccessZeroBased},
		{Buf: make([]byte, 64), Addr: 0x1000, Access: verbs.AccessZeroBased},
	} {
		mr := must.Get(pd.RegMR(init))(t)
		at := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(fake.last.buf)))) % pageLen
		if want := init.Addr % pageLen; at != want {
			t.Errorf("a region at %#x has memory at %#x of its page, want %#x", init.Addr, at, want)
		}
		if err := mr.Close(); err != nil {
			t.Error(err)
		}
	}
}
