package judge

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// litmusOutcomes counts the outcomes of a test.
type litmusOutcomes map[string]int

// String lists the outcomes, the most frequent first.
func (s litmusOutcomes) String() string {
	all := slices.SortedFunc(maps.Keys(s), func(a, b string) int {
		if s[a] != s[b] {
			return s[b] - s[a]
		}
		return strings.Compare(a, b)
	})
	for i, o := range all {
		all[i] = fmt.Sprintf("%s (%d times)", o, s[o])
	}
	return strings.Join(all, ", ")
}

// run runs the test over this many schedules, and counts the outcomes. It returns a
// violation for the first outcome that is not allowed.
func (t *litmusTest) run(b *conformance.Bench, schedules int) (seen litmusOutcomes, err error) {
	seen = make(litmusOutcomes)
	err = rig.Catch(func() { // returns the error with which rig.Abort ends the function
		p := rig.NewPair(rig.New(b)) // the device under test and its partner
		l := newLitmus(t, p)
		for i := range schedules {
			b.Progress(i, schedules)
			s := l.draw(i)
			outcome := l.run(s)
			seen[outcome]++
			if !t.allows(outcome, s.fences) {
				b.Note("schedule %d: %v: %s", i, s, outcome)
				allowed := t.Allowed
				if !s.fences {
					allowed = slices.Concat(t.Allowed, t.Unfenced)
				}
				rig.Abort(conformance.Violated("one of: "+strings.Join(allowed, " | "),
					fmt.Sprintf("%s, in schedule %d (%v)", outcome, i, s)))
			}
		}
	})
	b.Note("outcomes of up to %d schedules: %v", schedules, seen)
	return seen, err
}

// litmus is a test on two devices.
type litmus struct {
	*litmusTest
	pair *rig.Pair
	// hosts are the memory of each device: variables, which the peer accesses, and registers,
	// which are the sources and destinations of its own requests. 0 is the device under test.
	hosts [2]struct{ variables, regs *rig.Memory }
	// endpoints are the two endpoints of each thread, by host.
	endpoints [][2]*rig.Endpoint
	regs      []string
	variables []string
	size      int
	// firstSource is the index of each thread's first source register; scratch is the index
	// of a register for unused results.
	firstSource []int
	scratch     int
}

// stride is the distance in bytes between variables, and between registers.
const stride = 8 << 10

// newLitmus registers a test's memory on both devices, and connects a queue pair for each thread.
func newLitmus(t *litmusTest, p *rig.Pair) *litmus {
	l := &litmus{litmusTest: t, pair: p, size: max(t.Size, 8)} // Size 0 means 8
	l.regs, l.variables = t.names()
	// The memory regs has the registers, a source for each operation, and scratch space for flush.
	ops := 0
	for _, th := range t.Threads {
		l.firstSource = append(l.firstSource, len(l.regs)+ops)
		ops += len(th)
	}
	l.scratch = len(l.regs) + ops
	for i, r := range []*rig.Rig{p.DUT, p.Partner} {
		l.hosts[i].variables, l.hosts[i].regs = rig.RemoteMemory(r, stride*len(l.variables)), rig.RemoteMemory(r, stride*(l.scratch+1))
	}
	for range t.Threads {
		dut, partner := p.Connect()
		l.endpoints = append(l.endpoints, [2]*rig.Endpoint{dut, partner})
	}
	return l
}

// run runs the test once with a schedule and returns its outcome: the values that the threads
// read, and the final values of the variables, as in "r0=1 x=2".
func (l *litmus) run(s *schedule) string {
	local, remote := l.hosts[s.active], l.hosts[1-s.active]
	l.fill(remote.variables, 0)
	l.fill(local.regs, unwritten)
	l.fill(remote.regs, unwritten) // its verb call also sends the variables to a remote device
	values := make(map[string]string)
	var tasks []pairTask[map[string]string]
	for i := range l.Threads {
		if l.messageCount(i) > 0 {
			awaitMessages := l.postRecvs(i, s) // before the threads start
			tasks = append(tasks, pairTask[map[string]string]{fmt.Sprintf("listener %d", i), awaitMessages})
		}
		tasks = append(tasks, pairTask[map[string]string]{fmt.Sprintf("thread %d", i), func() map[string]string { return l.runThread(i, s) }})
	}
	for _, r := range runTasks(l.pair, tasks) {
		maps.Copy(values, r)
	}
	for i := range l.endpoints {
		l.flush(i, s)
	}
	remote.variables.Snapshot() // synchronize with the device
	for k, name := range l.variables {
		values[name] = l.value(remote.variables, k)
	}
	var outcome []string
	for _, name := range slices.Concat(l.regs, l.variables) {
		outcome = append(outcome, name+"="+values[name])
	}
	return strings.Join(outcome, " ")
}

