package engine

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/verbs"
)

// direction is one direction of a connection: its requests and their expected
// results. RC executes requests once and in order, so the results are known in
// advance.
type direction struct {
	name     string
	src, dst *host
	q, peer  *QP // requester's and responder's QP

	program []step
	posted  int
	done    int // requests known to have completed
	failed  bool

	// What the responder's memory holds after the first `executed` requests.
	zone     []byte
	executed int

	messages []int // steps that complete a receive
	received int
	recvs    []slot // posted, oldest first
	slots    int
	recvEnd  bool // the responder's QP has flushed its receives

	layout
}

// layout has the offsets of the buffers of a direction in the memory of both hosts.
type layout struct {
	zoneAt int // written by the requester, at dst
	sinkAt int // results, at src
	sinkTo int
	slotAt int // receive buffers, at dst
}

const (
	constSize = 0x8000 // random data, never written, at the start of memory
	zoneSize  = 0x4000 // the last 64 bytes are words for atomics
	sinkSize  = 0x10000
	slotSize  = 0x2000
	slotCount = 8
	flowSize  = zoneSize + sinkSize + slotSize*slotCount
	// Words that the atomics of all flows to a host add to.
	onesAt = memSize - 64
	sumAt  = memSize - 56
)

// step is one request and its expected result.
type step struct {
	wr     verbs.SendWR
	n      int    // length of its data
	result []byte // READ and atomics: what must be in the sink; nil if open
	ones   bool   // FETCH_ADD of the counter of ones
	add    uint64 // FETCH_ADD of the sum
	sink   int    // where the result goes
}

// recvID marks the work request IDs of receives: completions in error do not say
// which queue they belong to.
const recvID = 1 << 32

// slot is a posted receive.
type slot struct {
	id   uint64
	sges []verbs.SGE
}

// write generates count requests.
func (f *direction) write(luck choices, count int, mtu int) {
	f.zone = make([]byte, zoneSize)
	image := bytes.Clone(f.zone) // as of the request being written
	fence := false
	for i := range count {
		s := f.request(luck, mtu, image)
		s.wr.WRID = uint64(i)
		if luck.pick(3) > 0 {
			s.wr.Flags |= verbs.SendSignaled
		}
		if fence || luck.pick(8) == 0 {
			s.wr.Flags |= verbs.SendFence
		}
		// What a READ finds is certain only if nothing behind it can write first.
		fence = s.wr.Opcode == verbs.OpRDMARead
		if consumes(s.wr.Opcode) {
			f.messages = append(f.messages, i)
		}
		f.apply(&s, image)
		f.program = append(f.program, s)
	}
}

func consumes(op verbs.WROpcode) bool {
	return op == verbs.OpSend || op == verbs.OpSendImm || op == verbs.OpRDMAWriteImm
}

