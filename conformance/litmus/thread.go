package litmus

import (
	"encoding/binary"
	"slices"

	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// thread posts the requests of a thread, waits for them, and returns its registers.
func (l *litmus) thread(i int, s *schedule) map[string]string {
	e, ops := l.endpoints[i][s.active], l.Threads[i]
	wrs := make([]verbs.SendWR, len(ops))
	for k, o := range ops {
		wrs[k] = l.request(i, k, o, s)
	}
	if s.batched[i] {
		e.Sleep(s.pauses[i][0])
		e.PostSend(wrs...)
	} else {
		for k := range wrs {
			e.Sleep(s.pauses[i][k])
			e.PostSend(wrs[k])
		}
	}
	values := make(map[string]string)
	save := func(o Op) {
		if o.reg != "" && o.kind != opSend && values[o.reg] == "" {
			values[o.reg] = l.value(l.hosts[s.active].regs, l.register(o.reg))
		}
	}
	for range countSignaled(ops) {
		wc := e.NextSuccess()
		done := int(wc.WRID)
		e.Check(done < len(ops) && !ops[done].unsignaled, "completions of this schedule's requests", "%s", rig.Describe(&wc))
		save(ops[done])
		for _, before := range ops[:done] {
			if before.unsignaled { // a later completion covers it
				save(before)
			}
		}
	}
	return values
}

// countSignaled counts the signaled operations.
func countSignaled(ops []Op) (n int) {
	for _, o := range ops {
		if !o.unsignaled {
			n++
		}
	}
	return n
}

func (l *litmus) register(name string) int { return slices.Index(l.regs, name) }

// request returns the k-th work request of a thread.
func (l *litmus) request(i, k int, o Op, s *schedule) verbs.SendWR {
	local, remote := l.hosts[s.active], l.hosts[1-s.active]
	index := slices.Index(l.variables, o.variable)
	wr := verbs.SendWR{WRID: uint64(k), Remote: remote.variables.Remote(index * stride)}
	if !o.unsignaled {
		wr.Flags |= verbs.SendSignaled
	}
	if o.fence && s.fences {
		wr.Flags |= verbs.SendFence
	}
	switch o.kind {
	case opWrite:
		source := l.firstSource[i] + k
		for b := local.regs.Buf[source*stride:][:l.size]; len(b) > 0; b = b[8:] {
			binary.NativeEndian.PutUint64(b, o.value)
		}
		wr.Opcode, wr.SGL = verbs.OpRDMAWrite, local.regs.SGL(source*stride, l.size)
	case opRead:
		wr.Opcode, wr.SGL = verbs.OpRDMARead, local.regs.SGL(l.register(o.reg)*stride, l.size)
	case opAdd:
		wr.Opcode, wr.SGL = verbs.OpAtomicFetchAdd, local.regs.SGL(l.register(o.reg)*stride, 8)
		wr.Atomic.CompareAdd = o.value
	case opSwap:
		wr.Opcode, wr.SGL = verbs.OpAtomicCmpAndSwp, local.regs.SGL(l.register(o.reg)*stride, 8)
		wr.Atomic = verbs.Atomic{CompareAdd: o.old, Swap: o.value}
	case opSend:
		wr.Opcode, wr.Remote = verbs.OpSend, verbs.Remote{}
	}
	return wr
}

// messageCount counts the messages of a thread.
func (l *litmus) messageCount(i int) (n int) {
	for _, o := range l.Threads[i] {
		if o.kind == opSend {
			n++
		}
	}
	return n
}

// listen posts the receives for a thread's messages, and returns a function that reads
// the variables when the messages arrive.
func (l *litmus) listen(i int, s *schedule) func() map[string]string {
	e, local := l.endpoints[i][1-s.active], l.hosts[1-s.active]
	// Messages are empty, but some providers reject receives without memory.
	buffer := local.regs.SGL(0, max(e.GRHLen(), 1))
	for range l.messageCount(i) {
		e.PostRecv(e.QP, 0, buffer...)
	}
	return func() map[string]string {
		values := make(map[string]string)
		for _, o := range l.Threads[i] {
			if o.kind == opSend {
				e.NextSuccess()
				values[o.reg] = l.value(local.variables, slices.Index(l.variables, o.variable))
			}
		}
		return values
	}
}