// flush reads all variables over the queue pair of a thread, and thereby waits until the thread's
// Writes are placed: an iWARP Write completes when it is sent, not when it is placed.
func (l *litmus) flush(i int, s *schedule) {
	e, local, remote := l.endpoints[i][s.active], l.hosts[s.active], l.hosts[1-s.active]
	for k := range l.variables {
		e.PostSend(verbs.SendWR{
			Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled,
			SGL: local.regs.SGL(l.scratch*stride, l.size), Remote: remote.variables.Remote(k * stride),
		})
		e.NextSuccess()
	}
}

// unwritten is the initial value of registers.
const unwritten = 0xeeee_eeee_eeee_eeee

// fill sets all variables or registers in m to a value.
func (l *litmus) fill(m *rig.Memory, value uint64) {
	m.Snapshot() // fetches what a remote device has written: a later fetch would replace the value
	for at := 0; at < len(m.Buf); at += 8 {
		binary.NativeEndian.PutUint64(m.Buf[at:], value)
	}
}

// value formats the k-th variable or register in m: a number, torn (its words differ) or unset.
func (l *litmus) value(m *rig.Memory, k int) string {
	first := binary.NativeEndian.Uint64(m.Buf[k*stride:])
	for at := 8; at < l.size; at += 8 {
		if binary.NativeEndian.Uint64(m.Buf[k*stride+at:]) != first {
			return torn
		}
	}
	if first == unwritten {
		return unset
	}
	return fmt.Sprint(first)
}

// pairTask is a function that runs as a task of a pair's bench.
type pairTask[Result any] struct {
	name string
	run  func() Result
}

// runTasks runs tasks concurrently and returns their results in order. If one fails, the case ends.
func runTasks[Result any](p *rig.Pair, tasks []pairTask[Result]) []Result {
	results := make([]Result, len(tasks))
	running := make([]conformance.Task, len(tasks))
	for i, t := range tasks {
		running[i] = p.DUT.Go(t.name, func() error { return rig.Catch(func() { results[i] = t.run() }) })
	}
	for _, t := range running {
		// A wait within a task ends after one ResponseTimeout, and says for what: let it fail first.
		if err := t.Wait(4 * p.DUT.ResponseTimeout()); err != nil {
			rig.Abort(err)
		}
	}
	return results
}

// runThread posts a thread's requests, waits for their completions, and returns its registers.
func (l *litmus) runThread(i int, s *schedule) map[string]string {
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
	saveResult := func(o litmusOp) {
		saved := values[o.reg] != "" // at an earlier completion: it must have been final then
		if o.reg != "" && o.kind != opSend && !saved {
			values[o.reg] = l.value(l.hosts[s.active].regs, l.register(o.reg))
		}
	}
	for _, o := range ops {
		if o.unsignaled {
			continue
		}
		wc := e.NextSuccess()
		done := int(wc.WRID) // index of the operation
		e.Check(done < len(ops) && !ops[done].unsignaled, "completions of this schedule's requests", "%s", rig.Describe(&wc))
		saveResult(ops[done])
		for _, before := range ops[:done] {
			if before.unsignaled { // a later completion covers it
				saveResult(before)
			}
		}
	}
	return values
}

// register returns the index of a register.
func (l *litmus) register(name string) int { return slices.Index(l.regs, name) }

// request returns the work request of operation o, the k-th of thread i. For a write it also sets
// the register that the data comes from, of which each operation has its own.
func (l *litmus) request(i, k int, o litmusOp, s *schedule) verbs.SendWR {
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

// messageCount returns the number of SENDs of a thread.
func (l *litmus) messageCount(i int) (n int) {
	for _, o := range l.Threads[i] {
		if o.kind == opSend {
			n++
		}
	}
	return n
}

// postRecvs posts the receives for a thread's messages at the passive host. It returns a function
// that waits for the messages, reads a variable after each, and returns the values by register.
func (l *litmus) postRecvs(i int, s *schedule) func() map[string]string {
	e, local := l.endpoints[i][1-s.active], l.hosts[1-s.active]
	// Messages are empty, but some providers reject receives without memory.
	buffer := local.regs.SGL(0, max(rig.GRHLen(e.QP), 1))
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
