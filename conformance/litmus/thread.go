package litmus

import (
	"encoding/binary"
	"slices"

	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// thread posts what a thread does, and waits for the end of it.
func (l *litmus) thread(i int, s *schedule) map[string]string {
	e, ops := l.ends[i][s.active], l.Threads[i]
	wrs := make([]verbs.SendWR, len(ops))
	for k, o := range ops {
		wrs[k] = l.request(i, k, o, s)
	}
	if s.together[i] {
		e.Sleep(s.pauses[i][0])
		e.Post(wrs...)
	} else {
		for k := range wrs {
			e.Sleep(s.pauses[i][k])
			e.Post(wrs[k])
		}
	}
	found := make(map[string]string)
	look := func(o Op) {
		if o.reg != "" && o.kind != opTell && found[o.reg] == "" {
			found[o.reg] = l.look(l.hosts[s.active].regs, l.register(o.reg))
		}
	}
	for range loud(ops) {
		wc := e.Wait()
		done := int(wc.WRID)
		e.Check(done < len(ops) && !ops[done].quiet, "completions of this schedule's requests", "%s", rig.Describe(&wc))
		look(ops[done])
		for _, before := range ops[:done] {
			if before.quiet { // it has completed when a later one has
				look(before)
			}
		}
	}
	return found
}

// loud counts the operations that have completions.
func loud(ops []Op) (n int) {
	for _, o := range ops {
		if !o.quiet {
			n++
		}
	}
	return n
}

func (l *litmus) register(name string) int { return slices.Index(l.regs, name) }

// request is the k-th of a thread.
func (l *litmus) request(i, k int, o Op, s *schedule) verbs.SendWR {
	me, other := l.hosts[s.active], l.hosts[1-s.active]
	at := slices.Index(l.places, o.place)
	wr := verbs.SendWR{WRID: uint64(k), Remote: other.places.Remote(at * room)}
	if !o.quiet {
		wr.Flags |= verbs.SendSignaled
	}
	if o.fence && s.fences {
		wr.Flags |= verbs.SendFence
	}
	switch o.kind {
	case opWrite:
		source := l.first[i] + k
		for b := me.regs.Buf[source*room:][:l.size]; len(b) > 0; b = b[8:] {
			binary.NativeEndian.PutUint64(b, o.value)
		}
		wr.Opcode, wr.SGL = verbs.OpRDMAWrite, me.regs.List(source*room, l.size)
	case opRead:
		wr.Opcode, wr.SGL = verbs.OpRDMARead, me.regs.List(l.register(o.reg)*room, l.size)
	case opAdd:
		wr.Opcode, wr.SGL = verbs.OpAtomicFetchAdd, me.regs.List(l.register(o.reg)*room, 8)
		wr.Atomic.CompareAdd = o.value
	case opSwap:
		wr.Opcode, wr.SGL = verbs.OpAtomicCmpAndSwp, me.regs.List(l.register(o.reg)*room, 8)
		wr.Atomic = verbs.Atomic{CompareAdd: o.old, Swap: o.value}
	case opTell:
		wr.Opcode, wr.Remote = verbs.OpSend, verbs.Remote{}
	}
	return wr
}

// told counts the messages of a thread.
func (l *litmus) told(i int) (n int) {
	for _, o := range l.Threads[i] {
		if o.kind == opTell {
			n++
		}
	}
	return n
}

// listen posts the receives for a thread's messages, and returns what looks when they
// come.
func (l *litmus) listen(i int, s *schedule) func() map[string]string {
	e, me := l.ends[i][1-s.active], l.hosts[1-s.active]
	// Messages are of no bytes, but there are libraries that take no receive without memory.
	area := me.regs.List(0, max(e.Area(), 1))
	for range l.told(i) {
		e.Recv(e.QP, 0, area...)
	}
	return func() map[string]string {
		found := make(map[string]string)
		for _, o := range l.Threads[i] {
			if o.kind == opTell {
				e.Wait()
				found[o.reg] = l.look(me.places, slices.Index(l.places, o.place))
			}
		}
		return found
	}
}