// request generates one request; image is the content of the zone before it.
func (f *direction) request(luck choices, mtu int, image []byte) step {
	var s step
	length := func(limit int) int {
		n := [...]int{0, 1, 3, mtu - 1, mtu, mtu + 1, 2 * mtu, luck.pick(limit), luck.pick(limit)}[luck.pick(9)]
		return min(n, limit)
	}
	zone := func(n int) int { // a range of the zone, as the peer calls it
		off := luck.pick(zoneSize - 64 - n + 1)
		s.wr.Remote = f.dst.remote(f.zoneAt + off)
		return off
	}
	word := func() int {
		off := zoneSize - 64 + 8*luck.pick(4)
		s.wr.Remote = f.dst.remote(f.zoneAt + off)
		return off
	}
	sink := func(n int) {
		s.sink = f.sinkAt
		s.wr.SGL = split(luck, f.src, f.sinkAt, n)
		f.sinkAt += n
	}
	source := func(n int) {
		s.n = n
		at := luck.pick(constSize - n + 1)
		if n <= 64 && luck.pick(3) == 0 {
			s.wr.Flags |= verbs.SendInline
			s.wr.Inline = f.src.mem[at:][:n]
			return
		}
		s.wr.SGL = split(luck, f.src, at, n)
	}
	kind := luck.pick(10)
	if kind >= 4 && f.sinkTo-f.sinkAt < 64 {
		kind %= 4
	}
	s.wr.Imm = uint32(luck.pick(1 << 30))
	switch kind {
	case 0, 1:
		s.wr.Opcode = [...]verbs.WROpcode{verbs.OpSend, verbs.OpSendImm}[kind]
		source(length(slotSize))
	case 2, 3:
		s.wr.Opcode = [...]verbs.WROpcode{verbs.OpRDMAWrite, verbs.OpRDMAWriteImm}[kind-2]
		source(length(0x3000))
		zone(s.n)
	case 4, 5:
		s.wr.Opcode = verbs.OpRDMARead
		s.n = length(min(0x3000, f.sinkTo-f.sinkAt))
		off := zone(s.n)
		s.result = bytes.Clone(image[off:][:s.n])
		sink(s.n)
	case 6:
		s.wr.Opcode = verbs.OpAtomicFetchAdd
		s.wr.Remote, s.ones, s.wr.Atomic.CompareAdd = f.dst.remote(onesAt), true, 1
		if luck.pick(2) == 0 {
			s.add = uint64(luck.pick(1<<30)) << 20
			s.wr.Remote, s.ones, s.wr.Atomic.CompareAdd = f.dst.remote(sumAt), false, s.add
		}
		sink(8)
	case 7:
		s.wr.Opcode = verbs.OpAtomicCmpAndSwp
		off := word()
		s.result = bytes.Clone(image[off:][:8])
		s.wr.Atomic = verbs.Atomic{CompareAdd: binary.LittleEndian.Uint64(s.result) + uint64(luck.pick(2)), Swap: uint64(luck.pick(1 << 30))}
		sink(8)
	case 8:
		s.wr.Opcode = verbs.OpAtomicWrite
		source(8)
		word()
	default:
		s.wr.Opcode = verbs.OpFlush
		s.wr.Remote, s.wr.Flush = f.dst.remote(f.zoneAt), verbs.Flush{Length: 16, Type: verbs.FlushGlobal}
	}
	return s
}

// split returns n bytes of h's memory as one to three SGEs.
func split(luck choices, h *host, at, n int) []verbs.SGE {
	var sges []verbs.SGE
	for range luck.pick(3) {
		k := luck.pick(n + 1)
		sges = append(sges, h.sge(at, k))
		at, n = at+k, n-k
	}
	return append(sges, h.sge(at, n))
}

// data returns the payload of a request.
func (f *direction) data(s *step) []byte {
	if s.wr.Flags&verbs.SendInline != 0 {
		return s.wr.Inline
	}
	var b []byte
	for _, e := range s.wr.SGL {
		b = append(b, f.src.mem[e.Addr-f.src.mr.Addr:][:e.Length]...)
	}
	return b
}

// apply executes a request on an image of the zone.
func (f *direction) apply(s *step, image []byte) {
	off := int(s.wr.Remote.Addr-f.dst.mr.Addr) - f.zoneAt
	switch s.wr.Opcode {
	case verbs.OpRDMAWrite, verbs.OpRDMAWriteImm, verbs.OpAtomicWrite:
		copy(image[off:], f.data(s))
	case verbs.OpAtomicCmpAndSwp:
		if binary.LittleEndian.Uint64(image[off:]) == s.wr.Atomic.CompareAdd {
			binary.LittleEndian.PutUint64(image[off:], s.wr.Atomic.Swap)
		}
	}
}

// execute applies requests to the model up to, not including, step i.
func (f *direction) execute(i int) {
	for ; f.executed < i; f.executed++ {
		f.apply(&f.program[f.executed], f.zone)
	}
}

// post posts up to n more requests.
func (f *direction) post(now mono.Time, n int) error {
	for ; n > 0 && f.posted < len(f.program) && !f.q.sq.full(); n-- {
		if err := f.q.PostSend(now, &f.program[f.posted].wr, Refs{}); err != nil {
			return fmt.Errorf("%s: step %d: %w", f.name, f.posted, err)
		}
		f.posted++
	}
	return nil
}

// postRecv posts a receive if a buffer is free.
func (f *direction) postRecv(luck choices) error {
	if len(f.recvs) == slotCount || f.peer.State() == verbs.QPStateErr {
		return nil
	}
	s := slot{id: recvID | uint64(f.slots), sges: split(luck, f.dst, f.slotAt+f.slots%slotCount*slotSize, slotSize)}
	f.slots++
	f.recvs = append(f.recvs, s)
	return f.peer.PostRecv(&verbs.RecvWR{WRID: s.id, SGL: s.sges})
}

// sent checks a completion of the requester.
func (f *direction) sent(wc *verbs.WC) error {
	i := int(wc.WRID)
	if i < f.done || i >= f.posted {
		return fmt.Errorf("%s: completion of step %d: %d are done, %d posted", f.name, i, f.done, f.posted)
	}
	for k := f.done; k < i; k++ {
		if f.failed || f.program[k].wr.Flags&verbs.SendSignaled != 0 {
			return fmt.Errorf("%s: step %d completed before step %d", f.name, i, k)
		}
	}
	switch {
	case f.failed && wc.Status != verbs.WCWRFlushErr:
		return fmt.Errorf("%s: step %d completed with %v after a failure", f.name, i, wc.Status)
	case wc.Status == verbs.WCSuccess:
		if err := f.succeeded(i, wc); err != nil {
			return err
		}
	default:
		f.failed = true
	}
	f.done = i + 1
	return nil
}

// succeeded checks the results of all steps from the last completion up to i.
func (f *direction) succeeded(i int, wc *verbs.WC) error {
	for k := f.done; k <= i; k++ {
		s := &f.program[k]
		if got := f.src.mem[s.sink:][:len(s.result)]; !bytes.Equal(got, s.result) {
			return fmt.Errorf("%s: step %d, %v of %d bytes, returned other data: %s", f.name, k, s.wr.Opcode, s.n, difference(got, s.result))
		}
	}
	s := &f.program[i]
	if s.wr.Flags&verbs.SendSignaled == 0 {
		return fmt.Errorf("%s: step %d completed unasked", f.name, i)
	}
	if s.wr.Opcode == verbs.OpRDMARead && int(wc.ByteLen) != s.n {
		return fmt.Errorf("%s: step %d read %d bytes of %d", f.name, i, wc.ByteLen, s.n)
	}
	return nil
}

// delivered checks a receive completion: the next message, its data, and the memory
// after it.
func (f *direction) delivered(wc *verbs.WC) error {
	if len(f.recvs) == 0 || f.recvs[0].id != wc.WRID {
		return fmt.Errorf("%s: receive %d completed, outstanding are %v", f.name, wc.WRID, f.recvs)
	}
	buf := f.recvs[0]
	f.recvs = f.recvs[1:]
	if wc.Status != verbs.WCSuccess {
		f.recvEnd = true
		return nil
	}
	if f.recvEnd || f.received == len(f.messages) {
		return fmt.Errorf("%s: receive %d completed with nothing left to come", f.name, wc.WRID)
	}
	i := f.messages[f.received]
	f.received++
	s := &f.program[i]
	if i >= f.posted {
		return fmt.Errorf("%s: step %d was received before it was posted", f.name, i)
	}
	op, withImm := verbs.WCOpRecv, s.wr.Opcode != verbs.OpSend
	if s.wr.Opcode == verbs.OpRDMAWriteImm {
		op = verbs.WCOpRecvRDMAWithImm
	}
	if wc.Opcode != op || int(wc.ByteLen) != s.n || (wc.Flags&verbs.WCWithImm != 0) != withImm || withImm && wc.Imm != s.wr.Imm {
		return fmt.Errorf("%s: step %d, %v of %d bytes imm %#x, was received as %+v", f.name, i, s.wr.Opcode, s.n, s.wr.Imm, *wc)
	}
	if op == verbs.WCOpRecv {
		var got []byte
		for _, e := range buf.sges {
			got = append(got, f.dst.mem[e.Addr-f.dst.mr.Addr:][:e.Length]...)
		}
		if want := f.data(s); !bytes.Equal(got[:s.n], want) {
			return fmt.Errorf("%s: step %d was received with other data: %s", f.name, i, difference(got[:s.n], want))
		}
	}
	f.execute(i + 1)
	return f.checkZone(fmt.Sprintf("after step %d", i))
}

// checkZone compares the responder's memory with the model.
func (f *direction) checkZone(when string) error {
	if got := f.dst.mem[f.zoneAt:][:zoneSize]; !bytes.Equal(got, f.zone) {
		return fmt.Errorf("%s: %s memory differs: %s", f.name, when, difference(got, f.zone))
	}
	return nil
}

// checkEnd checks a direction that completed without failure.
func (f *direction) checkEnd() error {
	if f.failed || f.posted != len(f.program) || !f.q.sq.empty() || f.received != len(f.messages) {
		return fmt.Errorf("%s: failed %v, posted %d of %d, %d still queued, received %d of %d",
			f.name, f.failed, f.posted, len(f.program), f.q.sq.tail-f.q.sq.head, f.received, len(f.messages))
	}
	for k := f.done; k < f.posted; k++ {
		if f.program[k].wr.Flags&verbs.SendSignaled != 0 {
			return fmt.Errorf("%s: step %d never completed", f.name, k)
		}
	}
	f.execute(len(f.program))
	return f.checkZone("in the end")
}

// checkFailed checks a direction that failed: a prefix of the requests was
// executed, including all that succeeded. The next one may have been executed in
// part.
func (f *direction) checkFailed() error {
	got := f.dst.mem[f.zoneAt:][:zoneSize]
	for {
		if bytes.Equal(got, f.zone) && f.executed >= f.succeededSteps() {
			return nil
		}
		if f.executed == f.posted {
			return fmt.Errorf("%s: memory is that of no prefix of the program: %s", f.name, difference(got, f.zone))
		}
		if f.partly(got) && f.executed >= f.succeededSteps() {
			return nil
		}
		f.execute(f.executed + 1)
	}
}

// succeededSteps returns the minimum number of requests that succeeded.
func (f *direction) succeededSteps() int {
	if f.failed {
		return 0 // f.done counts the failed ones too; the zone check is enough
	}
	return f.done
}

// partly reports whether got is the zone after the first packets of the next
// request.
func (f *direction) partly(got []byte) bool {
	s := &f.program[f.executed]
	if s.wr.Opcode != verbs.OpRDMAWrite && s.wr.Opcode != verbs.OpRDMAWriteImm {
		return false
	}
	image := bytes.Clone(f.zone)
	off := int(s.wr.Remote.Addr-f.dst.mr.Addr) - f.zoneAt
	data := f.data(s)
	for n := 0; n < len(data); n += int(f.q.mtu) {
		copy(image[off:], data[:n])
		if bytes.Equal(got, image) {
			return true
		}
	}
	return false
}

// difference describes where two images of the same length differ.
func difference(got, want []byte) string {
	if len(got) != len(want) {
		return fmt.Sprintf("%d bytes, want %d", len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			end := min(i+16, len(got))
			return fmt.Sprintf("from byte %d on %x, want %x", i, got[i:end], want[i:end])
		}
	}
	return "none"
}
